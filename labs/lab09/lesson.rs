//! lab09 · Save on N ranks, resume on M
//!
//! A job was saved on 4 ranks, and today there are only 3: how does it continue?
//!
//! Each rank's file has slices of parameters, and their ends depend on the number of ranks. A
//! universal checkpoint has every parameter whole. So any number of ranks, which may share the
//! model in any way, takes its own slices of it.
//!
//! [`put_together`] and [`take_mine`] below do this for data parallelism; the first check compares
//! them with what the library writes.
//!
//! Run `cargo run --bin lab09`. Four ranks train and save. The lab converts their files, resumes
//! the job on other ranks, and compares all parameters and moments bit by bit, and the losses of
//! the steps that follow. Save a different job: `--from dp=4,zero=3`, `--from tp=2,pp=2`; resume it
//! as you like: `--to dp=5`. Break it: `--break first-data`. Rebuild a conversion that failed on
//! 768 ranks: `--padding`; see which numbers of ranks would have failed, too: `--plot`.

use anyhow::Result;
use clap::Parser;
use kit::flags::{positive, without};
use kit::help;
use kit::show::{Screen, significant, table, thousands};
use kit::{Beside, Checks, Lesson, RunFlags, TrainFlags, progress};
use lab09::{Break, Folders, Job, Run};
use safetensors::SafeTensors;
use shardlab::checkpoint::universal::{Universal, slices};
use shardlab::checkpoint::{Claim, rank_file};
use shardlab::comm::Comm;
use shardlab::data::{Corpus, Sampling};
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::model::Gpt;
use shardlab::train::Config;
use std::path::PathBuf;
use std::process::ExitCode;

/// Universal checkpoints: save on N ranks, resume on M.
#[derive(Parser)]
#[command(name = "lab09", version)]
#[command(mut_arg("init_from", |flag| without::<PathBuf>(flag, "this lab trains a few steps: leave it out")))]
#[command(mut_arg("batch", |flag| flag.hide(true)), mut_arg("sampler", |flag| flag.hide(true)))]
#[command(after_long_help = help::examples("lab09", &[
    ("--from dp=4,zero=3 --to dp=5 tp=2", "another job saves, and two resume"),
    ("--padding", "a conversion that failed on 768 ranks"),
    ("--break first-data", "a mistake, and the check that notices"),
]))]
struct Args {
    /// The job that saves: ranks along each axis, and ZeRO's stage
    #[arg(long, value_name = "JOB", default_value = "dp=4", help_heading = help::STRATEGY)]
    from: Job,
    /// The jobs that resume
    #[arg(long, value_name = "JOB", num_args = 1.., default_values = ["dp=4", "dp=2", "dp=3,zero=3", "dp=1", "tp=2", "pp=2"], help_heading = help::STRATEGY)]
    to: Vec<Job>,
    /// Training steps in all
    #[arg(long, default_value_t = 20, value_parser = positive(), help_heading = help::TRAINING)]
    steps: usize,
    /// Save after this many steps
    #[arg(long, default_value_t = 10, help_heading = help::TRAINING)]
    save_after: usize,
    /// Also show the slices of these parameters, for example of blocks.0.fc.weight
    #[arg(long, value_name = "NAME", num_args = 1.., help_heading = help::INSTEAD)]
    slices: Vec<String>,
    /// Rebuild a conversion that failed, with the files of 768 ranks
    #[arg(long, help_heading = help::INSTEAD)]
    padding: bool,
    /// Plot for which numbers of ranks it fails
    #[arg(long, conflicts_with = "padding", help_heading = help::INSTEAD)]
    plot: bool,
    /// Break it on purpose, and see which check notices
    #[arg(long = "break", value_enum, conflicts_with = "plot", help_heading = help::BREAK)]
    broken: Option<Break>,
    #[command(flatten)]
    train: TrainFlags,
    #[command(flatten)]
    run: RunFlags,
}

/// The run's settings, which all ranks share.
struct Lab {
    args: Args,
    /// Sequences per step, over all ranks.
    sequences: usize,
    config: Config,
    corpus: Corpus,
    screen: Screen,
    lesson: Lesson,
}

// ANCHOR: heart
/// Puts the slices of a parameter together. Each old rank's file has some of its elements, or none,
/// in the order of the ranks.
fn put_together(files: &[Vec<u8>], parameter: &str) -> Result<Vec<f32>> {
    let mut whole = Vec::new();
    for file in files {
        let tensors = SafeTensors::deserialize(file)?;
        // Beside its values lie its moments. A rank that holds nothing of it has neither.
        if let Ok(slice) = tensors.tensor(&format!("values.{parameter}")) {
            let numbers = slice.data().chunks_exact(4);
            whole.extend(
                numbers.map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
            );
        }
    }
    Ok(whole)
}

