//! Skipping steps whose data would spoil a model.
//!
//! A batch of bad text can make the loss jump. The run is then started again from an earlier
//! checkpoint, without that batch. All other batches must stay where they were: step 21 trains on
//! the same tokens whether or not step 20 was skipped. So a skipped step still draws its data. It
//! has one batch per micro-step of gradient accumulation, on every rank.
//!
//! Steps are counted from 1.

use anyhow::Result;
use shardlab::comm::Comm;
use shardlab::error::BadInput;
use std::ops::RangeInclusive;

/// Ranges of steps, without overlap and in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<RangeInclusive<usize>>);

impl Ranges {
    /// The ranges of `--train-range-to-skip 10 20 25 30`: steps 10 to 20 and 25 to 30, ends
    /// included.
    ///
    /// # Errors
    /// If a range has no end, ends before it begins, begins before step 1, or overlaps with
    /// another.
    pub fn parse(ends: &[i64]) -> Result<Ranges, BadInput> {
        const FLAG: &str = "`train_range_to_skip`";
        let refuse =
            |what: String, help: String| Err(BadInput::new(format!("{FLAG} {what}"), help));
        let mut ranges = Vec::new();
        for pair in ends.chunks(2) {
            let &[first, last] = pair else {
                let what = format!(
                    "has an odd count of numbers: {} begins a range that has no end",
                    pair[0]
                );
                let help = format!(
                    "give two numbers for each range, its first and last step: {FLAG} 10 20 25 30"
                );
                return refuse(what, help);
            };
            if let Some(wrong) = [first, last].into_iter().find(|&end| end < 1) {
                let what = format!("{first} {last}: there is no step {wrong}");
                return refuse(what, "count steps from 1".to_string());
            }
            if last < first {
                let what = format!("{first} {last}: this range ends before it begins");
                let help = format!("give the smaller number first: {FLAG} {last} {first}");
                return refuse(what, help);
            }
            ranges.push(first as usize..=last as usize);
        }
        ranges.sort_by_key(|range| *range.start());
        for pair in ranges.windows(2) {
            let (a, b) = (pair[0].start(), pair[0].end());
            let (c, d) = (pair[1].start(), pair[1].end());
            if c <= b {
                let what = format!("{a} {b} {c} {d}: these ranges overlap");
                return refuse(what, format!("give one range for both: {FLAG} {a} {}", b.max(d)));
            }
        }
        Ok(Ranges(ranges))
    }

    /// Whether a step is in one of the ranges.
    pub fn contains(&self, step: usize) -> bool {
        self.0.iter().any(|range| range.contains(&step))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The step after all ranges.
    pub fn after(&self) -> usize {
        self.0.last().map_or(1, |range| range.end() + 1)
    }

    /// The first and last step of each range.
    pub fn ends(&self) -> impl Iterator<Item = (usize, usize)> {
        self.0.iter().map(|range| (*range.start(), *range.end()))
    }
}

/// The published ways to skip ranges: two forks of Megatron-DeepSpeed have one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipPolicy {
    /// Draws all micro-batches of each skipped step, and counts the step.
    Count,
    /// Draws one micro-batch for each skipped step, and counts nothing: wrong with gradient
    /// accumulation.
    OneBatch,
}

/// A run's next actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Micro-batches that each rank draws and discards first.
    pub discard: usize,
    /// Whether the step is taken.
    pub train: bool,
}

impl SkipPolicy {
    /// The actions at step `step` of a run with `accumulation` micro-steps per step.
    pub fn plan(self, ranges: &Ranges, step: usize, accumulation: usize) -> Plan {
        match self {
            SkipPolicy::Count if ranges.contains(step) => {
                Plan { discard: accumulation, train: false }
            }
            SkipPolicy::Count => Plan { discard: 0, train: true },
            // The steps of the range are not counted. So they still come, with the batches that
            // follow.
            SkipPolicy::OneBatch => {
                let begins = ranges.ends().find(|&(first, _)| first == step);
                Plan {
                    discard: begins.map_or(0, |(first, last)| last - first + 1),
                    train: true,
                }
            }
        }
    }
}

/// The log's line for a skipped step, as the source prints it.
pub fn caught(step: usize) -> String {
    format!("Caught {step} in 'ranges_to_skip', skipping!")
}

