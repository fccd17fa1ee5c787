//! scaling: the effects of more ranks, measured.
//!
//! N ranks with one batch each take a step on N batches. This has three effects, and this program
//! measures them on lab02's model. The gradient has less noise: its variance falls as 1/N. The same
//! samples make fewer steps, so the loss falls less per sample, unless the learning rate grows with
//! sqrt(N). The same samples also take less time.
//!
//! Run `cargo run --bin scaling`. It is not a lab: the page "What large batches cost" shows its
//! output.

use anyhow::{Context, Result};
use clap::Parser;
use kit::help;
use kit::show::{self, Plot, Screen, Series};
use lab02::MlpConfig;
use shardlab::comm::{Comm, Reduce};
use shardlab::launch;
use shardlab::parallel::Ddp;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Samples that every run learns from.
const SAMPLES: usize = 8192;

/// Samples per rank and step.
const BATCH: usize = 32;

const LR: f64 = 5e-4;

/// Draws of samples whose gradients are compared.
const DRAWS: usize = 8;

/// The effects of more ranks: gradients with less noise, fewer steps, less time.
#[derive(Parser)]
#[command(name = "scaling", version)]
#[command(after_long_help = help::examples("scaling", &[
    ("", "noise, loss and time on one, two and four ranks"),
    ("--svg .", "the plots as SVG, in this folder"),
]))]
struct Args {
    /// Write the plots to this folder, as SVG
    #[arg(long, value_name = "DIR", help_heading = help::OUTPUT)]
    svg: Option<PathBuf>,
    /// Draw with ASCII characters
    #[arg(long, help_heading = help::OUTPUT)]
    ascii: bool,
}

/// One training run.
struct Run {
    ranks: usize,
    lr: f64,
    /// (samples learned from, loss on samples that no rank trains on)
    losses: Vec<(f64, f64)>,
    /// Seconds per step: the median of rank 0's steps.
    dt: f64,
}

fn main() -> ExitCode {
    kit::main(run)
}

fn run(args: Args) -> Result<()> {
    let screen = Screen::detect(args.ascii);
    if let Some(folder) = &args.svg {
        // Before any work, find out whether the folder exists.
        save(&folder.join("scaling-samples.svg"), &Plot::new("", ""))?;
    }
    noise(&screen)?;
    let scaled = |ranks: usize| LR * (ranks as f64).sqrt();
    // One rank with a larger rate has no less noise than before. It shows what the rate alone does.
    let plan = [(1, LR), (1, scaled(2)), (2, LR), (2, scaled(2)), (4, LR), (4, scaled(4))];
    let runs = plan
        .into_iter()
        .map(|(ranks, lr)| train(ranks, lr))
        .collect::<Result<Vec<_>>>()?;
    speed(&screen, &runs);
    let names: Vec<String> =
        runs.iter().map(|run| format!("{} at {:.2e}", run.ranks, run.lr)).collect();
    let mut by_samples = Plot::new("loss against samples; ranks at learning rate", "samples")
        .height(12)
        .log_y();
    let mut by_time = Plot::new("loss against time; ranks at learning rate", "seconds")
        .height(12)
        .log_y();
    for (run, name) in runs.iter().zip(&names).filter(|(run, _)| run.ranks > 1 || run.lr == LR) {
        let seconds = seconds(&runs, run).0 / (BATCH * run.ranks) as f64;
        by_samples = by_samples.series(Series::line(name, run.losses.iter().copied()));
        by_time = by_time
            .series(Series::line(name, run.losses.iter().map(|&(n, loss)| (n * seconds, loss))));
    }
    screen.say(format!("\n{}", by_samples.render(&screen)));
    if let Some(folder) = &args.svg {
        save(&folder.join("scaling-samples.svg"), &by_samples)?;
        save(&folder.join("scaling-time.svg"), &by_time)?;
    }
    Ok(())
}

fn config(ranks: usize, lr: f64) -> MlpConfig {
    let steps = SAMPLES / (BATCH * ranks);
    MlpConfig {
        ranks,
        steps,
        warmup_iters: 0,
        log_interval: 1,
        batch: BATCH,
        lr,
        seed: 1337,
        out: PathBuf::new(),
    }
}

