//! checkpoint: what is in a checkpoint, the same in another format, and how two differ.
//!
//! Reads and writes PyTorch's distributed checkpoint (DCP) and safetensors. Nothing that a pickle
//! asks for is run.
//!
//! Run `cargo run --bin checkpoint -- inspect FOLDER`.

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use deepspeed::checkpoint::{Conversion, Difference, Format, diff, open};
use deepspeed::tensors::{Checkpoint, Tensor};
use kit::help;
use kit::show::{Screen, bytes_decimal, counted, thousands};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Look into checkpoints, convert and compare them.
#[derive(Parser)]
#[command(name = "checkpoint", version, after_long_help = end_of_help())]
struct Args {
    #[command(subcommand)]
    command: Command,
    /// Draw with ASCII characters
    #[arg(long, global = true, help_heading = help::OUTPUT)]
    ascii: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Say what a checkpoint has, and how it was cut
    Inspect {
        /// Folder of one checkpoint, or a file of safetensors
        folder: PathBuf,
        /// List all tensors and settings
        #[arg(long)]
        all: bool,
    },
    /// Write a checkpoint in another format, to a new folder
    Convert {
        /// Folder of one checkpoint, or a file of safetensors
        input: PathBuf,
        /// Folder for the result
        output: PathBuf,
        /// The format of the result
        #[arg(long)]
        to: To,
        /// Take only names that begin with this, such as model., and write them without it
        #[arg(long, value_name = "PREFIX")]
        only: Option<String>,
        /// Tensors that are read and written at the same time, each in memory
        #[arg(long, value_name = "N", default_value_t = 2, value_parser = workers)]
        workers: usize,
        /// Say what would be written, and write nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Say which tensors and settings of two checkpoints differ
    Diff {
        /// Folder of one checkpoint, or a file of safetensors
        one: PathBuf,
        /// The other
        other: PathBuf,
        /// Tensors that are compared at the same time, each twice in memory
        #[arg(long, value_name = "N", default_value_t = 2, value_parser = workers)]
        workers: usize,
        /// List all differences
        #[arg(long)]
        all: bool,
    },
}

/// A format to write.
#[derive(Clone, Copy, ValueEnum)]
enum To {
    /// PyTorch's distributed checkpoint, for any number of ranks
    Dcp,
    /// One file, model.safetensors
    Safetensors,
}

/// Lines of a list without --all.
const LINES: usize = 20;

fn workers(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|workers| (1..=1024).contains(workers));
    count.ok_or_else(|| "give 1 to 1024".to_string())
}

fn end_of_help() -> String {
    let examples = [
        ("inspect checkpoints/step100", "what is in there, and how it was cut"),
        (
            "convert checkpoints/step100 whole --to safetensors --only model.",
            "the weights, whole",
        ),
        ("convert whole again --to dcp", "for dcp.load, on any number of ranks"),
        ("diff whole again", "exit code 1 if something differs"),
    ];
    let memory = "Memory: each worker holds one tensor, and twice one of a transposed layout.";
    format!("{memory}\n\n{}", help::examples("checkpoint", &examples))
}

fn main() -> ExitCode {
    kit::main(run)
}

fn run(args: Args) -> Result<()> {
    let screen = Screen::detect(args.ascii);
    match args.command {
        Command::Inspect { folder, all } => inspect(&screen, &folder, all),
        Command::Convert { input, output, to, only, workers, dry_run } => {
            let to = match to {
                To::Dcp => Format::Dcp,
                To::Safetensors => Format::Safetensors,
            };
            convert(&screen, &Conversion { input, output, to, only, workers }, dry_run)
        }
        Command::Diff { one, other, workers, all } => {
            compare(&screen, [&one, &other], workers, all)
        }
    }
}

