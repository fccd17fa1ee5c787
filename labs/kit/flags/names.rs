//! The flags that set what the library's errors name. The library has no flags: it writes a
//! setting as `` `heads` ``, as a notebook knows it, and a lab's screen says `--heads`.

use anyhow::Error;
use shardlab::train::{Config, Diverged};

/// Settings whose flag has the same name, with `-` for `_`.
const SETTINGS: [&str; 49] = [
    "aux_loss",
    "aux_over_ranks",
    "aux_scope",
    "batch",
    "beta1",
    "beta2",
    "bias_rate",
    "block",
    "capacity",
    "chunks",
    "clip",
    "deadline",
    "dense_layers",
    "dropout",
    "dtype",
    "experts",
    "fp16",
    "global_batch",
    "grad_accum",
    "groups",
    "heads",
    "init_from",
    "layers",
    "link",
    "lr",
    "lr_decay_steps",
    "micro_batches",
    "min_lr",
    "muon_qkv",
    "muon_scale",
    "muon_steps",
    "offload",
    "optimizer",
    "out",
    "ranks",
    "reduce_dtype",
    "resume",
    "resume_anyway",
    "sampler",
    "scaler",
    "schedule",
    "seed",
    "steps",
    "top_groups",
    "train_range_to_skip",
    "warmup",
    "weight_decay",
    "window",
    "z_loss",
];

/// Settings whose flag has another name.
const RENAMED: [(&str, &str); 5] = [
    ("corpus", "--data"),
    ("pipeline", "--pp"),
    ("sequence", "--sp"),
    ("tensor", "--tp"),
    ("top_k", "--top"),
];

/// The flag that sets `setting`. Other words have none.
fn flag_of(setting: &str) -> Option<String> {
    if let Some((_, flag)) = RENAMED.iter().find(|(name, _)| *name == setting) {
        return Some(flag.to_string());
    }
    SETTINGS.contains(&setting).then(|| format!("--{}", setting.replace('_', "-")))
}

/// Adds the settings that help to the error of diverged training. Other errors do not change.
pub fn explain(config: &Config, error: Error) -> Error {
    if !error.is::<Diverged>() {
        return error;
    }
    let mut help = format!("lower `lr` (it is {})", config.schedule.lr);
    if config.schedule.warmup < config.steps {
        help += &format!(", or lengthen `warmup` (it is {})", config.schedule.warmup);
    }
    if config.clip == 0.0 || config.clip > 1.0 {
        help += ", or set `clip` 1";
    }
    anyhow::anyhow!("{error}\nhelp: {help}")
}

/// A text of the library with flags in place of the settings in backticks.
pub fn with_flags(text: &str) -> String {
    let mut written = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('`') {
        written += before;
        let word = after.split_once('`');
        let flag = word.and_then(|(word, after)| Some((flag_of(word)?, after)));
        rest = if let Some((flag, after)) = flag {
            written += &flag;
            after
        } else {
            written.push('`');
            after
        };
    }
    written + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::data::Corpus;
    use shardlab::optim::NotFinite;

    #[test]
    fn settings_are_flags_and_other_words_stay() {
        let text = "choose `tensor` at most 4, or `lr_decay_steps` 9: `cargo run`, `heads`";
        assert_eq!(
            with_flags(text),
            "choose --tp at most 4, or --lr-decay-steps 9: `cargo run`, --heads"
        );
        assert_eq!(with_flags("a ` alone, and `lr"), "a ` alone, and `lr");
    }

    #[test]
    fn help_names_only_what_can_be_changed() {
        let small = Config::small(2, &Corpus::embedded().unwrap());
        let said = |clip: f64, warmup: usize| {
            let mut config = Config { clip, ..small.clone() };
            config.schedule.warmup = warmup;
            let diverged = Diverged { what: "the loss is NaN".into(), step: 3 };
            explain(&config, diverged.into()).to_string()
        };
        let start =
            "at step 3, the loss is NaN: training has diverged\nhelp: lower `lr` (it is 0.001)";
        assert_eq!(said(1.0, 100), start);
        assert_eq!(said(0.5, 4), format!("{start}, or lengthen `warmup` (it is 4)"));
        assert_eq!(said(0.0, 100), format!("{start}, or set `clip` 1"));
        assert_eq!(explain(&small, Diverged::at(3, anyhow::anyhow!("no"))).to_string(), "no");
        let refused = explain(&small, Diverged::at(3, NotFinite(f64::NAN).into())).to_string();
        let start = "at step 3, the gradients' norm is NaN, so nothing was updated: training has diverged\nhelp: lower";
        assert!(refused.starts_with(start), "{refused}");
    }
}
