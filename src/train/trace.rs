//! `--trace FILE`: every rank's steps, span by span, in one file for a trace viewer.

use super::metrics::{Clock, Part};
use crate::comm::Comm;
use crate::error::BadInput;
use crate::parallel::Averaged;
use crate::parallel::zero::{Event, EventKind};
use crate::show::Screen;
use crate::show::trace::{self, Span, Track};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// One rank's trace, or nothing if none was asked for.
pub struct Trace(Option<Recording>);

struct Recording {
    path: PathBuf,
    /// When all ranks left a barrier: clocks of different processes have no other moment in common.
    origin: Instant,
    spans: Vec<Span>,
}

impl Trace {
    /// All ranks must come, if there is a `path`; the file is made now, so that what cannot be written is known before work
    /// starts.
    pub fn new(comm: &Comm, path: Option<&Path>) -> Result<Trace> {
        let Some(path) = path else { return Ok(Trace(None)) };
        if comm.rank() == 0 {
            std::fs::File::create(path).map_err(|error| {
                let what = format!("cannot write --trace {}: {error}", path.display());
                BadInput::new(what, "name a file in a folder that exists")
            })?;
        }
        comm.barrier()?;
        Ok(Trace(Some(Recording { path: path.to_path_buf(), origin: Instant::now(), spans: Vec::new() })))
    }

    /// Notes a step: its parts, and each bucket's all-reduce. What the rank waited is cut out of the parts.
    pub fn step(&mut self, step: usize, clock: &Clock, averaged: &[Averaged]) {
        let Some(Recording { origin, spans, .. }) = &mut self.0 else { return };
        let at = |moment: Instant| moment.saturating_duration_since(*origin).as_secs_f64();
        for lap in &clock.laps {
            let mut start = lap.start;
            let waits = averaged.iter().map(|bucket| bucket.waited).filter(|_| lap.part == Part::Backward);
            for (from, to) in waits.filter(|&(from, to)| lap.start <= from && to <= lap.end) {
                spans.push(span(Track::Compute, lap.part.name(), step, at(start), at(from)));
                spans.push(span(Track::Waiting, "waiting for an all-reduce", step, at(from), at(to)));
                start = to;
            }
            spans.push(span(Track::Compute, lap.part.name(), step, at(start), at(lap.end)));
        }
        // One link: a bucket that was started while another one was under way is drawn from when that was over.
        let mut free = 0.0;
        for bucket in averaged {
            let start = at(bucket.start).max(free);
            free = at(bucket.end).max(start);
            spans.push(span(Track::Communication, "all-reduce", step, start, free));
        }
    }

    /// Notes when a step's parameters were gathered, and how long the rank waited for them.
    pub fn gathers(&mut self, step: usize, events: &[Event]) {
        let Some(Recording { origin, spans, .. }) = &mut self.0 else { return };
        let at = |moment: Instant| moment.saturating_duration_since(*origin).as_secs_f64();
        let mut free = 0.0;
        for event in events {
            let (start, end) = (at(event.start), at(event.end));
            match event.kind {
                EventKind::Gather => {
                    // One link: a gather behind an earlier one is drawn from the earlier one's end.
                    let start = start.max(free);
                    free = end.max(start);
                    spans.push(span(Track::Gathers, "gather", step, start, free));
                }
                EventKind::Wait => spans.push(span(Track::Waiting, "waiting for a gather", step, start, end)),
                _ => {}
            }
        }
    }

    /// To be called by all ranks at the end; rank 0 writes the file and returns its path.
    pub fn write(&self, comm: &Comm) -> Result<Option<&Path>> {
        let Some(Recording { path, spans, .. }) = &self.0 else { return Ok(None) };
        let mine = trace::events(comm.rank(), spans);
        let mut lengths = vec![0u64; comm.size()];
        comm.all_gather(&[mine.len() as u64], &mut lengths)?;
        let longest = lengths.iter().copied().max().unwrap_or_default() as usize;
        let mut padded = mine.into_bytes();
        padded.resize(longest, b' ');
        let mut all = vec![0u8; if comm.rank() == 0 { longest * comm.size() } else { 0 }];
        comm.gather(&padded, &mut all, 0)?;
        if comm.rank() != 0 {
            return Ok(None);
        }
        let ranks: Vec<String> = all.chunks_exact(longest).map(|rank| String::from_utf8_lossy(rank).into()).collect();
        std::fs::write(path, trace::document(&ranks)).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Some(path))
    }
}

/// Where the trace is, and how to look at it.
pub fn row(screen: &Screen, path: &Path) -> String {
    screen.row("trace", &format!("{}: open it at ui.perfetto.dev (it stays on your machine)", path.display()))
}

fn span(track: Track, name: &'static str, step: usize, start: f64, end: f64) -> Span {
    Span { track, name, step, start, end }
}
