//! The flags that set what the library's errors name. The library has no flags: it writes a
//! setting as `` `heads` ``, as a notebook knows it, and a lab's screen says `--heads`.

/// Settings whose flag has the same name, with `-` for `_`.
const SETTINGS: [&str; 32] = [
    "batch",
    "beta1",
    "beta2",
    "block",
    "chunks",
    "clip",
    "deadline",
    "dropout",
    "dtype",
    "global_batch",
    "grad_accum",
    "heads",
    "init_from",
    "layers",
    "link",
    "lr",
    "lr_decay_steps",
    "micro_batches",
    "min_lr",
    "offload",
    "out",
    "ranks",
    "reduce_dtype",
    "resume",
    "resume_anyway",
    "sampler",
    "schedule",
    "seed",
    "steps",
    "train_range_to_skip",
    "warmup",
    "weight_decay",
];

/// Settings whose flag has another name.
const RENAMED: [(&str, &str); 4] = [
    ("corpus", "--data"),
    ("pipeline", "--pp"),
    ("sequence", "--sp"),
    ("tensor", "--tp"),
];

/// The flag that sets `setting`. Other words have none.
fn flag_of(setting: &str) -> Option<String> {
    if let Some((_, flag)) = RENAMED.iter().find(|(name, _)| *name == setting) {
        return Some(flag.to_string());
    }
    SETTINGS.contains(&setting).then(|| format!("--{}", setting.replace('_', "-")))
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

    #[test]
    fn settings_are_flags_and_other_words_stay() {
        let text = "choose `tensor` at most 4, or `lr_decay_steps` 9: `cargo run`, `heads`";
        assert_eq!(
            with_flags(text),
            "choose --tp at most 4, or --lr-decay-steps 9: `cargo run`, --heads"
        );
        assert_eq!(with_flags("a ` alone, and `lr"), "a ` alone, and `lr");
    }
}
