//! What lab11 runs, in which order, and its checks.

use crate::apparatus::{self, Found};
use crate::flags::Args;
use crate::lesson::{compare_bytes, plans};
use anyhow::Result;
use kit::show::{Screen, above, complain};
use kit::{Checks, Lesson};
use planner::{Degrees, EXAMPLE, Made, Stage, Strategy, TrainingJob, fits, refusal};
use shardlab::error::BadInput;
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
        screen.say(apparatus::presets(&screen));
        return Ok(());
    }
    if let Some((name, counted)) = flags.model.counted()? {
        if flags.plan.is_some() || flags.ledger.is_some() {
            return Err(apparatus::no_plans(&name).into());
        }
        if flags.json {
            screen.say(apparatus::counts_json(&name, &counted));
        } else {
            screen.say(lesson.heading(&screen, None));
            screen.say(apparatus::counts(&screen, &name, &counted));
        }
        return Ok(());
    }
    let (name, shape, notes) = flags.model.described()?;
    for note in notes {
        complain(&format!("note: {note}"));
    }
    let job = flags.job(shape)?;
    let tokens = flags.tokens(&job)?;
    let asked = apparatus::job(&screen, &job, &name);
    if let Some(strategy) = flags.strategy()? {
        let cannot = |refusal: BadInput| {
            let what =
                format!("--plan: this job cannot use {}: {}", strategy.words(), refusal.what);
            BadInput::new(what, refusal.help)
        };
        let text = apparatus::detail(&screen, &job, &strategy, tokens).map_err(cannot)?;
        if flags.json {
            screen.say(apparatus::json(&name, &job, &[job.plan(strategy)], tokens));
            return Ok(());
        }
        screen.say(lesson.heading(&screen, None));
        screen.say(format!("{asked}\n\n{text}"));
        return Ok(());
    }
    let found = Found::new(job);
    let plans = &found.search.plans;
    if flags.json {
        let top = &plans[..flags.top.min(plans.len())];
        screen.say(apparatus::json(&name, &found.job, top, tokens));
        return Ok(());
    }
    if let Some(page) = flags.ledger {
        screen.say(apparatus::ledger(&screen, &found, &name, tokens, page.as_deref())?);
        return Ok(());
    }
    screen.say(lesson.heading(&screen, None));
    if flags.published {
        screen.say(format!("{}\n", apparatus::published(&screen)));
    } else {
        screen.say(asked);
        decided(&screen, &found, flags.top, tokens);
    }
    check(&screen, &found)?;
    let more = "More: --plan dp=64,tp=8 --published --presets --json";
    screen.say(lesson.ending(&screen, more));
    Ok(())
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
    let verdict = if fits(job, &planned.load) {
        "fits".to_string()
    } else {
        screen.bad("does not fit")
    };
    let words = format!(
        "dp={} tp={} pp={} {verdict}; rule of thumb {}, planner {}",
        plan.data,
        plan.tensor,
        plan.pipeline,
        screen.seconds(*seconds),
        apparatus::likely::seconds(Made::Benchmark, &planned)
    );
    screen.row("simplest", &words)
}

/// The source's rules, the search, and the best plan; or what the plan that needs least lacks.
fn decided(screen: &Screen, found: &Found, top: usize, tokens: f64) {
    let job = &found.job;
    screen.say(format!("{}\n", simplest(screen, job)));
    screen.say(format!("{}\n", apparatus::rules(screen, found)));
    if let Some(best) = found.search.plans.first() {
        above::picture("The ranking of plans");
        screen.say(format!("{}\n", apparatus::ranking(screen, found, top)));
        screen.say(format!("{}\n", apparatus::memory(screen, job, best)));
        screen.say(apparatus::time(screen, best));
        screen.say(format!("{}\n", apparatus::ending(screen, job, best, tokens)));
    } else if let Some(least) = &found.search.least {
        let plan = least.strategy.to_string().replace(',', ", ");
        let words = format!("no strategy fits. The one that needs least is {plan}:");
        screen.say(screen.row("least", &words));
        let memory = apparatus::memory(screen, job, least).replace("The best plan's", "Its");
        screen.say(format!("{memory}\n"));
    }
}

/// The lesson's bytes beside the planner's, the planner against published runs, and every plan
/// against the job.
fn check(screen: &Screen, found: &Found) -> Result<()> {
    let mut checks = Checks::new(screen);
    checks.beside("bytes", compare_bytes(&found.job)?);
    apparatus::check_published(&mut checks);
    let wrong = found.search.plans.iter().find(|plan| {
        refusal(&found.job, &plan.strategy).is_some() || !fits(&found.job, &plan.load)
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
    kit::ensure_passed(&checks.failed())
}
