//! The screens of a pipeline: its setup, its charts, and the checks.

use super::measured::{Measured, message_bytes};
use super::predicted::{Predicted, pipeline_of};
use kit::show::{
    Chart, Screen, bytes_decimal, explained, gantt, only_if, percent, table, thousands,
};
use kit::{Checks, report};
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::parallel::pipeline::{Pipeline, Schedule};
use shardlab::train::Config;
use std::ops::Range;

/// Prints ranks, model, schedules and pace.
pub fn introduce(screen: &Screen, config: &Config, strategies: &[Strategy], pace: f64) {
    let Some(strategy) = strategies.first() else { return };
    let dot = screen.separator();
    let shape = &config.shape;
    let Pipeline { ranks, micro_batches, .. } = pipeline_of(strategy);
    report::ranks(screen, ranks);
    screen.say(screen.row("model", &report::model(screen, shape, "")));
    let step = format!(
        "{micro_batches} micro-batches of {} sequences x {} tokens{dot}{}",
        config.batch,
        shape.block,
        if strategies.len() > 1 {
            format!("{} runs", strategies.len())
        } else {
            name(strategy)
        }
    );
    screen.say(screen.row("step", &step));
    report::precision(screen, config);
    let words = match pace {
        0.0 => "off: each pass takes the time that it takes".to_string(),
        pace => format!(
            "a micro-batch takes a rank {} forward and {} backward: it sleeps for the rest of that time. So {ranks} ranks \
             on {} cores behave like {ranks} devices.",
            screen.seconds(pace),
            screen.seconds(2.0 * pace),
            launch::cores()
        ),
    };
    screen.say(screen.row("pace", &words));
}

/// The predicted step above the measured one, and the bubble of both.
pub fn charts(screen: &Screen, predicted: &Predicted, measured: &Measured) -> String {
    let second = Chart {
        title: title(screen, "measured", measured.makespan(), measured.bubble()),
        ranks: measured.bars(),
    };
    gantt(screen, &[chart(screen, "predicted", predicted), second])
}

/// The predicted step alone.
pub fn planned(screen: &Screen, strategy: &Strategy, predicted: &Predicted) -> String {
    gantt(screen, &[chart(screen, &name(strategy), predicted)])
}

fn chart(screen: &Screen, word: &str, predicted: &Predicted) -> Chart {
    let simulated = &predicted.simulated;
    let title = title(screen, word, simulated.makespan, simulated.bubble());
    Chart { title, ranks: predicted.bars.clone() }
}

fn title(screen: &Screen, word: &str, seconds: f64, bubble: f64) -> String {
    format!("{word}: {} per step, {} of it bubble", screen.seconds(seconds), percent(bubble))
}

/// The bubble by formula, in both denominators.
pub fn bubble(screen: &Screen, predicted: &Predicted) -> String {
    let simulated = &predicted.simulated;
    let Pipeline { ranks, chunks, micro_batches } = predicted.pipeline;
    let (share, of_step) = match predicted.formula() {
        Some((share, words)) => (share, format!("{words} = {} of the step", percent(share))),
        None => {
            let share = simulated.bubble();
            let why = format!("no formula holds if {micro_batches} is no multiple of {ranks}");
            (share, format!("{} of the step; {why}", percent(share)))
        }
    };
    let v = only_if(chunks > 1, format!(", v = {chunks} chunks per rank"));
    let text = format!(
        "{of_step}, or {} of the time in which a rank works; p = {ranks} ranks, m = {micro_batches} micro-batches{v}",
        percent(share / (1.0 - share))
    );
    screen.row("bubble", &text)
}

/// The first and the last loss.
pub fn losses(screen: &Screen, measured: &Measured) -> String {
    let loss = |loss: Option<&f64>| loss.map_or(String::new(), |loss| format!("{loss:.5}"));
    let first = loss(measured.losses.first());
    let last = loss(measured.losses.last());
    screen.row("loss", &format!("{first} in step 1, {last} in step {}", measured.losses.len()))
}

/// Each rank's layers, parameters and activations.
pub fn holdings(
    screen: &Screen,
    config: &Config,
    predicted: &Predicted,
    measured: &Measured,
) -> String {
    let strategy = &measured.strategy;
    let pipeline = pipeline_of(strategy);
    let Ok(layers) = strategy.partition.layers(&config.shape, pipeline.stages()) else {
        return String::new();
    };
    let row = |(rank, &(live, bytes)): (usize, &(usize, f64))| {
        let mine: Vec<_> = (0..pipeline.chunks)
            .map(|chunk| layers[pipeline.stage(rank, chunk)].clone())
            .collect();
        let name = |layers: &Range<usize>| match layers.len() {
            1 => layers.start.to_string(),
            _ => format!("{}-{}", layers.start, layers.end - 1),
        };
        let names: Vec<String> = mine.iter().map(name).collect();
        let held: u64 = mine.iter().map(|layers| config.shape.stage_parameters(layers)).sum();
        vec![
            rank.to_string(),
            names.join(" "),
            thousands(held),
            predicted.simulated.peaks[rank].to_string(),
            live.to_string(),
            bytes_decimal(bytes),
        ]
    };
    table(
        screen,
        &["rank", "layers", "parameters", "live, by list", "live, measured", "their bytes"],
        measured.peaks().iter().enumerate().map(row),
    )
}

