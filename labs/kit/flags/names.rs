//! The flags that set what the library's errors name. The library has no flags: it writes a
//! setting as `` `heads` ``, as a notebook knows it, and a lab's screen says `--heads`.

/// Settings, and the flags of those whose name is another one.
const SETTINGS: [(&str, &str); 34] = [
    ("batch", ""),
    ("beta1", ""),
    ("beta2", ""),
    ("block", ""),
    ("chunks", ""),
    ("clip", ""),
    ("corpus", "--data"),
    ("deadline", ""),
    ("dropout", ""),
    ("global_batch", ""),
    ("grad_accum", ""),
    ("heads", ""),
    ("init_from", ""),
    ("layers", ""),
    ("link", ""),
    ("lr", ""),
    ("lr_decay_steps", ""),
    ("micro_batches", ""),
    ("min_lr", ""),
    ("offload", ""),
    ("out", ""),
    ("pipeline", "--pp"),
    ("ranks", ""),
    ("resume", ""),
    ("resume_anyway", ""),
    ("sampler", ""),
    ("schedule", ""),
    ("seed", ""),
    ("sequence", "--sp"),
    ("steps", ""),
    ("tensor", "--tp"),
    ("train_range_to_skip", ""),
    ("warmup", ""),
    ("weight_decay", ""),
];

/// A text of the library with flags in place of the settings in backticks.
pub fn with_flags(text: &str) -> String {
    let mut written = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('`') {
        written += before;
        let setting = after.split_once('`').and_then(|(name, after)| {
            let (_, flag) = SETTINGS.iter().find(|(setting, _)| *setting == name)?;
            Some((name, *flag, after))
        });
        rest = match setting {
            Some((name, "", after)) => {
                written += &format!("--{}", name.replace('_', "-"));
                after
            }
            Some((_, flag, after)) => {
                written += flag;
                after
            }
            None => {
                written.push('`');
                after
            }
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
