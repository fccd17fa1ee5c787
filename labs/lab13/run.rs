//! What lab13 runs, in which order.

use super::apparatus::{self, Found, Job, Measured, OneRank, Sent, Taken, Trained, buys};
use super::flags::{Args, Show};
use super::lesson;
use anyhow::Result;
use kit::flags::{Preset, ensure_ranks_can_differ};
use kit::machine::matmul_peak;
use kit::show::{Screen, above, thousands};
use kit::{Beside, Checks, Footprint, LabRun, MetricsFile, output, report};
use serde::Serialize;
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::parallel::strategy::Recompute;
use shardlab::parallel::zero::Stage;
use shardlab::plan::{Experts, ModelShape};
use shardlab::train::Config;
use std::path::Path;

/// The steps that one rank takes, too. Later a rounding can change a choice, and so the model.
const COMPARED: usize = 5;

/// The run's settings, which all ranks share.
struct Lab {
    args: Args,
    strategy: Strategy,
    /// Whether ranks have other axes than in the lab's own run.
    given: bool,
    rules: Experts,
    config: Config,
    corpus: Corpus,
    run: LabRun,
}

impl Lab {
    fn job(&self) -> Job<'_> {
        Job {
            config: &self.config,
            broken: self.args.broken,
            text: &self.corpus.train,
            overlap: !self.args.no_overlap,
        }
    }
}

/// Draws, compares and trains, as the flags say.
pub fn run(mut args: Args) -> Result<()> {
    let run = LabRun::of("lab13", &args.run)?;
    if args.show == Some(Show::Bytes) {
        apparatus::show_bytes(&run.screen);
        return Ok(());
    }
    let given = args.strategy.of_lab("lab13")?;
    let ranks = launch::ranks(given.map(|given| given.ranks()).or(args.ranks), 4)?;
    let mut strategy = given.unwrap_or(Strategy {
        data: ranks,
        expert: ranks,
        zero: if args.broken.is_some() { Stage::Ddp } else { Stage::One },
        ..Strategy::SINGLE
    });
    args.train.take(&strategy);
    if args.train.model.preset == Preset::Baby {
        // Small enough for routers to have learned after some seconds.
        args.train.model.layers.get_or_insert(2);
        args.train.model.embd.get_or_insert(64);
        args.train.data.batch.get_or_insert(2);
    }
    let rules = rules(&args, &strategy);
    let corpus = args.train.data.corpus()?;
    let mut config = args.train.resolve(strategy.data, Some(args.steps), &corpus)?.under(&strategy);
    let rules = Experts { ffn: 2 * config.shape.embd, ..rules };
    config.shape.experts = Some(rules);
    config.adamw.bias_rate = args.experts.bias_rate;
    args.strategy.ensure_divides(&config.shape)?;
    strategy.check(&config.shape)?;
    strategy.ensure_trainable()?;
    ensure_ranks_can_differ(args.broken.is_some(), ranks)?;
    config.auxiliary = args.experts.auxiliary();
    if let Some(broken) = args.broken {
        broken.ensure_made(&rules, &config.auxiliary, ranks, config.steps)?;
        broken.change(&mut config, &mut strategy);
    }
    let run = LabRun { ranks, is_broken: args.broken.is_some(), ..run };
    let given = given.is_some();
    let lab = Lab { args, strategy, given, rules, config, corpus, run };
    let footprint = Footprint::sharded(&lab.config, &lab.config.zero(lab.strategy.zero));
    let peak = || matmul_peak(lab.config.precision);
    if !lab.run.goes_on(&footprint, peak, || introduce(&lab))? {
        return Ok(());
    }
    if launch::is_first_process() {
        // Refused before the work, not after it.
        let Args { metrics, svg, .. } = &lab.args;
        output::ensure_all_writable(&[("metrics", metrics.as_deref()), ("svg", svg.as_deref())])?;
        introduce(&lab);
    }
    if lab.args.show == Some(Show::Buys) {
        return lab.run.train(&lab.config, |comm, _| buy(&lab, comm));
    }
    launch::one_compute_thread_a_rank();
    // Once per process: every rank compares its own gradients.
    let one = OneRank::train(&lab.job(), COMPARED.min(lab.config.steps))
        .map_err(|error| kit::explain(&lab.config, error))?;
    lab.run.train(&lab.config, |comm, checks| one_rank(&lab, &one, comm, checks))
}