/// The elements of a parameter that new rank `rank` of `ranks` holds under ZeRO-3, which cuts each
/// parameter by itself. The last slices may be shorter, or empty.
fn take_mine(whole: &[f32], rank: usize, ranks: usize) -> &[f32] {
    let length = whole.len().div_ceil(ranks);
    let from = whole.len().min(rank * length);
    let to = whole.len().min(from + length);
    &whole[from..to]
}
// ANCHOR_END: heart

/// Compares every parameter with the library's, put together; and, for the jobs that resume under
/// ZeRO-3 or on one rank, what each new rank takes with what the library's rank has saved.
fn compare_with_the_library(
    lab: &Lab,
    saved: &Universal,
    first: &Run,
    resumed: &[Run],
) -> Result<Beside> {
    let files = |run: &Run, ranks: usize| -> std::io::Result<Vec<Vec<u8>>> {
        let read = |rank| std::fs::read(run.saved.join(rank_file(rank)));
        (0..ranks).map(read).collect()
    };
    let old = files(first, lab.args.from.ranks())?;
    let mut new = Vec::new();
    for (job, run) in lab.args.to.iter().zip(resumed) {
        if job.shards_each_parameter() {
            new.push(files(run, job.ranks())?);
        }
    }
    let mut lesson = Vec::new();
    let mut library = Vec::new();
    for name in saved.parameters().keys() {
        let whole = put_together(&old, name)?;
        let [values, ..] = saved.read(name)?;
        library.extend(values);
        lesson.extend_from_slice(&whole);
        for files in &new {
            for (rank, file) in files.iter().enumerate() {
                let mine = take_mine(&whole, rank, files.len());
                let theirs = put_together(std::slice::from_ref(file), name)?;
                // One after the other, slices with other ends would be the same numbers: so their
                // lengths, too.
                lesson.push(mine.len() as f32);
                lesson.extend_from_slice(mine);
                library.push(theirs.len() as f32);
                library.extend(theirs);
            }
        }
    }
    Ok(Beside::of(&Comm::alone(), &lesson, &library, 0.0)?)
}

fn main() -> ExitCode {
    kit::main(run)
}

fn run(mut args: Args) -> Result<()> {
    let screen = Screen::detect(args.run.ascii);
    let lesson = Lesson::of("lab09")?;
    if args.padding || args.plot || args.broken == Some(Break::Strip) {
        return incident(&args, &screen, &lesson);
    }
    ensure_saves(&args)?;
    // 60 sequences per step: each number of ranks up to 6 divides them.
    let sequences = args.train.data.global_batch.take().unwrap_or(60);
    args.train.data.batch = Some(1);
    lab09::small(&mut args.train.model);
    let corpus = Corpus::find(args.train.data.data.as_deref())?;
    let config = args.train.resolve(1, Some(args.steps), &corpus)?;
    let config = Config { sampling: Sampling::Global, ..config };
    let jobs = || std::iter::once(&args.from).chain(&args.to);
    jobs().try_for_each(|job| job.check(&config, sequences))?;
    let ranks = jobs().map(Job::ranks).max().unwrap_or(1);
    ensure_known(&args.slices, &config)?;
    let started = launch::ranks(None, ranks)?;
    if started < ranks {
        let what =
            format!("these jobs take up to {ranks} ranks, and the launcher started {started}");
        return Err(BadInput::new(what, "start more, or choose --from and --to").into());
    }
    let lab = Lab { args, sequences, config, corpus, screen, lesson };
    if launch::is_first_process() {
        introduce(&lab);
    }
    if lab.args.run.dry_run {
        return Ok(());
    }
    let folder = lab.args.run.folder("lab09");
    Folders::ensure_own(&folder.join("checkpoints"))?;
    let options = lab.args.run.comm.options(&folder);
    launch::one_compute_thread_a_rank();
    kit::run(started, &options, |comm| {
        one_rank(&lab, &comm).map_err(|error| lab.config.explain(error))
    })
}

/// The failure of the source, in one process. No rank trains.
fn incident(args: &Args, screen: &Screen, lesson: &Lesson) -> Result<()> {
    if !launch::is_first_process() {
        return Ok(());
    }
    screen.say(lesson.heading(screen, None));
    if args.plot {
        screen.say(lab09::plots(screen));
        return Ok(());
    }
    screen.say(lab09::tables(screen));
    let failed =
        lab09::incident(screen, &args.run.folder("lab09"), args.broken == Some(Break::Strip))?;
    kit::ensure_passed(&failed)
}

