//! The check of lab10-intensity: prefill, decode, batches, long contexts, and the batch at the
//! ridge.

use exercise::{Model, Work, batch_at_the_ridge, work};
use kit::check::{Evidence, run};
use kit::show::{significant, thousands};
use shapes::llamas;
use shardlab::Result;
use std::process::ExitCode;

/// A pass: batch, new tokens, earlier tokens.
type Pass = [u64; 3];

const PREFILL: [Pass; 2] = [[1, 512, 0], [4, 8, 0]];
const DECODE: [Pass; 3] = [[1, 1, 0], [1, 1, 511], [64, 1, 511]];
const CHUNKED: [Pass; 3] = [[1, 256, 0], [1, 256, 256], [8, 16, 8000]];

fn main() -> ExitCode {
    run(&[
        ("the picture: one decode step", picture),
        ("a prefill", |evidence| passes(evidence, "llama-3.2-1b", &PREFILL)),
        ("decode steps", |evidence| passes(evidence, "llama-3.2-1b", &DECODE)),
        ("a prefill in chunks", |evidence| passes(evidence, "llama-3-8b", &CHUNKED)),
        ("the batch at the ridge", ridge),
    ])
}

fn model(name: &str) -> Result<Model> {
    let shape = llamas::named(name)?;
    let kv_heads = shape.kv_heads() as u64;
    Ok(Model {
        parameters: shape.parameters(),
        layers: shape.layers as u64,
        heads: shape.heads as u64,
        kv_heads,
        width: shape.kv_width() as u64 / kv_heads,
    })
}

/// A way to count, right or wrong.
#[derive(Clone, Copy)]
struct Rule {
    /// FLOPs per parameter.
    each: u64,
    /// New tokens that count.
    tokens: fn(Pass) -> u64,
    /// FLOPs per number of a head and token that it sees.
    attention: u64,
    /// Heads and layers that attend.
    attend: fn(&Model) -> u64,
    /// Tokens that all new tokens of a sequence together see.
    seen: fn(Pass) -> u64,
    /// Sequences whose attention counts.
    sequences: fn(Pass) -> u64,
    /// How often the weights are read.
    reads: fn(Pass) -> u64,
    bytes_each: u64,
    /// Tokens whose cache is read or written.
    cached: fn(Pass) -> u64,
    /// Numbers of the cache per token, of one head's width.
    cache: fn(&Model) -> u64,
}

const RIGHT: Rule = Rule {
    each: 2,
    tokens: |[batch, new, _]| batch * new,
    attention: 4,
    attend: |model| model.layers * model.heads,
    seen: |[_, new, earlier]| (1..=new).map(|i| earlier + i).sum(),
    sequences: |[batch, _, _]| batch,
    reads: |_| 1,
    bytes_each: 2,
    cached: |[batch, new, earlier]| batch * (earlier + new),
    cache: |model| 2 * model.layers * model.kv_heads,
};

impl Rule {
    fn work(&self, model: &Model, pass: Pass) -> Work {
        let products = self.each * model.parameters * (self.tokens)(pass);
        let attention = self.attention * (self.attend)(model) * model.width;
        let weights = (self.reads)(pass) * self.bytes_each * model.parameters;
        Work {
            flops: products + (self.sequences)(pass) * attention * (self.seen)(pass),
            bytes: weights + 2 * (self.cached)(pass) * (self.cache)(model) * model.width,
        }
    }
}

fn in_words(work: Work) -> String {
    let Work { flops, bytes } = work;
    let intensity = significant(flops as f64 / bytes as f64, 4);
    format!("{} FLOPs, {} bytes: {intensity} per byte", thousands(flops), thousands(bytes))
}

fn picture(evidence: &mut Evidence) -> Result<()> {
    let of = |kv_heads| Model { parameters: 1000, layers: 3, heads: 4, kv_heads, width: 8 };
    let cases: Vec<(Model, Pass)> = [4, 2, 1].map(|kv| (of(kv), [1, 1, 3])).to_vec();
    compare(evidence, &cases, |model, _| format!("{} key and value heads", model.kv_heads));
    Ok(())
}

