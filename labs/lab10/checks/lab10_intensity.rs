//! The check of lab10-intensity: prefill, decode, batches, long contexts, and the batch at the ridge.

use exercise::{Model, Work, batch_at_the_ridge, work};
use kit::check::{Evidence, run};
use kit::show::{significant, thousands};
use shardlab::Result;
use shardlab::plan::ModelShape;
use std::process::ExitCode;

/// A pass: batch, new tokens, earlier tokens.
type Pass = [u64; 3];

const PREFILL: [Pass; 2] = [[1, 512, 0], [4, 8, 0]];
const DECODE: [Pass; 3] = [[1, 1, 0], [1, 1, 511], [64, 1, 511]];
const CHUNKED: [Pass; 2] = [[2, 256, 256], [8, 16, 8000]];

/// Earlier tokens of each sequence, a ridge, and the batch that reaches it.
type Ridge = (u64, u64, Option<u64>);

const SHORT: [Ridge; 3] = [
    (0, 295, Some(297)),
    (511, 100, Some(312)),
    (511, 20, Some(24)),
];
const LONG: [Ridge; 3] = [(8191, 10, Some(31)), (8191, 295, None), (200_000, 1, None)];

fn main() -> ExitCode {
    run(&[
        ("a prefill", |evidence| {
            passes(evidence, "llama-3.2-1b", &PREFILL)
        }),
        ("a decode step", |evidence| {
            passes(evidence, "llama-3.2-1b", &DECODE)
        }),
        ("a prefill in chunks", |evidence| {
            passes(evidence, "llama-3-8b", &CHUNKED)
        }),
        ("the batch at the ridge", |evidence| {
            ridge(evidence, "llama-3.2-1b", &SHORT)
        }),
        ("long contexts", |evidence| {
            ridge(evidence, "llama-3-8b", &LONG)
        }),
    ])
}

fn model(name: &str) -> Result<Model> {
    let shape = ModelShape::preset(name)?;
    Ok(Model {
        parameters: shape.parameters(),
        cache: 2 * shape.cached_per_token(),
    })
}

/// A way to count, right or wrong.
#[derive(Clone, Copy)]
struct Rule {
    /// FLOPs per parameter.
    each: u64,
    /// New tokens that count.
    tokens: fn(Pass) -> u64,
    /// How often the weights are read.
    reads: fn(Pass) -> u64,
    bytes_each: u64,
    /// Tokens whose cache is read or written.
    cached: fn(Pass) -> u64,
}

const RIGHT: Rule = Rule {
    each: 2,
    tokens: |[batch, new, _]| batch * new,
    reads: |_| 1,
    bytes_each: 2,
    cached: |[batch, new, earlier]| batch * (earlier + new),
};

impl Rule {
    fn work(&self, model: &Model, pass: Pass) -> Work {
        let Model { parameters, cache } = *model;
        let weights = (self.reads)(pass) * self.bytes_each * parameters;
        Work {
            flops: self.each * parameters * (self.tokens)(pass),
            bytes: weights + (self.cached)(pass) * cache,
        }
    }
}

fn in_words(work: Work) -> String {
    let Work { flops, bytes } = work;
    let intensity = significant(flops as f64 / bytes as f64, 4);
    format!(
        "{} FLOPs, {} bytes: {intensity} per byte",
        thousands(flops),
        thousands(bytes)
    )
}

fn passes(evidence: &mut Evidence, name: &str, passes: &[Pass]) -> Result<()> {
    let model = model(name)?;
    evidence.given(format!("{name}: {model:?}"));
    let mut found = Vec::new();
    for &[batch, new, earlier] in passes {
        let right = RIGHT.work(&model, [batch, new, earlier]);
        let got = work(&model, batch, new, earlier);
        evidence.row(
            right == got,
            format!("{batch} x {new} after {earlier}"),
            in_words(right),
            in_words(got),
        );
        found.push(got);
    }
    let all = || passes.iter().zip(&found);
    let flops = |rule: Rule| all().all(|(&pass, got)| rule.work(&model, pass).flops == got.flops);
    let bytes = |rule: Rule| all().all(|(&pass, got)| rule.work(&model, pass).bytes == got.bytes);
    let flops_right = flops(RIGHT);
    evidence.means_if(
        !flops_right && flops(Rule { each: 6, ..RIGHT }),
        "6 FLOPs per parameter and token are a training step: forward and backward. Here there is only a forward pass.",
    );
    evidence.means_if(
        !flops_right && flops(Rule { each: 1, ..RIGHT }),
        "A multiplication and an addition are 2 FLOPs.",
    );
    evidence.means_if(
        !flops_right
            && flops(Rule {
                tokens: |[_, new, _]| new,
                ..RIGHT
            }),
        "These are the FLOPs of one sequence. Every sequence of the batch is computed.",
    );
    evidence.means_if(
        !flops_right && flops(Rule { tokens: |[batch, _, _]| batch, ..RIGHT }),
        "These are the FLOPs of one token per sequence. A prefill computes all tokens of the prompt.",
    );
    evidence.means_if(
        !flops_right && flops(Rule { tokens: |[batch, new, earlier]| batch * (new + earlier), ..RIGHT }),
        "The earlier tokens are computed once more here. Their keys and values are in the cache: that is what it is for.",
    );
    let reads = |reads| bytes(Rule { reads, ..RIGHT });
    evidence.means_if(
        !bytes(RIGHT) && reads(|[batch, _, _]| batch),
        "The weights are read once per sequence here. All sequences of a batch share one read.",
    );
    evidence.means_if(
        !bytes(RIGHT) && (reads(|[batch, new, _]| batch * new) || reads(|[_, new, _]| new)),
        "The weights are read once per token here. All tokens of a pass share one read: this is why a prefill is efficient.",
    );
    evidence.means_if(
        !bytes(RIGHT)
            && bytes(Rule {
                bytes_each: 4,
                ..RIGHT
            }),
        "A weight has 2 bytes here, not 4.",
    );
    evidence.means_if(
        !bytes(RIGHT)
            && bytes(Rule {
                bytes_each: 1,
                ..RIGHT
            }),
        "A weight has 2 bytes, not 1.",
    );
    let cached = |cached| !bytes(RIGHT) && bytes(Rule { cached, ..RIGHT });
    evidence.means_if(
        cached(|[batch, _, earlier]| batch * earlier),
        "The KV cache of the new tokens is missing among the bytes. A pass writes it, and reads that of the earlier ones.",
    );
    evidence.means_if(
        cached(|[_, new, earlier]| new + earlier),
        "This is one sequence's cache. Sequences share the weights, but each has its own cache.",
    );
    evidence.means_if(
        cached(|[batch, new, _]| batch * new),
        "The cache is written for the new tokens. It is also read for all earlier ones.",
    );
    evidence.means(
        "FLOPs: 2 N for each new token. Bytes: 2 N for the weights, and a cache for each sequence.",
    );
    Ok(())
}

fn ridge(evidence: &mut Evidence, name: &str, cases: &[Ridge]) -> Result<()> {
    let model = model(name)?;
    evidence.given(format!("{name}: {model:?}"));
    let said = |batch: Option<u64>| batch.map_or("no batch".to_string(), thousands);
    for &(earlier, ridge, right) in cases {
        let got = batch_at_the_ridge(&model, earlier, ridge);
        evidence.row(
            right == got,
            format!("{earlier} earlier, ridge {ridge}"),
            said(right),
            said(got),
        );
    }
    evidence.means("The intensity of a decode step is 2 N b / (2 N + b c), with c the bytes of one sequence's cache.");
    Ok(())
}
