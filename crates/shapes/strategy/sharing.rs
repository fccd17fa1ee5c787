//! What ranks cannot share: refused before anything runs.

use super::Strategy;
use super::context::{Exchange, Slicing};
use crate::error::BadInput;
use crate::model::{Capacity, Experts, Groups, ModelShape};

/// Refuses a model that `ranks` ranks cannot share.
///
/// # Errors
/// If heads, vocabulary, or with `sequence` the block, cannot be divided among the ranks.
pub fn ensure_tensor(shape: &ModelShape, ranks: usize, sequence: bool) -> Result<(), BadInput> {
    let ModelShape { heads, embd, vocabulary, block, .. } = *shape;
    if ranks > heads {
        let what = format!(
            "{ranks} tensor ranks cannot share {heads} heads: a head is computed on one rank"
        );
        return Err(BadInput::new(
            what,
            format!("choose `tensor` at most {heads}, or more `heads`"),
        ));
    }
    if !heads.is_multiple_of(ranks) {
        let what = format!("{heads} heads cannot be divided evenly among {ranks} tensor ranks");
        return Err(BadInput::new(
            what,
            format!("choose `tensor` among {}, or other `heads`", divisors(heads)),
        ));
    }
    if vocabulary < ranks {
        let what =
            format!("a vocabulary of {vocabulary} cannot be divided among {ranks} tensor ranks");
        return Err(BadInput::new(
            what,
            "a rank would hold padding only: choose a smaller `tensor`",
        ));
    }
    // Heads divide the width, so ranks do.
    debug_assert!(embd.is_multiple_of(heads));
    if sequence && !block.is_multiple_of(ranks) {
        let what = format!(
            "sequences of {block} tokens cannot be divided evenly among {ranks} tensor ranks"
        );
        return Err(BadInput::new(
            what,
            format!("choose a `block` that {ranks} divides, or train without `sequence`"),
        ));
    }
    Ok(())
}

/// Refuses a Llama that `ranks` ranks cannot share. A rank needs whole key and value heads: if
/// several ranks had a copy of one, they would have to add up its gradients.
///
/// # Errors
/// If key and value heads, MLP or vocabulary cannot be divided among the ranks.
pub fn ensure_tensor_llama(shape: &ModelShape, ranks: usize) -> Result<(), BadInput> {
    let heads = shape.heads;
    let kv_heads = shape.kv_heads();
    let ffn = shape.ffn_of(0);
    let vocabulary = shape.vocabulary;
    if !kv_heads.is_multiple_of(ranks) {
        let what = format!(
            "{kv_heads} key and value heads (for {heads} query heads) cannot be divided evenly among {ranks} tensor ranks"
        );
        return Err(BadInput::new(what, format!("choose `tensor` among {}", divisors(kv_heads))));
    }
    if !ffn.is_multiple_of(ranks) || vocabulary < ranks {
        let what = format!(
            "an MLP of width {ffn} and {vocabulary} tokens cannot be divided among {ranks} tensor ranks"
        );
        return Err(BadInput::new(what, "choose a smaller `tensor`"));
    }
    Ok(())
}

/// Refuses a model whose sequences `ranks` context ranks cannot share, each with `tensor`
/// tensor ranks.
///
/// # Errors
/// If positions, or with Ulysses heads, cannot be divided among the ranks.
pub fn ensure_context(
    shape: &ModelShape,
    (ranks, tensor): (usize, usize),
    (exchange, slicing): (Exchange, Slicing),
    sequence: bool,
) -> Result<(), BadInput> {
    let block = shape.block;
    let chunks = slicing.chunks(ranks);
    if !block.is_multiple_of(chunks) {
        let what = format!(
            "sequences of {block} tokens cannot be cut into {chunks} equal chunks, for {ranks} context ranks"
        );
        return Err(BadInput::new(what, format!("choose a `block` that {chunks} divides")));
    }
    if sequence && !(block / ranks).is_multiple_of(tensor) {
        let what = format!(
            "{tensor} tensor ranks cannot share the {} positions of a context rank",
            block / ranks
        );
        let help = format!("choose a `block` that {} divides", ranks * tensor);
        return Err(BadInput::new(what, help));
    }
    let kv_heads = shape.kv_heads() / tensor.max(1);
    if exchange == Exchange::Ulysses && !kv_heads.is_multiple_of(ranks) {
        let what = format!(
            "{ranks} context ranks cannot exchange {kv_heads} key and value heads: with Ulysses each needs whole ones"
        );
        return Err(BadInput::new(what, "choose fewer context ranks, or cp-comm=ring or gather"));
    }
    Ok(())
}

