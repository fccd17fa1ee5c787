//! The journal of one rank's training: log lines while it goes on, metrics, and the pictures at the end.

use super::evaluate::Due;
use super::flags::LogFlags;
use super::metrics::{Clock, MetricsFile, Rates, StepOutcome, StepRecord, StepTimes};
use super::trace::{self, Trace};
use super::{Diverged, report};
use crate::comm::{Comm, Kind, Link, Reduce, Traffic};
use crate::parallel::Averaged;
use crate::parallel::zero::Event;
use crate::plan;
use crate::show::{Plot, Screen, Series, significant};
use anyhow::Result;
use std::time::Instant;

/// Loss on the fixed batches of both splits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Steps trained so far.
    pub step: usize,
    pub train: f64,
    pub val: f64,
}

/// What one rank writes down. Only rank 0 prints and writes files, unless `--log-all-ranks`.
pub struct Journal<'a> {
    screen: &'a Screen,
    comm: Comm,
    rates: Rates,
    due: Due,
    log: Option<&'a LogFlags>,
    metrics: MetricsFile,
    pub records: Vec<StepRecord>,
    pub evaluations: Vec<Evaluation>,
    times: StepTimes,
    communication: Communication,
    trace: Trace,
    /// Bytes and messages of the last step's gradients.
    traffic: Traffic,
    /// What they should be, in words and in bytes.
    formula: Option<(String, f64)>,
    /// Of each bucket of gradients, on a link: by when the backward pass has completed it (0 to 1), and its seconds there.
    buckets: Vec<(f64, f64)>,
}

impl<'a> Journal<'a> {
    /// Opens the run's files, so that what cannot be written is known before work starts. Without `log`, nothing is printed
    /// or written into files. `due` says after which steps an evaluation follows.
    pub fn new(
        comm: &Comm,
        screen: &'a Screen,
        rates: Rates,
        due: Due,
        log: Option<&'a LogFlags>,
    ) -> Result<Journal<'a>> {
        let metrics = log.and_then(|log| log.metrics.as_deref()).filter(|_| comm.rank() == 0);
        Ok(Journal {
            screen,
            comm: comm.clone(),
            rates,
            due,
            log,
            metrics: MetricsFile::create(metrics)?,
            records: Vec::new(),
            evaluations: Vec::new(),
            times: StepTimes::default(),
            communication: Communication::default(),
            trace: Trace::new(comm, log.and_then(|log| log.trace.as_deref()))?,
            traffic: Traffic::default(),
            formula: None,
            buckets: Vec::new(),
        })
    }

    /// Writes down a step: its times, what it sent, and its all-reduces. The loss that is kept is the mean over all ranks, and
    /// an error on every rank when it is not finite.
    pub fn step(&mut self, outcome: StepOutcome, clock: &Clock, traffic: Traffic, averaged: &[Averaged]) -> Result<()> {
        let StepOutcome { step, loss, .. } = outcome;
        let mut mean = [loss];
        self.comm.all_reduce(&mut mean, Reduce::Mean)?;
        if !mean[0].is_finite() {
            return Err(Diverged { step, what: format!("the loss is {}", mean[0]) }.into());
        }
        let record = self.rates.record(outcome, mean[0], &clock.parts);
        self.times.add(&clock.parts);
        self.communication.add(averaged);
        self.trace.step(step, clock, averaged);
        self.traffic = traffic;
        if let Some(log) = self.log.filter(|log| step.is_multiple_of(log.interval(self.due.last)) || step == 1) {
            self.log(&record, loss, log.log_all_ranks);
        }
        if !self.due.after(step) {
            self.metrics.write(&record)?;
        }
        self.records.push(record);
        Ok(())
    }

    /// Notes when a step's parameters were gathered, for `--trace`.
    pub fn gathered(&mut self, step: usize, events: &[Event]) {
        self.trace.gathers(step, events);
    }

    /// Writes down an evaluation after the last step that was written down.
    pub fn evaluated(&mut self, evaluation: Evaluation) -> Result<()> {
        self.evaluations.push(evaluation);
        if let Some(record) = self.records.last_mut() {
            record.train_loss = Some(evaluation.train);
            record.val_loss = Some(evaluation.val);
            self.metrics.write(record)?;
        }
        Ok(())
    }

    /// Whether the last evaluation has a lower validation loss than all before it, the one before training included.
    pub fn improved(&self) -> bool {
        is_best(&self.evaluations)
    }

    fn log(&self, record: &StepRecord, own_loss: f64, all_ranks: bool) {
        if all_ranks {
            let own = StepRecord { loss: own_loss, ..record.clone() };
            let name = self.screen.rank(self.comm.rank(), format!("[{}]", self.comm.rank()));
            self.screen.say(format!("{name} {}", own.line()));
        } else if self.comm.rank() == 0 {
            self.screen.say(record.line());
        }
    }

    /// Loss and speed as plots, where the time went, and the bytes that gradients took.
    /// To be called by all ranks at the end; rank 0 prints and saves.
    pub fn show(&self) -> Result<()> {
        let trace = self.trace.write(&self.comm)?;
        if self.comm.rank() != 0 {
            return Ok(());
        }
        let point = |step: usize, y: f64| (step as f64, y);
        let loss = Plot::new("loss", "step")
            .series(Series::line("train", self.records.iter().map(|r| point(r.step, r.loss))))
            .series(Series::dots("val", self.evaluations.iter().map(|e| point(e.step, e.val))));
        self.screen.say(format!("\n{}\n", loss.height(5).render(self.screen)));
        if self.log.is_some_and(|log| log.all) {
            let speed = Plot::new("tokens per second, all ranks", "step")
                .series(Series::line("tps", self.records.iter().map(|r| point(r.step, r.tps))));
            self.screen.say(format!("{}\n", speed.height(6).render(self.screen)));
        }
        report::time_shares(self.screen, &self.times, self.communication.exposed);
        if self.comm.size() > 1 && !self.records.is_empty() {
            let (steps, backward) = (self.records.len(), self.times.backward - self.communication.exposed);
            let mut text = self.communication.in_words(steps);
            if !self.buckets.is_empty() {
                let predicted = plan::exposed(backward / steps as f64, self.buckets.iter().copied());
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
        Ok(())
    }

    /// Bytes that this rank sent in the last step.
    pub fn sent(&self) -> u64 {
        self.traffic.bytes
    }

    /// The buckets of gradients that averaging sends over `link`, by their elements, in the order of the backward pass. The pass
    /// is taken to complete as many parameters in each second.
    pub fn expect_on_link(&mut self, link: Option<Link>, elements: &[usize]) {
        let Some(link) = link else { return };
        let (all, mut done) = (elements.iter().sum::<usize>() as f64, 0);
        let bucket = |&elements: &usize| {
            done += elements;
            (done as f64 / all, link.collective_seconds(Kind::AllReduce, self.comm.size(), 4 * elements))
        };
        self.buckets = elements.iter().map(bucket).collect();
    }

    /// What a step should have sent, in words and in bytes.
    pub fn expect(&mut self, formula: (String, f64)) {
        self.formula = Some(formula);
    }
}

/// Seconds of all-reduces, over all steps.
#[derive(Default)]
struct Communication {
    /// In which at least one was in flight.
    in_flight: f64,
    /// In which the rank did nothing but wait for one.
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
        let (hidden, exposed) = ((self.in_flight - self.exposed).max(0.0), self.exposed);
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
    let Some((last, earlier)) = evaluations.split_last() else { return false };
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
