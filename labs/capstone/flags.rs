//! The program: its flags, and what it does with them.

use crate::child::{self, Children};
use crate::life::Span;
use crate::parts::{Part, Parts, Versions, Whose};
use crate::plan::Plan;
use crate::run::Setting;
use crate::story::Story;
use crate::{page, screen};
use anyhow::{Context, Result};
use clap::Parser;
use kit::help;
use kit::show::{self, Screen};
use shardlab::data::Corpus;
use shardlab::error::BadInput;
use shardlab::launch;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Your own trainer: the exercises' solutions train one GPT together, through a kill and on another
/// mesh.
#[derive(Parser)]
#[command(name = "capstone", bin_name = called(), version)]
#[command(after_long_help = examples())]
struct Args {
    /// Leave out every part that is not yours
    #[arg(long, value_parser = ["yours"], help_heading = help::BREAK)]
    only: Option<String>,
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
    /// Folder for checkpoints and the story [default: runs/capstone, and for a run that is short or
    /// leaves parts out runs/capstone/try]
    #[arg(long, value_name = "DIR", help_heading = help::OUTPUT)]
    out: Option<PathBuf>,
    /// One life, as a process of its own: how this program starts itself
    #[arg(long, hide = true)]
    life: Option<usize>,
    #[arg(long, hide = true, default_value_t = 0)]
    until: usize,
    #[arg(long, hide = true, default_value = "")]
    yours: String,
    #[arg(long, hide = true, default_value = "")]
    leave: String,
    #[arg(long, hide = true)]
    from: Option<PathBuf>,
}

/// The workbook gives this variable to the trainer that it has built: the command that did so.
pub const CALLED: &str = "SHARDLAB_TRAINER";

fn called() -> String {
    std::env::var(CALLED).unwrap_or_else(|_| "capstone".into())
}

fn examples() -> String {
    let all = [
        ("--quick", "a small model, in seconds"),
        ("--steps 1000", "a longer training, and the text that its model writes"),
        ("--without norm", "every rank clips by its own norm"),
    ];
    let Ok(called) = std::env::var(CALLED) else {
        return help::examples("capstone", &all);
    };
    let example = |(flags, what): &(&str, &str)| format!("\n  {called} {flags}\n      {what}");
    format!("Examples:{}", all.iter().map(example).collect::<String>())
}

impl Args {
    /// A try does not take the place of the story that stays.
    fn folder(&self) -> PathBuf {
        let story = Path::new("runs/capstone");
        let is_try =
            self.quick || self.steps.is_some() || self.only.is_some() || !self.without.is_empty();
        match &self.out {
            Some(out) => out.clone(),
            None if is_try => story.join("try"),
            None => story.to_path_buf(),
        }
    }
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
    let mut plan = if args.quick {
        Plan::quick(&corpus)
    } else {
        Plan::story(&corpus)
    };
    if let Some(steps) = args.steps {
        plan = plan.of_steps(steps);
    }
    // A part that panics ends its run, and the run says why.
    std::panic::set_hook(Box::new(|_| ()));
    let mut flags = Vec::new();
    if args.quick {
        flags.push("--quick".to_string());
    }
    if let Some(steps) = args.steps {
        flags.extend(["--steps".to_string(), steps.to_string()]);
    }
    let children = Children::new(&flags);
    let setting = Setting {
        plan: &plan,
        text: &corpus.train,
        yours,
        child: Some(&children),
    };
    if let Some(life) = args.life {
        let span = Span {
            life,
            until: args.until,
            folder: args.folder(),
            from: args.from.unwrap_or_default(),
        };
        let job = setting.job(&words(&args.yours, &args.leave));
        return child::live(&job, &span);
    }

    let screen = Screen::detect(args.ascii);
    let versions = Part::ALL.map(|part| {
        if args.without.contains(&part) || (args.only.is_some() && !have.contains(&part)) {
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
    let every = (plan.steps / 6).max(1);
    let moves = |whose: &str, life: usize, step: usize| {
        if !args.json {
            show::progress(|| format!("{whose}life {life}: step {step} of {}", plan.steps));
        }
    };
    let each = |life: usize, step: &crate::Step| {
        if let Some(trained) = step.trained.filter(|_| step.step.is_multiple_of(every)) {
            let words = format!("step {:>4}   loss {:.3}", step.step, trained.loss);
            speak(screen.row(&format!("life {life}"), &words));
        }
        moves("", life, step.step);
    };
    let quiet = |life: usize, step: &crate::Step| moves("the library's parts, ", life, step.step);
    let say = |line: String| speak(screen.row("", &screen.dim(line)));
    let out = args.folder();
    let story = Story::live(&setting, &versions, &corpus, &out, (&each, &quiet), &say);
    let json = serde_json::to_string_pretty(&story)?;
    let plain = Screen::plain();
    let page = keep(&out, "capstone.html", &page::page(&story))?;
    keep(&out, "capstone.txt", &screen::text(&story, &plain))?;
    keep(&out, "story.json", &json)?;
    if args.json {
        screen.say(json);
    } else {
        screen.say(screen::text(&story, &screen));
        let kept = format!("{}, and capstone.txt beside it", page.display());
        screen.say(format!("\n{}", screen.row("yours", &kept)));
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

/// Writes a file that stays. Returns its path.
fn keep(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, text))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The versions that a parent has given its child, in words.
fn words(yours: &str, leave: &str) -> Versions {
    let has = |list: &str, part: Part| list.split(',').any(|word| word == part.word());
    Part::ALL.map(|part| match part {
        part if has(yours, part) => Whose::Yours,
        part if has(leave, part) => Whose::Without,
        _ => Whose::Library,
    })
}