fn passes(evidence: &mut Evidence, name: &str, passes: &[Pass]) -> Result<()> {
    let model = model(name)?;
    let cases: Vec<(Model, Pass)> = passes.iter().map(|&pass| (model, pass)).collect();
    compare(evidence, &cases, |_, [batch, new, earlier]| {
        format!("{batch} x {new} after {earlier}")
    });
    Ok(())
}

fn compare(evidence: &mut Evidence, cases: &[(Model, Pass)], name: fn(&Model, Pass) -> String) {
    let mut found = Vec::new();
    for (model, pass) in cases {
        let [batch, new, earlier] = *pass;
        evidence.given(format!("{batch} x {new} tokens after {earlier}, {model:?}"));
        let right = RIGHT.work(model, *pass);
        let got = work(model, batch, new, earlier);
        evidence.row(right == got, name(model, *pass), in_words(right), in_words(got));
        found.push(got);
    }
    let all = || cases.iter().zip(&found);
    let flops =
        |rule: Rule| all().all(|((model, pass), got)| rule.work(model, *pass).flops == got.flops);
    let bytes =
        |rule: Rule| all().all(|((model, pass), got)| rule.work(model, *pass).bytes == got.bytes);
    if !flops(RIGHT) {
        flops_mean(evidence, flops);
    } else if !bytes(RIGHT) {
        bytes_mean(evidence, bytes);
    }
}

fn flops_mean(evidence: &mut Evidence, is: impl Fn(Rule) -> bool) {
    evidence.means_if(
        is(Rule { attention: 0, ..RIGHT }),
        "Attention's own FLOPs are missing: these are products with parameters. With 8,192 tokens they are a fifth of \
         a decode step.",
    );
    evidence.means_if(
        is(Rule { attention: 2, ..RIGHT }),
        "Half of attention is missing: a score for each key is one product, and the sum of the values is another one.",
    );
    evidence.means_if(
        is(Rule { attend: |model| model.layers * model.kv_heads, ..RIGHT }),
        "Attention is counted once per key head. Every query head computes scores of its own: groups save memory, and \
         no FLOPs.",
    );
    evidence.means_if(
        is(Rule { attend: |model| model.heads, ..RIGHT }),
        "This is the attention of one layer.",
    );
    evidence.means_if(
        is(Rule { seen: |[_, new, earlier]| new * earlier, ..RIGHT })
            || is(Rule {
                seen: |[_, new, earlier]| (0..new).map(|i| earlier + i).sum(),
                ..RIGHT
            }),
        "A token also sees itself, and the new tokens before it.",
    );
    evidence.means_if(
        is(Rule { seen: |[_, new, earlier]| new * (earlier + new), ..RIGHT }),
        "Each new token sees all new ones here. It sees those up to itself: the others come later, and a causal mask \
         hides them.",
    );
    evidence.means_if(
        is(Rule { seen: |[_, new, earlier]| earlier + new, ..RIGHT }),
        "Attention is counted only for the last new token. Each of them has a query.",
    );
    evidence.means_if(
        is(Rule { each: 6, ..RIGHT }),
        "6 FLOPs per parameter and token are a training step: forward and backward. Here there is only a forward pass.",
    );
    evidence
        .means_if(is(Rule { each: 1, ..RIGHT }), "A multiplication and an addition are 2 FLOPs.");
    evidence.means_if(
        is(Rule { tokens: |[_, new, _]| new, ..RIGHT }),
        "These are the FLOPs of one sequence. Every sequence of the batch is computed.",
    );
    evidence.means_if(
        is(Rule {
            sequences: |_| 1,
            ..RIGHT
        }),
        "This is one sequence's attention. Sequences of a batch do not see each other, and each computes its own.",
    );
    evidence.means_if(
        is(Rule { tokens: |[batch, _, _]| batch, ..RIGHT }),
        "One token per sequence goes through the parameters here. A prefill computes all tokens of the prompt.",
    );
    evidence.means_if(
        is(Rule { tokens: |[batch, new, earlier]| batch * (new + earlier), ..RIGHT }),
        "The earlier tokens are computed once more here. Their keys and values are in the cache: that is what it is \
         for.",
    );
    evidence.means("FLOPs: each new token with every parameter, and each of its queries with the keys and values of \
                    all tokens up to it.");
}

