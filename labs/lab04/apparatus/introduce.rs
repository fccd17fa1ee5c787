//! The setup of a run, on the screen.

use super::job::Job;
use super::stages::sharded;
use kit::report;
use kit::show::{Screen, only_if, thousands};
use shardlab::data::Corpus;
use shardlab::parallel::zero::Stage;
use shardlab::plan::BytesEach;
use shardlab::tensor::Precision;
use shardlab::train::Config;

/// The stored type, and the bytes per parameter.
fn stores(screen: &Screen, job: &Job) -> String {
    let BytesEach { parameter, gradient, optimizer } = job.bytes_each();
    let psi = if screen.ascii { "P" } else { "Ψ" };
    let master = only_if(job.precision == Precision::Bf16, ", with an f32 master copy");
    let muon = job.bytes_of_muon().optimizer;
    let muon = only_if(job.muons > 0, format!(", {muon} for Muon"));
    let all = (10.0 * ((parameter + gradient) as f64 + job.optimizer_mean())).round() / 10.0;
    format!(
        "{}: {parameter} bytes per parameter, {gradient} per gradient, {optimizer} for AdamW{muon}{master}: {all} {psi} in all",
        job.precision.name(),
    )
}

/// Prints the setup of a training with one stage on a `corpus`, or without one of a comparison of
/// `stages`.
pub fn introduce(
    screen: &Screen,
    corpus: Option<&Corpus>,
    config: &Config,
    job: &Job,
    stages: &[Stage],
) {
    if let Some(corpus) = corpus {
        report::data(screen, corpus);
        report::run(screen, config);
        screen.say(screen.row("stores", &stores(screen, job)));
        return screen.say(screen.row("sharded", sharded(stages[0])));
    }
    let dot = screen.separator();
    let shape = &config.shape;
    let numel = thousands(job.numel);
    let model = format!("{} blocks{dot}{} wide{dot}{numel} parameters", shape.layers, shape.embd);
    let steps = thousands(config.steps as u64);
    let tokens = thousands(config.tokens_per_step() as u64);
    let accum = only_if(job.micro_steps > 1, format!(" in {} micro-steps", job.micro_steps));
    report::ranks(screen, config.ranks);
    screen.say(screen.row("model", &model));
    screen.say(screen.row("steps", &format!("{steps}{dot}{tokens} tokens per step{accum}")));
    screen.say(screen.row("stores", &stores(screen, job)));
    report::muon(screen, config);
    report::precision(screen, config);
    for stage in Stage::ALL.into_iter().filter(|stage| !stages.contains(stage)) {
        let words = format!("stage {} does not fit into --memory-limit", stage.number());
        screen.say(screen.row("", &words));
    }
}