/// Measures how much the averaged gradient of n ranks varies from draw to draw, with the same
/// weights.
fn noise(screen: &Screen) -> Result<()> {
    const RANKS: [usize; 4] = [1, 2, 4, 8];
    let variances = launch::run(8, |comm| {
        let groups = RANKS.map(|n| comm.split(u64::from(comm.rank() < n), comm.rank() as i64));
        let config = config(8, LR);
        let model = config.model()?;
        model.params.allocate(config.seed);
        let mut sums = RANKS.map(|_| vec![0.0; model.params.numel()]);
        let mut squares = [0.0; 4];
        let groups = groups.into_iter().collect::<Result<Vec<Comm>, _>>()?;
        for draw in 0..DRAWS {
            model.params.zero_gradients();
            model.loss(&config.inputs(comm.rank()).batch(draw))?.backward()?;
            for (i, group) in groups.iter().enumerate() {
                let mut mean = model.params.gradients().clone();
                group.all_reduce(&mut mean, Reduce::Mean)?;
                squares[i] += mean.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>();
                sums[i].iter_mut().zip(&mean).for_each(|(sum, &g)| *sum += f64::from(g));
            }
        }
        let draws = DRAWS as f64;
        let of = |i: usize| {
            let square_of_mean = sums[i].iter().map(|sum| (sum / draws).powi(2)).sum::<f64>();
            (squares[i] - draws * square_of_mean) / (draws - 1.0) / square_of_mean
        };
        Ok(std::array::from_fn::<f64, 4, _>(of))
    })?;
    let variance = variances[0];
    let rows: Vec<Vec<String>> = RANKS
        .iter()
        .zip(variance)
        .map(|(&n, v)| {
            vec![
                n.to_string(),
                (n * BATCH).to_string(),
                format!("{v:.4}"),
                format!("{:.2}", v / variance[0]),
                format!("{:.2}", 1.0 / n as f64),
            ]
        })
        .collect();
    screen.say(format!("The gradient's noise: {DRAWS} draws of samples, the same weights\n"));
    screen.say(show::table(
        screen,
        &["ranks", "samples", "variance", "of one rank's", "1/N"],
        &rows,
    ));
    Ok(())
}

/// Trains on [`SAMPLES`] samples with `ranks` ranks, and evaluates 33 times.
fn train(ranks: usize, lr: f64) -> Result<Run> {
    let config = config(ranks, lr);
    let runs = launch::run(ranks, |comm| {
        let model = config.model()?;
        model.params.allocate(config.seed);
        let ddp = Ddp::new(&model.params, &comm)?;
        // No run has a rank with this number, so no rank trains on these samples.
        let unseen = MlpConfig { batch: 128, ..config.clone() }.inputs(1 << 20).batch(0);
        let evaluate =
            || -> Result<f64> { Ok(f64::from(model.loss(&unseen)?.to_scalar::<f32>()?) / 128.0) };
        let mut adam = config.adam(&model.params);
        let mut losses = vec![(0.0, evaluate()?)];
        let mut times = Vec::new();
        for step in 0..config.steps {
            let start = Instant::now();
            model.params.zero_gradients();
            model.loss(&config.inputs(comm.rank()).batch(step))?.backward()?;
            ddp.finish()?;
            adam.step(&model.params, lr, 1.0)?;
            times.push(start.elapsed().as_secs_f64());
            if (step + 1).is_multiple_of(config.steps / 32) {
                losses.push((((step + 1) * config.samples()) as f64, evaluate()?));
            }
        }
        times.sort_by(f64::total_cmp);
        Ok(Run { ranks, lr, losses, dt: times[times.len() / 2] })
    })?;
    runs.into_iter().next().context("no rank came back")
}

/// Seconds per step, and whether they were measured. The times of ranks that take turns on cores
/// say nothing about ranks with a core each. So such runs get the step time of the largest run in
/// which every rank has its own core.
fn seconds(runs: &[Run], run: &Run) -> (f64, bool) {
    let measured = |run: &Run| run.ranks <= launch::cores();
    let most = runs.iter().filter(|run| measured(run)).max_by_key(|run| run.ranks);
    (
        if measured(run) {
            run.dt
        } else {
            most.map_or(run.dt, |most| most.dt)
        },
        measured(run),
    )
}

fn speed(screen: &Screen, runs: &[Run]) {
    let rows: Vec<Vec<String>> = runs
        .iter()
        .map(|run| {
            let steps = SAMPLES / (BATCH * run.ranks);
            let (dt, measured) = seconds(runs, run);
            let loss = run.losses.last().map_or(f64::NAN, |last| last.1);
            let how = if measured { "measured" } else { "computed" };
            vec![
                run.ranks.to_string(),
                format!("{:.2e}", run.lr),
                steps.to_string(),
                format!("{loss:.3}"),
                format!("{:.2}", 1e3 * dt),
                format!("{:.2}", dt * steps as f64),
                how.to_string(),
            ]
        })
        .collect();
    let cores = launch::cores();
    screen.say(format!(
        "\n{} samples in each run; this machine has {cores} cores\n",
        show::thousands(SAMPLES as u64)
    ));
    screen.say(show::table(
        screen,
        &["ranks", "lr", "steps", "loss at the end", "ms per step", "seconds", ""],
        &rows,
    ));
}

fn save(path: &Path, plot: &Plot) -> Result<()> {
    std::fs::write(path, plot.svg() + "\n")
        .with_context(|| format!("cannot write {}", path.display()))
}