/// Refuses a run that never saves, or never resumes.
fn ensure_saves(args: &Args) -> Result<(), BadInput> {
    if args.save_after == 0 || args.save_after >= args.steps {
        let what = format!(
            "--save-after {} of {} steps: nothing would be saved or resumed",
            args.save_after, args.steps
        );
        return Err(BadInput::new(what, "give a number from 1 to --steps minus 1"));
    }
    Ok(())
}

/// Refuses names of parameters that the model does not have.
fn ensure_known(slices: &[String], config: &Config) -> Result<()> {
    let gpt = Gpt::new(&config.shape)?;
    let names: Vec<&str> = gpt.params.specs().iter().map(|spec| spec.name.as_str()).collect();
    match slices.iter().find(|slice| !names.contains(&slice.as_str())) {
        None => Ok(()),
        Some(name) => Err(BadInput::new(
            format!("the model has no {name}"),
            format!("choose of {}", names.join(", ")),
        )
        .into()),
    }
}

/// One rank's part in all jobs, one after the other. Returns what the checks found wrong.
fn one_rank(lab: &Lab, world: &Comm) -> Result<Vec<String>> {
    let args = &lab.args;
    let text = &lab.corpus.train[..];
    let dir = lab.args.run.folder("lab09").join("checkpoints");
    let _claim = Claim::take(world, &dir)?;
    if world.rank() == 0 {
        Folders::remove(&dir)?; // an earlier run's
    }
    world.barrier()?;
    let folders = |i: usize| Folders::of(&dir, &format!("job-{i}"));
    let config = |job: &Job| job.config(&lab.config, lab.sequences);
    let universal = folders(0).universal;
    // Trains, saves after some steps, and trains on: what all others are compared with.
    let first = part_of(world, &args.from, |comm| {
        lab09::begin(comm, args.from, config(&args.from), text, args.save_after, &folders(0))
    })?;
    // Each job loads the universal checkpoint, saves at once what it has loaded, and trains on.
    let mut resumed = Vec::new();
    for (i, job) in args.to.iter().enumerate() {
        let again = folders(i + 1);
        resumed.push(part_of(world, job, |comm| {
            lab09::resume(
                comm,
                *job,
                config(job),
                text,
                (&universal, &again),
                args.broken == Some(Break::FirstData),
            )
        })?);
    }
    if world.rank() != 0 {
        return Ok(Vec::new());
    }
    let saved = Universal::open(&universal)?;
    // Equal parameters: their shapes, and the SHA-256 of values and moments.
    let mut same = Vec::new();
    for i in 0..args.to.len() {
        same.push(Universal::open(&folders(i + 1).universal)?.parameters() == saved.parameters());
    }
    show_slices(lab, &saved, &first, &resumed)?;
    show_losses(lab, &first, &resumed, &same);
    // Slices of tensor ranks do not follow each other, pipeline ranks have other parameters, and
    // without ZeRO nobody has slices.
    let beside = if args.from.slices_follow_each_other() {
        progress(world, || "the lesson's parameters and slices".into());
        Some(compare_with_the_library(lab, &saved, &first, &resumed)?)
    } else {
        None
    };
    Ok(check(lab, &saved, &first, &resumed, &same, beside))
}

/// Runs a job on the first ranks of the world. All ranks wait until it has ended.
fn part_of(world: &Comm, job: &Job, work: impl FnOnce(&Comm) -> Result<Run>) -> Result<Run> {
    let takes_part = world.rank() < job.ranks();
    let comm = world.split(takes_part.into(), 0)?;
    let run = if takes_part { work(&comm) } else { Ok(Run::default()) };
    world.barrier()?;
    run
}

/// The slices of the model and of a few parameters: on the ranks that saved them, and on those that
/// have loaded them.
fn show_slices(lab: &Lab, saved: &Universal, first: &Run, resumed: &[Run]) -> Result<()> {
    let args = &lab.args;
    let screen = &lab.screen;
    let parameters = saved.parameters();
    let mut jobs = vec![(format!("{} saves", args.from), slices(&first.saved)?)];
    // The job that saves needs no second line when it resumes.
    for (job, run) in args.to.iter().zip(resumed).filter(|(job, _)| **job != args.from) {
        jobs.push((job.to_string(), slices(&run.saved)?));
    }
    let title = "The rank that holds each slice, of all parameters end to end";
    screen.say(format!("\n{}", screen.wrap(title, 2)));
    let all: Vec<&str> = parameters.keys().map(String::as_str).collect();
    screen.say(lab09::picture(screen, parameters, &all, &jobs));
    for name in &args.slices {
        screen.say(format!("\n  of {name} {:?}", parameters[name].shape));
        screen.say(lab09::picture(screen, parameters, &[name.as_str()], &jobs));
    }
    Ok(())
}

