//! What runs in which order, and the checks.

use crate::apparatus::{self, Folders, Resumed, Run, job};
use crate::flags::{self, Args, Break};
use crate::lesson;
use anyhow::Result;
use kit::flags::ensure_runs;
use kit::parity::{drawn, later_loss_bound, rounds, worst};
use kit::show::{counted, significant, thousands};
use kit::{Checks, LabRun, progress, steady};
use shardlab::checkpoint::universal::{Universal, slices};
use shardlab::checkpoint::{Claim, rank_file};
use shardlab::comm::Comm;
use shardlab::data::{Corpus, Sampling};
use shardlab::difference::largest_relative_difference;
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::train::{Config, Training};

/// The run's settings, which all ranks share.
struct Lab {
    args: Args,
    /// Sequences per step, over all ranks.
    sequences: usize,
    config: Config,
    corpus: Corpus,
    run: LabRun,
}

/// Trains, saves and resumes, or rebuilds the conversion that failed.
///
/// # Errors
/// If flags contradict each other, a rank fails, or a check finds something wrong.
pub fn run(mut args: Args) -> Result<()> {
    let run = LabRun::of("lab09", &args.run)?;
    if args.padding || args.plot || args.broken == Some(Break::Strip) {
        return incident(&args, &run);
    }
    flags::ensure_saves(&args)?;
    // 60 sequences per step: each number of ranks up to 6 divides them.
    let sequences = args.train.data.global_batch.take().unwrap_or(60);
    args.train.data.batch = Some(1);
    flags::small(&mut args.train.model);
    let corpus = args.train.data.corpus()?;
    let config = args.muon.resolve(args.train.resolve(1, Some(args.steps), &corpus)?)?;
    let config = Config { sampling: Sampling::Global, ..config };
    let jobs = || std::iter::once(&args.from).chain(&args.to);
    for strategy in jobs() {
        ensure_runs("--from and --to", strategy, "lab09")?;
        job::check(strategy, &config, sequences)?;
    }
    let ranks = jobs().map(Strategy::ranks).max().unwrap_or(1);
    flags::ensure_known(&args.slices, &config)?;
    let started = launch::ranks(None, ranks)?;
    if started < ranks {
        let what =
            format!("these jobs take up to {ranks} ranks, and the launcher started {started}");
        return Err(BadInput::new(what, "start more, or choose --from and --to").into());
    }
    let run = LabRun { ranks: started, ..run };
    let lab = Lab { args, sequences, config, corpus, run };
    if launch::is_first_process() {
        introduce(&lab);
    }
    if lab.run.is_dry {
        return Ok(());
    }
    Folders::ensure_own(&lab.run.folder.join("checkpoints"))?;
    lab.run.train(&lab.config, |comm, checks| one_rank(&lab, comm, checks))
}

/// The failure of the source, in one process. No rank trains.
fn incident(args: &Args, run: &LabRun) -> Result<()> {
    let screen = &run.screen;
    if !launch::is_first_process() {
        return Ok(());
    }
    run.heading(None);
    if args.plot {
        screen.say(apparatus::plots(screen));
        return Ok(());
    }
    screen.say(apparatus::tables(screen));
    let strip = args.broken == Some(Break::Strip);
    kit::ensure_passed(&apparatus::incident(screen, &run.folder, strip)?)
}

/// One rank's part in all jobs, one after the other, and its checks.
fn one_rank(lab: &Lab, world: &Comm, checks: &mut Checks) -> Result<()> {
    let Lab { args, run, .. } = lab;
    let text = &lab.corpus.train[..];
    let dir = run.folder.join("checkpoints");
    let _claim = Claim::take(world, &dir)?;
    if world.rank() == 0 {
        Folders::remove(&dir)?; // an earlier run's
    }
    world.barrier()?;
    let folders = |i: usize| Folders::of(&dir, &format!("job-{i}"));
    let config = |strategy: &Strategy| job::config(strategy, &lab.config, lab.sequences);
    let universal = folders(0).universal;
    // Trains, saves after some steps, and trains on: what all others are compared with.
    let first = part_of(world, &args.from, |comm| {
        apparatus::begin(comm, &args.from, &config(&args.from), text, args.save_after, &folders(0))
    })?;
    // Each job loads the universal checkpoint, saves at once what it has loaded, and trains on.
    let mut runs = Vec::new();
    for (i, job) in args.to.iter().enumerate() {
        let again = folders(i + 1);
        runs.push(part_of(world, job, |comm| {
            let forgets = args.broken == Some(Break::FirstData);
            apparatus::resume(comm, job, &config(job), text, (&universal, &again), forgets)
        })?);
    }
    if world.rank() != 0 {
        return Ok(());
    }
    let saved = Universal::open(&universal)?;
    let mut resumed = Vec::new();
    for (i, (job, run)) in args.to.iter().zip(runs).enumerate() {
        // Equal parameters: their shapes, and the SHA-256 of values and moments.
        let loaded = Universal::open(&folders(i + 1).universal)?;
        let same = loaded.parameters == saved.parameters;
        resumed.push(Resumed { job: *job, run, same });
    }
    let mut jobs = vec![(format!("{} saves", args.from), slices(&first.saved)?)];
    // The job that saves needs no second line when it resumes.
    for Resumed { job, run, .. } in resumed.iter().filter(|resumed| resumed.job != args.from) {
        jobs.push((job.to_string(), slices(&run.saved)?));
    }
    run.screen.say(apparatus::pictures(&run.screen, &saved, &jobs, &args.slices));
    let steps = args.save_after + 1..=args.steps;
    run.screen
        .say(apparatus::losses(&run.screen, steps, &args.from, &first, &resumed));
    // Slices of tensor ranks do not follow each other, pipeline ranks have other parameters,
    // without ZeRO nobody has slices, and Muon's matrices are whole.
    let slices = job::slices_follow_each_other(&args.from) && lab.config.muon.is_none();
    let beside = if slices {
        progress(world, || "the lesson's parameters and slices".into());
        let old = files(&first, args.from.ranks())?;
        let mut new = Vec::new();
        for Resumed { job, run, .. } in &resumed {
            if job::shards_each_parameter(job) {
                new.push(files(run, job.ranks())?);
            }
        }
        Some(lesson::compare(&saved, &old, &new)?)
    } else {
        None
    };
    if let Some(beside) = beside {
        checks.beside("parameters and slices", beside);
    }
    let compared = steady_steps(lab, &first, &resumed)?;
    check(lab, checks, &saved, &first, &resumed, compared);
    checks.end_with("More: --slices blocks.0.fc.weight, --padding, --to dp=5, --break first-data");
    Ok(())
}

