//! The journal of the smallest job: log lines during the run; plots and a profile at its end, on
//! the screen and in files.

use super::mlp::MlpConfig;
use super::profile::{Profile, Stamps};
use anyhow::{Result, ensure};
use kit::records::{Record, Records};
use kit::show::{Plot, Screen, Series, general, thousands};
use kit::{Clock, LogFlags, OtherWork, output, report, trace};
use serde::Serialize;
use shardlab::comm::Comm;
use shardlab::launch;
use shardlab::parallel::Averaged;
use shardlab::tensor::Precision;
use std::path::Path;

/// One iteration, as `--metrics` writes it. Times are this rank's seconds.
#[derive(Clone, Debug, Serialize)]
pub struct IterRecord {
    /// The iteration, counted from 0.
    pub iter: usize,
    /// Whether the iteration belongs to `--warmup-iters`, which are neither logged nor plotted.
    pub warmup: bool,
    /// Squared error of a rank's batch, mean over ranks, before the iteration's update.
    pub loss: f64,
    /// Samples per second, of all ranks. (The source's `test_dist` counts one rank's, its
    /// `wordplay` counts batches.)
    pub sps: f64,
    /// The whole iteration, from its samples to the optimizer.
    pub dt: f64,
    /// Forward pass.
    pub dtf: f64,
    /// Backward pass, averaging of gradients included. (The source's `test_dist` also includes the
    /// optimizer.)
    pub dtb: f64,
    /// All-reduces, a part of `dtb`.
    pub all_reduce: f64,
    pub optimizer: f64,
}

impl Record for IterRecord {
    /// The log line, with the names of the source's `test_dist`. Times have four digits, so the
    /// line fits 80 columns up to iteration 99, and on most machines beyond.
    fn line(&self, loss: f64) -> String {
        let IterRecord { iter, sps, dt, dtf, dtb, .. } = *self;
        let loss = general(loss, 6);
        let sps = thousands(sps.round() as u64);
        let dt = general(dt, 4);
        let dtf = general(dtf, 4);
        let dtb = general(dtb, 4);
        format!("iter={iter}, loss={loss}, sps={sps}, dt={dt}, dtf={dtf}, dtb={dtb}")
    }

    fn loss(&self) -> f64 {
        self.loss
    }
}

/// One rank's journal.
pub struct Iterations<'a> {
    config: &'a MlpConfig,
    screen: &'a Screen,
    comm: Comm,
    /// Whether all plots are printed.
    all: bool,
    /// Bytes that this rank sent in the last iteration.
    sent: u64,
    /// Every iteration, the warm-up included.
    pub records: Records<'a, IterRecord>,
    /// Stamps of the iterations after the warm-up.
    stamps: Vec<Stamps>,
    watch: OtherWork,
}

