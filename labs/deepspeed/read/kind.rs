//! What a file is, and whose, by its name: one table.

use fancy_regex::Regex;
use std::path::Path;
use std::sync::LazyLock;

/// A rank of a job, as names of files count it: `dp` in data parallelism, `mp` in tensor and
/// pipeline parallelism together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub mp: usize,
    pub dp: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Model states of all ranks of data parallelism together.
    Model,
    /// Model states of one rank, in stage 3.
    ModelOfRank,
    /// A rank's slice of the optimizer's states.
    Shard,
    /// The same, as DeepSpeed named it before 0.8.
    Old,
    /// Some experts of a layer.
    Expert,
    /// One layer of a pipeline. `mp` is its number, and `dp` the rank of tensor parallelism.
    Layer,
    /// Weights as other programs save them.
    Weights,
}

/// Names. The first that fits is the file's; MP and DP are numbers.
const NAMES: [(&str, Kind); 7] = [
    ("mp_rank_MP_model_states.pt", Kind::Model),
    ("(bf16_|fp16_)?zero_pp_rank_DP_mp_rank_MP_model_states.pt", Kind::ModelOfRank),
    ("(bf16_|fp16_)?zero_pp_rank_DP_mp_rank_MP_optim_states.pt", Kind::Shard),
    (".*zero_pp_rank_.*optim_states.pt", Kind::Old),
    ("layer_MP.*expert.*", Kind::Expert),
    ("layer_MP(-.*_DP)?-model_states.pt", Kind::Layer),
    (".*.safetensors|pytorch_model.bin", Kind::Weights),
];

/// What a file is, and its rank. Without numbers in the name that is the first.
pub(super) fn kind(name: &str) -> Option<(Kind, Rank)> {
    static PATTERNS: LazyLock<Vec<(Regex, Kind)>> = LazyLock::new(|| {
        // No job has a rank of more than nine digits.
        let number = |of: &str| format!("(?<{of}>[0-9]{{1,9}})");
        let pattern = |(name, kind): (&str, Kind)| {
            let name = name.replace("MP", &number("mp")).replace("DP", &number("dp"));
            Some((Regex::new(&format!("^(?:{name})$")).ok()?, kind))
        };
        NAMES.into_iter().filter_map(pattern).collect()
    });
    PATTERNS.iter().find_map(|(pattern, kind)| {
        let found = pattern.captures(name).ok()??;
        let number = |of| found.name(of).and_then(|number| number.as_str().parse().ok());
        let [mp, dp] = ["mp", "dp"].map(|of| number(of).unwrap_or(0));
        Some((*kind, Rank { mp, dp }))
    })
}

/// What is wrong with the file of a rank that was written under the name of a different one.
/// `stem` is that name, without its ending.
pub(super) fn misnamed(path: &Path, rank: Rank, stem: &str) -> Option<String> {
    let (kind, named) = kind(&format!("{stem}.pt"))?;
    let of_rank = [Kind::Model, Kind::ModelOfRank, Kind::Shard].contains(&kind);
    let words = |Rank { mp, dp }: Rank| format!("rank {dp} (mp rank {mp})");
    (of_rank && named != rank).then(|| {
        format!(
            "{} was written for {}, and is named for {}",
            path.display(),
            words(named),
            words(rank)
        )
    })
}

/// The names in a folder, in order.
pub(super) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_and_whose_a_file_is() {
        let shard = "zero_pp_rank_3_mp_rank_01_optim_states.pt";
        for (name, expected) in [
            ("mp_rank_12_model_states.pt", Some((Kind::Model, 12, 0))),
            ("zero_pp_rank_10_mp_rank_02_model_states.pt", Some((Kind::ModelOfRank, 2, 10))),
            (shard, Some((Kind::Shard, 1, 3))),
            (&format!("bf16_{shard}"), Some((Kind::Shard, 1, 3))),
            (&format!("fp16_{shard}"), Some((Kind::Shard, 1, 3))),
            (&format!("my_{shard}"), Some((Kind::Old, 0, 0))),
            ("zero_pp_rank_0_mp_rank_00optim_states.pt", Some((Kind::Old, 0, 0))),
            ("layer_07-model_states.pt", Some((Kind::Layer, 7, 0))),
            ("layer_07-model_03-model_states.pt", Some((Kind::Layer, 7, 3))),
            ("layer_0_expert_3_mp_rank_00_model_states.pt", Some((Kind::Expert, 0, 0))),
            ("model-00001-of-00002.safetensors", Some((Kind::Weights, 0, 0))),
            ("pytorch_model.bin", Some((Kind::Weights, 0, 0))),
            ("mp_rank_1234567890_model_states.pt", None),
            ("mp_rank_00_model_states.pt.part", None),
            ("zero_to_fp32.py", None),
        ] {
            let found = kind(name).map(|(kind, Rank { mp, dp })| (kind, mp, dp));
            assert_eq!(found, expected, "{name}");
        }
        assert!(NAMES.iter().all(|(name, _)| Regex::new(name).is_ok()));
    }
}
