//! lab04 · Who holds what
//!
//! What does each rank have to hold, and what does it cost to hold less?
//!
//! Data parallelism keeps N copies of everything: parameters, gradients, the optimizer's state. A rank needs most of it for a
//! moment only. ZeRO divides it, stage by stage, and brings it together when it is needed; its last stage is called FSDP.
//!
//! Run `cargo run --bin lab04`. The same small GPT is trained by four ranks in all four stages. You will see who holds
//! what, measured beside the formula; what each stage sends, which is the same for the first three and half as much again
//! for the last; losses that are equal to the last bit; and a step of the last stage, unit by unit. Then give each
//! rank less memory: `--memory-limit 6`; store in fewer bits: `--dtype bf16`; hide the gathers or not:
//! `--zero 3 --prefetch-bucket 0 --link 100us,500MB/s`; or break it: `--break local-norm`.

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::model::{Gpt, Tiled};
use shardlab::parallel::partition::Flat;
use shardlab::parallel::zero::{Stage, Zero, ZeroConfig};
use shardlab::show::{Screen, bytes_decimal, thousands};
use shardlab::study::zero::{self, Trained};
use shardlab::train::{Checks, Config, TrainFlags, report};
use shardlab::workbook::Lesson;
use std::process::ExitCode;
use std::time::Instant;