impl<'a> Iterations<'a> {
    /// Opens the run's files, so that a file that cannot be written is an error before work starts.
    pub fn new(
        comm: &Comm,
        config: &'a MlpConfig,
        log: &LogFlags,
        screen: &'a Screen,
    ) -> Result<Iterations<'a>> {
        let records = Records::open(comm, screen, Some(log))?;
        if comm.rank() == 0 {
            output::make_folder("out", &config.out)?;
        }
        Ok(Iterations {
            config,
            screen,
            comm: comm.clone(),
            all: log.all,
            sent: 0,
            records,
            stamps: Vec::new(),
            watch: OtherWork::watch(),
        })
    }

    /// Records an iteration, counted from 0: this rank's loss, times, sent bytes, and all-reduces.
    /// The recorded loss is the mean over all ranks. If it is not finite, every rank gets an error.
    pub fn note(
        &mut self,
        iter: usize,
        loss: f64,
        clock: &Clock,
        sent: u64,
        averaged: &[Averaged],
    ) -> Result<()> {
        self.sent = sent;
        let mean = self.records.mean_loss(loss)?;
        ensure!(
            mean.is_finite(),
            "the loss is {mean} at iteration {iter}: training has diverged\nhelp: lower --lr"
        );
        self.records.trace(iter, clock, averaged);
        let config = self.config;
        let stamps = Stamps::new(clock, averaged);
        let dt = stamps.times.total();
        let record = IterRecord {
            iter,
            warmup: iter < config.warmup_iters,
            loss: mean,
            sps: config.samples() as f64 / dt,
            dt,
            dtf: stamps.times.forward,
            dtb: stamps.times.backward,
            all_reduce: stamps.all_reduces.iter().map(|(start, end)| end - start).sum(),
            optimizer: stamps.times.optimizer,
        };
        // The first and the last iteration after the warm-up, and one every `--log-interval`.
        let is_due = iter.is_multiple_of(config.log_interval)
            || iter == config.warmup_iters
            || iter + 1 == config.steps;
        if !record.warmup {
            self.stamps.push(stamps);
        }
        let is_logged = is_due && !record.warmup;
        self.records.add(record, loss, is_logged);
        self.records.write_last()
    }

    /// Draws the run, and saves each picture in the run's folder. All ranks call it at the end;
    /// rank 0 draws.
    pub fn show(&self) -> Result<()> {
        let profile = Profile::gather(&self.comm, &self.stamps, self.config.warmup_iters)?;
        let trace = self.records.write_trace()?;
        if self.comm.rank() == 0 {
            self.draw(&profile, trace)?;
        }
        if self.all {
            report::used(self.screen, &self.comm)?;
        }
        Ok(())
    }

    /// Rank 0's part of [`Iterations::show`].
    fn draw(&self, profile: &Profile, trace: Option<&Path>) -> Result<()> {
        // Files must suit any terminal: 80 columns, no colour.
        let paper = Screen { ascii: self.screen.ascii, ..Screen::plain() };
        let measured = &self.records[self.config.warmup_iters..];
        let plot = |name, title, over, points: Vec<(f64, f64)>| {
            let line = Series::line(name, points);
            (name, Plot::new(title, over).height(6).series(line))
        };
        let curve = |name, title, of: fn(&IterRecord) -> f64| {
            let point = |record: &IterRecord| (record.iter as f64, of(record));
            plot(name, title, "iter", measured.iter().map(point).collect())
        };
        // Over the number of records so far: a straight line, unless an iteration is missing or
        // comes twice.
        let so_far = measured.iter().enumerate();
        let so_far = so_far.map(|(records, record)| (records as f64, record.iter as f64));
        let iterations = plot("iter", "number of the iteration", "records", so_far.collect());
        let plots = [
            curve("loss", "squared error of a batch", |r| r.loss),
            curve("dt", "seconds per iteration", |r| r.dt),
            curve("dtf", "seconds of the forward pass", |r| r.dtf),
            curve("dtb", "seconds of the backward pass", |r| r.dtb),
            iterations,
            curve("sps", "samples per second, all ranks", |r| r.sps),
        ];
        for (name, plot) in plots {
            // One iteration may take a hundred times as long as the others.
            let plot = if ["dt", "dtf", "dtb", "sps"].contains(&name) {
                plot.log_y()
            } else {
                plot
            };
            if self.all {
                self.screen.say(format!("\n{}", plot.render(self.screen)));
            }
            save(&self.config.out.join(format!("{name}.txt")), &plot.render(&paper))?;
        }
        let (tree, timeline) = profile.render(self.screen);
        self.screen.say(format!("\n{tree}\n\n{timeline}\n"));
        if self.config.ranks > launch::cores() {
            let text = "Ranks outnumber cores here: what looks like waiting for a rank is often waiting for a core.";
            self.screen.say(format!("{}\n", self.screen.wrap(text, 2)));
        }
        if let Some(busy) = self.watch.row(self.screen, self.config.ranks) {
            self.screen.say(format!("{busy}\n"));
        }
        let (tree, timeline) = profile.render(&paper);
        save(&self.config.out.join("profile.txt"), &tree)?;
        save(&self.config.out.join("timeline.txt"), &timeline)?;
        if self.config.ranks > 1 {
            let ranks = self.config.ranks;
            let formula = report::all_reduced(self.config.parameters(), Precision::F32, ranks);
            report::sent(self.screen, self.sent, &formula);
        }
        let files =
            format!("6 curves, profile and timeline as .txt in {}", self.config.out.display());
        self.screen.say(self.screen.row("saved", &files));
        if let Some(path) = trace {
            self.screen.say(trace::row(self.screen, path));
        }
        Ok(())
    }
}

fn save(path: &Path, text: &str) -> Result<()> {
    output::write(path, &format!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_sources_names() {
        let record = IterRecord {
            iter: 1,
            warmup: false,
            loss: 2152.41,
            sps: 16_973.2,
            dt: 0.003_770_66,
            dtf: 0.001_003,
            dtb: 0.002_768,
            all_reduce: 0.0,
            optimizer: 0.0,
        };
        assert_eq!(
            record.line(record.loss),
            "iter=1, loss=2152.41, sps=16,973, dt=0.003771, dtf=0.001003, dtb=0.002768"
        );
    }

    /// The widest numbers that a run of 100 iterations can have.
    #[test]
    fn a_line_fits_80_columns() {
        let record = IterRecord {
            iter: 99,
            warmup: false,
            loss: 2152.41,
            sps: 123_456.0,
            dt: 0.000_123_456,
            dtf: 0.000_123_456,
            dtb: 0.000_123_456,
            all_reduce: 0.0,
            optimizer: 0.0,
        };
        assert_eq!(record.line(record.loss).len(), 78);
    }
}
