//! What lab06 runs, in which order.

use super::apparatus::{self, Break, Measured, Predicted, Way};
use super::flags::Args;
use super::lesson;
use anyhow::Result;
use kit::busy::Watch;
use kit::show::Screen;
use kit::trace::{self, Trace};
use kit::{Checks, Lesson};
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::parallel::pipeline::Schedule;
use shardlab::train::{Config, PipelinePlan, Unpipelined, unpipelined};
use std::time::Instant;

/// The run's settings, which all ranks share.
struct Lab {
    args: Args,
    plans: Vec<PipelinePlan>,
    /// The least seconds of a forward pass, so that ranks on shared cores behave like devices; 0 is
    /// none.
    pace: f64,
    /// A moment before the run, from which the charts' times count.
    epoch: Instant,
    config: Config,
    corpus: Corpus,
    screen: Screen,
    lesson: Lesson,
}

/// Draws, prints, trains or measures, as the flags say.
pub fn run(mut args: Args) -> Result<()> {
    let screen = Screen::detect(args.run.ascii);
    let lesson = Lesson::of("lab06")?;
    if args.bench {
        args.pipeline.for_benchmark(&mut args.train);
    }
    let shape = args.pipeline.pipeline()?;
    let mut plan = args.pipeline.plan(shape)?;
    if let Some(rank) = args.print_order {
        return Ok(apparatus::print_order(&screen, &plan, rank)?);
    }
    if args.dynamic {
        let corpus = Corpus::find(args.train.data.data.as_deref())?;
        return apparatus::dynamic::dynamic(&screen, &corpus);
    }
    if shape.ranks < 2 {
        let what = "one rank waits for no other: a pipeline has at least 2";
        return Err(BadInput::new(what, "give --stages 2 or more").into());
    }
    if args.broken == Some(Break::SmallGroup) {
        plan.pipeline.chunks = shape.chunks.max(2);
        plan.schedule = Schedule::Interleaved { group: shape.ranks / 2 };
    } else if !args.compare {
        plan.schedule.check(&plan.pipeline)?;
    }
    let plans = match (args.compare, args.pipeline.recompute) {
        (true, _) => args.pipeline.plans(shape.ranks),
        (_, 0) => vec![plan],
        _ => vec![PipelinePlan { recompute: 0, ..plan }, plan],
    };
    let most = plans.iter().map(|plan| plan.pipeline.stages()).max().unwrap_or(1);
    args.pipeline.default_to_many_small_blocks(&mut args.train, most);
    let corpus = Corpus::find(args.train.data.data.as_deref())?;
    let mut config = args.train.resolve(1, Some(args.steps), &corpus)?;
    config.grad_accum = shape.micro_batches;
    let ranks = shape.ranks;
    let lab = Lab {
        pace: args.pipeline.pace(ranks),
        epoch: Instant::now(),
        args,
        plans,
        config,
        corpus,
        screen,
        lesson,
    };
    for plan in &lab.plans {
        plan.partition.layers(&lab.config.shape, plan.pipeline.stages())?;
        // Refuses what would never end, before anything runs.
        apparatus::programs(plan, lab.args.broken)?;
    }
    if launch::is_first_process() {
        introduce(&lab);
    }
    if lab.args.bench {
        return apparatus::benchmark(&lab.screen, &lab.config, &lab.corpus, ranks);
    }
    if lab.args.run.dry_run {
        return plan_only(&lab);
    }
    let options = lab.args.run.comm.options(&lab.args.run.folder("lab06"));
    launch::one_compute_thread_a_rank();
    // Once per process: every rank compares its own stages.
    let one = unpipelined(&lab.config, &lab.corpus.train, lab.config.steps)
        .map_err(|e| lab.config.explain(e))?;
    kit::run(ranks, &options, |comm| {
        one_rank(&lab, &one, &comm).map_err(|e| lab.config.explain(e))
    })
}

/// One rank's part. Returns what the checks found wrong.
fn one_rank(lab: &Lab, one: &Unpipelined, comm: &Comm) -> Result<Vec<String>> {
    let config = &lab.config;
    let screen = &lab.screen;
    let text = &lab.corpus.train;
    let beside = lesson::compare_gradients(comm, config, text, lab.plans[0].partition)?;
    let mut trace = Trace::new(comm, lab.args.trace.as_deref())?;
    let mut all: Vec<(Predicted, Measured)> = Vec::new();
    let watch = Watch::start();
    for &plan in &lab.plans {
        let way = Way {
            plan,
            pace: lab.pace,
            broken: lab.args.broken,
            epoch: lab.epoch,
        };
        let measured = apparatus::measure(comm, way, config, text, Some(one), &mut trace)?;
        all.push((measured.predicted(lab.pace)?, measured));
    }
    let traced = trace.write(comm)?;
    if comm.rank() != 0 {
        return Ok(Vec::new());
    }
    let busy = watch.row(screen, launch::ranks_here(comm.size()));
    match &all[..] {
        [(predicted, measured)] => {
            screen.say(format!("\n{}", apparatus::charts(screen, predicted, measured)));
            screen.say(apparatus::bubble(screen, predicted));
            if let Some(busy) = busy {
                screen.say(busy);
            }
            if config.steps >= 10 {
                screen.say(apparatus::losses(screen, measured));
            }
            screen.say(format!("\n{}\n", apparatus::holdings(screen, config, predicted, measured)));
        }
        several => {
            let table = if lab.args.compare {
                apparatus::compared(screen, several)
            } else {
                apparatus::recomputed(screen, several)
            };
            let busy = busy.map_or(String::new(), |busy| format!("\n{busy}"));
            screen.say(format!("\n{table}{busy}\n"));
        }
    }
    if let Some(path) = traced {
        screen.say(trace::row(screen, path));
    }
    let mut checks = Checks::new(screen);
    checks.beside("gradients under GPipe", beside);
    apparatus::check(&mut checks, config, &all);
    let failed = checks.failed();
    if failed.is_empty() {
        let more = "More: --compare, --schedule gpipe, --print-order, --break untied, --bench";
        screen.say(lab.lesson.ending(screen, more));
    }
    Ok(failed)
}

/// Draws the predicted steps. Without a pace, a forward pass is given 5 ms.
fn plan_only(lab: &Lab) -> Result<()> {
    let pace = if lab.pace > 0.0 { lab.pace } else { 5e-3 };
    for plan in lab.plans.iter().filter(|_| launch::is_first_process()) {
        let predicted = Predicted::paced(plan.schedule, plan.pipeline, pace)?;
        lab.screen
            .say(format!("\n{}", apparatus::planned(&lab.screen, plan, &predicted)));
    }
    Ok(())
}

fn introduce(lab: &Lab) {
    let time = lab.args.bench.then_some("about 1 minute");
    lab.screen.say(lab.lesson.heading(&lab.screen, time));
    apparatus::introduce(&lab.screen, &lab.config, &lab.plans, lab.pace);
}
