//! What lab04 runs, in which order, and its checks.

use crate::apparatus::{self, Job, Lab, Measured, checks, compare_groups, limit, training};
use crate::flags::{
    Args, Break, Show, default_to_many_small_blocks, refuse_beside_groups, refuse_breaking_nothing,
};
use crate::lesson::compare_trainings;
use anyhow::Result;
use kit::flags::{Due, EvalConfig};
use kit::machine::matmul_peak;
use kit::{
    Checks, End, Evaluator, Footprint, Journal, LabRun, Rates, Steps, Symptoms, parity, progress,
    report,
};
use shardlab::comm::{Comm, Nodes};
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::parallel::zero::Stage;
use shardlab::train::{self, Config, Training};

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
    let grouped = strategy.replicas > 1;
    // Groups that shard are compared with one group in a few steps, as stages are.
    let alone = args.zero.zero.filter(|_| !grouped);
    refuse_beside_groups(&args, &strategy)?;
    if alone.is_none() && args.show != Some(Show::Timeline) {
        default_to_many_small_blocks(&mut args.train.model, &mut args.zero);
    }
    let few = Some(6).filter(|_| alone.is_none());
    let steps = args.steps.or(few);
    args.train.take(&strategy);
    let config = args.train.resolve(strategy.data, steps, &corpus)?;
    let config = args.muon.resolve(config)?;
    args.strategy.ensure_divides(&config.shape)?;
    let eval = args.eval.resolve(config.steps, &args.train.defaults(), &corpus)?;
    let mut zero = args.zero.resolve(&config)?;
    let mut run = LabRun {
        ranks: config.ranks,
        is_broken: args.broken.is_some(),
        saves: alone.is_some(),
        ..LabRun::of("lab04", &args.run)?
    };
    run.options.nodes = args
        .link_between
        .map(|link| Nodes { ranks_per_node: strategy.shard_ranks(), link });
    if args.show == Some(Show::Timeline) {
        zero.stage = alone.unwrap_or(Stage::Three);
        if launch::is_first_process() {
            run.screen
                .say(apparatus::timeline(&run.screen, &config, &zero, args.run.comm.link));
        }
        return Ok(());
    }
    let tiles = args.zero.tiles(config.shape.embd)?;
    if tiles > 1 && config.muon.is_some() {
        let what = format!("--optimizer muon needs whole matrices, and --tiles {tiles} cuts them");
        return Err(BadInput::new(what, "leave --tiles out").into());
    }
    let fitting = limit::within(args.memory_limit.map(|mb| mb * 1e6), alone, &config, &zero)?;
    let stages = match alone.or(grouped.then_some(strategy.zero)) {
        Some(stage) => vec![stage],
        None => {
            limit::ensure_padding_is_little(&config)?;
            fitting
        }
    };
    refuse_breaking_nothing(&args, &config, &stages)?;
    zero.stage = stages[0];
    // One reduction in flight at a time: then the peak of memory does not depend on timing.
    zero.overlap &= alone.is_some() || grouped;
    let eval = alone.map(|_| eval);
    let peak = args.zero.zero.map_or(0.0, |_| matmul_peak(config.precision));
    let lab = Lab {
        job: Job::of(&config, &zero),
        args,
        config,
        strategy,
        zero,
        tiles,
        eval,
        corpus,
        stages,
        run,
        peak,
    };
    let footprint = Footprint::sharded(&lab.config, &lab.zero).in_groups(strategy.replicas);
    if !lab.run.goes_on(&footprint, || peak, || introduce(&lab))? {
        return Ok(());
    }
    lab.run.train(&lab.config, |comm, checks| one_rank(&lab, comm, checks))
}

/// One rank's part: one stage in full, or a few steps with each, and the checks.
fn one_rank(lab: &Lab, comm: &Comm, checks: &mut Checks) -> Result<()> {
    let Lab { args, config, run, .. } = lab;
    let screen = &run.screen;
    if comm.rank() == 0 {
        introduce(lab);
    }
    if args.broken == Some(Break::PaddingOnLast) {
        if comm.rank() == 0 {
            apparatus::padding_on_last(screen, comm.size(), checks);
        }
        return Ok(());
    }
    if lab.strategy.replicas > 1 {
        return compare_groups(lab, comm, checks);
    }
    let mut all = Vec::new();
    let mut beside = None;
    let mut end = None;
    if let Some(eval) = &lab.eval {
        let (measured, journal, trained) = in_full(lab, comm, eval)?;
        all.push(measured);
        end = Some((journal, trained));
    } else {
        progress(comm, || "the lesson's version and the library's: 3 steps each".into());
        let with_adamw = Config { muon: None, ..config.clone() }; // the lesson's optimizer
        beside = Some(compare_trainings(comm, &with_adamw, &lab.corpus.train)?);
        all = each_stage(lab, comm)?;
    }
    if comm.rank() != 0 {
        return Ok(());
    }

    let drawn = lab.eval.is_some() || args.show == Some(Show::Holdings);
    apparatus::show(screen, &all, &lab.job, drawn);
    screen.say("");
    if let Some(beside) = beside {
        checks.beside("3 losses with ZeRO-1", beside);
    }
    let bound = parity::loss_bound(parity::rounds(config));
    checks::compare(checks, comm, &all, bound, config.grad_accum > 1, lab.tiles > 1);
    checks::check_norms(checks, screen, &all, config.clip);
    if let Some((journal, end)) = &end {
        checks.training(config, &lab.corpus, journal, end);
    }
    checks::check_memory(checks, config, &all, &lab.job, args.memory_limit);
    checks
        .end_with("More: --show holdings, --show timeline, --grad-accum 4, --dtype bf16, --zero 3");
    Ok(())
}

