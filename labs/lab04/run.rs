//! What lab04 runs, in which order, and its checks.

use crate::apparatus::{self, Job, Lab, Measured, checks, limit, serial, training};
use crate::flags::{Args, Break, Show, default_to_many_small_blocks, refuse_breaking_nothing};
use crate::lesson::compare_trainings;
use anyhow::Result;
use kit::flags::Due;
use kit::machine::matmul_peak;
use kit::show::Screen;
use kit::{
    Beside, Checks, End, Evaluator, Footprint, Journal, Lesson, Rates, Steps, parity, progress,
    report,
};
use shardlab::comm::Comm;
use shardlab::parallel::zero::Stage;
use shardlab::train;
use shardlab::{checkpoint, launch};

/// Starts the ranks, and runs the lab on each.
///
/// # Errors
/// If the flags do not fit together, a rank fails, or a check does.
pub fn run(mut args: Args) -> Result<()> {
    let corpus = args.train.data.corpus()?;
    let strategy = args.strategy.or_replicas("lab04", args.ranks, 4)?;
    if args.strategy.strategy.is_some() {
        args.zero.take(&strategy);
    }
    let alone = args.zero.zero;
    if alone.is_none() && args.show != Some(Show::Timeline) {
        default_to_many_small_blocks(&mut args.train.model, &mut args.zero);
    }
    let steps = if alone.is_some() {
        args.steps
    } else {
        args.steps.or(Some(6))
    };
    args.train.take(&strategy);
    let config = args.train.resolve(strategy.data, steps, &corpus)?;
    args.strategy.ensure_divides(&config.shape)?;
    let eval = args.eval.resolve(config.steps, &args.train.defaults(), &corpus)?;
    let mut zero = args.zero.resolve(&config)?;
    let screen = Screen::detect(args.run.ascii);
    let lesson = Lesson::of("lab04")?;
    if args.show == Some(Show::Timeline) {
        zero.stage = alone.unwrap_or(Stage::Three);
        if launch::is_first_process() {
            screen.say(apparatus::timeline(&screen, &config, &zero, args.run.comm.link));
        }
        return Ok(());
    }
    let tiles = args.zero.tiles(config.shape.embd)?;
    let fitting = limit::within(args.memory_limit.map(|mb| mb * 1e6), alone, &config, &zero)?;
    let stages = match alone {
        Some(stage) => vec![stage],
        None => {
            limit::ensure_padding_is_little(&config)?;
            fitting
        }
    };
    refuse_breaking_nothing(&args, &config, &stages)?;
    zero.stage = stages[0];
    // One reduction in flight at a time: then the peak of memory does not depend on timing.
    zero.overlap &= alone.is_some();
    let eval = alone.map(|_| eval);
    let peak = alone.map_or(0.0, |_| matmul_peak(config.precision));
    let lab = Lab {
        job: Job::of(&config, &zero),
        args,
        config,
        zero,
        tiles,
        eval,
        corpus,
        stages,
        screen,
        peak,
        lesson,
    };
    let footprint = Footprint::sharded(&lab.config, &lab.zero);
    let free = launch::free_memory(launch::ranks_here(lab.config.ranks));
    if lab.args.run.dry_run {
        if launch::is_first_process() {
            introduce(&lab);
            report::dry_run(&lab.screen, &lab.config, &footprint, free, lab.peak);
        }
        return Ok(());
    }
    footprint.ensure_fits(free)?;
    let folder = lab.args.run.folder("lab04");
    if lab.eval.is_some() {
        checkpoint::ensure_writable(&folder)?;
    }
    let options = lab.args.run.comm.options(&folder);
    kit::run(lab.config.ranks, &options, |comm| {
        one_rank(&lab, &comm).map_err(|error| kit::explain(&lab.config, error))
    })
}