/// All schedules side by side.
pub fn compared(screen: &Screen, all: &[(Predicted, Measured)]) -> String {
    let row = |(predicted, measured): &(Predicted, Measured)| {
        let Pipeline { chunks, .. } = predicted.pipeline;
        let name = name(&measured.strategy);
        let live: Vec<String> = measured.peaks().iter().map(|(live, _)| live.to_string()).collect();
        let most = measured.peaks().iter().map(|&(_, bytes)| bytes).fold(0.0, f64::max);
        let of = only_if(chunks > 1, format!(" /{chunks}"));
        vec![
            name,
            screen.seconds(predicted.simulated.makespan),
            screen.seconds(measured.makespan()),
            percent(predicted.simulated.bubble()),
            percent(measured.bubble()),
            live.join(" ") + &of,
            bytes_decimal(most),
        ]
    };
    let heads = ["schedule", "step", "measured", "bubble", "measured", "live by rank", "most"];
    let words = "Step and bubble are predicted, then measured. Live: chunks' activations that each rank keeps at once; /2: of \
                 half of its layers. Most: their bytes on the rank that keeps most.";
    explained(screen, &heads, all.iter().map(row), words)
}

/// The same schedule with all activations kept, and with some computed twice.
pub fn recomputed(screen: &Screen, all: &[(Predicted, Measured)]) -> String {
    let row = |(_, measured): &(Predicted, Measured)| {
        let kept = match measured.strategy.recompute.blocks() {
            0 => "all activations".to_string(),
            1 => "each block's input".to_string(),
            every => format!("the input of every {every} blocks"),
        };
        let most = measured.peaks().iter().map(|&(_, bytes)| bytes).fold(0.0, f64::max);
        let times = measured.times();
        vec![
            kept,
            bytes_decimal(most),
            screen.seconds(times.forward),
            screen.seconds(times.backward),
            screen.seconds(measured.makespan()),
        ]
    };
    let heads = ["a rank keeps", "at most", "forward pass", "backward pass", "step"];
    let words = "at most: on the rank that keeps most. Passes: the mean of all ranks.";
    explained(screen, &heads, all.iter().map(row), words)
}

/// A schedule's name with its chunks and groups.
pub fn name(strategy: &Strategy) -> String {
    match strategy.schedule() {
        Schedule::Interleaved { group } => format!("interleaved by {group}"),
        schedule => schedule.name().to_string(),
    }
}

/// Runs all checks on schedules that trained `config.steps` steps each.
pub fn check(checks: &mut Checks, config: &Config, all: &[(Predicted, Measured)]) {
    let of = only_if(all.len() > 1, format!("{} runs, ", all.len()));
    let apart = |(_, measured): &(Predicted, Measured)| measured.first_different_loss();
    let result = match all.iter().find_map(apart) {
        None => "bitwise equal".to_string(),
        Some((step, loss, expected)) => {
            format!("step {step}: expected {expected:.5}, found {loss:.5}")
        }
    };
    let what = format!("{of}{} steps: losses are one rank's", config.steps);
    checks.check(
        result == "bitwise equal",
        &what,
        &result,
        "the pipeline's losses are not one rank's",
    );
    // What was found, `good` unless some runs are not `sound`.
    let found = |good: &str, sound: &dyn Fn(&(Predicted, Measured)) -> bool| {
        let bad = all.iter().filter(|one| !sound(one));
        let bad: Vec<String> = bad.map(|(_, measured)| name(&measured.strategy)).collect();
        match bad.is_empty() {
            true => (true, good.to_string()),
            false => (false, format!("different: {}", bad.join(", "))),
        }
    };
    let (same, result) = found("bitwise equal", &|(_, measured)| measured.same_parameters);
    let what = format!("{of}every parameter is one rank's");
    checks.check(same, &what, &result, "the pipeline trained a different model");
    let (same, result) = found("equal", &|(predicted, measured)| {
        let kept: Vec<usize> = measured.peaks().iter().map(|peak| peak.0).collect();
        kept == predicted.simulated.peaks
    });
    let what = "live activations are those of the list";
    checks.check(same, what, &result, "a rank kept other activations than its list says");
    let mut sent = all.iter().map(|(_, one)| [one.expected_bytes(config), one.sent]);
    let different = sent.find(|[expected, found]| expected != found);
    let result = match different.map(|both| both.map(|bytes| thousands(bytes as u64))) {
        None => bytes_decimal(message_bytes(config)),
        Some([expected, found]) => format!("expected {expected} bytes in all, found {found}"),
    };
    checks.check(
        different.is_none(),
        "each message is batch x sequence x width",
        &result,
        "the ranks sent other bytes than the formula says",
    );
}
