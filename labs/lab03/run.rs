//! What lab03 runs, in which order, and its checks.

use crate::apparatus::{broken, serial, settings, speedup, training};
use crate::flags::Args;
use crate::lesson::compare_steps;
use anyhow::Result;
use kit::flags::{EvalConfig, Preset, ensure_ranks_can_differ};
use kit::machine::matmul_peak;
use kit::show::Screen;
use kit::{Beside, Checks, End, Evaluator, Footprint, Journal, Lesson, Rates, Symptoms, report};
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::error::is_hidden;
use shardlab::parallel::Strategy;
use shardlab::parallel::zero::Stage;
use shardlab::train::{self, Config};
use shardlab::{checkpoint, launch};
use std::path::PathBuf;

/// All ranks read this, and none changes it.
struct Lab {
    args: Args,
    config: Config,
    strategy: Strategy,
    eval: EvalConfig,
    corpus: Corpus,
    screen: Screen,
    lesson: Lesson,
    /// One thread's matmul peak, FLOP/s.
    peak: f64,
}

impl Lab {
    /// The folder for weights, unless the run leaves none behind: one that is broken on purpose
    /// must not replace good ones.
    fn save_to(&self) -> Option<PathBuf> {
        let saves = self.args.broken.is_none() && !self.args.eval_only;
        saves.then(|| self.args.run.folder("lab03"))
    }
}

/// Starts the ranks, and runs the lab on each.
///
/// # Errors
/// If the flags do not fit together, a rank fails, or a check does.
pub fn run(mut args: Args) -> Result<()> {
    let corpus = args.train.data.corpus()?;
    let strategy = args.strategy()?;
    args.train.take(&strategy);
    let config = args.train.resolve(strategy.data, args.steps, &corpus)?;
    args.strategy.ensure_divides(&config.shape)?;
    let eval = args.eval.resolve(config.steps, &args.train.defaults(), &corpus)?;
    ensure_ranks_can_differ(args.broken.is_some(), config.ranks)?;
    let screen = Screen::detect(args.run.ascii);
    let lesson = Lesson::of("lab03")?;
    let peak = matmul_peak(config.precision);
    let lab = Lab { args, strategy, config, eval, corpus, screen, lesson, peak };
    let footprint = Footprint::new(&lab.config);
    let free = launch::free_memory(launch::ranks_here(lab.config.ranks));
    if lab.args.run.dry_run {
        if launch::is_first_process() {
            introduce(&lab);
            report::dry_run(&lab.screen, &lab.config, &footprint, free, lab.peak);
        }
        return Ok(());
    }
    footprint.ensure_fits(free)?;
    if let Some(folder) = lab.save_to() {
        checkpoint::ensure_writable(&folder)?;
    }
    let options = lab.args.run.comm.options(&lab.args.run.folder("lab03"));
    kit::run(lab.config.ranks, &options, |comm| {
        one_rank(&lab, &comm).map_err(|error| kit::explain(&lab.config, error))
    })
}

