//! What lab03 runs, in which order, and its checks.

use crate::apparatus::{Lab, broken, introduce, sent, speedup};
use crate::flags::Args;
use crate::lesson::compare_steps;
use anyhow::Result;
use kit::flags::ensure_ranks_can_differ;
use kit::machine::matmul_peak;
use kit::{Checks, End, Footprint, Journal, LabRun, Rates, parity, report};
use shardlab::comm::Comm;
use shardlab::parallel::Strategy;
use shardlab::parallel::zero::Stage;
use shardlab::train::{self, Config};

/// Starts the ranks, and runs the lab on each.
///
/// # Errors
/// If the flags do not fit together, a rank fails, or a check does.
pub fn run(mut args: Args) -> Result<()> {
    let corpus = args.train.data.corpus()?;
    let strategy = args.strategy()?;
    args.train.take(&strategy);
    let config = args.train.resolve(strategy.data, args.steps, &corpus)?;
    let config = args.muon.resolve(config)?;
    args.strategy.ensure_divides(&config.shape)?;
    // An evaluation without a training is the last one.
    let last = if args.eval_only { 0 } else { config.steps };
    let eval = args.eval.resolve(last, &args.train.defaults(), &corpus)?;
    ensure_ranks_can_differ(args.broken.is_some(), config.ranks)?;
    let run = LabRun {
        ranks: config.ranks,
        is_broken: args.broken.is_some(),
        // A run that is broken on purpose must not replace good weights.
        saves: args.broken.is_none() && !args.eval_only,
        ..LabRun::of("lab03", &args.run)?
    };
    let peak = matmul_peak(config.precision);
    let lab = Lab { args, strategy, config, eval, corpus, run, peak };
    if !lab.run.goes_on(&Footprint::new(&lab.config), || peak, || introduce(&lab))? {
        return Ok(());
    }
    lab.run.train(&lab.config, |comm, checks| one_rank(&lab, comm, checks))
}

/// One rank's part, from the first check to the last.
fn one_rank(lab: &Lab, comm: &Comm, checks: &mut Checks) -> Result<()> {
    let Lab { args, config, eval, corpus, strategy, .. } = lab;
    let screen = &lab.run.screen;
    let text = &corpus.train[..];
    let mut journal =
        Journal::new(comm, screen, Rates::of(config, lab.peak), eval.due, Some(&args.log))?;
    if comm.rank() == 0 {
        introduce(lab);
    }
    let evaluator = lab.evaluator(comm);
    let zero = lab.zero();
    let alone = Config { ranks: 1, ..config.clone() };
    let (setup, ranks) = broken::setup(args.broken, (config, &alone), strategy, comm);
    let setup = setup.zero(zero.clone()).init_from(evaluator.init_from);
    if args.eval_only {
        return setup.begin(&ranks)?.whole(|gpt| evaluator.run(gpt, 0, &mut journal));
    }

    let with_adamw = Config { muon: None, ..config.clone() }; // the lesson's optimizer
    let beside = compare_steps(comm, &with_adamw, text, args.all_reduce)?;
    // The rounds of an algorithm add in an order of their own.
    let how = (&Strategy::data(config.ranks, Stage::Ddp), &zero);
    let by_ranks = args.all_reduce.is_none();
    let same_as_one_rank = parity::same_as_one_rank(comm, screen, config, how, text, by_ranks)?;
    if comm.rank() == 0 && args.log.all {
        report::legend(screen);
    }

    let mut training = setup.begin(&ranks)?;
    sent::expect(args, &training.zero, &evaluator, &mut journal)?;
    let mut symptoms = broken::symptoms(args.broken, config, comm.rank());
    evaluator.train(&mut training, &mut journal, &mut symptoms)?;
    journal.show(args.no_overlap || args.all_reduce.is_some() || args.run.comm.link.is_some())?;
    let hashes = training.whole(|gpt| train::all_hashes(comm, &gpt.params))?;
    let drawn = symptoms.drawn_by_all(comm)?;
    if args.broken.is_none() {
        speedup::show(comm, screen, config, text, &journal)?;
    }
    if comm.rank() != 0 {
        return Ok(());
    }

    screen.say("");
    symptoms.show(screen, "sequences", config.batch * config.ranks);
    checks.beside("losses and norms", beside);
    checks.training(config, corpus, &journal, &End { hashes, drawn, same_as_one_rank });
    checks.end_with("More: --all, --dry-run, --link 100us,62MB/s, --break no-average");
    Ok(())
}
