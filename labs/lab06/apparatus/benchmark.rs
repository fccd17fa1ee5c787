//! The time of a pipeline's step beside one rank's, and beside what the simulator predicts for it.

use super::measured::{Measured, Way, measure};
use super::report::name;
use anyhow::Result;
use kit::OtherWork;
use kit::show::{Screen, percent, table};
use kit::trace::Trace;
use shardlab::comm::{Comm, Options};
use shardlab::data::Corpus;
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::parallel::pipeline::Schedule;
use shardlab::train::Config;
use std::time::Instant;

/// Rounds in which every way takes some steps, so that a busy machine slows all of them.
const ROUNDS: usize = 3;

/// Steps of a way in each round. The first one allocates.
const STEPS: usize = 3;

/// Measures one rank alone, and all schedules on `ranks` ranks. Prints the table.
pub fn benchmark(screen: &Screen, config: &Config, corpus: &Corpus, ranks: usize) -> Result<()> {
    let config = Config { steps: STEPS, ..config.clone() };
    let strategy = |pipeline, chunks, schedule| Strategy {
        pipeline,
        chunks,
        schedule: Some(schedule),
        micro_batches: Some(config.grad_accum),
        ..Strategy::SINGLE
    };
    let mut strategies = vec![
        strategy(1, 1, Schedule::OneForwardOneBackward),
        strategy(ranks, 1, Schedule::GPipe),
        strategy(ranks, 1, Schedule::OneForwardOneBackward),
        strategy(ranks, 1, Schedule::ZeroBubble),
    ];
    // Chunks of different sizes would wait for the largest.
    let even = (2..=config.shape.layers / ranks)
        .find(|chunks| config.shape.layers.is_multiple_of(ranks * chunks));
    let interleaved = Schedule::Interleaved { group: ranks };
    strategies.extend(even.map(|chunks| strategy(ranks, chunks, interleaved)));
    strategies.retain(|strategy| strategy.check(&config.shape).is_ok());
    let watch = OtherWork::watch();
    let mut best: Vec<Option<Measured>> = strategies.iter().map(|_| None).collect();
    for _ in 0..ROUNDS {
        for (&strategy, best) in strategies.iter().zip(&mut best) {
            let way = Way { strategy, pace: 0.0, broken: None, epoch: Instant::now() };
            let now = launch::run_with(ranks, &Options::default(), |comm| {
                once(&comm, way, &config, &corpus.train)
            })?;
            let now = now.into_iter().next().flatten();
            let faster =
                |now: &Measured| best.as_ref().is_none_or(|best| now.makespan() < best.makespan());
            if now.as_ref().is_some_and(faster) {
                *best = now;
            }
        }
    }
    if !launch::is_first_process() {
        return Ok(());
    }
    let best: Vec<Measured> = best.into_iter().flatten().collect();
    let one = best.first().map_or(0.0, Measured::makespan);
    // A speed-up that other programs made is none.
    let busy = watch.row(screen, ranks);
    let row = |measured: &Measured| -> Result<Vec<String>> {
        let took = measured.makespan();
        let predicted = measured.predicted(0.0)?.simulated;
        let alone = measured.strategy.pipeline == 1;
        let share = |words: String| if alone { String::new() } else { words };
        Ok(vec![
            if alone {
                "1 rank".to_string()
            } else {
                name(&measured.strategy)
            },
            screen.seconds(took),
            if busy.is_none() {
                format!("{:.2} x", one / took)
            } else {
                "-".to_string()
            },
            share(screen.seconds(predicted.makespan)),
            share(percent(took / predicted.makespan - 1.0)),
            share(percent(measured.bubble())),
        ])
    };
    let rows = best.iter().map(row).collect::<Result<Vec<_>>>()?;
    let heads = ["", "both passes", "speed-up", "predicted", "off by", "bubble"];
    screen.say(format!("\n{}", table(screen, &heads, &rows)));
    let words = "Both passes of all micro-batches, without the optimizer, in the fastest step. Predicted: simulated with the \
                 mean times that each rank took for its kinds of passes. Bubble: of the step.";
    screen.say(screen.wrap(words, 2));
    if let Some(busy) = busy {
        screen.say(busy);
    }
    Ok(())
}

/// Some steps of one way. If it is for one rank, the others wait.
fn once(comm: &Comm, way: Way, config: &Config, text: &[u32]) -> Result<Option<Measured>> {
    let alone = way.strategy.pipeline == 1;
    let mut trace = Trace::default(); // none
    let measured = match (alone, comm.rank()) {
        (true, 0) => Some(measure(&Comm::alone(), way, config, text, None, &mut trace)?),
        (true, _) => None,
        _ => Some(measure(comm, way, config, text, None, &mut trace)?),
    };
    comm.labelled("way").barrier()?;
    Ok(measured)
}
