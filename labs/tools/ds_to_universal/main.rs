//! ds_to_universal: DeepSpeed's checkpoints as universal ones.
//!
//! Takes a checkpoint that DeepSpeed has saved with ZeRO, and writes each parameter whole, with its
//! moments. DeepSpeed continues from the result with any number of ranks. The flags have the names
//! of DeepSpeed's own converter's.
//!
//! Run `cargo run --bin ds_to_universal -- --input_folder checkpoints/global_step5 --output_folder
//! checkpoints/global_step5_universal`.

use anyhow::{Result, bail};
use clap::Parser;
use deepspeed::{Options, Report, Watch, convert};
use kit::help;
use kit::show::{Screen, bytes_decimal, thousands};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The heading of flags that DeepSpeed's converter has and that change nothing here.
const SAME: &str = "Accepted, because DeepSpeed's converter has them";

/// Why nothing is needed of them.
const STRICT: &str = "--strict: a conversion is strict without it, too";
const KEEP: &str = "--keep_temp_folder: nothing temporary is written, so nothing is kept";
const INJECT: &str = "--inject_missing_state: not needed, a save without universal_checkpoint_info is converted as it is";

/// Convert a DeepSpeed checkpoint to a universal one.
#[derive(Parser)]
#[command(name = "ds_to_universal", version, next_help_heading = "Folders")]
#[command(after_long_help = end_of_help())]
struct Args {
    /// Folder of one save, such as checkpoints/global_step5
    #[arg(long = "input_folder", alias = "input-folder", value_name = "DIR")]
    input: PathBuf,
    /// Folder for the result, such as checkpoints/global_step5_universal
    #[arg(long = "output_folder", alias = "output-folder", value_name = "DIR")]
    output: PathBuf,
    /// Files that are read at the same time
    #[arg(long = "num_extract_workers", alias = "num-extract-workers", value_name = "N", default_value_t = 4, value_parser = workers, help_heading = "Work")]
    extract: usize,
    /// Parameters that are put together at the same time, each in memory
    #[arg(long = "num_merge_workers", alias = "num-merge-workers", value_name = "N", default_value_t = 2, value_parser = workers, help_heading = "Work")]
    merge: usize,
    /// Convert a doubtful checkpoint, and print the doubts
    #[arg(long = "no_strict", alias = "no-strict", help_heading = "Work")]
    no_strict: bool,
    /// Refuse a doubtful checkpoint, as without this flag
    #[arg(long, conflicts_with = "no_strict", help_heading = SAME)]
    strict: bool,
    /// Keep nothing: no temporary folder is written
    #[arg(long = "keep_temp_folder", alias = "keep-temp-folder", help_heading = SAME)]
    keep_temp_folder: bool,
    /// Inject nothing: a save without universal_checkpoint_info is converted as it is
    #[arg(long = "inject_missing_state", alias = "inject-missing-state", help_heading = SAME)]
    inject_missing_state: bool,
    /// Read and check everything, and write nothing
    #[arg(long, alias = "dry_run", help_heading = "Work")]
    dry_run: bool,
    /// Also read the result back, and fail if a value is infinite or NaN
    #[arg(long, help_heading = "Work")]
    verify: bool,
    /// Draw with ASCII characters
    #[arg(long, help_heading = help::OUTPUT)]
    ascii: bool,
}

/// Memory, which the flags do not say, and examples.
fn end_of_help() -> String {
    let folders = "--input_folder global_step5 --output_folder universal";
    let verify = format!("{folders} --verify");
    let dry_run = format!("{folders} --dry-run");
    let examples = [
        (folders, "write each parameter whole, with its moments"),
        (verify.as_str(), "and read the result back"),
        (dry_run.as_str(), "only check, and write nothing"),
    ];
    let examples = help::examples("ds_to_universal", &examples);
    let memory = "Memory: each merge worker holds one state of one parameter. The peak is about workers x the largest \
                  parameter x 4 bytes, twice with tensor parallelism. Experts and elastic_checkpoint are refused.";
    format!("{memory}\n\n{examples}")
}

fn workers(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|workers| (1..=1024).contains(workers))
        .ok_or_else(|| "give 1 to 1024".to_string())
}

fn main() -> ExitCode {
    kit::main(run)
}

