//! The check of lab10-heads: query heads, the key and value heads that they read, copies, and the
//! bytes of the cache.

use exercise::{Attention, Held, held};
use kit::check::{Evidence, run};
use kit::show::thousands;
use shapes::llamas;
use shardlab::Result;
use std::ops::Range;
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("the query heads of each rank", |evidence| divided(evidence, 0, &[2, 8])),
        ("the key and value heads that they read", |evidence| {
            divided(evidence, 1, &[2, 8])
        }),
        ("more ranks than key and value heads", |evidence| {
            divided(evidence, 1, &[16, 32])
        }),
        ("the cache of a rank", |evidence| cached(evidence, &[1, 2, 8])),
        ("the cache of ranks that hold copies", |evidence| cached(evidence, &[16, 32])),
    ])
}

/// 32 query heads in groups of 4, like those of Llama-3-8B.
fn model() -> Result<Attention> {
    let shape = llamas::named("llama-3-8b")?;
    Ok(Attention {
        heads: shape.heads,
        kv_heads: shape.kv_heads(),
        width: shape.head(),
        layers: shape.layers,
    })
}

/// A way to divide heads, right or wrong: those of a rank of so many.
type Rule = fn(&Attention, usize, usize) -> Range<usize>;

fn queries(attention: &Attention, rank: usize, ranks: usize) -> Range<usize> {
    let each = attention.heads / ranks;
    rank * each..(rank + 1) * each
}

fn key_values(attention: &Attention, rank: usize, ranks: usize) -> Range<usize> {
    let group = attention.heads / attention.kv_heads;
    let mine = queries(attention, rank, ranks);
    mine.start / group..(mine.end - 1) / group + 1
}

/// Compares the query heads (`which` is 0), or the key and value heads (1), of each rank.
fn divided(evidence: &mut Evidence, which: usize, jobs: &[usize]) -> Result<()> {
    let model = model()?;
    evidence.given(format!("Llama-3-8B: {model:?}"));
    let right: Rule = if which == 0 { queries } else { key_values };
    let mut found = Vec::new();
    for &ranks in jobs {
        for rank in 0..ranks {
            let Held { queries, keys, .. } = held(&model, rank, ranks, 1);
            let expected = right(&model, rank, ranks);
            let got = if which == 0 { queries } else { keys };
            // The first few of many ranks say enough, as long as they are right.
            if rank < 4 || expected != got {
                evidence.same(format!("rank {rank} of {ranks}"), expected, got.clone());
            }
            found.push((rank, ranks, got));
        }
    }
    let rule =
        |rule: Rule| found.iter().all(|(rank, ranks, got)| rule(&model, *rank, *ranks) == *got);
    let wrong = !rule(right);
    if which == 0 {
        evidence.means_if(
            wrong && rule(|attention, _, _| 0..attention.heads),
            "Every rank computes all query heads here: nothing is divided.",
        );
        evidence.means_if(
            wrong
                && rule(|attention, rank, ranks| {
                    rank * attention.kv_heads / ranks..(rank + 1) * attention.kv_heads / ranks
                }),
            "This divides the key and value heads. The first range is the query heads.",
        );
        evidence.means("Each rank takes the next heads / ranks query heads.");
        return Ok(());
    }
    evidence.means_if(
        wrong && rule(queries),
        "This is one key and value head for each query head: multi-head attention. Here a group of query heads shares one.",
    );
    evidence.means_if(
        wrong && rule(|attention, _, _| 0..attention.kv_heads),
        "Every rank holds all key and value heads here, and its cache is as large as without tensor parallelism. Which ones do \
         its query heads read?",
    );
    evidence.means_if(
        wrong && found.iter().any(|(.., got)| got.is_empty()),
        "A rank has no key and value head here, and its query heads have nothing to read. It needs a copy of one that a \
         different rank holds, too.",
    );
    evidence.means_if(
        wrong && rule(|attention, rank, _| rank % attention.kv_heads..rank % attention.kv_heads + 1),
        "Ranks 0 and 1 hold different heads here. Their query heads are neighbours, of the same group: they read the same one.",
    );
    let lacks = found.iter().find_map(|(rank, ranks, got)| {
        let read = |head: usize| head * model.kv_heads / model.heads;
        let head = queries(&model, *rank, *ranks).find(|&head| !got.contains(&read(head)))?;
        Some((*rank, *ranks, head))
    });
    if let Some((rank, ranks, head)) = lacks {
        evidence.means(format!(
            "Rank {rank} of {ranks} lacks a key and value head: the one that its query head {head} reads."
        ));
    }
    evidence.means("A rank holds the heads from the first of its query heads' groups to the last, and no more.");
    Ok(())
}

/// Compares the bytes of a rank's cache.
fn cached(evidence: &mut Evidence, jobs: &[usize]) -> Result<()> {
    let model = model()?;
    evidence.given(format!("Llama-3-8B: {model:?}"));
    // Bytes of one head's keys, in one layer, for one token.
    let each = 2 * model.width;
    let right = |ranks: usize, tokens: usize| {
        2 * each * tokens * model.layers * model.kv_heads.div_ceil(ranks)
    };
    let mut found = Vec::new();
    for &ranks in jobs {
        for tokens in [1, 8192] {
            let expected = right(ranks, tokens);
            let got = held(&model, ranks - 1, ranks, tokens).cache;
            let at = format!("the last of {ranks} ranks, {tokens} tokens");
            evidence.row(expected == got, at, thousands(expected as u64), thousands(got as u64));
            found.push((ranks, tokens, got));
        }
    }
    let rule = |rule: &dyn Fn(usize, usize) -> usize| {
        found.iter().all(|&(ranks, tokens, got)| rule(ranks, tokens) == got)
    };
    let wrong = !rule(&right);
    evidence.means_if(
        wrong
            && (rule(&|ranks, tokens| right(ranks, tokens) / 2)
                || rule(&|ranks, tokens| right(ranks, tokens) / 4)),
        "Half the bytes or fewer. The cache keeps keys and values, and each number has 2 bytes.",
    );
    evidence.means_if(
        wrong && rule(&|ranks, tokens| right(ranks, tokens) / model.layers),
        "This is one layer's cache. Every layer has its own.",
    );
    evidence.means_if(
        wrong && rule(&|ranks, tokens| 2 * each * tokens * model.layers * model.heads / ranks),
        "This is a cache for all query heads. Only the key and value heads are kept: this is what the groups are for.",
    );
    evidence.means_if(
        wrong && rule(&|_, tokens| right(1, tokens)),
        "This is the cache of all key and value heads, on every rank. How many of them does a rank hold?",
    );
    evidence.means_if(
        wrong && rule(&|ranks, tokens| 2 * each * tokens * model.layers * model.kv_heads / ranks),
        "A rank never holds a part of a head. With more ranks than key and value heads each rank still caches a whole one: more \
         tensor ranks no longer make the cache smaller.",
    );
    evidence.means_if(
        wrong && rule(&|ranks, tokens| 2 * each * tokens * model.layers * (model.kv_heads / ranks)),
        "The cache is empty here for ranks that hold a copy. A copy takes as many bytes as a head.",
    );
    evidence.means("2 (keys and values) x 2 bytes x tokens x layers x key and value heads of this rank x width.");
    Ok(())
}