/// Trains with one stage, evaluates and saves.
fn in_full<'a>(
    lab: &'a Lab,
    comm: &Comm,
    eval: &EvalConfig,
) -> Result<(Measured, Journal<'a>, End)> {
    let Lab { args, config, corpus, run, zero, .. } = lab;
    let screen = &run.screen;
    let stage = lab.stages[0];
    let how = (&Strategy::data(config.ranks, stage), zero);
    let same_as_one_rank =
        parity::same_as_one_rank(comm, screen, config, how, &corpus.train, true)?;
    if comm.rank() == 0 {
        report::legend(screen);
    }
    let rates = Rates::of(config, lab.peak);
    let mut journal = Journal::new(comm, screen, rates, eval.due, Some(&args.log))?;
    let mut training = training::begin(lab, comm, stage)?;
    if stage == Stage::Three && comm.rank() == 0 {
        screen.say(training::persistent(training.zero.units()));
    }
    let save_to = run.save_to();
    let init_from = args.train.model.init_from.as_deref();
    let evaluator = Evaluator { config, eval, corpus, screen, comm, save_to, init_from };
    let mut symptoms = Symptoms::default();
    evaluator.train(&mut training, &mut journal, &mut symptoms)?;
    let held = measured(comm, stage, &mut training, &journal)?;
    journal.expect(report::bytes_of_zero(&training.zero, stage));
    journal.show(!zero.overlap || args.run.comm.link.is_some())?;
    let hashes = training.whole(|gpt| train::all_hashes(comm, &gpt.params))?;
    let drawn = symptoms.drawn_by_all(comm)?;
    Ok((held, journal, End { hashes, drawn, same_as_one_rank }))
}

/// Trains a few steps with each stage.
fn each_stage(lab: &Lab, comm: &Comm) -> Result<Vec<Measured>> {
    let config = &lab.config;
    let mut all = Vec::new();
    let mut steps = Steps::new(lab.stages.len() * config.steps);
    for &stage in &lab.stages {
        let rates = Rates::of(config, lab.peak);
        let mut journal = Journal::new(comm, &lab.run.screen, rates, Due::NEVER, None)?;
        let mut training = training::begin(lab, comm, stage)?;
        training::take(lab, comm, stage, &mut training, (&mut journal, &mut steps))?;
        if stage == Stage::Three && lab.args.broken == Some(Break::UsedAfterRelease) {
            // Stage 3 has freed the parameters: this pass must be refused.
            let (batch, pass) = &training.draw(&lab.corpus.train, 0, &mut ())?[0];
            training.stages.chunks[0].loss(batch, pass)?;
        }
        all.push(measured(comm, stage, &mut training, &journal)?);
    }
    Ok(all)
}

/// Looks at a training with one stage after its last step.
fn measured(
    comm: &Comm,
    stage: Stage,
    training: &mut Training,
    journal: &Journal,
) -> Result<Measured> {
    let losses = journal.records.iter().map(|record| record.loss).collect();
    let norm = journal.records[0].grad_norm;
    let updates = journal.records.iter().map(|record| record.dt - record.dtf - record.dtb);
    let update = updates.fold(f64::INFINITY, f64::min);
    let looked = Measured::look(comm, stage, &mut training.zero, losses, norm, journal.sent())?;
    Ok(Measured { update, ..looked })
}

fn introduce(lab: &Lab) {
    lab.run.heading(lab.eval.as_ref().map(|_| "--dry-run predicts how long"));
    let corpus = lab.eval.as_ref().map(|_| &lab.corpus);
    if lab.strategy.replicas > 1 {
        apparatus::introduce(&lab.run.screen, None, &lab.config, &lab.job, &Stage::ALL);
        return apparatus::introduce_groups(lab);
    }
    apparatus::introduce(&lab.run.screen, corpus, &lab.config, &lab.job, &lab.stages);
}
