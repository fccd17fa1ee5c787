//! lab11 · Deciding on a strategy
//!
//! Which strategy trains this model fastest on these devices, and at what cost?
//!
//! All labs before this one measured one strategy each. This lab computes. It knows what each strategy holds, sends and waits
//! for, because labs 04 to 09 measured it. So it can try every combination of degrees that divides the model evenly, on any cluster.
//! The source of this workbook decides by rules. The lab walks them, too, and says where both agree.
//!
//! Run `cargo run --bin lab11`. It decides for a Llama of 70 billion parameters on 512 H100. Ask about your own job:
//! `--model gpt3-175b --devices 1024 --device a100-80g`; your own cluster: `--cluster FILE`; one plan in detail, or what is
//! wrong with it: `--plan dp=8,tp=3,pp=2`. `--refused` explains what cannot work. The check compares the planner with runs that
//! papers report: `--published`. Then `--calibrate` measures this machine, and compares trainings with their predictions.

use anyhow::{Result, ensure};
use clap::Parser;
use kit::show::Screen;
use kit::{Checks, Lesson};
use lab11::planner::EXAMPLE;
use lab11::{Compared, DecideFlags, Found};
use shardlab::allocator::Counting;
use shardlab::data::Corpus;
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::plan::strategy::{Strategy, TrainingJob};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The strategies for a job, ranked.
#[derive(Parser)]
#[command(name = "lab11", version)]
struct Args {
    #[command(flatten)]
    decide: DecideFlags,
    /// Use only ASCII characters on the screen
    #[arg(long)]
    ascii: bool,
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
        screen.say(format!(
            "{}\n\n  As a file for --cluster:\n",
            found.show(&screen)
        ));
        screen.say(found.file());
        screen.say(lesson.ending(&screen, ""));
        return Ok(());
    }
    let job = flags.job()?;
    let tokens = flags.tokens(&job)?;
    if let Some(strategy) = flags.strategy()? {
        screen.say(lesson.heading(&screen, None));
        screen.say(format!("{}\n", lab11::job(&screen, &job, &flags.model)));
        return one_plan(&screen, &job, &strategy, tokens);
    }
    let found = Found::new(job);
    if flags.json {
        screen.say(lab11::json(&found, &flags.model, flags.top, tokens));
        return Ok(());
    }
    let compared = lab11::compared();
    screen.say(lesson.heading(&screen, None));
    if flags.published {
        screen.say(format!("{}\n", lab11::published(&screen, &compared)));
    } else if flags.refused {
        screen.say(format!(
            "{}\n",
            lab11::job(&screen, &found.job, &flags.model)
        ));
        screen.say(format!(
            "{}\n",
            lab11::refusals(&screen, &found, 3 * flags.top)
        ));
    } else {
        decided(&screen, &found, &flags, tokens);
    }
    check(&screen, &found, &compared)?;
    let more = "More: --plan dp=64,tp=8 --refused --published --presets --calibrate --json";
    screen.say(lesson.ending(&screen, more));
    Ok(())
}

// ANCHOR: decided
/// The source's rules, the search, and the best plan.
fn decided(screen: &Screen, found: &Found, flags: &DecideFlags, tokens: f64) {
    screen.say(format!(
        "{}\n",
        lab11::job(screen, &found.job, &flags.model)
    ));
    screen.say(format!("{}\n", lab11::rules(screen, found)));
    let Some(best) = found.best() else {
        return nothing_fits(screen, found);
    };
    screen.say(lab11::ranking(screen, found, flags.top));
    screen.say(format!("{}\n", lab11::refused(screen, found)));
    screen.say(format!("{}\n", lab11::memory(screen, &found.job, best)));
    screen.say(lab11::time(screen, best));
    screen.say(format!(
        "{}\n",
        lab11::ending(screen, &found.job, best, tokens)
    ));
    screen.say(format!("{}\n", lab11::sensitivity(screen, &found.job)));
}
// ANCHOR_END: decided

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
        Err(refusals) => {
            let what: Vec<String> = refusals
                .iter()
                .map(|refusal| format!("  {}", refusal.what))
                .collect();
            let help: Vec<&str> = refusals
                .iter()
                .map(|refusal| refusal.help.as_str())
                .collect();
            let what = format!(
                "--plan: this job cannot use {}\n{}",
                strategy.words(),
                what.join("\n")
            );
            return Err(BadInput::new(what, help.join("\n      ")).into());
        }
    }
    Ok(())
}

/// The planner against published runs, and every plan against the job.
fn check(screen: &Screen, found: &Found, compared: &Compared) -> Result<()> {
    let mut checks = Checks::new(screen);
    compared.check(&mut checks);
    let wrong = found.search.plans.iter().find(|plan| {
        !found.job.refusals(&plan.strategy).is_empty() || found.job.too_large(&plan.load).is_some()
    });
    let result = format!("{} plans", found.search.plans.len());
    let otherwise = wrong.map_or(String::new(), |plan| {
        format!("the job cannot use {}", plan.strategy)
    });
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