/// Runs a job on the first ranks of the world. All ranks wait until it has ended.
fn part_of(world: &Comm, job: &Strategy, work: impl FnOnce(&Comm) -> Result<Run>) -> Result<Run> {
    let takes_part = world.rank() < job.ranks();
    let comm = world.split(takes_part.into(), 0)?;
    let run = if takes_part { work(&comm) } else { Ok(Run::default()) };
    world.barrier()?;
    run
}

/// What a job's ranks have saved.
fn files(run: &Run, ranks: usize) -> std::io::Result<Vec<Vec<u8>>> {
    let read = |rank| std::fs::read(run.saved.join(rank_file(rank)));
    (0..ranks).map(read).collect()
}

/// How many of the losses after the save are to be compared.
fn steady_steps(lab: &Lab, first: &Run, resumed: &[Resumed]) -> Result<usize> {
    let one = job::config(&Strategy::SINGLE, &lab.config, lab.sequences);
    let text = &lab.corpus.train;
    let passes = |alone: &Training, step: usize| drawn(alone, &one, 0..1, text, step);
    let mut steps = first.losses.len();
    // Of a mistake nobody asks whether it is only roundings.
    if lab.args.broken.is_some() {
        return Ok(steps);
    }
    let bound = later_loss_bound(rounds(&lab.config));
    for Resumed { run, .. } in resumed {
        let losses = (&run.losses[..], &first.losses[..]);
        steps = steps.min(steady::compared(&one, lab.args.save_after, losses, bound, passes)?);
    }
    Ok(steps)
}

/// Is the saved model whole, and did every job continue it? Of the losses, the first `compared` are
/// those of the run that nothing interrupted.
fn check(
    lab: &Lab,
    checks: &mut Checks,
    saved: &Universal,
    first: &Run,
    resumed: &[Resumed],
    compared: usize,
) {
    let numel = lab.config.shape.parameters();
    let jobs = lab.args.to.len();
    let sizes = saved.parameters.values().map(|one| one.shape.iter().product::<usize>());
    let whole: usize = sizes.sum();
    let merged = format!("{} = {}", thousands(whole as u64), thousands(numel));
    checks.check(
        whole as u64 == numel,
        "all ranks' slices make one model",
        &merged,
        "elements are missing",
    );
    let held = resumed.iter().filter(|resumed| resumed.same).count();
    let count = format!("{held} of {jobs} jobs");
    checks.check(
        held == jobs,
        "parameters and moments after loading: bitwise",
        &count,
        "a job has loaded other numbers",
    );
    let expected = &first.losses[..compared];
    let differences = resumed.iter().map(|Resumed { run, .. }| {
        largest_relative_difference(run.losses.get(..compared).unwrap_or_default(), expected)
    });
    let largest = worst(differences);
    let bound = later_loss_bound(rounds(&lab.config));
    let found = format!("{} < {}", significant(largest, 2), significant(bound, 2));
    checks.check(
        largest < bound,
        "losses as if nothing had happened",
        &found,
        "the losses differ",
    );
    checks.compared(compared, first.losses.len());
    for Resumed { job, run, .. } in resumed.iter().filter(|resumed| resumed.job == lab.args.from) {
        let what = format!("{job}, saved and resumed: the same bits");
        checks.check(run.has_bits_of(first), &what, "", "the same ranks continue with other bits");
    }
}

fn introduce(lab: &Lab) {
    let Lab { args, run, config, .. } = lab;
    run.heading(None);
    let shape = &config.shape;
    let dot = run.screen.separator();
    let model = format!(
        "{} layers{dot}{} wide{dot}{} parameters",
        shape.layers,
        shape.embd,
        thousands(shape.parameters())
    );
    run.row("model", &model);
    kit::report::muon(&run.screen, config);
    let batch = format!("{} sequences per step, the same for any number of ranks", lab.sequences);
    run.row("batch", &batch);
    let ranks = |job: &Strategy| format!("{job} ({})", counted(job.ranks(), "rank", "ranks"));
    let saves = format!(
        "{} trains {} steps, and saves after step {}",
        ranks(&args.from),
        args.steps,
        args.save_after
    );
    run.row("saves", &saves);
    run.row("resume", &args.to.iter().map(ranks).collect::<Vec<_>>().join(dot));
}