/// The experts of each block.
fn rules(args: &Args, strategy: &Strategy) -> Experts {
    let ranks = strategy.expert;
    let usual = if 8usize.is_multiple_of(ranks) { 8 } else { 2 * ranks };
    let top_k = args.experts.top;
    let rules = Experts {
        count: args.experts.experts.unwrap_or(usual),
        top_k,
        // With one expert of a token nothing is left of its score in a normalized weight.
        normalized: top_k > 1,
        selection: args.experts.selection(),
        shared: args.experts.shared,
        dense_layers: args.experts.dense_layers,
        ..Experts::default()
    };
    args.broken.map_or(rules, |broken| broken.experts(rules))
}

/// One rank's part, and its checks.
fn one_rank(lab: &Lab, one: &OneRank, comm: &Comm, checks: &mut Checks) -> Result<()> {
    kit::neighbours::warn(comm, &lab.strategy.layout())?;
    let job = lab.job();
    let first = if lab.given {
        None
    } else {
        Some(first_step(lab, &job, one, comm)?)
    };
    let (steps, biases) = train(lab, &job, one, comm)?;
    let waiting = match (&first, steps.last()) {
        (Some(_), Some(last)) => Some(apparatus::waiting(comm, &lab.config.shape, &last.copies)?),
        _ => None,
    };
    if comm.rank() != 0 {
        return Ok(());
    }
    let run = &lab.run;
    let screen = &run.screen;
    if let Some(first) = &first {
        screen.say(format!("\n{}", apparatus::table_of_bytes(screen, &first.sent)));
    }
    let first_layer = lab.rules.dense_layers;
    above::picture("The grid of loads");
    let heat = apparatus::heat(&steps, lab.strategy.expert, first_layer);
    screen.say(format!("\n{}", heat.render(screen)));
    if lab.rules.selection.capacity.is_some() {
        run.row("dropped", &apparatus::dropped(&steps));
    }
    if lab.args.run.comm.link.is_some() {
        let mut seconds: Vec<f64> = steps.iter().map(|step| step.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let median = screen.seconds(seconds[seconds.len() / 2]);
        run.row("step", &format!("{median} until gradients are averaged, median"));
    }
    if let Some(path) = &lab.args.svg {
        checks.wrote(output::write(path, &(heat.svg() + "\n")));
    }
    if let Some(waiting) = &waiting {
        let timeline = waiting.timeline(steps.len(), first_layer);
        screen.say(format!("\n{}", timeline.render(screen)));
        screen.say(screen.wrap(&waiting.words(screen), 2));
    }
    screen.say("");
    if let Some(first) = &first {
        checks.beside("mixture", first.beside);
        apparatus::check(checks, &lab.config, one, &first.found);
    }
    let training = Trained { strategy: &lab.strategy, steps: &steps, biases: &biases };
    apparatus::check_training(checks, &job, one, &training, lab.given)?;
    checks.wrote(write(&steps, lab.args.metrics.as_deref()));
    // Biases have a check more, and the screen no line.
    checks.end_with(if lab.rules.selection.bias {
        ""
    } else {
        "More: --show bytes, --break average-all, --strategy dp=2,tp=2,ep=2,zero=2"
    });
    Ok(())
}

/// One rank's part in the trainings of mixtures and of a dense model.
fn buy(lab: &Lab, comm: &Comm) -> Result<()> {
    let mut models = buys::models(lab.config.shape, lab.rules);
    let mut metrics =
        MetricsFile::create(lab.args.metrics.as_deref().filter(|_| comm.rank() == 0))?;
    let seeds = lab.args.seeds as u64;
    buys::train(&mut models, &lab.config, &lab.corpus, seeds, &mut metrics, comm)?;
    if comm.rank() == 0 {
        lab.run.screen.say("");
        buys::show(&lab.run.screen, &models);
    }
    Ok(())
}

/// What is measured of the lesson and of the first step.
struct First {
    beside: Beside,
    sent: Sent,
    found: Found,
}

fn first_step(lab: &Lab, job: &Job, one: &OneRank, comm: &Comm) -> Result<First> {
    let Experts { count, top_k, .. } = lab.rules;
    let rules = Experts { count, top_k, normalized: true, ..Experts::default() };
    let seed = lab.config.seed;
    let beside = lesson::compare_with_expert_parallel(comm, rules, seed)?;
    let sent = apparatus::gathered(comm, rules, seed)?;
    let plain = Strategy { zero: Stage::Ddp, ..lab.strategy };
    let measure = |strategy: Strategy| -> Result<Measured> {
        kit::progress(comm, || format!("{strategy}: one step"));
        apparatus::measure(job, &strategy, comm, one)
    };
    let mut measured = Vec::new();
    for expert in (1..=comm.size()).filter(|&expert| comm.size().is_multiple_of(expert)) {
        // A mistake is shown where all ranks share the experts.
        if lab.args.broken.is_none() || expert == comm.size() {
            measured.push(measure(Strategy { expert, ..plain })?);
        }
    }
    let again = match lab.args.broken {
        None => Some(measure(Strategy { recompute: Recompute::Full, ..plain })?),
        Some(_) => None,
    };
    kit::progress(comm, || "a job that ends, and goes on".to_string());
    let sharing = Strategy { expert: comm.size(), ..plain };
    let lost = apparatus::resumed(job, &sharing, comm, &lab.run.folder)?;
    Ok(First { beside, sent, found: Found { measured, again, lost } })
}

/// Takes the steps of the training. Returns also the biases of experts after those that one rank
/// has taken.
fn train(lab: &Lab, job: &Job, one: &OneRank, comm: &Comm) -> Result<(Vec<Taken>, Vec<f32>)> {
    let mut watched = job.begin(&lab.strategy, comm)?;
    let mut steps = Vec::new();
    let mut biases = Vec::new();
    for step in 0..lab.config.steps {
        kit::progress(comm, || format!("{}: step {}", lab.strategy, step + 1));
        let passes = watched.training.draw(job.text, step, &mut ())?;
        apparatus::replay(job, &watched.training, step, one, &passes)?;
        steps.push(job.take(&mut watched, comm, step, &passes)?);
        if step + 1 == COMPARED.min(lab.config.steps) {
            biases = apparatus::biases(&mut watched.training)?;
        }
    }
    Ok((steps, biases))
}

/// A step, as `--metrics` writes it.
#[derive(Serialize)]
struct Step<'a> {
    /// Counted from 1.
    step: usize,
    /// Mean over all tokens.
    loss: f64,
    /// Without its coefficient.
    balancing_loss: f64,
    /// Before clipping.
    grad_norm: f64,
    /// Copies for each expert of each layer.
    copies: &'a [Vec<u64>],
    /// Of all ranks, to experts' ranks and back.
    bytes: u64,
    seconds: f64,
}

