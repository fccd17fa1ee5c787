//! Your own trainer: the exercises' solutions train one GPT together.
//!
//! Reading order:
//!
//! - `parts/`: the twelve parts, each with its interface, the library's version, and the version that leaves it out
//! - `plan.rs` and `poison.rs`: what is trained on which data, and the step that is poisoned
//! - `model.rs` and `blocks.rs`: the GPT in pieces
//! - `step.rs` and `clip.rs`: what both lives do in a step
//! - `life1.rs`: two data ranks with sharded blocks, until the run is killed; `files.rs`: what they leave behind
//! - `life2.rs`: four ranks, a pipeline of tensor groups, from these files; `sequence.rs`: their MLP
//! - `meter.rs`: what each part costs

mod blocks;
mod clip;
mod files;
pub mod life1;
pub mod life2;
mod meter;
mod model;
pub mod parts;
mod plan;
mod poison;
mod sequence;
mod step;

pub use meter::{AllUsed, Used};
pub use parts::{Part, Parts};
pub use plan::Plan;
pub use step::{Step, Trained};

use std::process::ExitCode;

/// What all ranks of a run share.
pub struct Job<'a> {
    pub plan: Plan,
    pub parts: Parts,
    /// The text to learn.
    pub text: &'a [u32],
}

/// Is told of every step that is over.
pub type Report<'a> = &'a (dyn Fn(Step) + Sync);

/// Trains with `yours`. `have` are the parts that the reader has written; all others in `yours` are the library's.
pub fn main(_yours: Parts, _have: &[Part]) -> ExitCode {
    let corpus = shardlab::data::Corpus::embedded().unwrap();
    let mut plan = Plan::story(&corpus);
    if std::env::var("QUICK").is_ok() {
        plan = Plan::quick(&corpus);
    }
    let job = Job {
        plan,
        parts: Parts::library(),
        text: &corpus.train,
    };
    let dir = std::path::Path::new("/tmp/X-cap");
    let start = std::time::Instant::now();
    let say = |step: Step| println!("{} {:?} {:.3}", step.step, step.trained, step.seconds);
    shardlab::launch::run(2, |comm| {
        life1::train(&job, &comm, &[], job.plan.killed_after, Some(dir), &say)
    })
    .unwrap();
    println!("{:?}", start.elapsed());
    let p = job.plan.poison;
    let end = shardlab::launch::run(4, |comm| {
        life2::train(
            &job,
            &comm,
            &[p, p],
            job.plan.steps,
            &files::folder(dir, job.plan.saved()),
            &say,
        )
    })
    .unwrap();
    println!("{:?}", start.elapsed());
    println!(
        "{} {:?}",
        corpus.vocabulary.decode(&end[0].text),
        end.iter()
            .map(|e| (&e.not_loaded, e.read))
            .collect::<Vec<_>>()
    );
    ExitCode::SUCCESS
}
