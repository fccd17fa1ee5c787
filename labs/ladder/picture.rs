//! The picture of the ladder: each score of all rungs beside each other, and what a rank does in a
//! step.

use crate::clock::{FAR, SPEED};
use crate::{RUNGS, Run, Score, run};
use kit::check::Track;
use kit::show::{Activity, Interval, Screen, Timeline, bar_to_scale, table};
use shardlab::units;

/// One rung's scores.
#[derive(Clone, Debug)]
pub struct Scores {
    /// The rung in one word: `flat`.
    pub rung: String,
    /// The reader's best: peak bytes, bytes sent, microseconds. None where the rung is not solved.
    pub yours: Option<[u64; 3]>,
    pub ours: Score,
    /// What no program can do better.
    pub best: Score,
}

/// Three charts, one for each score. Less is better.
pub fn scores(screen: &Screen, rungs: &[Scores]) -> String {
    let bytes = |bytes: u64| units::bytes_decimal(bytes as f64);
    let time = |micros: u64| units::seconds(micros as f64 * 1e-6);
    let charts: [(&str, &dyn Fn(u64) -> String); 3] = [
        ("peak bytes of a rank", &bytes),
        ("sent between nodes", &bytes),
        ("time of a step", &time),
    ];
    let mut lines = Vec::new();
    for (i, (title, unit)) in charts.into_iter().enumerate() {
        let shown = |rung: &Scores| rung.yours.map_or(rung.ours.figures()[i], |yours| yours[i]);
        let most = rungs.iter().map(shown).max().unwrap_or_default() as f64;
        let row = |rung: &Scores| {
            let [ours, best] = [&rung.ours, &rung.best].map(|score| score.figures()[i]);
            let drawn = shown(rung) as f64;
            // Where the reader has no program yet, the bar is an outline.
            let full = if rung.yours.is_some() { drawn } else { 0.0 };
            let bar = bar_to_scale(screen, full, drawn, most, 20);
            vec![
                rung.rung.clone(),
                bar.trim_end().to_string(),
                rung.yours.map_or("-".into(), |yours| unit(yours[i])),
                unit(ours),
                unit(best),
            ]
        };
        let cells: Vec<Vec<String>> = rungs.iter().map(row).collect();
        let header = [title, "", "yours", "ours", "best"];
        lines.push(table(screen, &header, &cells));
    }
    lines.join("\n\n")
}

/// The program for one rank, and ours of every rung, each with its name.
///
/// # Errors
/// The first one of any program.
pub fn runs() -> anyhow::Result<Vec<(String, Run)>> {
    let mut runs = vec![("one rank".to_string(), RUNGS[0].on_one_rank()?)];
    for rung in &RUNGS {
        runs.push((rung.word().to_string(), run(rung.job, rung.ours)?));
    }
    Ok(runs)
}

/// What one rank does in a step of each run.
pub fn steps(runs: &[(String, Run)]) -> Timeline<'static> {
    let rows = runs.iter().map(|(name, run)| (name.clone(), in_step(run)));
    timeline("rank 0 in one step of our programs", rows.collect())
}

/// Rows of what ranks do, on one scale.
fn timeline(title: &str, rows: Vec<(String, Vec<Interval>)>) -> Timeline<'static> {
    let ends = rows.iter().flat_map(|(_, intervals)| intervals).map(|one| one.end);
    let most = ends.fold(0.0, f64::max);
    let title = format!(
        "{title}, if devices had {} GFLOP/s and a link of {}/s with {} latency",
        SPEED / 1e9,
        units::bytes_decimal(FAR.bandwidth),
        units::seconds(FAR.latency)
    );
    let marks = vec![(0.0, "0".into()), (most, units::seconds(most))];
    Timeline { title, rows, marks, axis: "" }
}

/// What rank 0 does in a step. All steps are alike, so the first one tells.
fn in_step(run: &Run) -> Vec<Interval> {
    let step = run.seconds() / run.job.steps as f64;
    let mut of_rank_0 = run.timeline().swap_remove(0);
    of_rank_0.retain(|one| one.start < step);
    of_rank_0
        .into_iter()
        .map(|one| Interval { end: one.end.min(step), ..one })
        .collect()
}

/// What rank 0 does in a step of someone's program.
pub(crate) fn track(name: &str, run: &Run) -> Track {
    let micros = |seconds: f64| (seconds * 1e6).round() as u64;
    let span = |interval: &Interval| {
        let name = interval.activity.name.to_string();
        (name, micros(interval.start), micros(interval.end))
    };
    Track {
        name: name.into(),
        spans: in_step(run).iter().map(span).collect(),
    }
}

/// The tracks of a check, on one scale.
pub fn beside(screen: &Screen, tracks: &[Track]) -> String {
    let seconds = |micros: u64| micros as f64 * 1e-6;
    let interval = |(name, start, end): &(String, u64, u64)| {
        let activity = Activity::ALL.iter().find(|one| one.name == name)?;
        Some(Interval {
            activity: *activity,
            start: seconds(*start),
            end: seconds(*end),
        })
    };
    let row = |track: &Track| {
        let intervals = track.spans.iter().filter_map(interval);
        (track.name.clone(), intervals.collect::<Vec<_>>())
    };
    timeline("rank 0 in one step", tracks.iter().map(row).collect()).render(screen)
}