fn run(args: Args) -> Result<()> {
    let screen = Screen::detect(args.ascii);
    screen.say(screen.heading("ds_to_universal", ""));
    screen.say(screen.row("from", &args.input.display().to_string()));
    screen.say(screen.row("to", &args.output.display().to_string()));
    for (given, why) in [
        (args.strict, STRICT),
        (args.keep_temp_folder, KEEP),
        (args.inject_missing_state, INJECT),
    ] {
        if given {
            screen.say(screen.row("flag", why));
        }
    }
    let options = Options {
        input: args.input,
        output: args.output,
        extract_workers: args.extract,
        merge_workers: args.merge,
        strict: !args.no_strict,
        dry_run: args.dry_run,
        verify: args.verify,
    };
    let begin = Instant::now();
    let bar = Mutex::new(Bar { tasks: 0, done: 0, begin });
    let bars = Bars { screen: &screen, bar };
    // An error begins its own line.
    let report = convert(&options, &bars).inspect_err(|_| screen.say(""))?;
    summary(&screen, &options, &report, begin.elapsed().as_secs_f64());
    match infinite(&report).filter(|_| options.verify) {
        Some(infinite) => bail!(
            "{infinite}\nhelp: the run had diverged before it saved: resume from an earlier checkpoint"
        ),
        None => Ok(()),
    }
}

/// How many values are infinite or NaN, if any, and where the first are.
fn infinite(report: &Report) -> Option<String> {
    let (first, _) = report.not_finite.first_key_value()?;
    let values = thousands(report.not_finite.values().sum::<usize>() as u64);
    Some(format!("values that are infinite or NaN: {values}, the first in {first}"))
}

fn summary(screen: &Screen, options: &Options, report: &Report, seconds: f64) {
    let dot = screen.separator();
    let Report { ranks: (dp, tp, pp), parameters, .. } = report;
    let step = report.step.map_or(String::new(), |step| format!("{dot}step {step}"));
    let parallel = match tp * pp {
        1 => String::new(),
        _ => format!(" x {tp} (tensor) x {pp} (pipeline)"),
    };
    screen.say("");
    let saved = format!("{dp}{parallel} ranks{dot}ZeRO stage {}{step}", report.stage);
    screen.say(screen.row("saved by", &saved));
    let count = thousands(parameters.len() as u64);
    let fragments = thousands(report.fragments as u64);
    let elements = thousands(report.elements as u64);
    screen.say(screen.row(
        "merged",
        &format!("{count} parameters of {elements} elements, from {fragments} fragments"),
    ));
    for (what, python) in &report.lacks {
        screen.say(screen.row("warning", what));
        if let Some(python) = python {
            // Whole, to be copied into a program.
            screen.say(python);
        }
    }
    for note in &report.notes {
        screen.say(screen.row("note", note));
    }
    if let Some(infinite) = infinite(report).filter(|_| !options.verify) {
        screen.say(screen.row("warning", &infinite));
    }
    match report.compared {
        (0, _) => screen.say(
            screen.row("weights", "the files have no whole weights to compare the values with"),
        ),
        (compared, all) => {
            let result = format!("{compared} of {all}");
            let what = "values, rounded, equal the model's weights";
            screen.say(screen.check(report.differ == 0, what, &result));
        }
    }
    if let Some(files) = report.verified {
        let files = thousands(files as u64);
        screen.say(screen.check(true, "files read back equal what was written", &files));
    }
    let wrote = if options.dry_run {
        "wrote nothing (--dry-run)".to_string()
    } else {
        format!("wrote {}", bytes_decimal(report.bytes as f64))
    };
    screen.say(screen.row("took", &format!("{}{dot}{wrote}", screen.seconds(seconds))));
}

/// Progress of the phases. A bar only grows, so that a redirected run reads like the live one.
struct Bars<'a> {
    screen: &'a Screen,
    bar: Mutex<Bar>,
}

struct Bar {
    tasks: usize,
    done: usize,
    begin: Instant,
}

/// Columns of a complete bar.
const WIDTH: usize = 40;

impl Watch for Bars<'_> {
    fn begin(&self, phase: &str, tasks: usize) {
        self.screen.say(format!("\n*** {phase}"));
        *self.bar() = Bar { tasks, done: 0, begin: Instant::now() };
        draw("  ");
    }

    fn advance(&self) {
        let mut bar = self.bar();
        let columns = |done: usize| done * WIDTH / bar.tasks.max(1);
        let more = columns(bar.done + 1) - columns(bar.done);
        bar.done += 1;
        let glyph = if self.screen.separator().is_ascii() { "#" } else { "█" };
        draw(&glyph.repeat(more));
    }

    fn end(&self) {
        let bar = self.bar();
        let tasks = thousands(bar.tasks as u64);
        let seconds = self.screen.seconds(bar.begin.elapsed().as_secs_f64());
        self.screen.say(format!(" {tasks}/{tasks}  {seconds}"));
    }
}

impl Bars<'_> {
    fn bar(&self) -> MutexGuard<'_, Bar> {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Draws a part of a line. If the reader has left, the next whole line finds out.
fn draw(part: &str) {
    let mut out = io::stdout();
    out.write_all(part.as_bytes()).and_then(|()| out.flush()).ok();
}
