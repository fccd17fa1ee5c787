//! `--trace FILE`: writes the time spans of all ranks' steps to one file for a trace viewer.

use super::metrics::{Clock, Part, create};
use crate::show::Screen;
use crate::show::trace::{self, Span, Track};
use anyhow::{Context, Result};
use shardlab::comm::Comm;
use shardlab::parallel::Averaged;
use shardlab::parallel::zero::{Event, EventKind};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// One rank's trace, if `--trace` asks for it.
pub struct Trace(Option<Recording>);

struct Recording {
    path: PathBuf,
    /// The time at which all ranks left a barrier. Clocks of different processes have no other common time.
    origin: Instant,
    spans: Vec<Span>,
}

impl Trace {
    /// Creates the file, so that a file that cannot be written is an error before work starts. With a `path`, all ranks
    /// must call it.
    pub fn new(comm: &Comm, path: Option<&Path>) -> Result<Trace> {
        let Some(path) = path else {
            return Ok(Trace(None));
        };
        if comm.rank() == 0 {
            create("trace", path)?;
        }
        comm.barrier()?;
        Ok(Trace(Some(Recording {
            path: path.to_path_buf(),
            origin: Instant::now(),
            spans: Vec::new(),
        })))
    }

    /// Records a step: its parts, and each bucket's all-reduce. The parts leave out the time in which the rank only
    /// waited.
    pub fn step(&mut self, step: usize, clock: &Clock, averaged: &[Averaged]) {
        let Some(recording) = &mut self.0 else { return };
        for lap in &clock.laps {
            let mut start = lap.start;
            let waits = averaged
                .iter()
                .map(|bucket| bucket.waited)
                .filter(|_| lap.part == Part::Backward);
            for (from, to) in waits.filter(|&(from, to)| lap.start <= from && to <= lap.end) {
                recording.add(Track::Compute, lap.part.name(), step, (start, from));
                recording.add(
                    Track::Waiting,
                    "waiting for an all-reduce",
                    step,
                    (from, to),
                );
                start = to;
            }
            recording.add(Track::Compute, lap.part.name(), step, (start, lap.end));
        }
        let all_reduces = averaged.iter().map(|bucket| (bucket.start, bucket.end));
        recording.add_in_turn(Track::Communication, "all-reduce", step, all_reduces);
    }

    /// Records the times of a step's gathers, and the time in which the rank only waited for them.
    pub fn gathers(&mut self, step: usize, events: &[Event]) {
        let Some(recording) = &mut self.0 else { return };
        let times = |kind| {
            events
                .iter()
                .filter(move |event| event.kind == kind)
                .map(|event| (event.start, event.end))
        };
        recording.add_in_turn(Track::Gathers, "gather", step, times(EventKind::Gather));
        for time in times(EventKind::Wait) {
            recording.add(Track::Waiting, "waiting for a gather", step, time);
        }
    }

    /// Gathers all ranks' spans. All ranks call it at the end; rank 0 writes the file and returns its path.
    pub fn write(&self, comm: &Comm) -> Result<Option<&Path>> {
        let Some(Recording { path, spans, .. }) = &self.0 else {
            return Ok(None);
        };
        let mine = trace::events(comm.rank(), spans);
        let mut lengths = vec![0u64; comm.size()];
        comm.all_gather(&[mine.len() as u64], &mut lengths)?;
        let longest = lengths.iter().copied().max().unwrap_or_default() as usize;
        let mut padded = mine.into_bytes();
        padded.resize(longest, b' ');
        let mut all = vec![
            0u8;
            if comm.rank() == 0 {
                longest * comm.size()
            } else {
                0
            }
        ];
        comm.gather(&padded, &mut all, 0)?;
        if comm.rank() != 0 {
            return Ok(None);
        }
        let ranks: Vec<String> = all
            .chunks_exact(longest)
            .map(|rank| String::from_utf8_lossy(rank).into())
            .collect();
        std::fs::write(path, trace::document(&ranks))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Some(path))
    }
}

/// The row with the trace's path, and the way to open it.
pub fn row(screen: &Screen, path: &Path) -> String {
    screen.row(
        "trace",
        &format!(
            "{}: open it at ui.perfetto.dev (it stays on your machine)",
            path.display()
        ),
    )
}

impl Recording {
    fn add(
        &mut self,
        track: Track,
        name: &'static str,
        step: usize,
        (start, end): (Instant, Instant),
    ) {
        let [start, end] =
            [start, end].map(|time| time.saturating_duration_since(self.origin).as_secs_f64());
        self.spans.push(Span {
            track,
            name,
            step,
            start,
            end,
        });
    }

    /// Adds collectives, which share one link. Each span starts at the end of the previous one, if that is later.
    fn add_in_turn(
        &mut self,
        track: Track,
        name: &'static str,
        step: usize,
        times: impl Iterator<Item = (Instant, Instant)>,
    ) {
        let mut free = self.origin;
        for (start, end) in times {
            let start = start.max(free);
            free = end.max(start);
            self.add(track, name, step, (start, free));
        }
    }
}