/// ZeRO's stages, side by side: what each rank holds, and what it costs to hold less.
#[derive(Parser)]
#[command(name = "lab04", version)]
struct Args {
    #[command(flatten)]
    train: TrainFlags,
    /// Leave out stages in which a rank's parameters, gradients and optimizer take more than this
    #[arg(long, value_name = "MB")]
    memory_limit: Option<f64>,
    /// Cut each matrix of the perceptrons into so many tiles in stage 3, each gathered by itself
    #[arg(long, default_value_t = 1)]
    tiles: usize,
    /// Get something wrong, and see which check notices
    #[arg(long = "break", value_enum)]
    broken: Option<Break>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Break {
    /// All padding is booked on the last rank
    PaddingOnLast,
    /// Each rank clips by the norm of its own share of the gradients
    LocalNorm,
    /// A parameter is used after its release
    UsedAfterRelease,
}

/// What all ranks read and none changes.
struct Lab {
    args: Args,
    config: Config,
    corpus: Corpus,
    /// Those that fit, and are wanted.
    stages: Vec<Stage>,
    /// Those that do not fit.
    left_out: Vec<Stage>,
    screen: Screen,
    lesson: Lesson,
}

fn main() -> ExitCode {
    launch::main(|| run(launch::arguments()?))
}

fn run(mut args: Args) -> Result<()> {
    let corpus = Corpus::find(args.train.data.as_deref())?;
    args.train.steps.get_or_insert(6);
    args.train.refuse_flags_of_lab03("lab04")?;
    let config = args.train.resolve(launch::ranks(args.train.ranks, 4)?, &corpus, "lab04")?;
    if args.broken == Some(Break::PaddingOnLast) && config.ranks < 3 {
        return Err(BadInput::new("padding spans ranks only from 3 ranks on", "give --ranks 3 or more").into());
    }
    if args.tiles == 0 || !config.shape.embd.is_multiple_of(args.tiles) {
        let what = format!("--tiles {} does not divide --embd {}", args.tiles, config.shape.embd);
        return Err(BadInput::new(what, "give 2, 4 or 8: tiles are equal parts of a matrix's rows").into());
    }
    let (limit, wanted) = (args.memory_limit.map(|mb| mb * 1e6), args.train.zero.stage());
    if let Some(stage) = wanted.filter(|&stage| stage < Stage::Three && args.tiles > 1) {
        let what = format!("--tiles is for gathered parameters, and --zero {} gathers none", stage.number());
        return Err(BadInput::new(what, "give --zero 3, or leave --tiles out").into());
    }
    zero::ensure_padding_is_little(&config.shape, config.ranks)?;
    let (numel, precision, offloads) =
        (config.shape.parameters(), config.zero.precision, config.zero.offload.is_some());
    let mut stages = zero::within(limit, wanted, numel, config.ranks, precision, offloads)?;
    let left_out = Stage::ALL.into_iter().filter(|stage| !stages.contains(stage)).collect();
    // Something to compare with comes first.
    let first = stages[0];
    stages.retain(|&stage| wanted.is_none_or(|wanted| stage == wanted || stage == first));
    refuse_breaking_nothing(&args, &config, &stages)?;
    launch::free_memory(launch::ranks_here(config.ranks)).map_or(Ok(()), |free| config.ensure_fits(free))?;
    let (screen, lesson) = (Screen::detect(args.train.run.ascii), Lesson::of("lab04")?);
    let lab = Lab { screen, lesson, stages, left_out, config, corpus, args };
    let options = lab.args.train.run.comm.options(&lab.config.out);
    let failed = launch::run_with(lab.config.ranks, &options, |comm| one_rank(&lab, &comm))?;
    ensure!(failed[0].is_empty(), "{}", failed[0].join("; "));
    Ok(())
}

/// A --break that no check could notice.
fn refuse_breaking_nothing(args: &Args, config: &Config, stages: &[Stage]) -> Result<(), BadInput> {
    let (what, help) = match args.broken {
        Some(Break::LocalNorm) if config.ranks < 2 => ("--break needs ranks that can differ", "give --ranks 2 or more"),
        Some(Break::LocalNorm) if config.clip == 0.0 => {
            ("--break local-norm clips, and --clip is 0", "leave --clip out")
        }
        Some(Break::LocalNorm) if stages.len() < 2 || stages[0] != Stage::Zero => {
            ("--break local-norm shows beside stage 0", "leave --zero 0 and --memory-limit out")
        }
        Some(Break::UsedAfterRelease) if !stages.contains(&Stage::Three) => {
            ("--break used-after-release is about stage 3", "give --zero 3, or leave --zero out")
        }
        _ => return Ok(()),
    };
    Err(BadInput::new(what, help))
}

/// What one rank does. Returns what the checks found wrong.
fn one_rank(lab: &Lab, comm: &Comm) -> Result<Vec<String>> {
    if comm.rank() == 0 {
        introduce(lab);
    }
    if lab.args.broken == Some(Break::PaddingOnLast) {
        return padding_on_last(lab, comm);
    }
    let mut all = Vec::new();
    for &stage in &lab.stages {
        let trained = train(lab, comm, stage)?;
        if comm.rank() == 0 {
            show_holdings(lab, &trained);
            all.push(trained);
        }
    }
    if comm.rank() != 0 {
        return Ok(Vec::new());
    }
    show_costs(lab, &all);
    Ok(check(lab, comm, &all))
}

// ANCHOR: train
/// The lesson: the same loop for every stage. Where gradients go and parameters come from, `zero` knows.
fn train(lab: &Lab, comm: &Comm, stage: Stage) -> Result<Trained> {
    let config = &lab.config;
    let gpt = Gpt::build(&config.shape, &Tiled(if stage == Stage::Three { lab.args.tiles } else { 1 }))?;
    let local_norm = lab.args.broken == Some(Break::LocalNorm);
    let zero = ZeroConfig { stage, local_norm, ..config.zero.clone() };
    let mut zero = Zero::init(&gpt.params, comm, zero, config.seed)?; // each rank makes its share, and nobody the whole
    let sampler = config.sampler(comm.rank());
    let (mut losses, mut times, mut sent) = (Vec::new(), Vec::new(), 0);

    for step in 0..config.steps {
        let (start, before) = (Instant::now(), comm.traffic());
        let mut mean = 0.0;
        zero.events();
        zero.begin()?; // from here on, a layer that asks for a parameter gets it, wherever it is
        for micro in 0..config.grad_accum {
            let batch = sampler.batch(&lab.corpus.train, step, micro);
            let loss = (gpt.loss(&batch, &config.pass(step, &batch.sequences))? / config.grad_accum as f64)?;
            mean += f64::from(loss.to_scalar::<f32>()?);
            zero.synchronise(micro + 1 == config.grad_accum);
            loss.backward()?; // gradients leave for their owners while this goes on
        }
        zero.finish()?; // each rank has the averaged gradients of what it owns
        zero.step(config.schedule.at(step), config.clip)?; // and updates that
        sent = (comm.traffic() - before).bytes;
        losses.push(mean);
        times.push((start, start.elapsed()));
    }
    if stage == Stage::Three && lab.args.broken == Some(Break::UsedAfterRelease) {
        let batch = sampler.batch(&lab.corpus.train, 0, 0);
        gpt.loss(&batch, &config.pass(0, &batch.sequences))?;
    }
    Trained::look(comm, stage, &mut zero, (losses, times), sent)
}
// ANCHOR_END: train

/// What a checkpoint's reader gets back if all padding is booked on the last rank.
fn padding_on_last(lab: &Lab, comm: &Comm) -> Result<Vec<String>> {
    if comm.rank() != 0 {
        return Ok(Vec::new());
    }
    let (screen, ranks) = (&lab.screen, lab.config.ranks);
    let flat = Flat { numel: 2 * ranks + 1, ranks };
    section(lab, &format!("A group of {} elements in parts of {}", flat.numel, flat.part()));
    let all_on_last = |rank: usize| if rank + 1 == ranks { flat.padded() - flat.numel } else { 0 };
    let (table, back) = zero::restored(screen, flat, all_on_last);
    screen.say(format!("{table}\n"));
    let mut checks = Checks::new(screen);
    let sound = back == (0..flat.numel).collect::<Vec<_>>();
    let result = format!("{} of {}", back.len(), flat.numel);
    checks.hold(sound, "parts less their padding are the parameters", &result, "padding was taken for parameters");
    Ok(checks.failed())
}

fn section(lab: &Lab, title: &str) {
    lab.screen.say(format!("\n{}\n", lab.screen.bold(title)));
}

fn introduce(lab: &Lab) {
    let (screen, config) = (&lab.screen, &lab.config);
    screen.say(lab.lesson.heading(screen, None));
    report::data(screen, &lab.corpus);
    report::run(screen, config);
    let [dot, stored] = [screen.separator(), config.zero.precision.name()];
    let each = match stored {
        "f32" => "4 bytes each, gradients 4, the optimizer 8",
        _ => "2 bytes each, gradients 2, the optimizer 12 (with an f32 master)",
    };
    let text = format!("{} parameters, stored in {stored}{dot}{each}", thousands(config.shape.parameters()));
    screen.say(screen.row("holds", &text));
    for stage in &lab.left_out {
        screen.say(screen.row("", &format!("--zero {} does not fit", stage.number())));
    }
}

fn show_holdings(lab: &Lab, trained: &Trained) {
    let (numel, ranks) = (lab.config.shape.parameters(), lab.config.ranks);
    section(lab, &format!("Who holds what, {}", zero::title(trained.stage)));
    lab.screen.say(zero::drawing(&lab.screen, trained, numel, ranks, lab.config.zero.precision));
}

fn show_costs(lab: &Lab, all: &[Trained]) {
    let (screen, config) = (&lab.screen, &lab.config);
    section(lab, &format!("What it costs: each of {} ranks, in the last of {} steps", config.ranks, config.steps));
    screen.say(zero::bill(screen, all, config.shape.parameters(), config.zero.precision));
    if let Some(bytes) = launch::resident_memory() {
        let ranks = if launch::is_mpi() { "one rank".to_string() } else { format!("{} ranks", config.ranks) };
        let text = format!(
            "Resident: {}, all of this process with {ranks}: activations and the text, too, and what was freed and is kept.",
            bytes_decimal(bytes as f64)
        );
        screen.say(screen.wrap(&text, 2));
    }
    if let Some(three) = all.iter().find(|trained| trained.stage == Stage::Three) {
        screen.say(format!("\n{}", zero::timeline(screen, three)));
    }
    section(lab, "Elsewhere: 7.5 billion parameters in mixed precision on 64 devices");
    screen.say(zero::papers_table(screen));
    screen
        .say(screen.wrap("GB are 10^9 bytes, as in ZeRO's paper. What DeepSpeed's estimates print as GB are GiB.", 2));
}

/// The checks, for the reader and for the exit code.
fn check(lab: &Lab, comm: &Comm, all: &[Trained]) -> Vec<String> {
    let (screen, config) = (&lab.screen, &lab.config);
    let (numel, precision) = (config.shape.parameters(), config.zero.precision);
    screen.say("");
    let mut checks = Checks::new(screen);
    let first = &all[0];
    for other in &all[1..] {
        let apart = first.losses.iter().zip(&other.losses).fold(0f64, |most, (a, b)| most.max((a - b).abs()));
        let same = first.hash == other.hash && first.losses == other.losses;
        // Sums in another order: by an MPI library; where stages 2 and 3 average in every micro-step; tile by tile.
        let own_order = !comm.adds_in_rank_order() || config.grad_accum > 1 || lab.args.tiles > 1;
        let result = match apart {
            _ if same => "bitwise equal".into(),
            0.0 => "equal losses".into(),
            _ => format!("losses within {apart:.0e}"),
        };
        let sound = same || (own_order && apart < precision.loss_bound());
        let what = format!("stage {} trains what stage {} trains", other.stage.number(), first.stage.number());
        checks.hold(sound, &what, &result, &format!("stage {} trained something else", other.stage.number()));
    }
    let said = all.iter().filter(|trained| trained.is_as_said(numel, config.ranks, precision)).count();
    let result = format!("{said} of {}", all.len());
    checks.hold(said == all.len(), "memory and bytes are as the formulas say, within 1%", &result, "a formula is off");
    if let Some(limit) = lab.args.memory_limit {
        let most = all.iter().map(|t| t.held.parameters + t.held.gradients + t.held.optimizer).max().unwrap_or(0);
        let result = format!("{:.2} of {limit} MB", most as f64 / 1e6);
        checks.hold(most as f64 <= limit * 1e6, "every rank stays within its memory", &result, "a rank holds too much");
    }
    let failed = checks.failed();
    if failed.is_empty() {
        screen.say(lab.lesson.ending(screen, ""));
    }
    failed
}
