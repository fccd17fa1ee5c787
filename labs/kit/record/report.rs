//! The rows that a training lab prints about its run, before and after it.

use crate::flags::with_flags;
use crate::show::{self, Screen, thousands};
use crate::{Footprint, Resources};
use shardlab::comm::{self, Comm};
use shardlab::data::Corpus;
use shardlab::launch;
use shardlab::optim::MuonConfig;
use shardlab::parallel::zero::{Stage, Volumes, Zero};
use shardlab::plan::ModelShape;
use shardlab::tensor::matmul::Way;
use shardlab::tensor::{Precision, matmul};
use shardlab::train::Config;

fn count(n: impl TryInto<u64>) -> String {
    thousands(n.try_into().unwrap_or(u64::MAX))
}

/// Prints the text's length and vocabulary.
pub fn data(screen: &Screen, corpus: &Corpus) {
    let dot = screen.separator();
    let chars = count(corpus.chars());
    let distinct = count(corpus.vocabulary.size());
    screen.say(screen.row(
        "text",
        &format!("{}{dot}{chars}\u{a0}chars{dot}{distinct}\u{a0}distinct", corpus.name),
    ));
}

/// Prints the length of the text's splits.
pub fn splits(screen: &Screen, corpus: &Corpus) {
    let dot = screen.separator();
    let splits = format!(
        "train\u{a0}{}{dot}val\u{a0}{}",
        count(corpus.train.len()),
        count(corpus.validation.len())
    );
    let real = if corpus.embedded {
        format!("{dot}the real Shakespeare: see README")
    } else {
        String::new()
    };
    screen.say(screen.row("splits", &(splits + &real)));
}

/// Prints the number of ranks, and their kind: threads or processes.
pub fn ranks(screen: &Screen, ranks: usize) {
    screen.say(screen.row("ranks", &in_words(ranks)));
}

/// Describes where the ranks run.
fn in_words(ranks: usize) -> String {
    let cores = launch::cores();
    if launch::is_mpi() {
        format!("{ranks} MPI processes")
    } else if ranks > cores {
        format!("{ranks} threads of this process, which take turns on {cores} cores")
    } else if ranks == 1 {
        "1 thread of this process (nothing to install)".to_string()
    } else {
        format!("{ranks} threads of this process (nothing to install)")
    }
}

/// A model's layers, heads, width and parameters. `more` comes before the parameters.
pub fn model(screen: &Screen, shape: &ModelShape, more: &str) -> String {
    let dot = screen.separator();
    format!(
        "{}\u{a0}layers{dot}{}\u{a0}heads{dot}{}\u{a0}wide{dot}{more}{}\u{a0}parameters",
        shape.layers,
        shape.heads,
        shape.embd,
        count(shape.parameters())
    )
}

/// Prints ranks, model, batch and steps.
pub fn run(screen: &Screen, config: &Config) {
    ranks(screen, config.ranks);
    job(screen, config, "rank");
}

/// Model, batch and steps; each `replica` has its own sequences.
pub fn job(screen: &Screen, config: &Config, replica: &str) {
    let dot = screen.separator();
    let shape = &config.shape;
    let schedule = &config.schedule;
    let block = format!("block\u{a0}{}{dot}", shape.block);
    screen.say(screen.row("model", &model(screen, shape, &block)));
    let accum = if config.grad_accum > 1 {
        format!(" x {} micro-steps", config.grad_accum)
    } else {
        String::new()
    };
    let batch = format!(
        "{} sequences x {}{accum} x {} tokens = {} tokens per step",
        config.batch,
        show::counted(config.ranks, replica, &format!("{replica}s")),
        shape.block,
        count(config.tokens_per_step())
    );
    screen.say(screen.row("batch", &batch));
    let steps = format!(
        "{}{dot}{}, lr {} to {}, warm-up {}",
        count(config.steps),
        if config.muon.is_some() {
            "Muon and AdamW"
        } else {
            "AdamW"
        },
        schedule.lr,
        schedule.min_lr,
        schedule.warmup
    );
    screen.say(screen.row("steps", &steps));
    muon(screen, config);
    precision(screen, config);
}

