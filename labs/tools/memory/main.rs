//! memory: the bytes of one rank, worked.
//!
//! One rank trains a small GPT for two steps. This program prints the bytes of its parameters,
//! gradients, optimizer state and activations, by formula and as the allocator counts them, and
//! what happens to small updates that are stored in bf16.
//!
//! Run `cargo run --bin memory`. It is not a lab: the page "Memory, worked" shows its output.

use anyhow::Result;
use book::activations;
use clap::Parser;
use half::bf16;
use kit::help;
use kit::show::{Screen, bytes_decimal, significant, table, thousands};
use kit::{Checks, TrainFlags};
use shardlab::allocator::{Counting, live, peak_of};
use shardlab::data::Corpus;
use shardlab::launch;
use shardlab::model::Gpt;
use shardlab::plan::{DropoutMasks, Keep, ModelShape};
use shardlab::train::{AdamW, Config};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The memory of one rank that trains a GPT: by formula, and measured.
#[derive(Parser)]
#[command(name = "memory", version)]
#[command(after_long_help = help::examples("memory", &[
    ("", "a small GPT: bytes by formula, and as the allocator counts them"),
    ("--layers 8 --embd 256 --batch 4", "another model"),
]))]
struct Args {
    #[command(flatten)]
    train: TrainFlags,
    /// Draw with ASCII characters
    #[arg(long, help_heading = help::OUTPUT)]
    ascii: bool,
}

/// Bytes that the allocator counted.
struct Measured {
    /// Parameters and gradients.
    buffers: u64,
    optimizer: u64,
    /// Activations that the forward pass left.
    forward: u64,
    /// The most activations of the step.
    peak: u64,
}

fn main() -> ExitCode {
    kit::main(run)
}

fn run(args: Args) -> Result<()> {
    let corpus = Corpus::find(args.train.data.data.as_deref())?;
    let screen = Screen::detect(args.ascii);
    let config = args.train.resolve(1, Some(2), &corpus)?;
    let shape = config.shape;
    screen.say(screen.heading("memory", "about 5 seconds"));
    screen.say("Where do the bytes of one training rank come from?\n");
    let dot = screen.separator();
    let numel = thousands(shape.parameters());
    let text = format!(
        "{} blocks{dot}{} wide{dot}block {}{dot}{numel} parameters",
        shape.layers, shape.embd, shape.block
    );
    screen.say(screen.row("model", &text));
    let tokens = thousands((config.batch * shape.block) as u64);
    screen.say(screen.row(
        "batch",
        &format!("{} sequences x {} tokens = {tokens} tokens", config.batch, shape.block),
    ));
    let measured = launch::run(1, |_| measure(&config, &corpus))?;
    let failed = bytes(&screen, &config, &measured[0]);
    screen.say(format!(
        "\n{}",
        activations(&shape, config.batch, DropoutMasks::of(config.dropout)).render(&screen)
    ));
    screen.say(format!("\n{}\n", per_block(&screen, &shape, config.batch)));
    screen.say(vanishing(&screen));
    kit::ensure_passed(&failed)
}

/// Trains for two steps, of which the first leaves buffers that are not the step's.
fn measure(config: &Config, corpus: &Corpus) -> Result<Measured> {
    let gpt = Gpt::new(&config.shape)?;
    gpt.params.layout();
    let before = live();
    gpt.params.allocate(config.seed);
    let buffers = live() - before;
    let mut adamw = AdamW::new(config.adamw, &gpt.params);
    let optimizer = live() - before - buffers;
    let mut forward = 0;
    let mut peak = 0;
    for step in 0..config.steps {
        let batch = config.sampler(0).batch(&corpus.train, step, 0);
        gpt.params.zero_gradients();
        let start = live();
        let (most, done) = peak_of(|| -> Result<()> {
            let loss = gpt.loss(&batch, &config.pass(step, &batch.sequences))?;
            forward = live() - start;
            Ok(loss.backward().map(drop)?)
        });
        done?;
        peak = most;
        adamw.step(&gpt.params, config.schedule.at(step), 1.0)?;
    }
    Ok(Measured {
        buffers: buffers as u64,
        optimizer: optimizer as u64,
        forward: forward as u64,
        peak: peak as u64,
    })
}

/// Bytes at most that no formula counts, because they do not grow with the model. A small model has
/// little else.
struct Notes {
    optimizer: u64,
    forward: u64,
    peak: u64,
}