/// One rank's part, from the first check to the last. Returns what the checks found wrong.
fn one_rank(lab: &Lab, comm: &Comm) -> Result<Vec<String>> {
    let config = &lab.config;
    let screen = &lab.screen;
    // No other job may save to this folder meanwhile.
    let _claim = match lab.save_to() {
        Some(folder) => Some(checkpoint::Claim::take(comm, &folder)?),
        None => None,
    };
    let mut journal =
        Journal::new(comm, screen, Rates::of(config, lab.peak), lab.eval.due, Some(&lab.args.log))?;
    if comm.rank() == 0 {
        introduce(lab);
    }
    let evaluator = Evaluator {
        config,
        eval: &lab.eval,
        corpus: &lab.corpus,
        screen,
        comm,
        save_to: lab.save_to(),
        init_from: lab.args.train.model.init_from.as_deref(),
    };
    let mut zero = config.zero(Stage::Ddp);
    zero.overlap = !lab.args.no_overlap;
    zero.algorithm = lab.args.all_reduce;
    let init_from = lab.args.train.model.init_from.as_deref();
    let alone = Config { ranks: 1, ..config.clone() };
    let (setup, ranks) = broken::setup(lab.args.broken, (config, &alone), &lab.strategy, comm);
    let setup = setup.zero(zero).init_from(init_from);
    if lab.args.eval_only {
        setup.begin(&ranks)?.whole(|gpt| evaluator.run(gpt, 0, &mut journal))?;
        return Ok(Vec::new());
    }
    let text = &lab.corpus.train[..];
    let beside = compare_steps(comm, config, text, lab.args.all_reduce)?;
    let same_as_one_rank = serial::compare(comm, screen, &lab.args, config, text)?;
    let mut training = setup.begin(&ranks)?;
    let symptoms = training::train(&lab.args, &mut training, &evaluator, &mut journal)?;
    journal.show(
        lab.args.no_overlap || lab.args.all_reduce.is_some() || lab.args.run.comm.link.is_some(),
    )?;
    let hashes = training.whole(|gpt| train::all_hashes(comm, &gpt.params))?;
    let drawn = symptoms.drawn_by_all(comm)?;
    if lab.args.broken.is_none() {
        speedup::show(comm, screen, config, text, &journal)?;
    }
    Ok(check(
        lab,
        comm,
        &journal,
        &symptoms,
        beside,
        &End { hashes, drawn, same_as_one_rank },
    ))
}

/// The checks, for the reader and for the exit code.
fn check(
    lab: &Lab,
    comm: &Comm,
    journal: &Journal,
    symptoms: &Symptoms,
    beside: Beside,
    end: &End,
) -> Vec<String> {
    if comm.rank() != 0 {
        return Vec::new();
    }
    lab.screen.say("");
    symptoms.show(&lab.screen, "sequences", lab.config.batch * lab.config.ranks);
    let mut checks = Checks::new(&lab.screen);
    checks.beside("losses and norms", beside);
    checks.training(&lab.config, &lab.corpus, journal, end);
    let failed = checks.failed_after(lab.args.broken.is_some(), &lab.config);
    if failed.is_empty() {
        let more = "More: --all, --dry-run, --link 100us,62MB/s, --break no-average";
        lab.screen.say(lab.lesson.ending(&lab.screen, more));
    }
    failed
}

fn introduce(lab: &Lab) {
    let small = lab.args.train.model.preset == Preset::Baby && lab.config.steps <= 1000;
    let time = (!small).then_some("--dry-run says how long");
    lab.screen.say(lab.lesson.heading(&lab.screen, time));
    report::data(&lab.screen, &lab.corpus);
    if lab.args.log.all {
        alphabet(&lab.screen, &lab.corpus);
        report::splits(&lab.screen, &lab.corpus);
    }
    report::run(&lab.screen, &lab.config);
    if let Some(algorithm) = lab.args.all_reduce {
        let words = format!(
            "{}, in the rounds that lab01 draws; the backward pass waits",
            algorithm.name()
        );
        lab.screen.say(lab.screen.row("all-reduce", &words));
    }
    // A dry run prints them anyway.
    if lab.args.log.all && !lab.args.run.dry_run {
        report::settings(&lab.screen, &lab.config);
    }
    if lab.args.log.all {
        let Lab { args, config, eval, corpus, screen, .. } = lab;
        screen.say(settings::settings(screen, args, config, eval, corpus));
    }
}

/// Prints the text's characters, whose numbers are the tokens.
fn alphabet(screen: &Screen, corpus: &Corpus) {
    let shown = |c: char| match c {
        ' ' => "\u{a0}".to_string(), // a line does not end here
        c if is_hidden(c) => c.escape_default().to_string(),
        c => c.to_string(),
    };
    let (first, more) = kit::flags::characters(&corpus.vocabulary);
    let characters: String = first.chars().map(shown).collect();
    screen.say(screen.row("alphabet", &(characters + &more)));
}