fn inspect(screen: &Screen, folder: &Path, all: bool) -> Result<()> {
    let (format, checkpoint) = open(folder)?;
    screen.say(screen.heading("checkpoint", &folder.display().to_string()));
    screen.say(screen.row("format", format.name()));
    let Checkpoint { tensors, values, unread } = &checkpoint;
    let bytes: u64 = tensors.iter().map(Tensor::bytes).sum();
    let elements: usize = tensors.iter().map(|tensor| tensor.shape.iter().product::<usize>()).sum();
    let mut types: BTreeMap<&str, u64> = BTreeMap::new();
    for tensor in tensors {
        *types.entry(tensor.dtype.name()).or_default() += tensor.bytes();
    }
    let types: Vec<String> = types
        .iter()
        .map(|(name, bytes)| format!("{name} {}", bytes_decimal(*bytes as f64)))
        .collect();
    let (count, elements) =
        (counted(tensors.len(), "tensor", "tensors"), thousands(elements as u64));
    screen.say(screen.row("tensors", &format!("{count} of {elements} elements")));
    screen.say(
        screen.row("bytes", &format!("{}: {}", bytes_decimal(bytes as f64), types.join(", "))),
    );
    let parts = tensors.iter().flat_map(|tensor| &tensor.parts);
    let files: BTreeSet<&Path> = parts.clone().map(|part| &*part.place.file).collect();
    let files = counted(files.len(), "file", "files");
    screen.say(screen.row("parts", &format!("{} in {files}", thousands(parts.count() as u64))));
    screen.say(screen.row("settings", &thousands(values.len() as u64)));
    let cut = tensors.iter().rev().max_by_key(|tensor| tensor.parts.len());
    if let Some(tensor) = cut.filter(|tensor| tensor.parts.len() > 1) {
        screen.say("");
        screen.say(screen.title(&format!("How {} {:?} was cut", tensor.name, tensor.shape), 0));
        let lines = tensor.parts.iter().map(|part| {
            let ranges = part.offset.iter().zip(&part.shape);
            let ranges: Vec<String> =
                ranges.map(|(at, size)| format!("{at}..{}", at + size)).collect();
            let file = part.place.file.file_name().unwrap_or_default().to_string_lossy();
            format!(
                "{:<24} {file}, {} bytes",
                ranges.join(" x "),
                thousands(part.place.bytes.end - part.place.bytes.start)
            )
        });
        list(screen, lines, all);
    }
    screen.say("");
    screen.say(screen.title("Tensors", 0));
    list(
        screen,
        tensors.iter().map(|tensor| {
            format!("{:<44} {:<8} {:?}", tensor.name, tensor.dtype.name(), tensor.shape)
        }),
        all,
    );
    if all {
        screen.say(screen.title("Settings", 0));
        list(screen, values.iter().map(|setting| setting.name.clone()), all);
    }
    for (name, why) in unread {
        screen.say(screen.row("warning", &format!("{name} cannot be read here: {why}")));
    }
    Ok(())
}

/// The first lines, or all.
fn list(screen: &Screen, lines: impl ExactSizeIterator<Item = String>, all: bool) {
    let count = lines.len();
    let most = if all || count <= LINES { count } else { LINES - 1 };
    for line in lines.take(most) {
        screen.say(format!("  {line}"));
    }
    if most < count {
        screen.say(format!("  … {} more: --all", thousands((count - most) as u64)));
    }
}

fn convert(screen: &Screen, conversion: &Conversion, dry_run: bool) -> Result<()> {
    let plan = conversion.plan()?;
    screen.say(screen.heading("checkpoint", "convert"));
    screen
        .say(screen.row("from", &format!("{}: {}", conversion.input.display(), plan.from.name())));
    screen.say(
        screen.row("to", &format!("{}: {}", conversion.output.display(), conversion.to.name())),
    );
    let tensors = counted(plan.tensors.len(), "tensor", "tensors");
    let bytes = bytes_decimal(plan.bytes as f64);
    let settings = counted(plan.settings.len(), "setting", "settings");
    screen.say(screen.row("writes", &format!("{tensors}, {bytes}, and {settings}")));
    for (name, why) in &plan.left_out {
        screen.say(screen.row("left out", &format!("{name}: {why}")));
    }
    if let Some(only) = &conversion.only {
        let others = counted(plan.others, "name does", "names do");
        screen.say(screen.row("left out", &format!("{others} not begin with {only:?}")));
    }
    if dry_run {
        screen.say(screen.row("wrote", "nothing (--dry-run)"));
        return Ok(());
    }
    let begin = Instant::now();
    let bytes = conversion.run(&plan, &())?;
    let seconds = screen.seconds(begin.elapsed().as_secs_f64());
    screen.say(screen.row("wrote", &format!("{} in {seconds}", bytes_decimal(bytes as f64))));
    Ok(())
}

fn compare(screen: &Screen, folders: [&Path; 2], workers: usize, all: bool) -> Result<()> {
    let [one, other] = [open(folders[0])?.1, open(folders[1])?.1];
    let differences = diff(&one, &other, workers)?;
    screen.say(screen.heading("checkpoint", "diff"));
    let names = folders.map(|folder| folder.display().to_string());
    let lines = differences.iter().map(|(name, how)| match how {
        Difference::Missing(which) => format!("{name}: not in {}", names[*which]),
        Difference::Other(one, other) => format!("{name}: {one}, and {other}"),
        Difference::Object => format!("{name}: an object of Python in both, not compared"),
        Difference::Elements(count, largest) => {
            let elements = counted(*count, "element differs", "elements differ");
            format!("{name}: {elements}, by up to {largest:.3e}")
        }
    });
    list(screen, lines, all);
    let tensors = thousands(one.tensors.len() as u64);
    match differences.iter().filter(|(_, how)| *how != Difference::Object).count() {
        0 => screen.say(screen.check(true, "tensors and settings are equal", &tensors)),
        count => anyhow::bail!(
            "{} of {} and {}\nhelp: convert again, and use the older of the two until then",
            counted(count, "difference", "differences"),
            names[0],
            names[1]
        ),
    }
    Ok(())
}
