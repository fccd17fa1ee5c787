//! scaling: the effects of more ranks on what a model learns, measured.
//!
//! N ranks with one batch each take a step on N batches. This has two effects, and this program
//! measures them on lab02's model. The gradient has less noise: its variance falls as 1/N. The same
//! samples make fewer steps, so the loss falls less per sample, unless the learning rate grows with
//! sqrt(N).
//!
//! Run `cargo run --bin scaling`. It is not a lab: the page "What large batches cost" shows its
//! output.

use anyhow::{Context, Result};
use clap::Parser;
use kit::help;
use kit::output;
use kit::show::{self, Plot, Screen, Series};
use lab02::MlpConfig;
use shardlab::comm::Reduce;
use shardlab::launch;
use shardlab::parallel::Ddp;
use std::path::PathBuf;
use std::process::ExitCode;

/// Samples that every run learns from.
const SAMPLES: usize = 8192;

/// Samples per rank and step.
const BATCH: usize = 32;

const LR: f64 = 5e-4;

/// Draws of samples whose gradients are compared.
const DRAWS: usize = 8;

/// The effects of more ranks: gradients with less noise, and fewer steps.
#[derive(Parser)]
#[command(name = "scaling", version)]
#[command(after_long_help = help::examples("scaling", &[
    ("", "noise and loss on one, two and four ranks"),
    ("--svg losses.svg", "also the losses as a plot"),
]))]
struct Args {
    /// Write a plot of the losses to this file, as SVG
    #[arg(long, value_name = "FILE", help_heading = help::OUTPUT)]
    svg: Option<PathBuf>,
    /// Draw with ASCII characters
    #[arg(long, help_heading = help::OUTPUT)]
    ascii: bool,
}

/// (samples learned from, loss on samples that no rank trains on)
type Losses = Vec<(f64, f64)>;

fn main() -> ExitCode {
    kit::main(run)
}

fn run(args: Args) -> Result<()> {
    let screen = Screen::detect(args.ascii);
    if let Some(path) = &args.svg {
        output::ensure_writable("svg", path)?;
    }
    let one = noise(1)?;
    let mut rows = Vec::new();
    for ranks in [1, 2, 4, 8] {
        let variance = noise(ranks)?;
        rows.push(vec![
            ranks.to_string(),
            (ranks * BATCH).to_string(),
            format!("{variance:.4}"),
            format!("{:.2}", variance / one),
            format!("{:.2}", 1.0 / ranks as f64),
        ]);
    }
    let header = ["ranks", "samples", "variance", "of one rank's", "1/N"];
    screen.say(format!("The gradient's noise: {DRAWS} draws of samples, the same weights\n"));
    screen.say(show::table(&screen, &header, &rows));
    let scaled = |ranks: usize| LR * (ranks as f64).sqrt();
    // One rank with a larger rate has no less noise than before. It shows what the rate alone does.
    let plan = [(1, LR), (1, scaled(2)), (2, LR), (2, scaled(2)), (4, LR), (4, scaled(4))];
    rows.clear();
    let mut curves = Vec::new();
    for (ranks, lr) in plan {
        let losses = train(ranks, lr)?;
        let (_, last) = losses[losses.len() - 1];
        let steps = SAMPLES / (BATCH * ranks);
        rows.push(vec![
            ranks.to_string(),
            format!("{lr:.2e}"),
            steps.to_string(),
            format!("{last:.3}"),
        ]);
        if ranks > 1 || lr == LR {
            curves.push((format!("{ranks} at {lr:.2e}"), losses));
        }
    }
    let samples = show::thousands(SAMPLES as u64);
    screen.say(format!("\n{samples} samples in each run\n"));
    screen.say(show::table(&screen, &["ranks", "lr", "steps", "loss at the end"], &rows));
    if let Some(path) = &args.svg {
        let title = "loss against samples; ranks at learning rate";
        let mut plot = Plot::new(title, "samples").height(12).log_y();
        for (name, losses) in &curves {
            plot = plot.series(Series::line(name, losses.iter().copied()));
        }
        output::write(path, &(plot.svg() + "\n"))?;
    }
    Ok(())
}

fn config(ranks: usize, lr: f64) -> MlpConfig {
    MlpConfig {
        ranks,
        steps: SAMPLES / (BATCH * ranks),
        warmup_iters: 0,
        log_interval: 1,
        batch: BATCH,
        lr,
        seed: 1337,
        out: PathBuf::new(),
    }
}

/// How much the averaged gradient varies from draw to draw, with the same weights: its variance,
/// divided by the squared length of the mean.
fn noise(ranks: usize) -> Result<f64> {
    let variances = launch::run(ranks, |comm| {
        let config = config(ranks, LR);
        let model = config.model()?;
        model.params.allocate(config.seed);
        let mut sums = vec![0.0; model.params.numel()];
        let mut squares = 0.0;
        for draw in 0..DRAWS {
            model.params.zero_gradients();
            model.loss(&config.inputs(comm.rank()).batch(draw))?.backward()?;
            let mut mean = model.params.gradients().clone();
            comm.all_reduce(&mut mean, Reduce::Mean)?;
            for (sum, gradient) in sums.iter_mut().zip(mean) {
                *sum += f64::from(gradient);
                squares += f64::from(gradient).powi(2);
            }
        }
        let draws = DRAWS as f64;
        let square_of_mean = sums.iter().map(|sum| (sum / draws).powi(2)).sum::<f64>();
        Ok((squares - draws * square_of_mean) / (draws - 1.0) / square_of_mean)
    })?;
    Ok(variances[0])
}

/// Trains on [`SAMPLES`] samples with `ranks` ranks, and evaluates 33 times.
fn train(ranks: usize, lr: f64) -> Result<Losses> {
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
        for step in 0..config.steps {
            model.params.zero_gradients();
            model.loss(&config.inputs(comm.rank()).batch(step))?.backward()?;
            ddp.finish()?;
            adam.step(&model.params, lr, 1.0)?;
            if (step + 1).is_multiple_of(config.steps / 32) {
                losses.push((((step + 1) * config.samples()) as f64, evaluate()?));
            }
        }
        Ok(losses)
    })?;
    runs.into_iter().next().context("no rank came back")
}
