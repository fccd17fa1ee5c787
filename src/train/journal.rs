//! The journal of one rank's training: log lines while it goes on, metrics, and the pictures at the end.

use super::metrics::{Clock, MetricsFile, StepRecord, StepTimes};
use super::{Config, TrainFlags, report};
use crate::comm::{Comm, Reduce, Traffic};
use crate::show::{Plot, Screen, Series, thousands};
use anyhow::{Result, ensure};

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
    config: &'a Config,
    screen: &'a Screen,
    comm: Comm,
    /// One thread's matmul peak, FLOP/s.
    peak: f64,
    log_all_ranks: bool,
    metrics: MetricsFile,
    pub records: Vec<StepRecord>,
    pub evaluations: Vec<Evaluation>,
    times: StepTimes,
    communication: f64,
    /// Bytes and messages of the last step's gradients.
    traffic: Traffic,
}

impl<'a> Journal<'a> {
    pub fn new(
        comm: &Comm,
        config: &'a Config,
        flags: &TrainFlags,
        screen: &'a Screen,
        peak: f64,
    ) -> Result<Journal<'a>> {
        let metrics = flags.run.metrics.as_deref().filter(|_| comm.rank() == 0);
        Ok(Journal {
            config,
            screen,
            comm: comm.clone(),
            peak,
            log_all_ranks: flags.run.log_all_ranks,
            metrics: MetricsFile::create(metrics)?,
            records: Vec::new(),
            evaluations: Vec::new(),
            times: StepTimes::default(),
            communication: 0.0,
            traffic: Traffic::default(),
        })
    }

    /// Writes down a step, counted from 1. `loss` is this rank's; the mean over all ranks is what is kept, and an error on
    /// every rank when it is not a number.
    pub fn step(
        &mut self,
        step: usize,
        loss: f64,
        clock: &Clock,
        traffic: Traffic,
        grad_norm: f64,
        lr: f64,
    ) -> Result<()> {
        let mut mean = [loss];
        self.comm.all_reduce(&mut mean, Reduce::Mean)?;
        ensure!(
            mean[0].is_finite(),
            "the loss is {} at step {step}: training has diverged\nhelp: lower --lr, lengthen --warmup, or set --clip 1",
            mean[0]
        );
        let (times, config) = (&clock.parts, self.config);
        let dt = times.total();
        let tps = config.tokens_per_step() as f64 / dt;
        let ranks = config.ranks as f64;
        let record = StepRecord {
            step,
            loss: mean[0],
            dt,
            dtf: times.forward,
            dtb: times.backward,
            sps: tps / config.shape.block as f64,
            sps_per_rank: tps / config.shape.block as f64 / ranks,
            tps,
            tps_per_rank: tps / ranks,
            mfu: 100.0 * config.shape.flops_per_token() as f64 * tps / (ranks * self.peak),
            train_loss: None,
            val_loss: None,
            grad_norm,
            lr,
        };
        self.times.add(times);
        self.communication += traffic.seconds;
        self.traffic = traffic;
        if step.is_multiple_of(config.log_interval) || step == 1 {
            self.log(&record, loss);
        }
        if !config.evaluates_after(step) {
            self.metrics.write(&record)?;
        }
        self.records.push(record);
        Ok(())
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

    fn log(&self, record: &StepRecord, own_loss: f64) {
        if self.log_all_ranks {
            let own = StepRecord { loss: own_loss, ..record.clone() };
            let name = self.screen.rank(self.comm.rank(), format!("[{}]", self.comm.rank()));
            self.screen.say(format!("{name} {}", own.line()));
        } else if self.comm.rank() == 0 {
            self.screen.say(record.line());
        }
    }

    /// Loss and speed as plots, where the time went, and the bytes that gradients took.
    pub fn show(&self) {
        let point = |step: usize, y: f64| (step as f64, y);
        let loss = Plot::new("loss", "step")
            .series(Series::line("train", self.records.iter().map(|r| point(r.step, r.loss))))
            .series(Series::dots("val", self.evaluations.iter().map(|e| point(e.step, e.val))));
        self.screen.say(format!("\n{}\n", loss.height(12).render(self.screen)));
        let speed = Plot::new("tokens per second, all ranks", "step")
            .series(Series::line("tps", self.records.iter().map(|r| point(r.step, r.tps))));
        self.screen.say(format!("{}\n", speed.height(6).render(self.screen)));
        report::time_shares(self.screen, &self.times, self.communication);
        if let Some(bytes) = self.expected_bytes() {
            let parameters = thousands(self.config.shape.parameters());
            let text = format!(
                "{} bytes a step and rank; formula: 2(n-1)/n x 4 x {parameters} = {}",
                thousands(self.traffic.bytes),
                thousands(bytes as u64)
            );
            self.screen.say(self.screen.row("sent", &text));
        }
    }

    /// What averaging all gradients once makes a rank send: 2(n-1)/n times their bytes.
    fn expected_bytes(&self) -> Option<f64> {
        let n = self.comm.size() as f64;
        (n > 1.0).then(|| 2.0 * (n - 1.0) / n * 4.0 * self.config.shape.parameters() as f64)
    }
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
