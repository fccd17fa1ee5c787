//! The journal of one rank's training: log lines and metrics during the run, and plots at its end.

use super::clock::{Clock, StepTimes};
use super::progress::Steps;
use super::records::{Rates, Records, StepRecord};
use crate::flags::Due;
use crate::flags::LogFlags;
use crate::machine::{OtherWork, matmul_peak};
use crate::report;
use crate::show::{Plot, Screen, Series, shares, significant};
use crate::trace;
use anyhow::Result;
use shardlab::comm::{CallKind, Comm, CommTraffic, Link};
use shardlab::launch;
use shardlab::parallel::Averaged;
use shardlab::parallel::zero::Event;
use shardlab::plan;
use shardlab::train::{Diverged, TakenStep};
use std::path::Path;
use std::time::Instant;

/// The loss on fixed batches of both splits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// The number of steps so far.
    pub step: usize,
    pub train: f64,
    pub val: f64,
}

/// One rank's record of its training. Only rank 0 prints and writes files, unless `--log-all-ranks`
/// is given.
pub struct Journal<'a> {
    screen: &'a Screen,
    comm: Comm,
    rates: Rates,
    due: Due,
    log: Option<&'a LogFlags>,
    pub records: Records<'a, StepRecord>,
    pub evaluations: Vec<Evaluation>,
    times: StepTimes,
    communication: Communication,
    /// Bytes and messages that the last step's gradients took.
    traffic: CommTraffic,
    /// The bytes that a step should send, as a formula and as a number.
    formula: Option<(String, f64)>,
    /// For each bucket of gradients that a link carries: the fraction of the backward pass at whose
    /// end it is complete, and the seconds of its all-reduce.
    buckets: Vec<(f64, f64)>,
    /// What a terminal shows between the lines of the log.
    steps: Steps,
    /// What other programs have used since the journal was opened.
    pub other_work: OtherWork,
}

impl<'a> Journal<'a> {
    /// Opens the run's files, so that a file that cannot be written is an error before work starts.
    /// Without `log`, the journal prints no lines and writes no files. `due` defines the steps that
    /// an evaluation follows.
    pub fn new(
        comm: &Comm,
        screen: &'a Screen,
        rates: Rates,
        due: Due,
        log: Option<&'a LogFlags>,
    ) -> Result<Journal<'a>> {
        Ok(Journal {
            screen,
            comm: comm.clone(),
            rates,
            due,
            log,
            records: Records::open(comm, screen, log)?,
            evaluations: Vec::new(),
            times: StepTimes::default(),
            communication: Communication::default(),
            traffic: CommTraffic::default(),
            formula: None,
            buckets: Vec::new(),
            steps: Steps::new(due.last),
            other_work: OtherWork::watch(),
        })
    }

    /// Records step number `step`, counted from 1, and the `traffic` that it took. The recorded
    /// loss is the mean over all ranks. If it is not finite, every rank gets an error.
    pub fn step(&mut self, step: usize, taken: &TakenStep, traffic: CommTraffic) -> Result<()> {
        let mean = self.records.mean_loss(taken.loss)?;
        if !mean.is_finite() {
            return Err(Diverged { step, what: format!("the loss is {mean}") }.into());
        }
        let clock = Clock::of(&taken.computed);
        self.times.add(&clock.parts);
        self.communication.add(&taken.computed.averaged);
        self.records.trace(step, &clock, &taken.computed.averaged);
        self.traffic = traffic;
        let is_logged = self
            .log
            .is_some_and(|log| step.is_multiple_of(log.interval(self.due.last)) || step == 1);
        let record = self.rates.record(step, mean, &clock.parts, (taken.grad_norm, taken.lr));
        self.records.add(record, taken.loss, is_logged);
        if self.log.is_some() {
            self.steps.training(&self.comm, step);
        }
        if !self.due.after(step) {
            self.records.write_last()?;
        }
        Ok(())
    }

    /// Records the times of a step's gathers, for `--trace`.
    pub fn gathered(&mut self, step: usize, events: &[Event]) {
        self.records.trace.gathers(step, events);
    }

    /// Records an evaluation after the last recorded step.
    pub fn evaluated(&mut self, evaluation: Evaluation) -> Result<()> {
        self.evaluations.push(evaluation);
        if let Some(record) = self.records.last_mut() {
            record.train_loss = Some(evaluation.train);
            record.val_loss = Some(evaluation.val);
        }
        self.records.write_last()
    }

    /// Whether the last evaluation has the lowest validation loss so far. The evaluation before
    /// training counts.
    pub fn improved(&self) -> bool {
        is_best(&self.evaluations)
    }

    /// Prints plots of loss and speed, the time of each part of a step, and the bytes that
    /// gradients took. With `averaging` or `--all`, also prints the time of all-reduces. Writes the
    /// trace. All ranks call it at the end; rank 0 prints and writes.
    pub fn show(&self, averaging: bool) -> Result<()> {
        let trace = self.records.write_trace()?;
        let all = self.log.is_some_and(|log| log.all);
        if self.comm.rank() == 0 {
            self.draw(averaging, trace);
        }
        if all {
            report::used(self.screen, &self.comm)?;
        }
        Ok(())
    }

    /// Rank 0's part of [`Journal::show`].
    fn draw(&self, averaging: bool, trace: Option<&Path>) {
        let point = |step: usize, y: f64| (step as f64, y);
        let loss = Plot::new("loss", "step")
            .series(Series::line("train", self.records.iter().map(|r| point(r.step, r.loss))))
            .series(Series::dots("val", self.evaluations.iter().map(|e| point(e.step, e.val))));
        self.screen.say(format!("\n{}\n", loss.height(4).render(self.screen)));
        let all = self.log.is_some_and(|log| log.all);
        if all {
            let speed = Plot::new("tokens per second, all ranks", "step")
                .series(Series::line("tps", self.records.iter().map(|r| point(r.step, r.tps))));
            self.screen.say(format!("{}\n", speed.height(6).render(self.screen)));
        }
        self.screen.say(self.time_shares());
        let highest = self.records.iter().map(|record| record.mfu).fold(0.0, f64::max);
        let again = || matmul_peak(self.rates.precision);
        if let Some(remark) = self.rates.remark(highest, again) {
            self.screen.say(self.screen.row("mfu", &remark));
        }
        let ranks = launch::ranks_here(self.comm.size());
        if let Some(busy) = self.other_work.row(self.screen, ranks) {
            self.screen.say(busy);
        }
        if (averaging || all) && self.comm.size() > 1 && !self.records.is_empty() {
            let steps = self.records.len();
            let backward = self.times.backward - self.communication.exposed;
            let mut text = self.communication.in_words(steps);
            if !self.buckets.is_empty() {
                let predicted =
                    plan::exposed(backward / steps as f64, self.buckets.iter().copied());
                text += &format!("; predicted exposed: {}", milliseconds(predicted));
            }
            self.screen.say(self.screen.row("averaging", &text));
        }
        if let Some(formula) = self.formula.as_ref().filter(|_| self.comm.size() > 1) {
            report::sent(self.screen, self.traffic.bytes, formula);
        }
        if let Some(path) = trace {
            self.screen.say(trace::row(self.screen, path));
        }
    }

    /// Each part's share of all steps' seconds. Reading data is named where it takes 1% or more:
    /// the row must fit a line of 80 columns.
    fn time_shares(&self) -> String {
        let times = &self.times;
        // All-reduces are a part of the backward pass.
        let all_reduce = self.communication.exposed;
        let mut parts = vec![
            ("forward", times.forward),
            ("backward", (times.backward - all_reduce).max(0.0)),
            ("all-reduce", all_reduce),
            ("optimizer", times.optimizer),
        ];
        let others: f64 = parts.iter().map(|(_, seconds)| seconds).sum();
        if times.data >= 0.01 * others {
            parts.push(("data", times.data));
        }
        self.screen.row("time", &shares(self.screen, &parts))
    }

    /// Bytes that this rank sent in the last step.
    pub fn sent(&self) -> u64 {
        self.traffic.bytes
    }

    /// Predicts the communication over `link`, if there is one, for buckets of these `elements` in
    /// the order of the backward pass. The prediction assumes that the pass completes parameters at
    /// a constant rate.
    pub fn expect_on_link(&mut self, link: Option<Link>, elements: &[usize]) {
        let Some(link) = link else { return };
        let all = elements.iter().sum::<usize>() as f64;
        let mut done = 0;
        let bucket = |&elements: &usize| {
            done += elements;
            (
                done as f64 / all,
                link.collective_seconds(CallKind::AllReduce, self.comm.size(), 4 * elements),
            )
        };
        self.buckets = elements.iter().map(bucket).collect();
    }

    /// Sets the bytes that a step should send, as a formula and as a number.
    pub fn expect(&mut self, formula: (String, f64)) {
        self.formula = Some(formula);
    }
}

