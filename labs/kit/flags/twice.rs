//! What a strategy's text says, and a flag beside it says too: none of them is ignored in silence.
//!
//! One table for all programs that take `--strategy`. [`arguments`](crate::arguments()) asks it, so
//! a lab cannot forget to.

use clap::ArgMatches;
use clap::parser::ValueSource;
use shardlab::error::BadInput;

/// What a flag says of a job.
enum Says {
    /// A part of the strategy. Without that part the text says 1, none or off.
    Part,
    /// A size that a strategy leaves to the job unless its text names it.
    Size,
}

/// Flags, by clap's names for them, and the key of a strategy's text that says the same.
const SAME: [(&str, &str, Says); 21] = [
    ("ranks", "dp", Says::Part),
    ("stages", "pp", Says::Part),
    ("tp", "tp", Says::Part),
    ("pp", "pp", Says::Part),
    ("sp", "sp", Says::Part),
    ("order", "order", Says::Part),
    ("make_vocab_size_divisible_by", "pad", Says::Part),
    ("zero", "zero", Says::Part),
    ("chunks", "chunks", Says::Part),
    ("schedule", "schedule", Says::Part),
    ("group", "group", Says::Part),
    ("partition", "partition", Says::Part),
    ("recompute", "recompute", Says::Part),
    ("comm", "cp-comm", Says::Part),
    ("slices", "cp-order", Says::Part),
    ("micro_batches", "m", Says::Size),
    ("grad_accum", "m", Says::Size),
    ("batch", "mb", Says::Size),
    ("global_batch", "mb", Says::Size),
    ("offload", "offload", Says::Size),
    ("tiles", "tiles", Says::Size),
];

/// Refuses a flag that says what `--strategy` says.
///
/// # Errors
/// The help says how the text says it.
pub(crate) fn ensure_said_once(matches: &ArgMatches) -> Result<(), BadInput> {
    let given = |id: &str| {
        matches.ids().any(|known| known.as_str() == id)
            && matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    let raw = |id: &str| {
        let values = matches.try_get_raw(id).ok().flatten();
        values.and_then(|mut values| Some(values.next()?.to_string_lossy().into_owned()))
    };
    let Some(text) = raw("strategy").filter(|_| given("strategy")) else {
        return Ok(());
    };
    let says =
        |key: &str| text.split(',').any(|part| part.split('=').next().map(str::trim) == Some(key));
    for (id, key, kind) in &SAME {
        if !given(id) || matches!(kind, Says::Size) && !says(key) {
            continue;
        }
        let flag = format!("--{}", id.replace('_', "-"));
        let what = format!("{flag} beside --strategy {text}: both say {key}");
        let help = match (*id, says(key)) {
            ("ranks", _) => {
                format!("leave {flag} out: a strategy has dp x tp x pp x cp ranks")
            }
            (_, true) => format!("leave one of them out: {flag}, or {key}"),
            _ => format!(
                "write {key} into the strategy, and leave {flag} out: what a strategy leaves out \
                 is 1, none or off"
            ),
        };
        return Err(BadInput::new(what, help));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TrainFlags;
    use crate::flags::{StrategyFlag, ZeroFlags};
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Program {
        #[arg(long)]
        ranks: Option<usize>,
        #[arg(long)]
        sp: bool,
        #[command(flatten)]
        zero: ZeroFlags,
        #[command(flatten)]
        train: TrainFlags,
        #[command(flatten)]
        strategy: StrategyFlag,
    }

    #[test]
    fn a_flag_that_a_text_says_too_is_refused() {
        let said = |flags: &str| {
            let words = format!("program {flags}");
            let matches = Program::command().get_matches_from(words.split_whitespace());
            ensure_said_once(&matches)
        };
        for flags in [
            "--ranks 4 --zero 3 --sp --batch 3 --grad-accum 2",
            "--strategy dp=2,tp=2,zero=1,sp,m=4",
            // The text leaves these to the job.
            "--strategy dp=2,zero=3 --batch 3 --grad-accum 2 --offload cpu",
            "--strategy dp=2,m=2 --batch 3",
            "--strategy dp=2,mb=2 --grad-accum 2",
        ] {
            said(flags).unwrap_or_else(|error| panic!("{flags}: {error}"));
        }
        for (flags, what, help) in [
            ("--strategy dp=2 --ranks 2", "both say dp", "leave --ranks out"),
            ("--strategy tp=2,zero=1 --zero 3", "--zero beside", "out: --zero, or zero"),
            ("--strategy tp=2 --zero 0", "both say zero", "write zero into the strategy"),
            ("--strategy tp=2,sp --sp", "both say sp", "out: --sp, or sp"),
            ("--strategy tp=2 --sp", "both say sp", "write sp into the strategy"),
            ("--strategy dp=2,m=4 --grad-accum 4", "both say m", "--grad-accum, or m"),
            ("--strategy dp=2,m=1 --grad-accum 1", "both say m", "--grad-accum, or m"),
            ("--strategy dp=2,mb=4 --batch 4", "both say mb", "--batch, or mb"),
            ("--strategy dp=2,mb=4 --global-batch 4", "both say mb", "--global-batch, or mb"),
            ("--strategy zero=3,offload=none --offload cpu", "both say offload", "or offload"),
            ("--strategy dp=2,tiles=2 --tiles 2", "both say tiles", "--tiles, or tiles"),
        ] {
            let error = said(flags).unwrap_err();
            assert!(error.what.contains(what) && error.help.contains(help), "{flags}: {error}");
        }
    }
}
