//! ds_to_universal: DeepSpeed's checkpoints as universal ones.
//!
//! Takes a checkpoint that DeepSpeed has saved with ZeRO, and writes each parameter whole, with its
//! moments. DeepSpeed, or lab09, continues from the result with any number of ranks. The flags are
//! those of DeepSpeed's own converter.
//!
//! Run `cargo run --bin ds_to_universal -- --input_folder checkpoints/global_step5 --output_folder
//! checkpoints/global_step5_universal`.

use anyhow::{Error, Result, ensure};
use clap::Parser;
use deepspeed::{Format, NotFinite, Options, Refusal, Report, Watch, convert};
use kit::help;
use kit::show::{Screen, bytes_decimal, table, thousands};
use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

/// Convert a DeepSpeed checkpoint to a universal one.
#[derive(Parser)]
#[command(name = "ds_to_universal", version)]
#[command(after_long_help = end_of_help())]
struct Args {
    /// Folder of one save, such as checkpoints/global_step5
    #[arg(long = "input_folder", value_name = "DIR", help_heading = "Folders")]
    input: PathBuf,
    /// Folder for the result, such as checkpoints/global_step5_universal
    #[arg(long = "output_folder", value_name = "DIR", help_heading = "Folders")]
    output: PathBuf,
    /// Files that are read at the same time
    #[arg(long = "num_extract_workers", value_name = "N", default_value_t = 4, value_parser = workers, help_heading = "Work")]
    extract: usize,
    /// Parameters that are put together at the same time, each in memory
    #[arg(long = "num_merge_workers", value_name = "N", default_value_t = 2, value_parser = workers, help_heading = "Work")]
    merge: usize,
    /// Also write each rank's fragments, to the folder tmp in the result
    #[arg(long = "keep_temp_folder", help_heading = "Work")]
    keep_temp: bool,
    /// Convert a doubtful checkpoint, and print the doubts
    #[arg(long = "no_strict", help_heading = "Work")]
    no_strict: bool,
    /// Take missing rules of tensor parallelism to be none
    #[arg(long = "inject_missing_state", help_heading = "Work")]
    inject: bool,
    /// Read and check everything, and write nothing
    #[arg(long, help_heading = "Work")]
    dry_run: bool,
    /// Read the result back, and say whether the files show that its values are right
    #[arg(long, help_heading = "Work")]
    verify: bool,
    /// Form of the files
    #[arg(long, value_enum, default_value_t = Format::Torch, help_heading = help::OUTPUT)]
    format: Format,
    /// List all parameters
    #[arg(long, help_heading = help::OUTPUT)]
    list: bool,
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
    let options = Options {
        input: args.input,
        output: args.output,
        extract_workers: args.extract,
        merge_workers: args.merge,
        keep_temp: args.keep_temp,
        strict: !args.no_strict,
        inject: args.inject,
        dry_run: args.dry_run,
        verify: args.verify,
        format: args.format,
    };
    let begin = Instant::now();
    let bars = Bars { screen: &screen, now: Mutex::new(Bar::default()) };
    // An error begins its own line.
    let report = convert(&options, &bars).map_err(|refusal| {
        screen.say("");
        match refusal {
            Refusal::Input(error) => Error::from(error),
            // Exit code 1, like any check that fails.
            Refusal::Contradiction(error) => Error::msg(error.to_string()),
        }
    })?;
    let seconds = begin.elapsed().as_secs_f64();
    if args.list {
        let rows = report
            .parameters
            .iter()
            .map(|(name, shape)| vec![name.clone(), format!("{shape:?}")]);
        screen.say(table(&screen, &["parameter", "shape"], &rows.collect::<Vec<_>>()));
    }
    summary(&screen, &options, &report, seconds);
    if options.verify {
        let values = not_finite(&report);
        let all = &report.not_finite;
        ensure!(
            all.is_empty(),
            "{}\nhelp: the run had diverged before it saved, or a file is damaged: resume from an earlier checkpoint{}",
            numbers(values, all),
            if options.dry_run {
                ""
            } else {
                "; the result has these values as the files have them"
            }
        );
    }
    Ok(())
}

/// How many values are infinite or NaN.
fn not_finite(report: &Report) -> usize {
    report.not_finite.iter().map(|found| found.values).sum()
}

/// Where values are infinite or NaN: how many, and the first places.
fn numbers(values: usize, all: &[NotFinite]) -> String {
    const SHOWN: usize = 8;
    let files: BTreeSet<_> = all.iter().map(|found| &found.file).collect();
    let values = counted(values, "value is", "values are");
    let files = counted(files.len(), "file", "files");
    let place = |found: &NotFinite| {
        let NotFinite { file, parameter, state, values } = found;
        format!(
            "{} in {state} of {parameter} ({})",
            thousands(*values as u64),
            file.file_name().unwrap_or_default().display()
        )
    };
    let mut lines = vec![format!("{values} infinite or NaN, in {files}:")];
    lines.extend(all.iter().take(SHOWN).map(place));
    if all.len() > SHOWN {
        lines.push(format!("and in {} other places", thousands((all.len() - SHOWN) as u64)));
    }
    lines.join("\n  ")
}