/// Prints how Muon updates the matrices of blocks, if it does.
pub fn muon(screen: &Screen, config: &Config) {
    let Some(MuonConfig { newton_schulz, scale, split_qkv, .. }) = config.muon else {
        return;
    };
    let dot = screen.separator();
    let text = format!(
        "the matrices of blocks, {}{dot}{} steps of {}{dot}{}",
        if split_qkv {
            "q, k and v apart"
        } else {
            "q, k and v as one"
        },
        newton_schulz.coefficients().count(),
        newton_schulz.name(),
        scale.name(),
    );
    screen.say(screen.row("muon", &text));
}

/// Prints the types of numbers, if they are not all f32, and how this machine multiplies them.
pub fn precision(screen: &Screen, config: &Config) {
    if config.precision == Precision::F32 && config.reduce == Precision::F32 {
        return;
    }
    let gradients = format!("gradients in {}", config.reduce.name());
    let text = match config.precision {
        Precision::F32 => gradients,
        Precision::Bf16 => {
            let products = match matmul::way() {
                Way::Tiles => {
                    "in tiles (AMX), to bits of their own: SHARDLAB_SIMD=vectors has every machine's"
                }
                Way::Instruction => "by AVX512-BF16",
                Way::Wide | Way::Fused => "by f32's multiply-add, to the same bits",
                Way::Plain => "by f32's arithmetic, to the same bits",
            };
            format!("products {products}{}{gradients}", screen.separator())
        }
    };
    screen.say(screen.row(config.precision.name(), &text));
}

/// Prints what one thread's products in bf16 reached before the run, in FLOP/s.
pub fn reached(screen: &Screen, config: &Config, peak: f64) {
    if config.precision == Precision::Bf16 {
        let text =
            format!("{} GFLOP/s per thread, in a large product", show::significant(peak / 1e9, 3));
        screen.say(screen.row("reached", &text));
    }
}

/// Prints the settings that [`run`] leaves out, and that a reproduction needs.
pub fn settings(screen: &Screen, config: &Config) {
    let dot = screen.separator();
    let shape = &config.shape;
    let (decayed, elements) = shape.decayed();
    let (plain, plain_elements) = shape.not_decayed();
    let counted = format!(
        "num_params={} without positions{dot}decayed: {decayed} tensors, {} parameters{dot}not: {plain} tensors, {}",
        count(shape.num_params()),
        count(elements),
        count(plain_elements)
    );
    let b1 = config.adamw.beta1;
    let b2 = config.adamw.beta2;
    let optimizer = format!(
        "betas {b1} {b2}, weight decay {}, clip {}, dropout {}, seed {}",
        config.adamw.weight_decay, config.clip, config.dropout, config.seed
    );
    screen.say(screen.row("counted", &counted));
    screen.say(screen.row("settings", &optimizer));
}

/// Prints a run's computed memory and time, for `--dry-run`. `peak` is the matmul peak of one
/// thread, in FLOP/s.
pub fn dry_run(screen: &Screen, footprint: &Footprint, free: Option<u64>, peak: f64) {
    let config = footprint.config;
    settings(screen, config);
    let rows = footprint.rows();
    let row = |(what, bytes, why): (&str, u64, String)| {
        [what.into(), show::bytes_decimal(bytes as f64), why].to_vec()
    };
    let rows: Vec<Vec<String>> = rows.into_iter().map(row).collect();
    screen.say("");
    screen.say(show::table(screen, &["memory", "bytes", ""], &rows));
    if let Some(free) = free {
        let fits = match footprint.ensure_fits(Some(free)) {
            Ok(()) => "this run fits".to_string(),
            Err(refusal) => format!("this run does not fit: {}", with_flags(&refusal.help)),
        };
        screen.say(screen.row("free", &format!("{}; {fits}", show::bytes_decimal(free as f64))));
    }
    let flops =
        (config.tokens_per_step() / config.ranks) as f64 * config.shape.flops_per_token() as f64;
    // If ranks outnumber cores, they take turns.
    let turns = config.ranks.div_ceil(launch::cores()) as f64;
    let step = flops * turns / peak;
    let text = format!(
        "at least {} per step: {} GFLOP per rank at the {:.0} GFLOP/s that a matmul reaches here; at half that speed \
         {}, and the run {}",
        show::seconds(step),
        show::significant(flops / 1e9, 3),
        peak / 1e9,
        show::seconds(2.0 * step),
        show::seconds(2.0 * step * config.steps as f64)
    );
    screen.say(screen.row("time", &text));
}