impl Notes {
    fn of(config: &Config) -> Notes {
        let ModelShape { layers, embd, block, .. } = config.shape;
        let tokens = config.batch * block;
        // candle's tensor, its shape and strides, its storage and the operation that made it: 340
        // to 390 bytes were measured.
        let operations = 10 * layers + 6 + if config.dropout > 0.0 { 2 * layers + 1 } else { 0 };
        let graph = 400 * operations;
        // The embedding's and the loss's operations keep the tokens.
        let forward = graph + 8 * tokens;
        // Backward has a list of the graph. A matmul copies panels of its matrices: at least 16 kB,
        // and for attention's scores 64 numbers per row. Where tokens are few, the copy of a
        // block's largest matrix is more than what GELU works on.
        let panels = 256 * block.max(64) + (16 * embd * embd).saturating_sub(68 * embd * tokens);
        // The optimizer lists its tensors, six per block and four more. A list has room for up to
        // twice as many.
        let optimizer = 80 * (6 * layers + 4);
        Notes {
            optimizer: optimizer as u64,
            forward: forward as u64,
            peak: (forward + graph + panels) as u64,
        }
    }
}

/// Prints bytes by formula beside measured bytes. Returns what the check found wrong.
fn bytes(screen: &Screen, config: &Config, measured: &Measured) -> Vec<String> {
    let dropout = DropoutMasks::of(config.dropout);
    let plan = config.shape.memory(config.batch, dropout);
    let over = config.shape.activations_over_a_step(config.batch, dropout, Keep::ToTheEnd);
    let forward = over[config.shape.layers + 2];
    let psi = if screen.ascii { "P" } else { "Ψ" };
    let notes = Notes::of(config);
    let rows = [
        (
            "parameters, gradients",
            format!("4 {psi} + 4 {psi}"),
            plan.parameters + plan.gradients,
            measured.buffers,
            0,
        ),
        (
            "optimizer: two moments",
            format!("8 {psi}"),
            plan.optimizer,
            measured.optimizer,
            notes.optimizer,
        ),
        (
            "activations after forward",
            "by block, see below".to_string(),
            forward,
            measured.forward,
            notes.forward,
        ),
        (
            "activations at the peak",
            "and backward's gradients".to_string(),
            plan.activations,
            measured.peak,
            notes.peak,
        ),
    ];
    let mut checks = Checks::new(screen);
    let mut cells = Vec::new();
    for (what, words, predicted, measured, _) in &rows {
        let [predicted, measured] = [predicted, measured].map(|&bytes| bytes_decimal(bytes as f64));
        cells.push(vec![what.to_string(), words.clone(), predicted, measured]);
    }
    screen.say(format!(
        "\n{}\n",
        table(screen, &["bytes of", "formula", "expected", "measured"], &cells)
    ));
    let [forward, peak] = [notes.forward, notes.peak].map(|bytes| bytes_decimal(bytes as f64));
    let most = format!(
        "what candle notes on each tensor, and the matmuls' copies, which no formula counts: up to {forward} after forward, \
         {peak} at the peak"
    );
    screen.say(format!("{}\n", screen.row("notes", &most)));
    let near = |predicted: u64, measured: u64, notes: u64| {
        measured.abs_diff(predicted) as f64 <= 0.02 * predicted as f64 + notes as f64
    };
    let matching = rows
        .iter()
        .filter(|&&(_, _, predicted, measured, notes)| near(predicted, measured, notes));
    checks.check_all(
        matching.count(),
        rows.len(),
        "measured bytes are within 2% of formulas and notes",
        "a formula is off",
    );
    checks.failed()
}

/// A block's activations here and by the textbook's formula.
fn per_block(screen: &Screen, shape: &ModelShape, batch: usize) -> String {
    let tokens = (batch * shape.block) as f64;
    let width = shape.embd as f64;
    let attention = 5.0 * (shape.heads * shape.block) as f64 / width;
    let over = shape.activations_over_a_step(batch, DropoutMasks::None, Keep::ToTheEnd);
    let row = |what: &str, words: String, each: f64| {
        let each = tokens * width * each;
        vec![
            what.to_string(),
            words,
            bytes_decimal(each),
            bytes_decimal(each * shape.layers as f64),
        ]
    };
    let here = (over[3.min(over.len() - 1)] - over[2]) as f64 / (tokens * width);
    let rows = [
        row("here, f32", format!("{} sbh", significant(here, 3)), here),
        row(
            "textbook, 16 bit",
            format!("(34 + {}) sbh", significant(attention, 3)),
            34.0 + attention,
        ),
        row("without the scores", "34 sbh".to_string(), 34.0),
        row("block inputs only", "2 sbh".to_string(), 2.0),
    ];
    table(screen, &["activations", "bytes", "per block", "all blocks"], &rows)
}

/// A weight of 1 that gets 1,000 equal updates, stored in bf16 or with an f32 master copy.
fn vanishing(screen: &Screen) -> String {
    let row = |&update: &f32| {
        let mut stored = bf16::ONE;
        let mut master = 1f32;
        for _ in 0..1000 {
            stored = bf16::from_f32(stored.to_f32() + update);
            master += update;
        }
        [update, stored.to_f32(), bf16::from_f32(master).to_f32()]
            .map(|x| significant(f64::from(x), 3))
            .to_vec()
    };
    let rows: Vec<Vec<String>> = [0.001, 0.003, 0.004, 0.008].iter().map(row).collect();
    table(screen, &["update, 1,000 times", "bf16 alone", "f32 master"], &rows)
}