fn bytes_mean(evidence: &mut Evidence, is: impl Fn(Rule) -> bool) {
    evidence.means_if(
        is(Rule { cache: |model| 2 * model.layers * model.heads, ..RIGHT }),
        "The cache has keys and values for every query head here. Query heads of a group share them: this is what \
         groups are for.",
    );
    evidence.means_if(
        is(Rule { cache: |model| model.layers * model.kv_heads, ..RIGHT }),
        "The cache has a key and a value for each token. Here it has one of the two, or each number has one byte.",
    );
    evidence.means_if(
        is(Rule { cache: |model| 2 * model.kv_heads, ..RIGHT }),
        "This is the cache of one layer.",
    );
    evidence.means_if(
        is(Rule { reads: |[batch, _, _]| batch, ..RIGHT }),
        "The weights are read once per sequence here. All sequences of a batch share one read.",
    );
    evidence.means_if(
        is(Rule { reads: |[batch, new, _]| batch * new, ..RIGHT }) || is(Rule { reads: |[_, new, _]| new, ..RIGHT }),
        "The weights are read once per token here. All tokens of a pass share one read: this is why a prefill is \
         efficient.",
    );
    evidence.means_if(is(Rule { bytes_each: 4, ..RIGHT }), "A weight has 2 bytes here, not 4.");
    evidence.means_if(is(Rule { bytes_each: 1, ..RIGHT }), "A weight has 2 bytes, not 1.");
    evidence.means_if(
        is(Rule { cached: |_| 0, ..RIGHT }),
        "The caches are missing among the bytes. With only the weights every batch would reach the ridge in the end.",
    );
    evidence.means_if(
        is(Rule { cached: |[batch, _, earlier]| batch * earlier, ..RIGHT }),
        "The KV cache of the new tokens is missing among the bytes. A pass writes it, and reads that of the earlier \
         ones.",
    );
    evidence.means_if(
        is(Rule { cached: |[_, new, earlier]| new + earlier, ..RIGHT }),
        "This is one sequence's cache. Sequences share the weights, but each has its own cache.",
    );
    evidence.means_if(
        is(Rule { cached: |[batch, new, _]| batch * new, ..RIGHT }),
        "The cache is written for the new tokens. It is also read for all earlier ones.",
    );
    evidence.means_if(
        is(Rule { cached: |[batch, new, earlier]| batch * (earlier + 2 * new), ..RIGHT }),
        "The cache of the new tokens is counted twice, written and read. A pass has just computed their keys and values, so it \
         only writes them.",
    );
    evidence.means_if(
        is(Rule { cached: |[batch, new, earlier]| batch * new * (earlier + new), ..RIGHT })
            || is(Rule { cached: |[batch, new, earlier]| batch * (new * earlier + new), ..RIGHT })
            || is(Rule { cached: |[batch, new, earlier]| batch * (new * earlier + new * (new + 1) / 2), ..RIGHT }),
        "The cache is read once for each new token. All new tokens of a sequence share one read, as they share one read of \
         the weights.",
    );
    evidence.means("Bytes: the weights once, and for each sequence a key and a value of all its tokens, in each layer \
                    and for each key and value head.");
}

/// Llama-3-8B with its 8 key and value heads, and as if it had one for each query head, or only
/// one.
fn ridge(evidence: &mut Evidence) -> Result<()> {
    let llama = model("llama-3-8b")?;
    let said = |batch: Option<u64>| batch.map_or("no batch".to_string(), thousands);
    for (earlier, ridge) in [(0, 295), (511, 100), (511, 295), (8191, 10)] {
        for kv_heads in [32, 8, 1] {
            let model = Model { kv_heads, ..llama };
            evidence.given(format!("{earlier} earlier tokens, ridge {ridge}, {model:?}"));
            let right = (1..=1 << 14).find(|&batch| {
                let Work { flops, bytes } = RIGHT.work(&model, [batch, 1, earlier]);
                flops >= ridge * bytes
            });
            let got = batch_at_the_ridge(&model, earlier, ridge);
            evidence.row(
                right == got,
                format!("{earlier} earlier, ridge {ridge}, {kv_heads} key heads"),
                said(right),
                said(got),
            );
        }
    }
    evidence.means("`work` was right for the passes above, and is wrong for one of these: which of its terms is right for those \
                    numbers only?");
    Ok(())
}
