//! All-reduce between ranks that are threads, against gloo (PyTorch) and an MPI library: the same
//! vectors, in turn.
//!
//! ```text
//! python3 -m venv venv && venv/bin/pip install torch numpy    # for gloo
//! cargo bench --bench allreduce -- --python venv/bin/python   # threads and gloo
//! CARGO_TARGET_DIR=target-mpi \
//!     cargo bench --features mpi --bench allreduce -- --python venv/bin/python   # MPI, too
//! ```
//!
//! A figure is the median over rounds of the median over calls, of the slowest rank, each call
//! after a barrier. The memory-copy limit is the time in which all ranks at once copy a vector of
//! their own to another place: an all-reduce must read every rank's vector and write every rank's
//! result, and so at least that much goes through memory. Prints a Markdown table. Let nothing else
//! run meanwhile.

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use shardlab::comm::{Comm, Reduce};
use shardlab::launch;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

const SIZES: [usize; 6] = [1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 24, 1 << 26];

/// How long calls are made before they are timed. Threads begin on the core of the one that starts
/// them, and only after some milliseconds does the system give each a core of its own; processes
/// have one from the beginning.
const WARM_UP: Duration = Duration::from_millis(100);

#[derive(Parser)]
struct Args {
    /// A Python that has torch and numpy
    #[arg(long)]
    python: Option<PathBuf>,
    #[arg(long, default_value_t = 2)]
    ranks: usize,
    /// Each side runs so often, in turn
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Run one side alone, as the program itself does
    #[arg(long)]
    side: Option<String>,
    /// What cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}

/// Microseconds by bytes, of what was measured by name.
type Times = BTreeMap<String, BTreeMap<usize, f64>>;

fn main() -> ExitCode {
    let args = Args::parse();
    match args.side.as_deref() {
        None => launch::main(|| drive(&args)),
        #[cfg(feature = "mpi")]
        Some("mpi") => launch::main(library::measure),
        Some(_) => launch::main(|| threads(args.ranks)),
    }
}

/// The vectors of the peers' program, for as many calls.
fn calls(bytes: usize) -> usize {
    ((1 << 26) / bytes).clamp(15, 2000)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn tell(what: &str, bytes: usize, us: f64) {
    println!("{}", serde_json::json!({ "what": what, "bytes": bytes, "us": us }));
}

/// The median time of a call, in microseconds, of the slowest rank.
fn time(comm: &Comm, bytes: usize, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let begin = Instant::now();
    let mut warm = [0u8];
    while warm == [0] {
        call()?;
        warm = [u8::from(begin.elapsed() > WARM_UP)];
        comm.all_reduce(&mut warm, Reduce::Min)?;
    }
    let mut times = Vec::new();
    for _ in 0..calls(bytes) {
        comm.barrier()?;
        let start = Instant::now();
        call()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let mut slowest = [median(times)];
    comm.all_reduce(&mut slowest, Reduce::Max)?;
    Ok(slowest[0])
}

/// The side of the threads, and what memory can do.
fn threads(ranks: usize) -> Result<()> {
    launch::run(ranks, |comm| {
        for bytes in SIZES {
            let mut x = vec![1f32; bytes / 4];
            let us = time(&comm, bytes, || Ok(comm.all_reduce(&mut x, Reduce::Sum)?))?;
            let mut copy = vec![0f32; bytes / 4];
            let limit = time(&comm, bytes, || {
                copy.copy_from_slice(std::hint::black_box(&x));
                std::hint::black_box(&mut copy);
                Ok(())
            })?;
            if comm.rank() == 0 {
                tell("threads", bytes, us);
                tell("copy", bytes, limit);
            }
        }
        Ok(())
    })?;
    let crowd = launch::run(8, |comm| {
        let mut x = vec![1f32; 256];
        time(&comm, 1024, || Ok(comm.all_reduce(&mut x, Reduce::Sum)?))
    })?;
    tell("threads, 8 ranks", 1024, crowd[0]);
    Ok(())
}

#[cfg(feature = "mpi")]
mod library {
    use super::*;
    use mpi::collective::{CommunicatorCollectives, SystemOperation};
    use mpi::topology::Communicator;

    /// The MPI library's own all-reduce, without ours around it.
    pub fn measure() -> Result<()> {
        let universe = mpi::initialize().context("MPI does not start")?;
        let world = universe.world();
        for bytes in SIZES {
            let x = vec![1f32; bytes / 4];
            let mut sum = vec![0f32; bytes / 4];
            let mut times = Vec::new();
            for i in 0..calls(bytes) + 3 {
                world.barrier();
                let start = Instant::now();
                world.all_reduce_into(&x[..], &mut sum[..], SystemOperation::sum());
                if i >= 3 {
                    times.push(start.elapsed().as_secs_f64() * 1e6);
                }
            }
            let mut slowest = 0.0;
            world.all_reduce_into(&median(times), &mut slowest, SystemOperation::max());
            if world.rank() == 0 {
                tell("mpi", bytes, slowest);
            }
        }
        Ok(())
    }
}

/// Runs a side to its end, and adds what it tells.
fn run(command: &mut Command, what: &str, round: &mut Times) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?} does not start"))?;
    ensure!(
        output.status.success(),
        "{command:?}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let line: serde_json::Value =
            serde_json::from_str(line).with_context(|| line.to_string())?;
        let (Some(bytes), Some(us)) = (line["bytes"].as_u64(), line["us"].as_f64()) else {
            bail!("{line}")
        };
        round
            .entry(line["what"].as_str().unwrap_or(what).to_string())
            .or_default()
            .insert(bytes as usize, us);
    }
    Ok(())
}

fn drive(args: &Args) -> Result<()> {
    let here = std::env::current_exe()?;
    let ranks = args.ranks.to_string();
    let gloo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/peers/allreduce_gloo.py");
    let mut rounds: Vec<Times> = Vec::new();
    for _ in 0..args.rounds {
        let mut round = Times::new();
        run(
            Command::new(&here).args(["--side", "threads", "--ranks", &ranks]),
            "threads",
            &mut round,
        )?;
        if let Some(python) = &args.python {
            run(Command::new(python).arg(&gloo).args(["--ranks", &ranks]), "gloo", &mut round)?;
        }
        if cfg!(feature = "mpi") {
            let mut mpirun = Command::new("mpirun");
            mpirun
                .args(["--oversubscribe", "-n", &ranks])
                .arg(&here)
                .args(["--side", "mpi"]);
            // Containers run as root.
            mpirun
                .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
                .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            run(&mut mpirun, "mpi", &mut round)?;
        }
        rounds.push(round);
    }
    let get = |what: &str, bytes| -> Option<f64> {
        let times: Vec<f64> = rounds
            .iter()
            .filter_map(|round| round.get(what)?.get(&bytes).copied())
            .collect();
        (!times.is_empty()).then(|| median(times))
    };
    println!(
        "{} ranks, {} cores, {} rounds in turn; microseconds\n",
        args.ranks,
        launch::cores(),
        args.rounds
    );
    println!(
        "| bytes | threads | gloo | gloo / threads | MPI | MPI / threads | memory copy | copy / threads |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let show = |us: Option<f64>| us.map_or("-".to_string(), |us| format!("{us:.1}"));
    for bytes in SIZES {
        let Some(ours) = get("threads", bytes) else {
            continue;
        };
        let name = if bytes < 1 << 20 {
            format!("{} KiB", bytes >> 10)
        } else {
            format!("{} MiB", bytes >> 20)
        };
        print!("| {name} | {ours:.1} |");
        for side in ["gloo", "mpi", "copy"] {
            let us = get(side, bytes);
            print!(
                " {} | {} |",
                show(us),
                us.map_or("-".to_string(), |us| format!("{:.2}", us / ours))
            );
        }
        println!();
    }
    println!("\n1 KiB on 8 ranks, threads: {} us", show(get("threads, 8 ranks", 1024)));
    Ok(())
}
