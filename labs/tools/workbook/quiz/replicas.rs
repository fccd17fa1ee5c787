//! Labs 03 and 04: data parallelism and what ranks hold.

use super::Question;
use anyhow::Result;
use kit::show::bytes_decimal;
use shardlab::plan::{BytesEach, exposed, zero_memory};

pub fn exposed_time() -> Result<Question> {
    let pass = 100.0;
    let each = 40.0;
    let buckets = 4;
    let bucket = |i: usize| ((i + 1) as f64 / buckets as f64, each);
    let all = || (0..buckets).map(bucket);
    let on_the_link: f64 = all().map(|(_, ms)| ms).sum();
    Ok(Question::amount(
        ["lab03", "The formula"],
        format!(
            "A backward pass takes {pass} ms. Its gradients are averaged in {buckets} buckets, which are complete after a quarter, a \
             half, three quarters and all of the pass. The link needs {each} ms for each bucket. How long does a rank wait after \
             its backward pass?"
        ),
        |ms| format!("{ms} ms"),
        exposed(pass, all()),
        &[
            (
                exposed(pass, [(1.0, on_the_link)]),
                "That is all of the averaging, as if it began after the backward pass. The first bucket is complete before.",
            ),
            (
                exposed(pass, [(0.0, on_the_link)]),
                "For that the link would have to begin with the pass. Its first bucket is complete after a quarter.",
            ),
            (
                exposed(pass, [bucket(buckets - 1)]),
                "That is only the last bucket. When it is complete, the link still carries buckets from before.",
            ),
        ],
        format!(
            "From the first bucket on, after {} ms, the link never stops: it ends {buckets} buckets of {each} ms later, at {} ms.",
            pass * bucket(0).0,
            pass * bucket(0).0 + on_the_link
        ),
    )
    .on_page("overlap"))
}

pub fn state_of_a_stage() -> Result<Question> {
    let parameters = 13_000_000_000;
    let ranks = 16;
    let held = |stage| -> f64 {
        let bytes = zero_memory(stage, parameters, ranks, BytesEach::MIXED);
        bytes.iter().sum::<u64>() as f64
    };
    Ok(Question::amount(
        ["lab04", "From 120 GB to 1.9 GB"],
        format!(
            "{} billion parameters train in mixed precision: 2 bytes for each parameter, 2 for its gradient and 12 for the \
             optimizer. How much of this does each of {ranks} ranks hold under ZeRO-1?",
            parameters / 1_000_000_000
        ),
        bytes_decimal,
        held(1),
        &[
            (held(0), "Nothing is shared there: that is what each rank of DDP holds."),
            (held(2), "There ranks share the gradients as well: ZeRO-2."),
            (held(3), "There ranks share all 16 bytes, also the parameters: ZeRO-3."),
        ],
        format!(
            "Stage 1 shares only the optimizer's bytes: 2 + 2 + 12/{ranks} for each parameter."
        ),
    ))
}
