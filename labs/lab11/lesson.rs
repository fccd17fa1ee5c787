//! lab11 · Deciding on a strategy
//!
//! Which strategy trains this model fastest on these devices, and at what cost?
//!
//! All labs before this one measured one strategy each. This lab computes. It knows what each
//! strategy holds, sends and waits for, because labs 04 to 09 measured it. So it can try every
//! combination of degrees that divides the model evenly, on any cluster. The source of this
//! workbook decides by rules. The lab walks them, too, and says where both agree.
//!
//! Run `cargo run --bin lab11`. It decides for a Llama of 70 billion parameters on 512 H100. Ask
//! about your own job: `--model gpt3-175b --devices 1024 --device a100-80g`; your own model:
//! `--config FILE`; your own cluster: `--cluster FILE`; one plan in detail, or what is wrong with
//! it: `--plan dp=8,tp=3,pp=2`. `--refused` explains what cannot work, and `--links` searches again
//! on other networks. The planner is checked against runs that papers report: `--published`. Then
//! `--calibrate` measures this machine, and compares trainings with their predictions.
//!
//! [`bytes`], [`seconds`] and [`plans`] below are a planner in its plainest form: the screen's row
//! `simplest` is its choice.

use anyhow::{Result, ensure};
use clap::Parser;
use kit::help;
use kit::show::Screen;
use kit::{Beside, Checks, Lesson};
use lab11::planner::{Described, EXAMPLE, Made, fits, refusals};
use lab11::strategy::{Strategy, TrainingJob};
use lab11::{DecideFlags, Found, cannot_use};
use shardlab::allocator::Counting;
use shardlab::comm::{Comm, Link};
use shardlab::data::Corpus;
use shardlab::launch;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The strategies for a job, ranked.
#[derive(Parser)]
#[command(name = "lab11", version)]
#[command(after_long_help = help::examples("lab11", &[
    ("--model gpt3-175b --devices 1024 --device a100-80g", "another job"),
    ("--layers 40 --embd 5120 --heads 40 --kv-heads 8", "a model of your own"),
    ("--plan dp=8,tp=8,pp=8", "one plan in detail"),
    ("--published", "the planner beside runs that papers report"),
]))]
struct Args {
    #[command(flatten)]
    decide: DecideFlags,
    /// Use only ASCII characters on the screen
    #[arg(long, help_heading = help::OUTPUT)]
    ascii: bool,
}

// ANCHOR: heart
/// A plan: ranks along three axes. With ZeRO-1, data ranks divide the optimizer's state.
#[derive(Clone, Copy)]
struct Degrees {
    data: usize,
    tensor: usize,
    pipeline: usize,
}

/// Bytes of a rank's state: for each parameter that it holds a weight and a gradient, and its part
/// of the optimizer's numbers.
fn bytes(job: &TrainingJob, plan: Degrees) -> f64 {
    let held = job.model.parameters() as f64 / (plan.tensor * plan.pipeline) as f64;
    let optimizer = job.bytes.optimizer as f64 / plan.data as f64;
    held * (job.bytes.parameter as f64 + job.bytes.gradient as f64 + optimizer)
}

/// Seconds of a step: all tokens' products on all devices, the pipeline's bubble, and the way of
/// gradients, weights and activations through the network.
fn seconds(job: &TrainingJob, plan: Degrees) -> f64 {
    let device = &job.cluster.device;
    let tokens = (job.batch * job.model.block) as f64;
    let flops = tokens * job.model.training_flops_per_token() as f64;
    let products = flops / (job.devices as f64 * device.peak * device.matmul);
    let micro_batches = job.batch / plan.data; // of one sequence
    let bubble = (plan.pipeline - 1) as f64 / micro_batches as f64;

    let held = job.model.parameters() as f64 / (plan.tensor * plan.pipeline) as f64;
    let part = (plan.data - 1) as f64 / plan.data as f64;
    // Gradients are scattered, weights gathered.
    let each = job.bytes.gradient + job.bytes.parameter;
    let of_data = part * held * each as f64 / link(job, plan.tensor * plan.data).bandwidth;

    let layers = (job.model.layers / plan.pipeline) as f64;
    let width = (job.model.embd * job.bytes.parameter as usize) as f64;
    let part = (plan.tensor - 1) as f64 / plan.tensor as f64;
    let all_reduce = 2.0 * part * tokens / plan.data as f64 * width;
    // Two forward, two backward.
    let of_tensors = 4.0 * layers * all_reduce / link(job, plan.tensor).bandwidth;
    products * (1.0 + bubble) + of_data + of_tensors
}
// ANCHOR_END: heart