/// A bound for skipping automatically: a step is not taken if it passes the bound on any rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    pub loss: f64,
    pub grad_norm: f64,
}

impl Bound {
    /// No bound: only a loss or norm that is not finite passes it.
    pub const NONE: Bound = Bound { loss: f64::MAX, grad_norm: f64::MAX };

    /// Whether any rank's `loss` or `grad_norm` passes the bound. All ranks call it, and get the
    /// same answer. If a rank decided alone, it would leave the others waiting in their next
    /// collective, or train a model that is different from theirs.
    ///
    /// # Errors
    /// If the collective fails.
    pub fn passed(&self, comm: &Comm, loss: f64, grad_norm: f64) -> Result<bool> {
        // NaN is not within any bound.
        let within = loss <= self.loss && grad_norm <= self.grad_norm;
        Ok(comm.any(!within)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::launch;

    #[test]
    fn ranges_include_both_ends() {
        let ranges = Ranges::parse(&[10, 20, 25, 30]).unwrap();
        let skipped: Vec<usize> = (1..=40).filter(|&step| ranges.contains(step)).collect();
        assert_eq!(skipped, (10..=20).chain(25..=30).collect::<Vec<_>>());
        // Any order, single steps, ranges side by side.
        let ranges = Ranges::parse(&[8, 9, 2, 3, 4, 4]).unwrap();
        assert_eq!(ranges.ends().collect::<Vec<_>>(), [(2, 3), (4, 4), (8, 9)]);
        assert_eq!(Ranges::parse(&[]).unwrap(), Ranges::default());
    }

    #[test]
    fn what_is_no_range_is_refused_with_what_to_do() {
        for (ends, what, help) in [
            (
                &[10, 20, 25][..],
                "has an odd count of numbers: 25 begins a range that has no end",
                "10 20 25 30",
            ),
            (
                &[20, 10],
                "20 10: this range ends before it begins",
                "`train_range_to_skip` 10 20",
            ),
            (
                &[10, 20, 15, 30],
                "10 20 15 30: these ranges overlap",
                "`train_range_to_skip` 10 30",
            ),
            (
                &[10, 20, 12, 14],
                "10 20 12 14: these ranges overlap",
                "`train_range_to_skip` 10 20",
            ),
            (
                &[20, 30, 10, 20],
                "10 20 20 30: these ranges overlap",
                "`train_range_to_skip` 10 30",
            ),
            (&[-3, 4], "-3 4: there is no step -3", "count steps from 1"),
            (&[0, 4], "0 4: there is no step 0", "count steps from 1"),
        ] {
            let error = Ranges::parse(ends).unwrap_err();
            assert_eq!(error.what, format!("`train_range_to_skip` {what}"));
            assert!(error.help.ends_with(help), "{}", error.help);
        }
    }

    #[test]
    fn policies_plan_as_published() {
        let ranges = Ranges::parse(&[2, 3]).unwrap();
        let plans = |policy: SkipPolicy| {
            (1..=4).map(|step| policy.plan(&ranges, step, 8)).collect::<Vec<_>>()
        };
        let train = Plan { discard: 0, train: true };
        let skip = Plan { discard: 8, train: false };
        assert_eq!(plans(SkipPolicy::Count), [train, skip, skip, train]);
        assert_eq!(
            plans(SkipPolicy::OneBatch),
            [train, Plan { discard: 2, train: true }, train, train]
        );
    }

    #[test]
    fn all_ranks_skip_what_one_finds_bad() {
        let bound = Bound { loss: 5.0, grad_norm: 2.0 };
        let answers = launch::run(3, |comm| {
            let one = |bad: f64, good: f64| if comm.rank() == 1 { bad } else { good };
            let figures = [
                (5.0, 2.0),
                (one(5.1, 4.0), 1.0),
                (4.0, one(2.1, 1.0)),
                (one(f64::NAN, 4.0), 1.0),
            ];
            figures
                .iter()
                .map(|&(loss, norm)| bound.passed(&comm, loss, norm))
                .collect::<Result<Vec<_>>>()
        });
        assert!(answers.unwrap().iter().all(|answers| *answers == [false, true, true, true]));
        assert!(!Bound::NONE.passed(&Comm::alone(), 1e300, 1e300).unwrap());
        assert!(Bound::NONE.passed(&Comm::alone(), 1.0, f64::INFINITY).unwrap());
    }
}
