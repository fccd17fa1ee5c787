//! lab03 · One model, many ranks
//!
//! How do N ranks train one model, and why is it the same model as with one rank?
//!
//! Every rank holds the whole model and draws its own part of the data. Once a step the ranks average their gradients
//! (an all-reduce); because everyone then applies the same update, N replicas stay one model. The model is a GPT that
//! learns to write plays, one character at a time.
//!
//! Run `cargo run --bin lab03`. You will see the loss fall from about 4.2 (65 characters and no idea: ln 65 = 4.17), what
//! the model writes at every evaluation, and the checks: the same bits as one rank that does all the work, the same
//! model on every rank, other data on every rank. Then break it: `cargo run --bin lab03 -- --break no-average`.

use anyhow::{Result, ensure};
use clap::Parser;
use shardlab::checkpoint::{self, Description};
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::model::{Gpt, generate};
use shardlab::parallel::{Zero, ZeroConfig};
use shardlab::show::Screen;
use shardlab::tensor::{matmul, random::Stream};
use shardlab::train::{
    self, Break, Checks, Clock, Config, Evaluation, Journal, Part, Preset, StepOutcome, Symptoms, TrainFlags, parity,
    report,
};
use shardlab::workbook::Lesson;
use std::process::ExitCode;

/// One model, many ranks: data-parallel training of a character-level GPT.
#[derive(Parser)]
#[command(name = "lab03", version)]
struct Args {
    #[command(flatten)]
    train: TrainFlags,
    /// Leave something out, and see which check notices
    #[arg(long = "break", value_enum)]
    broken: Option<Break>,
}

/// What all ranks read and none changes.
struct Lab {
    args: Args,
    config: Config,
    corpus: Corpus,
    screen: Screen,
    lesson: Lesson,
    /// One thread's matmul peak, FLOP/s.
    peak: f64,
}

impl Lab {
    /// Whether the run leaves weights behind: not one that is broken on purpose, which must not replace good ones.
    fn saves(&self) -> bool {
        self.args.broken.is_none() && !self.args.train.eval_only
    }
}

fn main() -> ExitCode {
    launch::main(|| run(launch::arguments()?))
}

fn run(args: Args) -> Result<()> {
    let corpus = Corpus::find(args.train.data.as_deref())?;
    let config = args.train.resolve(launch::ranks(args.train.ranks, 2)?, &corpus, "lab03")?;
    if args.broken.is_some() && config.ranks < 2 {
        return Err(BadInput::new("--break needs ranks that can differ", "give --ranks 2 or more").into());
    }
    if args.broken.is_some() && args.train.zero.are_given() {
        let help = "leave --zero, --dtype and --offload out, or --break";
        return Err(BadInput::new("--break breaks plain DDP, which holds the whole model", help).into());
    }
    if args.broken.is_some() && args.train.eval_only {
        return Err(BadInput::new(
            "--break breaks training, and --eval-only does not train",
            "leave one of the two out",
        )
        .into());
    }
    let (screen, lesson) = (Screen::detect(args.train.run.ascii), Lesson::of("lab03")?);
    let lab = Lab { config, corpus, screen, lesson, peak: matmul::measured_peak(), args };
    let free = launch::free_memory(launch::ranks_here(lab.config.ranks));
    if lab.args.train.run.dry_run {
        if launch::is_first_process() {
            introduce(&lab);
            report::dry_run(&lab.screen, &lab.config, free, lab.peak);
        }
        return Ok(());
    }
    free.map_or(Ok(()), |free| lab.config.ensure_fits(free))?;
    if lab.saves() {
        checkpoint::ensure_writable(&lab.config.out)?;
    }
    let options = lab.args.train.run.comm.options(&lab.config.out);
    let failed_checks = launch::run_with(lab.config.ranks, &options, |comm| one_rank(&lab, comm))?;
    ensure!(failed_checks[0].is_empty(), "{}", failed_checks[0].join("; "));
    Ok(())
}

