//! Finds spikes of the loss, and the steps to skip.
//!
//! The rule compares each loss with the losses just before it. Their median is the baseline, and
//! the median of their changes from step to step is the noise: a few extreme losses move neither,
//! and a loss that falls slowly has no more noise than one that stays. A loss above the limit is
//! part of a spike, and stays out of later medians. Otherwise a long spike would become the
//! baseline.
//!
//! A step's loss is computed before its update. So the first loss above the limit belongs to a bad
//! batch, not to a bad update. The end of a spike is less certain. After the last bad batch the
//! weights are damaged, and good batches have a high loss, too. The rule takes half of the spike's
//! height: after the first loss that is closer to the peak than to the baseline, only such losses
//! belong to bad batches.

use crate::skipping::Ranges;
use anyhow::Result;
use kit::show::{Screen, table};
use serde::Deserialize;
use shardlab::comm::Comm;
use shardlab::error::BadInput;
use shardlab::{files, launch};
use std::collections::VecDeque;
use std::path::Path;

/// Losses whose median is the baseline.
const WINDOW: usize = 20;

/// Losses whose changes are the noise. Noise needs more of them than a median does.
const NOISE: usize = 50;

/// Losses that must precede a judgement: a loss that has only begun to fall has no baseline.
const FEWEST: usize = 12;

/// A limit is this many times the noise above the baseline. With 5, a noisy run has false spikes in
/// its first steps.
const TIMES: f64 = 6.0;

/// A smaller rise than this fraction of the baseline is no spike, however quiet the losses were.
const LEAST_RISE: f64 = 0.1;

/// Losses above the limit belong to one spike if at most this many steps lie between them.
const CLOSE: usize = 10;

/// What is normal in a run's recent losses.
#[derive(Clone, Debug, Default)]
pub struct Baseline {
    recent: VecDeque<f64>,
}

/// The median before a step, and the highest loss that is normal after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    pub median: f64,
    /// A higher loss belongs to a spike.
    pub limit: f64,
}

impl Baseline {
    /// Adds the loss of a step that is not part of a spike.
    pub fn add(&mut self, loss: f64) {
        self.recent.push_back(loss);
        if self.recent.len() > NOISE {
            self.recent.pop_front();
        }
    }

    /// The limit for the next step. `None`: too few steps precede it.
    pub fn limit(&self) -> Option<Limit> {
        if self.recent.len() < FEWEST {
            return None;
        }
        let middle = median(self.recent.iter().rev().take(WINDOW).copied());
        let noise =
            median(self.recent.iter().zip(self.recent.iter().skip(1)).map(|(a, b)| (a - b).abs()));
        let rise = (TIMES * noise).max(LEAST_RISE * middle);
        Some(Limit { median: middle, limit: middle + rise })
    }

    /// Judges a step's loss, and adds it if it is normal. Returns the limit that it passed. A loss
    /// that is not finite passes every limit.
    fn judge(&mut self, loss: f64) -> Option<Limit> {
        let endless = Limit {
            median: median(self.recent.iter().copied()),
            limit: f64::INFINITY,
        };
        match self.limit() {
            _ if !loss.is_finite() => Some(self.limit().unwrap_or(endless)),
            Some(limit) if loss > limit.limit => Some(limit),
            _ => {
                self.add(loss);
                None
            }
        }
    }
}

/// The median; NaN if there is no value.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n => (values[(n - 1) / 2] + values[n / 2]) / 2.0,
    }
}

/// Steps with a loss above the limit that follow each other closely.
#[derive(Clone, Debug, PartialEq)]
pub struct Spike {
    /// The bad steps: the first and the last of each range.
    pub ranges: Vec<(usize, usize)>,
    /// The highest loss that is finite.
    pub peak: f64,
    /// Losses that are not finite.
    pub not_finite: usize,
    /// The median and the limit before the spike.
    pub before: Limit,
}

