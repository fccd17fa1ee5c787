//! A training whose tensor ranks share the model: its setup, and the bytes that it should send.

use super::formulas;
use kit::report;
use kit::show::{Screen, only_if, thousands};
use shardlab::data::Corpus;
use shardlab::parallel::Strategy;
use shardlab::parallel::tensor::padded;
use shardlab::parallel::zero::Stage;
use shardlab::plan::Shards;
use shardlab::tensor::Precision;
use shardlab::train::{Config, Training};

/// Prints the setup: of a training on a `corpus`, or without one of the comparison.
pub fn introduce(screen: &Screen, corpus: Option<&Corpus>, config: &Config, strategy: &Strategy) {
    let ranks = strategy.ranks();
    let Some(corpus) = corpus else {
        report::ranks(screen, ranks);
        let dot = screen.separator();
        let model = report::model(screen, &config.shape, "");
        let dropout = config.dropout;
        screen.say(screen.row("model", &format!("{model}{dot}dropout {dropout}")));
        let tokens = thousands(config.tokens_per_step() as u64);
        return screen
            .say(screen.row("steps", &format!("{}{dot}{tokens} tokens per step", config.steps)));
    };
    report::data(screen, corpus);
    report::ranks(screen, ranks);
    let sequence = only_if(strategy.sequence, ", with sequence parallelism");
    let mesh = format!("{} data x {} tensor{sequence}", strategy.data, strategy.tensor);
    screen.say(screen.row("mesh", &mesh));
    report::job(screen, config, "replica");
    if strategy.zero > Stage::Ddp {
        let zero = format!("ZeRO stage {} in each data group", strategy.zero.number());
        screen.say(screen.row("sharded", &zero));
    }
}

/// The bytes that rank 0 sends for a step, in words and as a number.
pub fn expected_bytes(training: &mut Training) -> (String, f64) {
    let Training { config, strategy, zero, .. } = training;
    let tensor = strategy.tensor;
    let shards = Shards {
        shape: config.shape,
        tensor,
        pipeline: 1,
        sequence: strategy.sequence,
        rows: padded(config.shape.vocabulary, tensor, strategy.vocabulary_multiple),
    };
    let (words, data) = report::bytes_of_zero(zero, strategy.zero);
    let norm = if tensor > 1 { 20.0 } else { 0.0 };
    let bytes = [config.precision, config.reduce].map(Precision::bytes);
    let layers = formulas::sent(&shards, config.batch * config.grad_accum, zero.copies(), bytes);
    let words = match strategy.data {
        1 => format!("{} by layers + {norm} for the norm", thousands(layers as u64)),
        _ => format!(
            "{} by layers + {words} + {norm} for the tensor ranks' norm",
            thousands(layers as u64)
        ),
    };
    (words, layers + data + norm)
}