/// All numbers that divide `n`.
/// Refuses experts that these ranks cannot share, and choices among them that no token has.
pub(super) fn ensure_experts(
    shape: &ModelShape,
    experts: &Experts,
    strategy: &Strategy,
) -> Result<(), BadInput> {
    let Experts { count, top_k, selection, dense_layers, .. } = *experts;
    let refuse = |what: String, help: String| Err(BadInput::new(what, help));
    let ranks = strategy.expert;
    if count == 0 || !count.is_multiple_of(ranks) {
        let near = nearest(count, usize::MAX, |n| n.is_multiple_of(ranks));
        return refuse(
            format!("`experts` {count} cannot be divided evenly among {ranks} ranks"),
            format!("give `experts` {near}, or other ranks"),
        );
    }
    if let Some(groups) = selection.groups {
        if groups.count == 0 || !count.is_multiple_of(groups.count) {
            let near = nearest(groups.count, count, |n| count.is_multiple_of(n));
            return refuse(
                format!("`groups` {} cannot divide {count} experts", groups.count),
                format!("give `groups` {near}"),
            );
        }
        if !(1..=groups.count).contains(&groups.top_k) {
            let Groups { count, top_k } = groups;
            return refuse(
                format!("`top_groups` {top_k} is not from 1 to {count}, the number of groups"),
                format!("give `top_groups` {count} at most"),
            );
        }
    }
    let most = experts.selectable();
    if !(1..=most).contains(&top_k) {
        let (of, more) = match selection.groups {
            None => ("the number of experts", "`experts`"),
            Some(_) => ("the number of experts in a token's groups", "`top_groups`"),
        };
        return refuse(
            format!("`top_k` {top_k} is not from 1 to {most}, {of}"),
            format!("give `top_k` {most} at most, or more {more}"),
        );
    }
    if let Some(Capacity { factor, .. }) = selection.capacity
        && (!factor.is_finite() || factor <= 0.0)
    {
        return refuse(
            format!("experts cannot take {factor} of an even load"),
            "choose a factor above 0 for their `capacity`".into(),
        );
    }
    if dense_layers >= shape.layers {
        let layers = shape.layers;
        return refuse(
            format!("`dense_layers` {dense_layers} leaves none of {layers} layers to experts"),
            format!("give `dense_layers` {} at most, or more `layers`", layers.max(1) - 1),
        );
    }
    if !experts.ffn.is_multiple_of(strategy.tensor) {
        let (width, ranks) = (experts.ffn, strategy.tensor);
        return refuse(
            format!("experts of width {width} cannot be divided among {ranks} tensor ranks"),
            "choose a `tensor` that divides it".into(),
        );
    }
    if strategy.sequence {
        return refuse(
            "tensor ranks that divide the residual stream would each route their own positions"
                .into(),
            "train a model with experts without `sequence`".into(),
        );
    }
    Ok(())
}

/// The numbers beside `n`, from 1 to `most`, that fit: "6 or 9".
fn nearest(n: usize, most: usize, fits: impl Fn(usize) -> bool) -> String {
    let less = (1..n).rev().find(|&n| fits(n));
    let more = (n + 1..=most).find(|&n| fits(n));
    let all = less.into_iter().chain(more).map(|n| n.to_string());
    all.collect::<Vec<_>>().join(" or ")
}

fn divisors(n: usize) -> String {
    let all: Vec<String> = (1..=n.min(64))
        .filter(|d| n.is_multiple_of(*d))
        .map(|d| d.to_string())
        .collect();
    all.join(", ")
}