/// The losses after the save, beside those of the run that nothing interrupted.
fn show_losses(lab: &Lab, first: &Run, resumed: &[Run], same: &[bool]) {
    let screen = &lab.screen;
    let ends = |run: &Run| match (run.losses.first(), run.losses.last()) {
        (Some(first), Some(last)) => [format!("{first:.6}"), format!("{last:.6}")],
        _ => [String::new(), String::new()],
    };
    let undisturbed = format!("{}, runs on", lab.args.from);
    let mut rows =
        vec![[&[undisturbed, String::new()][..], &ends(first), &[String::new()]].concat()];
    for ((job, run), same) in lab.args.to.iter().zip(resumed).zip(same) {
        let state = if *same {
            format!("bitwise {}", screen.tick())
        } else {
            format!("differ {}", screen.cross())
        };
        let difference = if run.has_bits_of(first) {
            "0: the same bits".to_string()
        } else {
            significant(run.difference(first), 2)
        };
        rows.push([&[job.to_string(), state][..], &ends(run), &[difference]].concat());
    }
    let after = lab.args.save_after + 1;
    let last = lab.args.steps;
    let losses = [format!("loss of\nstep {after}"), format!("loss of\nstep {last}")];
    let heads = [
        "job\n",
        "parameters\nand moments",
        &losses[0],
        &losses[1],
        "largest difference\nof a loss",
    ];
    screen.say(format!("\n{}", table(screen, &heads, &rows)));
    let why = "The same ranks add in the same order: a loss keeps its bits. Other ranks add in a different \
               order, and the last digits can differ.";
    screen.say(format!("{}\n", screen.wrap(why, 2)));
}

/// The checks, for the reader and for the exit code.
fn check(
    lab: &Lab,
    saved: &Universal,
    first: &Run,
    resumed: &[Run],
    same: &[bool],
    beside: Option<Beside>,
) -> Vec<String> {
    let mut checks = Checks::new(&lab.screen);
    if let Some(beside) = beside {
        checks.beside("parameters and slices", beside);
    }
    let numel = lab.config.shape.parameters();
    let jobs = lab.args.to.len();
    let whole: usize = saved
        .parameters()
        .values()
        .map(|parameter| parameter.shape.iter().product::<usize>())
        .sum();
    let merged = format!("{} = {}", thousands(whole as u64), thousands(numel));
    checks.check(
        whole as u64 == numel,
        "all ranks' slices make one model",
        &merged,
        "elements are missing",
    );
    let held = same.iter().filter(|same| **same).count();
    let count = format!("{held} of {jobs} jobs");
    checks.check(
        held == jobs,
        "parameters and moments after loading: bitwise",
        &count,
        "a job has loaded other numbers",
    );
    let largest = resumed.iter().map(|run| run.difference(first)).fold(0.0, f64::max);
    let bound = 1e-4;
    let found = format!("{} < {}", significant(largest, 2), significant(bound, 2));
    checks.check(
        largest < bound,
        "losses as if nothing had happened",
        &found,
        "the losses differ",
    );
    for (job, run) in lab.args.to.iter().zip(resumed).filter(|(job, _)| **job == lab.args.from) {
        let what = format!("{job}, saved and resumed: the same bits");
        checks.check(run.has_bits_of(first), &what, "", "the same ranks continue with other bits");
    }
    let failed = checks.failed();
    if failed.is_empty() {
        let more = "More: --slices blocks.0.fc.weight, --padding, --to dp=5, --break first-data";
        lab.screen.say(lab.lesson.ending(&lab.screen, more));
    }
    failed
}

fn introduce(lab: &Lab) {
    let Lab { args, screen, config, .. } = lab;
    screen.say(lab.lesson.heading(screen, None));
    let shape = &config.shape;
    let dot = screen.separator();
    let model = format!(
        "{} layers{dot}{} wide{dot}{} parameters",
        shape.layers,
        shape.embd,
        thousands(shape.parameters())
    );
    screen.say(screen.row("model", &model));
    let batch = format!("{} sequences per step, the same for any number of ranks", lab.sequences);
    screen.say(screen.row("batch", &batch));
    let ranks = |job: &Job| {
        format!("{job} ({} rank{})", job.ranks(), if job.ranks() == 1 { "" } else { "s" })
    };
    let saves = format!(
        "{} trains {} steps, and saves after step {}",
        ranks(&args.from),
        args.steps,
        args.save_after
    );
    screen.say(screen.row("saves", &saves));
    screen.say(screen.row("resume", &args.to.iter().map(ranks).collect::<Vec<_>>().join(dot)));
}