/// The spikes among steps and their losses, in order. Steps that were skipped have no loss, and are
/// left out.
pub fn find(losses: &[(usize, f64)]) -> Vec<Spike> {
    let mut baseline = Baseline::default();
    let mut spikes: Vec<(Limit, Vec<(usize, f64)>)> = Vec::new();
    for &(step, loss) in losses {
        let Some(limit) = baseline.judge(loss) else {
            continue;
        };
        let recent =
            |steps: &[(usize, f64)]| steps.last().is_some_and(|last| step - last.0 <= CLOSE);
        match spikes.last_mut().filter(|(_, steps)| recent(steps)) {
            Some((_, steps)) => steps.push((step, loss)),
            None => spikes.push((limit, vec![(step, loss)])),
        }
    }
    spikes.into_iter().map(|(before, steps)| spike(&steps, before)).collect()
}

/// The spike of these steps, of which there is at least one.
fn spike(steps: &[(usize, f64)], before: Limit) -> Spike {
    let finite = steps.iter().map(|step| step.1).filter(|loss| loss.is_finite());
    let peak = finite.clone().fold(f64::NAN, f64::max);
    let half = (peak + before.median) / 2.0;
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    let mut high = false;
    for &(step, loss) in steps {
        let upper = !loss.is_finite() || loss >= half;
        match ranges.last_mut() {
            _ if high && !upper => {}
            Some((_, last)) if *last + 1 == step => *last = step,
            _ => ranges.push((step, step)),
        }
        high |= upper;
    }
    let not_finite = steps.len() - finite.count();
    Spike { ranges, peak, not_finite, before }
}

/// The first and the last step of each range to skip.
pub fn ranges(spikes: &[Spike]) -> impl Iterator<Item = (usize, usize)> {
    spikes.iter().flat_map(|spike| spike.ranges.iter().copied())
}

/// The flag that skips these spikes.
pub fn flag(spikes: &[Spike]) -> String {
    let ends: Vec<String> =
        ranges(spikes).map(|(first, last)| format!(" {first} {last}")).collect();
    format!("--train-range-to-skip{}", ends.concat())
}

/// One line of a metrics file, as far as spikes need it.
#[derive(Deserialize)]
struct Line {
    step: usize,
    /// JSON has no NaN: such a loss is null.
    loss: Option<f64>,
    /// Whether the step was skipped, and so has no loss.
    #[serde(default)]
    skipped: bool,
}

/// Bytes of a metrics file: a million steps and more.
const METRICS: u64 = 1 << 30;

/// Steps and their losses from the file of `--metrics`, of any lab.
pub fn read(path: &Path) -> Result<Vec<(usize, f64)>, BadInput> {
    let shown = path.display();
    let help = "name the file that --metrics wrote; a run of lab08 writes runs/lab08/metrics.jsonl";
    let text = files::text(path, METRICS)
        .map_err(|error| BadInput::new(format!("cannot read {shown}: {error}"), help))?;
    let mut losses = Vec::new();
    let mut last = 0;
    for (number, line) in (1..).zip(text.lines()) {
        let line: Line = serde_json::from_str(line).map_err(|error| {
            BadInput::new(format!("{shown}, line {number}: no step with its loss: {error}"), help)
        })?;
        // Two runs in one file would say a step's loss twice, and a jump between them is no spike.
        if line.step <= last {
            let what = format!("{shown}, line {number}: step {} after step {last}", line.step);
            let help = "name the file of one run, whose steps rise: another run's begins there";
            return Err(BadInput::new(what, help));
        }
        last = line.step;
        if !line.skipped {
            losses.push((line.step, line.loss.unwrap_or(f64::NAN)));
        }
    }
    Ok(losses)
}

/// The spikes in a metrics file, and the steps to skip. Rank 0 reads the file for all ranks, which
/// call this together.
pub fn agree(comm: &Comm, path: &Path) -> Result<(Vec<Spike>, Ranges)> {
    let spikes = if comm.rank() == 0 {
        find(&read(path)?)
    } else {
        Vec::new()
    };
    let mut ends: Vec<i64> =
        ranges(&spikes).flat_map(|(first, last)| [first as i64, last as i64]).collect();
    let mut count = [ends.len() as u64];
    comm.broadcast(&mut count, 0)?;
    ends.resize(count[0] as usize, 0);
    comm.broadcast(&mut ends, 0)?;
    Ok((spikes, Ranges::parse(&ends)?))
}