/// The network between so many neighbouring ranks. Tensor ranks are neighbours, and data ranks are
/// the next nearest.
fn link(job: &TrainingJob, ranks: usize) -> Link {
    let network = &job.cluster.network;
    if ranks <= network.ranks_per_node {
        network.within
    } else {
        network.between
    }
}

// ANCHOR: plans
/// Every way to divide the devices that divides the model and the batch and whose state fits; the
/// fastest first.
fn plans(job: &TrainingJob) -> Vec<(f64, Degrees)> {
    let mut found = Vec::new();
    for tensor in (1..=job.devices).filter(|n| job.devices.is_multiple_of(*n)) {
        let rest = job.devices / tensor;
        for pipeline in (1..=rest).filter(|n| rest.is_multiple_of(*n)) {
            let data = rest / pipeline;
            let plan = Degrees { data, tensor, pipeline };
            let divides = job.model.heads.is_multiple_of(tensor)
                && job.model.layers.is_multiple_of(pipeline)
                && job.batch.is_multiple_of(data);
            if divides && bytes(job, plan) <= job.cluster.device.memory {
                found.push((seconds(job, plan), plan));
            }
        }
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found
}
// ANCHOR_END: plans

/// The bytes of state of all plans without a pipeline, as above and by the planner, as parts of the
/// planner's. With a pipeline the planner counts what the first or last stage holds, not the mean
/// of all stages.
fn compare_bytes(job: &TrainingJob) -> Result<Beside> {
    let model = &job.model;
    let held =
        // First and last stage.
        |tensor| model.parameters_on_a_rank(model.layers, [true; 2], tensor, model.vocabulary);
    let on_one = held(1);
    let mut lesson = Vec::new();
    let mut library = Vec::new();
    let mut most = 1;
    let mut padding = 0; // rows of a token table
    let mut least = f64::INFINITY;
    for tensor in (1..=job.devices).filter(|n| job.devices.is_multiple_of(*n)) {
        if job.model.heads.is_multiple_of(tensor) {
            let data = job.devices / tensor;
            let strategy = Strategy { data, tensor, zero: 1, ..Strategy::SINGLE };
            let load = job.load_of(&strategy, 0);
            let planned = load.state();
            let plan = Degrees { data, tensor, pipeline: 1 };
            lesson.push(bytes(job, plan) / planned);
            library.push(1.0);
            most = most.max(tensor);
            let rows = model.vocabulary.next_multiple_of(tensor);
            padding = padding.max(rows - model.vocabulary);
            least = least.min(planned);
        }
    }
    // Of t tensor ranks each has a copy of what they do not divide, C parameters such as norms.
    // Above these are divided, too: so the bytes are at most C (t-1) / parameters too few, and
    // without the rows that make a token table even. And the planner rounds a rank's part up to
    // whole parameters.
    let on_two = held(2);
    let copied = 2.0 * on_two - on_one;
    let tables = if model.tied() { 1 } else { 2 };
    let lacks = copied * (most - 1) as f64 + (tables * padding * model.embd) as f64;
    let bound = lacks / on_one + job.bytes.optimizer as f64 / least;
    Ok(Beside::of(&Comm::alone(), &lesson, &library, bound)?)
}

fn main() -> ExitCode {
    kit::main(run)
}

fn run(args: Args) -> Result<()> {
    // The arithmetic is the same on every rank of a launcher: one prints it.
    if !launch::is_first_process() {
        return Ok(());
    }
    let screen = Screen::detect(args.ascii);
    let lesson = Lesson::of("lab11")?;
    let flags = args.decide;
    if flags.help_cluster {
        screen.say(EXAMPLE.trim_end());
        return Ok(());
    }
    if flags.presets {
        screen.say(lab11::presets(&screen)?);
        return Ok(());
    }
    if flags.calibrate {
        screen.say(lesson.heading(&screen, Some("about 20 seconds")));
        let found = lab11::calibrate(&Corpus::find(None)?)?;
        screen.say(format!("{}\n\n  As a file for --cluster:\n", found.show(&screen)));
        screen.say(found.file());
        screen.say(lesson.ending(&screen, ""));
        return Ok(());
    }
    let model = flags.model()?;
    let job = flags.job(&model)?;
    let tokens = flags.tokens(&job)?;
    if let Some(strategy) = flags.strategy()? {
        if flags.json {
            screen.say(lab11::plan_json(&job, &model, &strategy, tokens)?);
            return Ok(());
        }
        screen.say(lesson.heading(&screen, None));
        screen.say(format!("{}\n", asked(&screen, &job, &model)));
        return one_plan(&screen, &job, &strategy, tokens);
    }
    let found = Found::new(job);
    if flags.json {
        screen.say(lab11::json(&found, &model, flags.top, tokens));
        return Ok(());
    }
    if let Some(page) = flags.ledger {
        let page = page.as_deref();
        screen.say(lab11::ledger(&screen, &found, &model.name, tokens, page)?);
        return Ok(());
    }
    screen.say(lesson.heading(&screen, None));
    if flags.published {
        screen.say(format!("{}\n", lab11::published(&screen)));
    } else if flags.refused {
        screen.say(format!("{}\n", asked(&screen, &found.job, &model)));
        screen.say(format!("{}\n", lab11::refusals(&screen, &found, 3 * flags.top)));
    } else if flags.links {
        screen.say(format!("{}\n", asked(&screen, &found.job, &model)));
        screen.say(format!("{}\n", lab11::sensitivity(&screen, &found)));
    } else {
        decided(&screen, &found, &model, flags.top, tokens);
    }
    check(&screen, &found)?;
    let more = "More: --plan dp=64,tp=8 --links --refused --published --presets --json";
    screen.say(lesson.ending(&screen, more));
    Ok(())
}

/// The job, and what was not read of its model's file.
fn asked(screen: &Screen, job: &TrainingJob, model: &Described) -> String {
    let rows = lab11::job(screen, job, &model.name);
    match lab11::not_read(screen, model) {
        Some(row) => format!("{rows}\n{row}"),
        None => rows,
    }
}

/// What the functions above choose, and what the planner says of it.
fn simplest(screen: &Screen, job: &TrainingJob) -> String {
    let all = plans(job);
    let Some((seconds, plan)) = all.first() else {
        return screen.row("simplest", "no plan's state fits");
    };
    let strategy = Strategy {
        data: plan.data,
        tensor: plan.tensor,
        pipeline: plan.pipeline,
        zero: 1,
        ..Strategy::SINGLE
    };
    let planned = job.plan(strategy);
    let large = if fits(job, &planned.load) {
        String::new()
    } else {
        format!(", {}", screen.bad("too large"))
    };
    let planner = match lab11::unranked(job) {
        None => format!("probably {}", lab11::likely::seconds(Made::Benchmark, &planned)),
        Some(_) => screen.seconds(planned.time.total()),
    };
    let words = format!(
        "dp={} tp={} pp={}, {} a step; planner: {planner}{large}",
        plan.data,
        plan.tensor,
        plan.pipeline,
        screen.seconds(*seconds)
    );
    screen.row("simplest", &words)
}

/// The source's rules, the search, and the best plan.
fn decided(screen: &Screen, found: &Found, model: &Described, top: usize, tokens: f64) {
    screen.say(asked(screen, &found.job, model));
    screen.say(format!("{}\n", simplest(screen, &found.job)));
    screen.say(format!("{}\n", lab11::rules(screen, found)));
    let Some(best) = found.best() else {
        return nothing_fits(screen, found);
    };
    screen.say(format!("{}\n", lab11::ranking(screen, found, top)));
    screen.say(format!("{}\n", lab11::memory(screen, &found.job, best)));
    screen.say(lab11::time(screen, &found.job, best));
    if lab11::unranked(&found.job).is_none() {
        screen.say(lab11::ending(screen, &found.job, best, tokens));
    }
    screen.say("");
}

/// The plan that needs least, and what it lacks.
fn nothing_fits(screen: &Screen, found: &Found) {
    screen.say(lab11::refused(screen, found));
    if let Some(least) = found.search.smallest() {
        let plan = least.strategy.to_string().replace(',', ", ");
        let words = format!("no strategy fits. The one that needs least is {plan}:");
        screen.say(screen.row("least", &words));
        screen.say(format!(
            "{}\n",
            lab11::memory(screen, &found.job, least).replace("The best plan's", "Its")
        ));
    }
}

/// One plan: its cost, or every reason against it.
fn one_plan(screen: &Screen, job: &TrainingJob, strategy: &Strategy, tokens: f64) -> Result<()> {
    match lab11::detail(screen, job, strategy, tokens) {
        Ok(text) => screen.say(text),
        Err(refusals) => return Err(cannot_use(strategy, &refusals).into()),
    }
    Ok(())
}

/// The bytes above beside the planner's, the planner against published runs, and every plan against
/// the job.
fn check(screen: &Screen, found: &Found) -> Result<()> {
    let mut checks = Checks::new(screen);
    checks.beside("bytes", compare_bytes(&found.job)?);
    lab11::check_published(&mut checks);
    let wrong = found.search.plans.iter().find(|plan| {
        !refusals(&found.job, &plan.strategy).is_empty() || !fits(&found.job, &plan.load)
    });
    let result = format!("{} plans", found.search.plans.len());
    let otherwise =
        wrong.map_or(String::new(), |plan| format!("the job cannot use {}", plan.strategy));
    checks.check(
        wrong.is_none(),
        "every plan fits and divides heads, layers and batch",
        &result,
        &otherwise,
    );
    let failed = checks.failed();
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}
