//! launch: starts a lab's ranks on whatever there is: a cluster's nodes, this machine's MPI, or
//! threads.
//!
//! `cargo run --bin launch -- [-n N] [--ppn P] [--print] target/release/lab03 ARGS…` finds the job
//! around it, prints the launch line and runs it. It ends with the exit code of what it started,
//! and signals reach that, because on Unix this process becomes the launcher. With
//! `--max-restarts N` it stays, and starts a job that fails again (`restarts.rs`, `signals.rs`).

mod restarts;
mod signals;

use anyhow::Result;
use clap::Parser;
use kit::show::{Screen, complain};
use kit::{RESTART_COUNT, arguments, help};
use lab00::job::line::{Launcher, quote};
use lab00::job::{Job, JobFlags};
use shardlab::error::BadInput;
use std::process::{Command, ExitCode};

/// Starts a program's ranks the way this machine or cluster does it.
#[derive(Parser)]
#[command(name = "launch", version)]
#[command(after_long_help = help::examples("launch", &[
    ("-n 4 --print target/debug/lab03", "the launch line for four ranks"),
    ("--threads --print target/debug/lab03 --steps 20", "ranks as threads; what follows the program is its own"),
]))]
struct Args {
    /// Ranks in all [default: as many as the job has room for]
    #[arg(short = 'n', value_name = "N", help_heading = help::RANKS)]
    ranks: Option<usize>,
    #[command(flatten)]
    job: JobFlags,
    /// Start the ranks as threads of one process, even if there is an MPI: for programs that are
    /// built without it
    #[arg(long, help_heading = help::STRATEGY)]
    threads: bool,
    /// Only print the launch line
    #[arg(long, help_heading = help::OUTPUT)]
    print: bool,
    /// Start a job that fails again, up to N times: a rank died, or the program ended with an
    /// error. The program must continue from a checkpoint by itself (lab08 does);
    /// SHARDLAB_RESTART_COUNT tells it which restart this is
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = help::STRATEGY)]
    max_restarts: usize,
    /// The program to start, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM", help_heading = help::RANKS)]
    program: Vec<String>,
}

fn main() -> ExitCode {
    match launch() {
        Ok(code) => code,
        Err(error) => shardlab::launch::main(|| Err(error)),
    }
}

fn launch() -> Result<ExitCode> {
    let args: Args = arguments()?;
    let job = Job::here(&args.job)?;
    for said in &job.said {
        complain(&format!("note: {said}"));
    }
    let launcher = if args.threads {
        Launcher::Threads
    } else {
        Launcher::here(&job)
    };
    // Threads are all on this node, however many nodes there are.
    let room = if launcher == Launcher::Threads {
        job.per_node
    } else {
        job.room()
    };
    let mut line = launcher.line(&job, args.ranks.unwrap_or(room))?;
    if args.max_restarts > 0 {
        line = line.with_variable(RESTART_COUNT);
    }
    let command = line.command(&args.program);
    if launcher == Launcher::Threads {
        let nodes = job.hosts.len();
        let where_to = if nodes > 1 {
            format!(", on this one of {nodes} nodes")
        } else {
            String::new()
        };
        let why = if args.threads {
            ""
        } else {
            "found no MPI to start processes with; "
        };
        eprintln!("launch: {why}ranks are threads{where_to}");
    }
    if !job.is_local() && launcher != Launcher::Threads {
        eprintln!("launch: {}", line.by_node());
    }
    // The line is the output of --print; before a run it goes where it does not mix with the
    // program's own.
    if args.print {
        Screen::plain().say(quote(&command));
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("launch: {}", quote(&command));
    let outcome = match args.max_restarts {
        0 => run(&command),
        most => {
            let joins = matches!(launcher, Launcher::Hydra { .. });
            restarts::run(&command, most, joins).map(exit_code)
        }
    };
    outcome.map_err(|error| {
        BadInput::new(
            format!("cannot start {}: {error}", command[0]),
            "build it first, and give its path",
        )
        .into()
    })
}

fn exit_code(code: i32) -> ExitCode {
    ExitCode::from(code.clamp(0, 255) as u8)
}

/// Becomes the command, or says why not.
fn run(command: &[String]) -> std::io::Result<ExitCode> {
    let mut process = Command::new(&command[0]);
    process.args(&command[1..]);
    // In the launcher's place nothing has to be passed on: signals, exit code and terminal are its
    // own.
    #[cfg(unix)]
    return Err(std::os::unix::process::CommandExt::exec(&mut process));
    #[cfg(not(unix))]
    process.status().map(|status| exit_code(status.code().unwrap_or(1)))
}