fn counted(count: usize, one: &str, more: &str) -> String {
    format!("{} {}", thousands(count as u64), if count == 1 { one } else { more })
}

fn summary(screen: &Screen, options: &Options, report: &Report, seconds: f64) {
    let dot = screen.separator();
    let Report { ranks: (dp, tp, pp), parameters, .. } = report;
    let elements: usize = parameters.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
    let step = report.step.map_or(String::new(), |step| format!("{dot}step {step}"));
    let parallel = if tp * pp > 1 {
        format!(" x {tp} (tensor) x {pp} (pipeline)")
    } else {
        String::new()
    };
    screen.say(format!(
        "\n{}",
        screen.row(
            "saved by",
            &format!("{dp}{parallel} ranks{dot}ZeRO stage {}{step}", report.stage)
        )
    ));
    let count = thousands(parameters.len() as u64);
    let fragments = thousands(report.fragments as u64);
    let elements = thousands(elements as u64);
    screen.say(screen.row(
        "merged",
        &format!("{count} parameters of {elements} elements, from {fragments} fragments"),
    ));
    for note in &report.notes {
        screen.say(screen.row("note", note));
    }
    if !report.not_finite.is_empty() && !options.verify {
        screen.say(screen.row("warning", &numbers(not_finite(report), &report.not_finite)));
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
    if options.verify {
        verified(screen, report);
    }
    let wrote = if options.dry_run {
        "wrote nothing (--dry-run)".to_string()
    } else {
        format!("wrote {}", bytes_decimal(report.bytes as f64))
    };
    screen.say(screen.row("took", &format!("{}{dot}{wrote}", screen.seconds(seconds))));
}

/// What `--verify` found. Nothing is ticked where nobody can know whether the values are right.
fn verified(screen: &Screen, report: &Report) {
    let files = report.verified.map(|files| thousands(files as u64));
    if let Some(reason) = &report.unverifiable {
        if let Some(files) = files {
            screen.say(
                screen.row("written", &format!("{files} files, read back, equal what was written")),
            );
        }
        screen.say(screen.row("verify", &format!("not verifiable: {reason}")));
    } else if let Some(files) = files {
        screen.say(screen.check(true, "files read back equal what was written", &files));
    }
    let values = not_finite(report);
    if values > 0 {
        screen.say(screen.check(
            false,
            "all values are finite",
            &format!("{} are not", thousands(values as u64)),
        ));
    }
}

/// Progress of the phases. A bar grows and never moves back, so that a redirected run reads like
/// the live one.
struct Bars<'a> {
    screen: &'a Screen,
    now: Mutex<Bar>,
}

#[derive(Default)]
struct Bar {
    tasks: usize,
    done: usize,
    drawn: usize,
    begin: Option<Instant>,
}

/// Columns of a complete bar.
const WIDTH: usize = 40;

impl Watch for Bars<'_> {
    fn begin(&self, phase: &str, tasks: usize) {
        self.screen.say(format!("\n*** {phase}"));
        *self.lock() = Bar { tasks, begin: Some(Instant::now()), ..Bar::default() };
        self.draw("  ");
    }

    fn advance(&self) {
        let mut bar = self.lock();
        bar.done += 1;
        let columns = bar.done * WIDTH / bar.tasks.max(1);
        let glyph = if self.screen.separator().is_ascii() { "#" } else { "█" };
        let more = glyph.repeat(columns - bar.drawn);
        bar.drawn = columns;
        drop(bar);
        self.draw(&more);
    }

    fn end(&self) {
        let bar = self.lock();
        let seconds = bar.begin.map_or(0.0, |begin| begin.elapsed().as_secs_f64());
        let tasks = thousands(bar.tasks as u64);
        let done = thousands(bar.done as u64);
        self.screen.say(format!(" {done}/{tasks}  {}", self.screen.seconds(seconds)));
    }
}

impl Bars<'_> {
    fn lock(&self) -> std::sync::MutexGuard<'_, Bar> {
        self.now.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Draws a part of a line.
    fn draw(&self, part: &str) {
        let mut out = io::stdout().lock();
        // If the reader has left, the next whole line finds out.
        let written = write!(out, "{part}");
        if written.is_ok() && io::stdout().is_terminal() {
            out.flush().unwrap_or_default();
        }
    }
}
