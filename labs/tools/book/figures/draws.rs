//! Which steps learn from which micro-batches.

use anyhow::Result;
use kit::show::Draws;
use labs::lab08::skipping::{Ranges, SkipPolicy};
use std::iter;

/// Four steps of four micro-batches, of which steps 2 and 3 are bad, in each way to skip.
pub(super) fn picture() -> Result<Draws> {
    const ACCUMULATION: usize = 4;
    let none = Ranges::default();
    let range = Ranges::parse(&[2, 3])?;
    let row = |(name, policy, ranges): (&str, SkipPolicy, &Ranges)| {
        let step = |step| {
            let plan = policy.plan(ranges, step, ACCUMULATION);
            let learned = if plan.train { ACCUMULATION } else { 0 };
            iter::repeat_n(None, plan.discard).chain(iter::repeat_n(Some(step), learned))
        };
        (name.to_string(), (1..=4).flat_map(step).collect())
    };
    let ways = [
        ("no skip", SkipPolicy::Count, &none),
        ("count", SkipPolicy::Count, &range),
        ("one-batch", SkipPolicy::OneBatch, &range),
    ];
    Ok(Draws {
        rows: ways.map(row).into(),
        bad: ACCUMULATION + 1..=3 * ACCUMULATION,
    })
}
