//! What lab11 runs, in which order, and its checks.

use crate::apparatus::planner::{Described, EXAMPLE, Made, fits, refusals};
use crate::apparatus::strategy::{Stage, Strategy, TrainingJob};
use crate::apparatus::{self, Found, cannot_use};
use crate::flags::Args;
use crate::lesson::{compare_bytes, plans};
use anyhow::{Result, ensure};
use kit::show::Screen;
use kit::{Checks, Lesson};
use shardlab::data::Corpus;
use shardlab::launch;

/// Prints what the flags ask for: the plans of a job, or one of the other screens.
///
/// # Errors
/// If the flags do not fit together, a file cannot be read, a plan is refused, or a check fails.
pub fn run(args: Args) -> Result<()> {
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
        screen.say(apparatus::presets(&screen)?);
        return Ok(());
    }
    if flags.calibrate {
        screen.say(lesson.heading(&screen, Some("about 20 seconds")));
        let found = apparatus::calibrate(&Corpus::find(None)?)?;
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
            screen.say(apparatus::plan_json(&job, &model, &strategy, tokens)?);
            return Ok(());
        }
        screen.say(lesson.heading(&screen, None));
        screen.say(format!("{}\n", asked(&screen, &job, &model)));
        return one_plan(&screen, &job, &strategy, tokens);
    }
    let found = Found::new(job);
    if flags.json {
        screen.say(apparatus::json(&found, &model, flags.top, tokens));
        return Ok(());
    }
    if let Some(page) = flags.ledger {
        let page = page.as_deref();
        screen.say(apparatus::ledger(&screen, &found, &model.name, tokens, page)?);
        return Ok(());
    }
    screen.say(lesson.heading(&screen, None));
    if flags.published {
        screen.say(format!("{}\n", apparatus::published(&screen)));
    } else if flags.refused {
        screen.say(format!("{}\n", asked(&screen, &found.job, &model)));
        screen.say(format!("{}\n", apparatus::refusals(&screen, &found, 3 * flags.top)));
    } else if flags.links {
        screen.say(format!("{}\n", asked(&screen, &found.job, &model)));
        screen.say(format!("{}\n", apparatus::sensitivity(&screen, &found)));
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
    let rows = apparatus::job(screen, job, &model.name);
    match apparatus::not_read(screen, model) {
        Some(row) => format!("{rows}\n{row}"),
        None => rows,
    }
}

/// What the lesson's functions choose, and what the planner says of it.
fn simplest(screen: &Screen, job: &TrainingJob) -> String {
    let all = plans(job);
    let Some((seconds, plan)) = all.first() else {
        return screen.row("simplest", "no plan's state fits");
    };
    let strategy = Strategy {
        data: plan.data,
        tensor: plan.tensor,
        pipeline: plan.pipeline,
        zero: Stage::One,
        ..Strategy::SINGLE
    };
    let planned = job.plan(strategy);
    let large = if fits(job, &planned.load) {
        String::new()
    } else {
        format!(", {}", screen.bad("too large"))
    };
    let planner = match apparatus::unranked(job) {
        None => format!("probably {}", apparatus::likely::seconds(Made::Benchmark, &planned)),
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
    screen.say(format!("{}\n", apparatus::rules(screen, found)));
    let Some(best) = found.best() else {
        return nothing_fits(screen, found);
    };
    screen.say(format!("{}\n", apparatus::ranking(screen, found, top)));
    screen.say(format!("{}\n", apparatus::memory(screen, &found.job, best)));
    screen.say(apparatus::time(screen, &found.job, best));
    if apparatus::unranked(&found.job).is_none() {
        screen.say(apparatus::ending(screen, &found.job, best, tokens));
    }
    screen.say("");
}

/// The plan that needs least, and what it lacks.
fn nothing_fits(screen: &Screen, found: &Found) {
    screen.say(apparatus::refused(screen, found));
    if let Some(least) = found.search.smallest() {
        let plan = least.strategy.to_string().replace(',', ", ");
        let words = format!("no strategy fits. The one that needs least is {plan}:");
        screen.say(screen.row("least", &words));
        screen.say(format!(
            "{}\n",
            apparatus::memory(screen, &found.job, least).replace("The best plan's", "Its")
        ));
    }
}

/// One plan: its cost, or every reason against it.
fn one_plan(screen: &Screen, job: &TrainingJob, strategy: &Strategy, tokens: f64) -> Result<()> {
    match apparatus::detail(screen, job, strategy, tokens) {
        Ok(text) => screen.say(text),
        Err(refusals) => return Err(cannot_use(strategy, &refusals).into()),
    }
    Ok(())
}

/// The lesson's bytes beside the planner's, the planner against published runs, and every plan
/// against the job.
fn check(screen: &Screen, found: &Found) -> Result<()> {
    let mut checks = Checks::new(screen);
    checks.beside("bytes", compare_bytes(&found.job)?);
    apparatus::check_published(&mut checks);
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
