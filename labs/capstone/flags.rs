//! The program: its flags, and what it does with them.

use crate::life::Span;
use crate::parts::{Part, Parts, Versions, Whose};
use crate::plan::Plan;
use crate::run::Setting;
use crate::story::Story;
use crate::{Step, child, screen};
use anyhow::Result;
use clap::Parser;
use kit::show::{self, Screen};
use kit::{help, output};
use shardlab::data::Corpus;
use shardlab::error::BadInput;
use shardlab::launch;
use std::path::PathBuf;
use std::process::ExitCode;
use time::OffsetDateTime;

/// Your own trainer: the exercises' solutions train one GPT together, through a kill and on another
/// mesh.
#[derive(Parser)]
#[command(name = "capstone", bin_name = called(), version)]
#[command(after_long_help = examples())]
struct Args {
    /// Leave this part out (repeatable)
    #[arg(long, value_name = "PART", value_enum, help_heading = help::BREAK)]
    without: Vec<Part>,
    /// Training steps [default: 240]. A longer run writes a text, and is not compared with the
    /// library's
    #[arg(long, help_heading = help::TRAINING)]
    steps: Option<usize>,
    /// A small model and few steps
    #[arg(long, help_heading = help::TRAINING)]
    quick: bool,
    /// Print the story as JSON, and nothing else
    #[arg(long, help_heading = help::OUTPUT)]
    json: bool,
    /// Draw with ASCII characters
    #[arg(long, help_heading = help::OUTPUT)]
    ascii: bool,
    /// Folder for checkpoints and the story
    #[arg(long, value_name = "DIR", default_value = "runs/capstone", help_heading = help::OUTPUT)]
    out: PathBuf,
    /// One life, as a process of its own: how this program starts itself
    #[arg(long, hide = true)]
    life: Option<String>,
}

/// The workbook gives this variable to the trainer that it has built: the command that did so.
pub const CALLED: &str = "SHARDLAB_TRAINER";

fn called() -> String {
    std::env::var(CALLED).unwrap_or_else(|_| "capstone".into())
}

fn examples() -> String {
    let called = std::env::var(CALLED).unwrap_or_else(|_| "cargo run --bin capstone --".into());
    kit::commands::commands(&format!(
        "Examples:
  {called} --quick
      a small model, in seconds
  {called} --steps 1000
      a longer training, and the text that its model writes
  {called} --without norm
      every rank clips by its own norm"
    ))
}

/// Trains with `yours`. `have` are the parts that the reader has written; all others in `yours` are
/// not used.
pub fn main(yours: Parts, have: &[Part]) -> ExitCode {
    kit::main(|args| run(args, &yours, have))
}

fn run(args: Args, yours: &Parts, have: &[Part]) -> Result<()> {
    if launch::is_mpi() {
        let help =
            "start it without a launcher: its lives have 2 and 4 ranks, threads of one process";
        return Err(BadInput::new("the trainer starts and ends its ranks itself", help).into());
    }
    let corpus = Corpus::find(None)?;
    let mut plan = match args.quick {
        true => Plan::quick(&corpus),
        false => Plan::story(&corpus),
    };
    let mut flags = Vec::new();
    if args.quick {
        flags.push("--quick".to_string());
    }
    if let Some(steps) = args.steps {
        plan = Plan::of_steps(plan.config, steps);
        flags.extend(["--steps".to_string(), steps.to_string()]);
    }
    // A part that panics ends its run, and the run says why.
    std::panic::set_hook(Box::new(|_| ()));
    let setting = Setting {
        plan: &plan,
        text: &corpus.train,
        yours,
        child: Some(&flags),
        each: &|life: usize, step: &Step| {
            let loss = step.trained.map_or(String::new(), |now| format!(", loss {:.3}", now.loss));
            let of = plan.config.steps;
            show::progress(|| format!("life {life}: step {} of {of}{loss}", step.step));
        },
    };
    if let Some(life) = &args.life {
        let (versions, span): (Versions, Span) = serde_json::from_str(life)?;
        return child::live(&setting.job(&versions), &span);
    }
    output::make_folder("out", &args.out)?;

    let screen = Screen::detect(args.ascii);
    let versions = Part::ALL.map(|part| {
        if args.without.contains(&part) {
            Whose::Without
        } else if have.contains(&part) {
            Whose::Yours
        } else {
            Whose::Library
        }
    });
    let speak = |line: String| {
        if !args.json {
            screen.say(line);
        }
    };
    speak(screen.heading(&format!("capstone{}Your own trainer", screen.separator()), ""));
    speak(screen.wrap("Do the parts that you have written train a model together?", 0));
    let say = |line: String| speak(screen.row("", &screen.dim(line)));
    let story = Story::live(&setting, &versions, &corpus, &args.out, &say);
    let page = args.out.join("capstone.txt");
    let today = OffsetDateTime::now_utc().date();
    let plain = Screen::plain();
    let shown = screen::text(&story, &plan, &plain);
    let whole = format!("{}\n{shown}\n", screen::signed(&plain, &kit::reader::name(), today));
    output::write(&page, &whole)?;
    if args.json {
        screen.say(serde_json::to_string_pretty(&story)?);
    } else {
        screen.say(screen::text(&story, &plan, &screen));
        screen.say(format!("\n{}", screen.row("yours", &page.display().to_string())));
        if !args.quick && args.steps.is_none() {
            let command = called();
            let more = format!("{command} --steps 1000 trains on, and your model writes");
            screen.say(screen.row("next", &more));
        }
    }
    let failed = story.checks.iter().filter(|check| !check.passed);
    let failed: Vec<String> =
        failed.map(|check| format!("{}: {}", check.claim, check.found)).collect();
    kit::ensure_passed(&failed)
}