/// Seconds of communication, over all steps.
#[derive(Default)]
struct Communication {
    /// Seconds with at least one all-reduce in flight.
    in_flight: f64,
    /// Seconds in which the rank only waited for an all-reduce.
    exposed: f64,
}

impl Communication {
    fn add(&mut self, averaged: &[Averaged]) {
        let mut covered: Option<Instant> = None;
        for Averaged { start, end, waited: (from, to) } in averaged {
            let start = covered.map_or(*start, |covered| covered.max(*start));
            self.in_flight += end.saturating_duration_since(start).as_secs_f64();
            covered = covered.max(Some(*end));
            self.exposed += (*to - *from).as_secs_f64();
        }
    }

    fn in_words(&self, steps: usize) -> String {
        let each = |all: f64| milliseconds(all / steps as f64);
        let hidden = (self.in_flight - self.exposed).max(0.0);
        let exposed = self.exposed;
        format!(
            "{} in flight per step: {} hidden behind the backward pass, {} exposed",
            each(self.in_flight),
            each(hidden),
            each(exposed)
        )
    }
}

fn milliseconds(seconds: f64) -> String {
    format!("{} ms", significant(1e3 * seconds, 3))
}

fn is_best(evaluations: &[Evaluation]) -> bool {
    let Some((last, earlier)) = evaluations.split_last() else {
        return false;
    };
    !earlier.is_empty() && earlier.iter().all(|e| last.val < e.val)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_better_than_everything_before_is_saved() {
        let all: Vec<Evaluation> = [(3.0, 1.0), (2.0, 5.0), (2.5, 0.5), (2.2, 0.4), (1.9, 9.0)]
            .into_iter()
            .enumerate()
            .map(|(step, (val, train))| Evaluation { step, train, val })
            .collect();
        let best: Vec<bool> = (0..=all.len()).map(|n| is_best(&all[..n])).collect();
        assert_eq!(best, [false, false, true, false, false, true]);
    }
}
