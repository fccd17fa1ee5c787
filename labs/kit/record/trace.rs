//! `--trace FILE`: writes the time spans of all ranks' steps to one file for a trace viewer.

use super::clock::{Lap, Part};
use super::output::{self, create};
use crate::show::Screen;
use crate::show::trace::{self, Span, Track};
use anyhow::Result;
use shardlab::comm::{Comm, Reduce};
use shardlab::parallel::Averaged;
use shardlab::parallel::pipeline::{Instruction, Op, StepRecord, Work};
use shardlab::parallel::zero::{Event, EventKind};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// One rank's trace, if `--trace` asks for it.
#[derive(Default)]
pub struct Trace(Option<Recording>);

struct Recording {
    path: PathBuf,
    /// The time at which all ranks left a barrier. Clocks of different processes have no other
    /// common time.
    origin: Instant,
    spans: Vec<Span>,
}

impl Trace {
    /// One that records nothing.
    pub fn none() -> Trace {
        Trace(None)
    }

    /// Creates the file, so that a file that cannot be written is an error before work starts. With
    /// a `path`, all ranks must call it.
    pub fn new(comm: &Comm, path: Option<&Path>) -> Result<Trace> {
        let Some(path) = path else {
            return Ok(Trace::none());
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

    /// Records a step: its parts, and each bucket's all-reduce. The parts leave out the time in
    /// which the rank only waited. If there are several micro-batches, their numbers are in the
    /// names.
    pub fn step(&mut self, step: usize, laps: &[Lap], averaged: &[Averaged]) {
        let Some(recording) = &mut self.0 else { return };
        for (i, lap) in laps.iter().enumerate() {
            let name = name_of(lap.part, i, laps);
            let mut start = lap.start;
            let waits = averaged
                .iter()
                .map(|bucket| bucket.waited)
                .filter(|_| lap.part == Part::Backward);
            for (from, to) in waits.filter(|&(from, to)| lap.start <= from && to <= lap.end) {
                recording.add(Track::Compute, name.clone(), step, (start, from));
                recording.add(Track::Waiting, "waiting for an all-reduce", step, (from, to));
                start = to;
            }
            recording.add(Track::Compute, name, step, (start, lap.end));
        }
        recording.add_all_reduces(step, averaged);
    }

    /// Records a pipeline's step: passes, messages, the averaging of gradients that followed, and
    /// the `optimizer`'s time.
    pub fn pipelined(
        &mut self,
        step: usize,
        ran: &StepRecord,
        averaged: &[Averaged],
        optimizer: (Instant, Instant),
    ) {
        let Some(recording) = &mut self.0 else { return };
        let chunks = ran.passes.iter().any(|pass| pass.op.chunk > 0);
        for &(instruction, start, end) in &ran.instructions {
            let time = (start, end);
            match instruction {
                Instruction::Compute(op) => {
                    recording.add(Track::Compute, of_pass(op, chunks), step, time);
                }
                Instruction::Send { op, to } => {
                    let name = format!("send {} to pipeline rank {to}", of_pass(op, chunks));
                    recording.add(Track::Messages, name, step, time);
                }
                Instruction::Recv { op, from } => {
                    let what = format!("{} from pipeline rank {from}", of_pass(op, chunks));
                    recording.add(Track::Messages, format!("receive {what}"), step, time);
                    recording.add(Track::Waiting, format!("waiting for {what}"), step, time);
                }
            }
        }
        // A rank that stops in a backward pass for an all-reduce has its wait there.
        for bucket in averaged {
            recording.add(Track::Waiting, "waiting for an all-reduce", step, bucket.waited);
        }
        recording.add_all_reduces(step, averaged);
        recording.add(Track::Compute, Part::Optimizer.name(), step, optimizer);
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

    /// Gathers all ranks' spans. All ranks call it at the end; rank 0 writes the file and returns
    /// its path.
    pub fn write(&self, comm: &Comm) -> Result<Option<&Path>> {
        let Some(Recording { path, spans, .. }) = &self.0 else {
            return Ok(None);
        };
        let mine = trace::events(comm.rank(), spans);
        let longest = comm.reduced(mine.len() as u64, Reduce::Max)? as usize;
        let mut padded = mine.into_bytes();
        padded.resize(longest, b' ');
        let mut all = vec![0u8; if comm.rank() == 0 { longest * comm.size() } else { 0 }];
        comm.gather(&padded, &mut all, 0)?;
        if comm.rank() != 0 {
            return Ok(None);
        }
        let ranks: Vec<String> = all
            .chunks_exact(longest)
            .map(|rank| String::from_utf8_lossy(rank).into())
            .collect();
        output::write(path, &trace::document(&ranks))?;
        Ok(Some(path))
    }
}

/// A part of a step, with the micro-batch's number if there are several.
fn name_of(part: Part, at: usize, laps: &[Lap]) -> Cow<'static, str> {
    let like = |laps: &[Lap]| laps.iter().filter(|lap| lap.part == part).count();
    if like(laps) > 1 {
        format!("{} {}", part.name(), like(&laps[..at])).into()
    } else {
        part.name().into()
    }
}

/// A pass, with its micro-batch, and its chunk if ranks have several.
fn of_pass(op: Op, chunks: bool) -> String {
    let work = match op.work {
        Work::Forward => "forward",
        Work::Backward => "backward",
        Work::Weights => "backward (weights)",
    };
    let micro = op.micro;
    if chunks {
        format!("{work} {micro} of chunk {}", op.chunk)
    } else {
        format!("{work} {micro}")
    }
}

/// The row with the trace's path, and the way to open it.
pub fn row(screen: &Screen, path: &Path) -> String {
    screen.row(
        "trace",
        &format!("{}: open it at ui.perfetto.dev (it stays on your machine)", path.display()),
    )
}

impl Recording {
    fn add(
        &mut self,
        track: Track,
        name: impl Into<Cow<'static, str>>,
        step: usize,
        (start, end): (Instant, Instant),
    ) {
        let name = name.into();
        let [start, end] =
            [start, end].map(|time| time.saturating_duration_since(self.origin).as_secs_f64());
        self.spans.push(Span { track, name, step, start, end });
    }

    fn add_all_reduces(&mut self, step: usize, averaged: &[Averaged]) {
        let times = averaged.iter().map(|bucket| (bucket.start, bucket.end));
        self.add_in_turn(Track::Communication, "all-reduce", step, times);
    }

    /// Adds collectives, which share one link. Each span starts at the end of the previous one, if
    /// that is later.
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