/// One rank's part. Returns what the checks found wrong.
fn one_rank(lab: &Lab, comm: &Comm) -> Result<Vec<String>> {
    if comm.rank() == 0 {
        introduce(lab);
    }
    if lab.args.broken == Some(Break::PaddingOnLast) {
        return Ok(apparatus::padding_on_last(comm, &lab.screen));
    }
    let config = &lab.config;
    let corpus = &lab.corpus;
    let screen = &lab.screen;
    let text = &corpus.train[..];
    let folder = lab.args.run.folder("lab04");
    let _claim = if lab.eval.is_some() {
        Some(checkpoint::Claim::take(comm, &folder)?)
    } else {
        None
    };
    let save_to = Some(folder);
    let init_from = lab.args.train.model.init_from.as_deref();
    let evaluator = lab.eval.as_ref().map(|eval| Evaluator {
        config,
        eval,
        corpus,
        screen,
        comm,
        save_to,
        init_from,
    });
    let mut beside = None;
    let mut same_as_one_rank = true;
    if evaluator.is_none() {
        progress(comm, || "the lesson's version and the library's: 3 steps each".into());
        beside = Some(compare_trainings(comm, config, text)?);
    } else {
        same_as_one_rank = serial::compare(comm, screen, config, text, &lab.zero)?;
    }
    let (due, log) = lab
        .eval
        .as_ref()
        .map_or((Due::NEVER, None), |eval| (eval.due, Some(&lab.args.log)));
    let mut all = Vec::new();
    let mut end = None;
    let mut steps = Steps::new(lab.stages.len() * config.steps);
    for &stage in &lab.stages {
        let mut journal = Journal::new(comm, screen, Rates::of(config, lab.peak), due, log)?;
        let trained =
            training::train(lab, comm, stage, evaluator.as_ref(), (&mut journal, &mut steps));
        let (mut training, symptoms) = trained?;
        if stage == Stage::Three && lab.args.broken == Some(Break::UsedAfterRelease) {
            // Stage 3 has freed the parameters: this pass must be refused.
            let (batch, pass) = &training.draw(text, 0, &mut ())?[0];
            training.stages.chunks[0].loss(batch, pass)?;
        }
        let losses = journal.records.iter().map(|r| r.loss).collect();
        let norm = journal.records[0].grad_norm;
        let measured =
            Measured::look(comm, stage, &mut training.zero, losses, norm, journal.sent())?;
        if evaluator.is_some() {
            journal.expect(report::bytes_of_zero(&training.zero, stage));
            journal.show(!lab.zero.overlap || lab.args.run.comm.link.is_some())?;
            let hashes = training.whole(|gpt| train::all_hashes(comm, &gpt.params))?;
            end = Some((
                journal,
                End {
                    hashes,
                    drawn: symptoms.drawn_by_all(comm)?,
                    same_as_one_rank,
                },
            ));
        }
        all.push(measured);
    }
    if comm.rank() != 0 {
        return Ok(Vec::new());
    }
    apparatus::show(
        screen,
        &all,
        &lab.job,
        lab.eval.is_some() || lab.args.show == Some(Show::Holdings),
    );
    Ok(check(lab, comm, &all, end.as_ref(), beside))
}

fn introduce(lab: &Lab) {
    lab.screen.say(
        lab.lesson
            .heading(&lab.screen, lab.eval.as_ref().map(|_| "--dry-run predicts how long")),
    );
    let corpus = lab.eval.as_ref().map(|_| &lab.corpus);
    apparatus::introduce(&lab.screen, corpus, &lab.config, &lab.job, &lab.stages);
}

/// Runs the checks, for the reader and for the exit code.
fn check(
    lab: &Lab,
    comm: &Comm,
    all: &[Measured],
    end: Option<&(Journal, End)>,
    beside: Option<Beside>,
) -> Vec<String> {
    let screen = &lab.screen;
    let config = &lab.config;
    screen.say("");
    let mut checks = Checks::new(screen);
    if let Some(beside) = beside {
        checks.beside("3 losses with ZeRO-1", beside);
    }
    checks::compare(
        &mut checks,
        comm,
        all,
        parity::loss_bound(parity::rounds(config)),
        config.grad_accum > 1,
        lab.tiles > 1,
    );
    checks::check_norms(&mut checks, screen, all, config.clip);
    if let Some((journal, end)) = end {
        checks.training(config, &lab.corpus, journal, end);
    }
    checks::check_memory(&mut checks, config, all, &lab.job, lab.args.memory_limit);
    let failed = checks.failed_after(lab.args.broken.is_some(), config);
    if failed.is_empty() {
        let more = "More: --show holdings, --show timeline, --grad-accum 4, --dtype bf16, --zero 3";
        screen.say(lab.lesson.ending(screen, more));
    }
    failed
}
