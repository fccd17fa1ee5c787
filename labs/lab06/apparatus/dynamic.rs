//! The job of a real log in a dynamic order: tensor ranks that choose alone disagree, and an agreed
//! choice trains the same bits.

use super::choice::{Choice, step_dynamic};
use super::order::log_number;
use super::uneven::{Chosen, Disagreement, Uneven, simulate_uneven};
use anyhow::{Context, Result};
use kit::Checks;
use kit::show::Screen;
use shardlab::comm::Options;
use shardlab::data::Corpus;
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::parallel::pipeline::{Op, Pipeline, Schedule, Times, Work};
use shardlab::train::{Config, Training};

/// The log's job, on 2 tensor ranks per pipeline rank. Its order is that of groups of 8.
pub const JOB: Pipeline = Pipeline { ranks: 4, chunks: 4, micro_batches: 8 };
pub const SCHEDULE: Schedule = Schedule::Interleaved { group: 8 };

/// The passes as the log numbers them: `F28 B4`.
pub fn numbered(order: &[Op]) -> String {
    let name = |op: &Op| {
        format!("{}{}", if op.work == Work::Forward { "F" } else { "B" }, log_number(&JOB, *op))
    };
    order.iter().map(name).collect::<Vec<_>>().join(" ")
}

/// Simulates the job. Forward passes take 1, backward passes 2, and messages 0.1. One message takes
/// `late` on the tensor ranks `on`: the activations for the last stage's forward pass 28.
pub fn with_a_late_message(
    choice: Choice,
    late: f64,
    on: &[usize],
) -> Result<Chosen, Disagreement> {
    let pass = |_: usize, op: Op| if op.work == Work::Forward { 1.0 } else { 2.0 };
    let message = |tensor: usize, from: usize, op: Op| {
        if (from, op) == (2, Op::forward(3, 4)) && on.contains(&tensor) {
            late
        } else {
            0.1
        }
    };
    let orders: Vec<Vec<Op>> = (0..JOB.ranks).map(|rank| SCHEDULE.order(&JOB, rank)).collect();
    simulate_uneven(&JOB, &orders, 2, choice, &Uneven { pass: &pass, message: &message })
}

/// The job's 16 layers, each 16 wide, so that a step takes milliseconds.
pub fn small_layers(corpus: &Corpus) -> Config {
    let mut config = Config::small(1, corpus);
    config.grad_accum = JOB.micro_batches;
    config.batch = 1;
    config.shape.layers = 16;
    config.shape.embd = 16;
    config.shape.block = 8;
    config
}

/// How its ranks divide it.
pub fn strategy() -> Strategy {
    Strategy {
        tensor: 2,
        pipeline: JOB.ranks,
        chunks: JOB.chunks,
        micro_batches: Some(JOB.micro_batches),
        schedule: Some(SCHEDULE),
        ..Strategy::SINGLE
    }
}

/// Runs a step in which the disagreeing ranks run what each of them chose. It must fail: returns
/// its error.
pub fn disagree(config: &Config, text: &[u32], disagreement: &Disagreement) -> Result<String> {
    let Disagreement { rank, choices, before } = disagreement;
    let outcome = launch::run_with(8, &Options::default(), |world| {
        let mut training = Training::new(config, &strategy(), &world)?;
        let at = training.mesh.at;
        if at.pipeline == *rank {
            let mut order = before.orders[*rank].clone();
            order.push(choices[at.tensor]);
            let rest: Vec<Op> = SCHEDULE
                .order(&JOB, *rank)
                .into_iter()
                .filter(|op| !order.contains(op))
                .collect();
            training.program = JOB.with_messages(*rank, &[order, rest].concat());
        }
        training.step(text, 0)
    });
    Ok(outcome
        .err()
        .context("ranks that run different passes ended their step")?
        .to_string())
}

/// Losses and gradient norms of some steps, on each rank. `choice`: the order is dynamic, and
/// pipeline rank 1 is slow.
pub fn train(config: &Config, text: &[u32], choice: Option<Choice>) -> Result<Vec<Vec<[f64; 2]>>> {
    launch::run_with(8, &Options::default(), |world| {
        let mut training = Training::new(config, &strategy(), &world)?;
        let forward = if training.mesh.at.pipeline == 1 { 4e-4 } else { 1e-4 };
        let times = Times { forward, backward: 2.0 * forward, weights: 0.0, message: 0.0 };
        training.stages.pace = choice.map(|_| times);
        let step = |step| match choice {
            Some(choice) => Ok(step_dynamic(&mut training, text, step, choice)?.1),
            None => training.step(text, step).map(|step| [step.loss, step.grad_norm]),
        };
        (0..3).map(step).collect()
    })
}

/// Shows the disagreement, the error in which it ends, and the agreed choice.
pub fn dynamic(screen: &Screen, corpus: &Corpus) -> Result<()> {
    let config = small_layers(corpus);
    let text = &corpus.train;
    let about = "The log's job, simulated: 8 ranks, in 4 pipeline ranks of 2 tensor ranks. F takes 1, B takes 2, and a \
                 message 0.1. One message takes 3: rank 7's activations for forward 28. Each rank runs the first pass whose \
                 message is there.";
    screen.say(format!("\n{}\n", screen.wrap(about, 2)));
    let disagreement = with_a_late_message(Choice::Alone, 3.0, &[1])
        .err()
        .context("no rank was late")?;
    let before = &disagreement.before.orders[disagreement.rank];
    for (tensor, choice) in disagreement.choices.iter().enumerate() {
        let last = numbered(&before[before.len() - 7..]);
        screen.say(format!(
            "  rank {}   .. {last} {}",
            2 * disagreement.rank + tensor,
            numbered(&[*choice])
        ));
    }
    screen.say("\n  Eight ranks that run these passes:\n");
    let error = disagree(&config, text, &disagreement)?;
    screen.say(format!("  {}", error.split(':').next().unwrap_or_default()));
    for rank in [6, 7] {
        let line = error
            .lines()
            .find_map(|line| line.strip_prefix(&format!("  rank {rank}  ")))
            .unwrap_or_default();
        let call = line.find("all_reduce").map_or(line, |at| &line[at..]);
        screen.say(format!("  rank {rank}   {}", call.split(" (").next().unwrap_or(call)));
    }
    let [fixed, agreed] =
        [Choice::Schedule, Choice::Agreed].map(|choice| with_a_late_message(choice, 9.0, &[0, 1]));
    let fixed = fixed?.makespan;
    let agreed = agreed?.makespan;
    let text_of_times = format!(
        "If the message takes 9, and for both ranks, the step takes {fixed:.1} in the schedule's order, and {agreed:.1} if rank \
         6 chooses for both."
    );
    screen.say(format!("\n{}\n", screen.wrap(&text_of_times, 2)));
    let same = train(&config, text, None)? == train(&config, text, Some(Choice::Agreed))?;
    let mut checks = Checks::new(screen);
    checks.check(
        same,
        "agreed choices train the same bits",
        "3 steps, 8 ranks",
        "an agreed choice trains different bits",
    );
    kit::ensure_passed(&checks.failed())
}