/// What one rank does, from the first check to the last. Returns what the checks found wrong.
fn one_rank(lab: &Lab, comm: Comm) -> Result<Vec<String>> {
    let mut journal = Journal::new(&comm, &lab.config, &lab.args.train, &lab.screen, lab.peak)?;
    if comm.rank() == 0 {
        introduce(lab);
    }
    let gpt = Gpt::new(&lab.config.shape)?;
    // Ranks that start on their own have seeds of their own; it is the broadcast that makes them one model.
    gpt.params.allocate(lab.config.seed_of(comm.rank()));
    if let Some(dir) = lab.args.train.init_from.as_deref().filter(|_| comm.rank() == 0) {
        checkpoint::load(dir, &gpt.params)?;
    }
    if lab.args.train.eval_only {
        comm.broadcast(&mut gpt.params.values_mut(), 0)?;
        evaluate(lab, &comm, &gpt, 0, &mut journal)?;
        return Ok(Vec::new());
    }
    let same = compare_with_one_rank(lab, &comm)?;
    let symptoms = train(lab, &comm, &gpt, &mut journal)?;
    journal.show()?;
    if comm.rank() == 0 {
        let text = write_on(lab, &gpt, lab.config.steps, 400)?;
        lab.screen.say(format!(
            "\n  After {} steps the model writes:\n\n{}",
            lab.config.steps,
            lab.screen.quote(&text, 4)
        ));
    }
    check(lab, &comm, &gpt, &journal, same, &symptoms)
}

// ANCHOR: train
/// The lesson: data-parallel training, as every rank does it. All else in this file prints and checks.
fn train(lab: &Lab, comm: &Comm, gpt: &Gpt, journal: &mut Journal) -> Result<Symptoms> {
    let (config, broken) = (&lab.config, lab.args.broken);
    // Rank 0's weights to everyone, and hooks that will average gradients. Unless told to divide the model, this is DDP.
    let broadcast = broken != Some(Break::NoBroadcast);
    let mut ddp = Zero::new(&gpt.params, comm, ZeroConfig { broadcast, ..config.zero.clone() })?;
    let sampler = config.sampler(if broken == Some(Break::SameBatches) { 0 } else { comm.rank() });
    let mut symptoms = Symptoms::default();
    ddp.whole(|| evaluate(lab, comm, gpt, 0, journal))?;
    if broken.is_some() {
        symptoms.look(comm, &gpt.params, 0)?;
    }

    for step in 0..config.steps {
        let (mut clock, before) = (Clock::start(), comm.traffic());
        let (mut loss, mut averaged) = (0.0, Vec::new());
        ddp.begin()?;
        for micro in 0..config.grad_accum {
            let batch = sampler.batch(&lab.corpus.train, step, micro);
            symptoms.draw(batch.starts.iter().map(|&start| start as u64));
            clock.lap(Part::Data);

            // A micro-step brings its share of the step's mean; its gradients add to what is there.
            let share = (gpt.loss(&batch, &config.pass(step, &batch.sequences))? / config.grad_accum as f64)?;
            loss += f64::from(share.to_scalar::<f32>()?);
            clock.lap(Part::Forward);

            // In the last backward pass, each bucket of gradients is averaged over the ranks as soon as it is complete, while
            // the pass goes on.
            let averages = micro + 1 == config.grad_accum && broken != Some(Break::NoAverage);
            ddp.synchronise(averages);
            share.backward()?;
            if averages {
                averaged = ddp.finish()?;
            }
            clock.lap(Part::Backward);
        }
        // Every rank has the same gradients now. It clips them alike, and AdamW takes the same step.
        let lr = config.schedule.at(step);
        let grad_norm = ddp.step(lr, config.clip)?;
        clock.lap(Part::Optimizer);

        let step = step + 1;
        journal.step(StepOutcome { step, loss, grad_norm, lr }, &clock, comm.traffic() - before, &averaged)?;
        if config.evaluates_after(step) {
            ddp.whole(|| evaluate(lab, comm, gpt, step, journal))?;
        }
        if broken.is_some() {
            symptoms.look(comm, &gpt.params, step)?;
        }
    }
    journal.expect(report::bytes_of_zero(&ddp, config.zero.stage));
    if comm.rank() == 0 && lab.args.train.zero.are_given() {
        report::held(&lab.screen, config, &ddp.held());
    }
    ddp.leave()?; // every rank has the whole model again
    Ok(symptoms)
}
// ANCHOR_END: train

