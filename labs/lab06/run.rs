//! What lab06 runs, in which order.

use super::apparatus::{
    self, Break, Measured, Predicted, Unpipelined, Way, pipeline_of, unpipelined,
};
use super::flags::Args;
use super::lesson;
use anyhow::Result;
use kit::trace::{self, Trace};
use kit::{Checks, LabRun, OtherWork};
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::parallel::pipeline::Schedule;
use shardlab::parallel::strategy::Recompute;
use shardlab::train::Config;
use std::time::Instant;

/// The run's settings, which all ranks share.
struct Lab {
    args: Args,
    strategies: Vec<Strategy>,
    /// The least seconds of a forward pass, so that ranks on shared cores behave like devices; 0 is
    /// none.
    pace: f64,
    /// A moment before the run, from which the charts' times count.
    epoch: Instant,
    config: Config,
    corpus: Corpus,
    run: LabRun,
}

/// Draws, prints, trains or measures, as the flags say.
pub fn run(mut args: Args) -> Result<()> {
    let run = LabRun::of("lab06", &args.run)?;
    if args.bench {
        args.pipeline.for_benchmark(&mut args.train);
    }
    let given = args.strategy.of_lab("lab06")?;
    let mut strategy = args.pipeline.strategy(given)?;
    if let Some(rank) = args.print_order {
        return Ok(apparatus::print_order(&run.screen, &strategy, rank)?);
    }
    if args.dynamic {
        let corpus = args.train.data.corpus()?;
        return apparatus::dynamic::dynamic(&run.screen, &corpus);
    }
    let ranks = strategy.pipeline;
    if ranks < 2 {
        let what = "one rank waits for no other: a pipeline has at least 2";
        return Err(BadInput::new(what, "give --stages 2 or more").into());
    }
    if args.broken == Some(Break::EarlyRecv) && strategy.schedule() == Schedule::GPipe {
        let what = "gpipe receives all inputs first anyway";
        return Err(BadInput::new(what, "give --schedule 1f1b with this --break").into());
    }
    if args.broken == Some(Break::SmallGroup) {
        strategy.chunks = strategy.chunks.max(2);
        strategy.schedule = Some(Schedule::Interleaved { group: ranks / 2 });
    } else if !args.compare {
        strategy.schedule().check(&pipeline_of(&strategy))?;
    }
    let strategies = match (args.compare, strategy.recompute) {
        (true, _) => args.pipeline.all(ranks),
        (_, Recompute::None) => vec![strategy],
        _ => vec![Strategy { recompute: Recompute::None, ..strategy }, strategy],
    };
    let most = strategies.iter().map(|one| one.pipeline * one.chunks).max().unwrap_or(1);
    args.train.take(&strategy);
    args.pipeline.default_to_many_small_blocks(&mut args.train, most);
    let corpus = args.train.data.corpus()?;
    let config = args.train.resolve(1, Some(args.steps), &corpus)?;
    args.strategy.ensure_divides(&config.shape)?;
    let run = LabRun { ranks, is_broken: args.broken.is_some(), ..run };
    let lab = Lab {
        pace: args.pipeline.pace(&strategy),
        epoch: Instant::now(),
        args,
        strategies,
        config,
        corpus,
        run,
    };
    // A mistake can end in the checks that follow, and is named before them.
    if lab.run.is_broken && launch::is_first_process() {
        introduce(&lab);
    }
    for strategy in &lab.strategies {
        let stages = strategy.pipeline * strategy.chunks;
        strategy.partition.layers(&lab.config.shape, stages)?;
        // Refuses what would never end, before anything runs.
        apparatus::programs(strategy, lab.args.broken)?;
    }
    if !lab.run.is_broken && launch::is_first_process() {
        introduce(&lab);
    }
    if lab.args.bench {
        return apparatus::benchmark(&lab.run.screen, &lab.config, &lab.corpus, ranks);
    }
    if lab.run.is_dry {
        return plan_only(&lab);
    }
    launch::one_compute_thread_a_rank();
    // Once per process: every rank compares its own stages.
    let one = unpipelined(&lab.config, &lab.corpus.train, lab.config.steps)
        .map_err(|e| kit::explain(&lab.config, e))?;
    lab.run.train(&lab.config, |comm, checks| one_rank(&lab, &one, comm, checks))
}

/// One rank's part, and its checks.
fn one_rank(lab: &Lab, one: &Unpipelined, comm: &Comm, checks: &mut Checks) -> Result<()> {
    let config = &lab.config;
    let screen = &lab.run.screen;
    let text = &lab.corpus.train;
    let beside = lesson::compare_gradients(comm, config, text, lab.strategies[0].partition)?;
    let mut trace = Trace::new(comm, lab.args.trace.as_deref())?;
    let mut all: Vec<(Predicted, Measured)> = Vec::new();
    let watch = OtherWork::watch();
    for &strategy in &lab.strategies {
        let way = Way {
            strategy,
            pace: lab.pace,
            broken: lab.args.broken,
            epoch: lab.epoch,
        };
        let measured = apparatus::measure(comm, way, config, text, Some(one), &mut trace)?;
        all.push((measured.predicted(lab.pace)?, measured));
    }
    let traced = trace.write(comm)?;
    if comm.rank() != 0 {
        return Ok(());
    }
    let busy = watch.row(screen, launch::ranks_here(comm.size()));
    match &all[..] {
        [(predicted, measured)] => {
            screen.say(format!("\n{}", apparatus::charts(screen, predicted, measured)));
            screen.say(apparatus::bubble(screen, predicted));
            if let Some(busy) = busy {
                screen.say(busy);
            }
            if config.steps >= 10 {
                screen.say(apparatus::losses(screen, measured));
            }
            screen.say(format!("\n{}\n", apparatus::holdings(screen, config, predicted, measured)));
        }
        several => {
            let table = if lab.args.compare {
                apparatus::compared(screen, several)
            } else {
                apparatus::recomputed(screen, several)
            };
            let busy = busy.map_or(String::new(), |busy| format!("\n{busy}"));
            screen.say(format!("\n{table}{busy}\n"));
        }
    }
    if let Some(path) = traced {
        screen.say(trace::row(screen, path));
    }
    checks.beside("gradients under GPipe", beside);
    apparatus::check(checks, config, &all);
    checks.end_with("More: --compare, --schedule gpipe, --print-order, --break untied, --bench");
    Ok(())
}

/// Draws the predicted steps. Without a pace, a forward pass is given 5 ms.
fn plan_only(lab: &Lab) -> Result<()> {
    let pace = if lab.pace > 0.0 { lab.pace } else { 5e-3 };
    for strategy in lab.strategies.iter().filter(|_| launch::is_first_process()) {
        let predicted = Predicted::of(strategy, pace)?;
        let planned = apparatus::planned(&lab.run.screen, strategy, &predicted);
        lab.run.screen.say(format!("\n{planned}"));
    }
    Ok(())
}

fn introduce(lab: &Lab) {
    let time = lab.args.bench.then_some("about 1 minute");
    lab.run.heading(time);
    apparatus::introduce(&lab.run.screen, &lab.config, &lab.strategies, lab.pace);
}