/// The meaning of the names in a log line and in `--metrics`, in the order of the source.
const LEGEND: [(&str, &str); 12] = [
    ("step", "Training step"),
    ("loss", "Mean training loss of all ranks, nats per token"),
    ("dt", "Seconds per step, from its batch to the optimizer"),
    ("dtf", "Seconds of the forward pass"),
    ("dtb", "Seconds of the backward pass, averaging of gradients included"),
    ("sps", "Sequences per second, all ranks (the source's log counts batches)"),
    ("sps_per_gpu", "Sequences per second of one rank: a rank counts as a GPU"),
    ("tps", "Tokens per second, all ranks: sps x block"),
    ("tps_per_gpu", "Tokens per second of one rank"),
    ("mfu", "Model FLOPs in percent of the measured matmul peak"),
    ("train_loss", "Loss on fixed batches of the training split"),
    ("val_loss", "Loss on fixed batches of the validation split"),
];

/// Prints the meaning of the names in log lines and metrics.
pub fn legend(screen: &Screen) {
    let rows: Vec<Vec<&str>> = LEGEND.iter().map(|(name, text)| vec![*name, *text]).collect();
    screen.say(show::table(screen, &["abbr", "what it is"], &rows) + "\n");
}

/// The bytes that each of `ranks` ranks sends in an all-reduce of `numel` numbers, as a formula and
/// as a number.
pub fn all_reduced(numel: usize, each: Precision, ranks: usize) -> (String, f64) {
    let n = ranks as f64;
    let bytes = each.bytes();
    (
        format!("2(n-1)/n x {bytes} x {}", count(numel)),
        2.0 * ((n - 1.0) / n * bytes as f64) * numel as f64,
    )
}

/// How sent bytes are counted: where they move, or from the calls, where an MPI library moves them
/// as it likes.
pub fn counted() -> &'static str {
    if launch::is_mpi() { "by its calls" } else { "measured" }
}

/// Prints the bytes that each rank sent in a step, beside the formula. If ranks do not divide a
/// bucket evenly, the two differ by fractions of an element.
pub fn sent(screen: &Screen, bytes: u64, (words, expected): &(String, f64)) {
    let by_calls = if launch::is_mpi() { " by its calls" } else { "" };
    let sent = format!("{} bytes per rank per step{by_calls}", count(bytes));
    let text = if (bytes as f64 - expected).abs() <= 1e-4 * expected {
        format!("{sent} = {words} {}", screen.tick())
    } else {
        format!("{sent}; formula: {words} = {} {}", count(*expected as u64), screen.cross())
    };
    screen.say(screen.row("sent", &text));
}

/// Prints what the job has used, in the words of a launcher. All ranks call it, and rank 0 prints.
///
/// # Errors
/// If the communication fails.
pub fn used(screen: &Screen, comm: &Comm) -> comm::Result<()> {
    let used = Resources::of_job(comm)?;
    if comm.rank() == 0 {
        let text = format!("Application {} {used}", launch::process_id());
        screen.say(screen.row("used", &text));
    }
    Ok(())
}

/// The bytes that each rank sends in a step of ZeRO, as a formula and as a number.
pub fn bytes_of_zero(zero: &Zero, stage: Stage) -> (String, f64) {
    let Volumes { gathered, reduced, gathered_bytes, reduced_bytes } = zero.volumes();
    let gathered = thousands(gathered as u64);
    let reduced = thousands(reduced as u64);
    let sum = if gathered_bytes == reduced_bytes {
        format!("{gathered_bytes} x ({gathered} gathered + {reduced} reduced)")
    } else {
        format!("({gathered_bytes} x {gathered} gathered + {reduced_bytes} x {reduced} reduced)")
    };
    let words = match stage {
        Stage::Ddp => format!("2(n-1)/n x {reduced_bytes} x {reduced}"),
        _ => format!("(n-1)/n x {sum} + {} for the norm", zero.norm_bytes()),
    };
    (words, zero.bytes_a_step())
}
