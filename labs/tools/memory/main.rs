//! memory: the bytes of one rank, worked.
//!
//! One rank trains a small GPT for two steps. This program prints the bytes of its parameters,
//! gradients, optimizer state and activations, by formula and as the allocator counts them, and
//! what happens to small updates that are stored in bf16. The formulas leave out what the tape
//! notes of each operation, some hundred bytes. What a matrix product copies for itself is measured
//! apart.
//!
//! Run `cargo run --bin memory`. It is not a lab: the page "Memory, worked" shows its output.

use anyhow::Result;
use clap::Parser;
use half::bf16;
use kit::TrainFlags;
use kit::help;
use kit::show::{Screen, bytes_decimal, significant, table, thousands};
use shardlab::allocator::{Counting, live, peak_of, scratch};
use shardlab::data::Corpus;
use shardlab::launch;
use shardlab::model::Gpt;
use shardlab::plan::{DropoutMasks, ModelShape};
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

fn main() -> ExitCode {
    kit::main(run)
}

fn run(args: Args) -> Result<()> {
    let corpus = args.train.data.corpus()?;
    let screen = Screen::detect(args.ascii);
    let config = args.train.resolve(1, Some(2), &corpus)?;
    let shape = config.shape;
    let dot = screen.separator();
    let numel = thousands(shape.parameters());
    let text = format!(
        "{} blocks{dot}{} wide{dot}block {}{dot}batch {}{dot}{numel} parameters",
        shape.layers, shape.embd, shape.block, config.batch
    );
    screen.say(screen.row("model", &text));
    let measured = launch::run(1, |_| measure(&config, &corpus))?;
    screen.say(format!("\n{}\n", bytes(&screen, &config, measured[0])));
    screen.say(format!("{}\n", per_block(&screen, &shape, config.batch)));
    screen.say(vanishing(&screen));
    Ok(())
}

/// Trains for two steps, of which the first leaves buffers that are not the step's. Returns the
/// bytes of parameters and gradients, of the optimizer, of activations after the forward pass and
/// at the peak, and of a product's scratch, as the allocator has counted them.
fn measure(config: &Config, corpus: &Corpus) -> Result<[isize; 5]> {
    let gpt = Gpt::new(&config.shape)?;
    gpt.params.layout();
    let before = live();
    gpt.params.allocate(config.seed);
    let buffers = live() - before;
    let mut adamw = AdamW::new(config.adamw, &gpt.params);
    let optimizer = live() - before - buffers;
    let mut forward = 0;
    let mut peak = 0;
    let mut copies = 0;
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
        copies = scratch();
        adamw.step(&gpt.params, config.schedule.at(step), 1.0)?;
    }
    Ok([buffers, optimizer, forward, peak as isize, copies])
}

/// Bytes by formula beside measured bytes.
fn bytes(screen: &Screen, config: &Config, measured: [isize; 5]) -> String {
    let dropout = DropoutMasks::of(config.dropout);
    let plan = config.shape.memory(config.batch, dropout);
    let forward = config.shape.alone().activations(config.batch, dropout) as u64;
    let state = plan.parameters + plan.gradients;
    let psi = if screen.ascii { "P" } else { "Ψ" };
    let formulas = [
        ("parameters, gradients", format!("4 {psi} + 4 {psi}"), Some(state)),
        ("optimizer: two moments", format!("8 {psi}"), Some(plan.optimizer)),
        ("activations after forward", "by block, see below".into(), Some(forward)),
        (
            "activations at the peak",
            "and backward's gradients".into(),
            Some(plan.activations),
        ),
        ("a product's own copies", "by processor".into(), None),
    ];
    let rows = formulas.into_iter().zip(measured).map(|((what, formula, expected), measured)| {
        let expected = expected.map_or("?".into(), |expected| bytes_decimal(expected as f64));
        vec![what.to_string(), formula, expected, bytes_decimal(measured as f64)]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    table(screen, &["bytes of", "formula", "expected", "measured"], &rows)
}

/// A block's activations here and by the textbook's formula.
fn per_block(screen: &Screen, shape: &ModelShape, batch: usize) -> String {
    let tokens = (batch * shape.block) as f64;
    let width = shape.embd as f64;
    let attention = 5.0 * (shape.heads * shape.block) as f64 / width;
    let here = 4.0 * shape.alone().kept_by_a_block(DropoutMasks::None) / width;
    let counts = [
        ("here, f32", format!("{} sbh", significant(here, 3)), here),
        (
            "textbook, 16 bit",
            format!("(34 + {}) sbh", significant(attention, 3)),
            34.0 + attention,
        ),
        ("without the scores", "34 sbh".to_string(), 34.0),
        ("block inputs only", "2 sbh".to_string(), 2.0),
    ];
    let rows = counts.map(|(what, words, each)| {
        let block = tokens * width * each;
        let all = block * shape.layers as f64;
        vec![what.to_string(), words, bytes_decimal(block), bytes_decimal(all)]
    });
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