/// The spikes in a metrics file as a table.
pub fn show(screen: &Screen, spikes: &[Spike], path: &Path) -> String {
    let steps = |first: usize, last: usize| match last {
        _ if last == first => first.to_string(),
        _ => format!("{first} to {last}"),
    };
    let row = |spike: &Spike| {
        let to_skip: Vec<String> =
            spike.ranges.iter().map(|&(first, last)| steps(first, last)).collect();
        let peak = match spike.not_finite {
            0 => format!("{:.3}", spike.peak),
            n => format!("{n} not finite"),
        };
        let Limit { median, limit } = spike.before;
        [to_skip.join(", "), peak, format!("{median:.3}"), format!("{limit:.3}")].to_vec()
    };
    let header = ["steps to skip", "highest loss", "median before", "limit"];
    let found = screen.row("spikes", &format!("in {}, found by --find-spikes", path.display()));
    format!("{found}\n{}", table(screen, &header, spikes.iter().map(row)))
}

/// Prints the spikes in a metrics file, and the flag that skips them.
pub fn report(screen: &Screen, path: &Path) -> Result<(), BadInput> {
    let losses = read(path)?;
    if !launch::is_first_process() {
        return Ok(());
    }
    let spikes = find(&losses);
    if spikes.is_empty() {
        let none = format!(
            "none in {}: {} losses, and none is above its limit",
            path.display(),
            losses.len()
        );
        screen.say(screen.row("spikes", &none));
    } else {
        screen.say(format!("{}\n\n  {}", show(screen, &spikes, path), flag(&spikes)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::tensor::random::Stream;

    /// A falling loss with noise of this standard deviation, for steps from 1, changed by `edit`.
    fn curve(steps: usize, noise: f64, edit: impl Fn(usize, f64) -> f64) -> Vec<(usize, f64)> {
        let stream = Stream::new(7, "noise");
        let of = |step: usize| {
            // Twelve uniform numbers add up to one that is nearly normal.
            let uniform = |i: usize| {
                stream.below(1 << 20, (12 * step + i) as u64) as f64 / f64::from(1 << 20) - 0.5
            };
            let normal: f64 = (0..12).map(uniform).sum();
            edit(step, 2.0 + 2.0 * (-(step as f64) / 30.0).exp() + noise * normal)
        };
        (1..=steps).map(|step| (step, of(step))).collect()
    }

    /// The ranges to skip.
    fn ranges(losses: &[(usize, f64)]) -> Vec<(usize, usize)> {
        super::ranges(&find(losses)).collect()
    }

    #[test]
    fn a_curve_without_a_spike_has_none() {
        for noise in [0.0, 0.01, 0.1, 0.3] {
            assert_eq!(ranges(&curve(10_000, noise, |_, loss| loss)), [], "noise {noise}");
        }
        assert_eq!(ranges(&[]), []);
        // A sudden fall is good news.
        assert_eq!(
            ranges(&curve(200, 0.1, |step, loss| if step > 100 { loss - 1.0 } else { loss })),
            []
        );
    }

    #[test]
    fn one_step_and_several() {
        let at = |from: usize, to: usize, noise: f64| {
            curve(
                200,
                noise,
                move |step, loss| {
                    if (from..=to).contains(&step) { loss + 3.0 } else { loss }
                },
            )
        };
        for noise in [0.0, 0.1, 0.2] {
            assert_eq!(ranges(&at(61, 61, noise)), [(61, 61)], "noise {noise}");
            assert_eq!(ranges(&at(61, 64, noise)), [(61, 64)], "noise {noise}");
            assert_eq!(ranges(&at(200, 200, noise)), [(200, 200)], "noise {noise}");
            // Longer than the window: it does not become the baseline.
            assert_eq!(ranges(&at(61, 120, noise)), [(61, 120)], "noise {noise}");
        }
        // Close to each other and far apart.
        for second in [65, 90] {
            let two = curve(200, 0.1, |step, loss| {
                if [61, 62, second].contains(&step) {
                    loss + 3.0
                } else {
                    loss
                }
            });
            assert_eq!(flag(&find(&two)), format!("--train-range-to-skip 61 62 {second} {second}"));
        }
    }

    #[test]
    fn damaged_weights_are_not_bad_batches() {
        // Four bad batches whose loss falls, then a recovery of 15 steps, in which the loss crosses
        // the limit several times.
        let losses = curve(120, 0.05, |step, loss| match step {
            61..=64 => loss + 3.0 - 0.2 * (step - 61) as f64,
            65..=79 => {
                loss + 0.6 * (80 - step) as f64 / 15.0 - if step % 3 == 0 { 0.4 } else { 0.0 }
            }
            _ => loss,
        });
        let spikes = find(&losses);
        assert_eq!((spikes.len(), &spikes[0].ranges[..]), (1, &[(61, 64)][..]), "{spikes:?}");
        assert!(
            (spikes[0].peak - 5.26).abs() < 0.1 && (spikes[0].before.median - 2.3).abs() < 0.1,
            "{spikes:?}"
        );
    }

    #[test]
    fn the_first_steps_have_no_baseline() {
        let losses = curve(60, 0.05, |step, loss| if step <= 3 { loss + 9.0 } else { loss });
        assert_eq!(ranges(&losses), []);
        let losses =
            curve(60, 0.05, |step, loss| if step == FEWEST + 1 { loss + 9.0 } else { loss });
        assert_eq!(ranges(&losses), [(FEWEST + 1, FEWEST + 1)]);
    }

    #[test]
    fn a_loss_that_is_not_finite_is_a_spike_at_any_step() {
        let bad = |steps: &'static [usize]| {
            curve(120, 0.05, move |step, loss| if steps.contains(&step) { f64::NAN } else { loss })
        };
        assert_eq!(ranges(&bad(&[2])), [(2, 2)]);
        assert_eq!(ranges(&bad(&[61, 62, 63])), [(61, 63)]);
        assert_eq!(find(&bad(&[61, 62, 63]))[0].not_finite, 3);
        // The losses before it were rising.
        let losses = curve(120, 0.05, |step, loss| match step {
            61 => loss + 1.0,
            62 => loss + 8.0,
            63..=65 => f64::INFINITY,
            _ => loss,
        });
        assert_eq!(ranges(&losses), [(61, 65)]);
        let all: Vec<_> = (1..=20).map(|step| (step, f64::NAN)).collect();
        assert_eq!(ranges(&all), [(1, 20)]);
        assert!(show(&Screen::plain(), &find(&all), Path::new("m")).contains("20 not finite"));
    }

    #[test]
    fn a_recorded_run_has_each_step_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        for (steps, says) in [
            (&[1, 2, 3][..], ""),
            (&[5, 6, 9], ""),
            (&[1, 2, 2], "line 3: step 2 after step 2"),
            (&[1, 2, 3, 1, 2], "line 4: step 1 after step 3"),
        ] {
            let line = |step: &usize| format!("{{\"step\":{step},\"loss\":4.0}}\n");
            std::fs::write(&path, steps.iter().map(line).collect::<String>()).unwrap();
            match read(&path) {
                Ok(losses) => assert!(says.is_empty() && losses.len() == steps.len()),
                Err(error) => assert!(!says.is_empty() && error.what.contains(says), "{error}"),
            }
        }
    }

    #[test]
    fn a_metrics_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let lines = "{\"step\":1,\"loss\":4.1,\"dt\":0.1}\n{\"step\":2,\"loss\":null}\n{\"step\":3,\"loss\":null,\"skipped\":true}\n\
                     {\"step\":4,\"loss\":3.0,\"skipped\":false}\n";
        std::fs::write(&path, lines).unwrap();
        let losses = read(&path).unwrap();
        assert_eq!((losses.len(), losses[0], losses[2]), (3, (1, 4.1), (4, 3.0)));
        assert!(losses[1].0 == 2 && losses[1].1.is_nan());
        std::fs::write(&path, "{\"step\":1,\"loss\":4.1}\nstep=2 loss=4\n").unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.what.contains("metrics.jsonl, line 2: no step with its loss"), "{error}");
        let error = read(&dir.path().join("none")).unwrap_err();
        assert!(
            error.what.starts_with("cannot read ") && error.help.contains("--metrics"),
            "{error}"
        );
    }
}