/// Three steps of the small model in two ways: by all ranks, and by one rank that takes their batches in turns.
fn compare_with_one_rank(lab: &Lab, comm: &Comm) -> Result<bool> {
    const STEPS: usize = 3;
    let config = lab.config.parity_check();
    let ours = parity::train_zero(comm, &config, &lab.corpus.train, config.zero.clone(), STEPS)?;
    let in_turns = || parity::train_in_turns(&config, &lab.corpus.train, STEPS);
    let bound = config.zero.precision.loss_bound();
    let difference = parity::compare(comm, &lab.screen, bound, &ours, in_turns)?;
    if comm.rank() == 0 {
        report::legend(&lab.screen);
        lab.screen.say("");
    }
    Ok(difference)
}

/// Evaluates on all ranks; rank 0 prints, lets the model write, and saves weights that are the best so far.
fn evaluate(lab: &Lab, comm: &Comm, gpt: &Gpt, step: usize, journal: &mut Journal) -> Result<()> {
    let sampler = lab.config.sampler(comm.rank());
    let loss = |text| train::evaluate(gpt, comm, &sampler, text, lab.config.eval_iters);
    let (train, val) = (loss(&lab.corpus.train)?, loss(&lab.corpus.validation)?);
    journal.evaluated(Evaluation { step, train, val })?;
    if comm.rank() != 0 {
        return Ok(());
    }
    let text = write_on(lab, gpt, step, 90)?;
    let line = format!("step={step} train_loss={train:.3} val_loss={val:.3}");
    let mut saved = String::new();
    if lab.saves() && journal.improved() {
        let description = Description { shape: gpt.shape, vocabulary: lab.corpus.vocabulary.characters() };
        saved = format!("   saved {}", checkpoint::save(&lab.config.out, &gpt.params, &description)?.display());
    }
    lab.screen.say(format!("{}{}\n{}", lab.screen.bold(line), lab.screen.dim(saved), lab.screen.quote(&text, 4)));
    Ok(())
}

/// What the model writes after the prompt.
fn write_on(lab: &Lab, gpt: &Gpt, step: usize, count: usize) -> Result<String> {
    let vocabulary = &lab.corpus.vocabulary;
    let stream = Stream::new(lab.config.seed, "samples").branch(step as u64);
    let written = generate(gpt, &lab.config.prompt_tokens, count, 0.8, stream)?;
    Ok(format!("{}{}", lab.config.prompt, vocabulary.decode(&written)))
}

/// The checks, for the reader and for the exit code.
fn check(
    lab: &Lab,
    comm: &Comm,
    gpt: &Gpt,
    journal: &Journal,
    same_as_one_rank: bool,
    symptoms: &Symptoms,
) -> Result<Vec<String>> {
    let hashes = train::all_hashes(comm, &gpt.params)?;
    let mut drawn = vec![0; comm.size()];
    comm.all_gather(&[symptoms.drawn], &mut drawn)?;
    if comm.rank() != 0 {
        return Ok(Vec::new());
    }
    let screen = &lab.screen;
    screen.say("");
    if let Some(broken) = lab.args.broken {
        screen.say(symptoms.plot(screen, broken, "sequences", lab.config.batch * lab.config.ranks));
    }
    let mut checks = Checks::new(screen);
    checks.one_model(&hashes);
    checks.own_data(&drawn, lab.config.steps * lab.config.grad_accum * lab.config.batch, "sequences");
    let (first, last) = (journal.evaluations[0].val, journal.evaluations[journal.evaluations.len() - 1].val);
    checks.hold(
        last < first,
        "the validation loss fell",
        &format!("{first:.3} to {last:.3}"),
        "the validation loss did not fall",
    );
    checks.parity(same_as_one_rank, comm.size());
    let failed = checks.failed();
    if failed.is_empty() {
        screen.say(lab.lesson.ending(screen, ""));
    }
    Ok(failed)
}

fn introduce(lab: &Lab) {
    let small = lab.config.preset == Preset::Baby && lab.config.steps <= 500;
    let time = (!small).then_some("--dry-run says how long");
    lab.screen.say(lab.lesson.heading(&lab.screen, time));
    report::data(&lab.screen, &lab.corpus);
    report::run(&lab.screen, &lab.config);
    if lab.args.train.zero.are_given() {
        report::zero(&lab.screen, &lab.config);
    }
}