fn write(steps: &[Taken], path: Option<&Path>) -> Result<()> {
    let mut file = MetricsFile::create(path)?;
    for (i, taken) in steps.iter().enumerate() {
        file.write(&Step {
            step: i + 1,
            loss: taken.loss,
            balancing_loss: taken.balancing,
            grad_norm: taken.norm,
            copies: &taken.copies,
            bytes: taken.sent,
            seconds: taken.seconds,
        })?;
    }
    Ok(())
}

fn introduce(lab: &Lab) {
    let Lab { run, config, strategy, rules, .. } = lab;
    let screen = &run.screen;
    let trainings = format!("{} trainings", lab.args.seeds * buys::MODELS);
    let time = lab.args.show.map(|_| trainings.as_str());
    run.heading(time);
    report::ranks(screen, strategy.ranks());
    if lab.given || lab.args.broken.is_some() {
        run.row("strategy", &strategy.to_string());
    }
    if lab.args.show.is_none() {
        run.row("model", &model(screen, &config.shape, rules));
    }
}

/// The model, and how many of its parameters compute for a token.
fn model(screen: &Screen, shape: &ModelShape, rules: &Experts) -> String {
    let all = shape.parameters();
    format!(
        "{} layers{}a token: {} of {} experts, {} of {} parameters",
        shape.layers,
        screen.separator(),
        rules.top_k,
        rules.count,
        thousands(all - shape.idle()),
        thousands(all)
    )
}
