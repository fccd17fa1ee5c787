//! What a file is, and whose, by its name.

/// A rank of a job, as names of files count it: `dp` in data parallelism, `mp` in tensor and
/// pipeline parallelism together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub mp: usize,
    pub dp: usize,
}

/// What a file is, by its name.
pub(super) enum Kind {
    Model(Rank),
    Shard(Rank),
    /// One layer of a pipeline.
    Layer(usize),
    /// Some experts of a layer.
    Expert,
}

/// Splits a number from the beginning of a name. No job has a rank of more than nine digits.
fn number(name: &str) -> Option<(usize, &str)> {
    let end = name.find(|c: char| !c.is_ascii_digit()).unwrap_or(name.len());
    Some((name[..end].parse().ok().filter(|number| *number < 1_000_000_000)?, &name[end..]))
}

pub(super) fn kind(name: &str) -> Option<Kind> {
    if let Some(rest) = name.strip_prefix("mp_rank_") {
        let (mp, rest) = number(rest)?;
        return (rest == "_model_states.pt").then_some(Kind::Model(Rank { mp, dp: 0 }));
    }
    if let Some(rest) = name.strip_prefix("layer_") {
        let (layer, rest) = number(rest)?;
        if rest.contains("expert") {
            return Some(Kind::Expert);
        }
        return rest.ends_with("model_states.pt").then_some(Kind::Layer(layer));
    }
    let at = name.find("zero_pp_rank_")?;
    let (prefix, rest) = name.split_at(at);
    let rest = rest.strip_prefix("zero_pp_rank_")?;
    let (dp, rest) = number(rest)?;
    let (mp, rest) = number(rest.strip_prefix("_mp_rank_")?)?;
    let rank = Rank { mp, dp };
    match (prefix, rest) {
        ("" | "bf16_" | "fp16_", "_optim_states.pt") => Some(Kind::Shard(rank)),
        ("" | "bf16_" | "fp16_", "_model_states.pt") => Some(Kind::Model(rank)),
        _ => None,
    }
}

/// The rank whose file has this name, without its ending.
pub(crate) fn rank_of(stem: &str) -> Option<Rank> {
    match kind(&format!("{stem}.pt"))? {
        Kind::Model(rank) | Kind::Shard(rank) => Some(rank),
        Kind::Layer(_) | Kind::Expert => None,
    }
}
