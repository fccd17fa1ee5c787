//! lab00 · Ranks
//!
//! Who am I, where am I, and how was this job started?
//!
//! A job is N ranks that run the same program. Each learns three things at the start: its number, how many ranks there
//! are, and on which node it is. Everything else in distributed training is built on these. The blocks below are what a
//! cluster's user looks at first: the nodes, how many ranks fit, and the line that starts them there.
//!
//! Run `cargo run --bin lab00`. You will see this machine as a job of one node, one line for each rank, and checks that
//! the numbers are what a job needs them to be. Then `cargo run --bin lab00 -- --break duplicate-rank`: two ranks take
//! the same number, as happens when copies of a program are started without knowing of each other.

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use shardlab::comm::{Comm, Reduce};
use shardlab::error::BadInput;
use shardlab::launch::job::{Job, Scheduler, Wishes};
use shardlab::launch::line::{Launcher, quote};
use shardlab::launch::place::{Place, Seat, seats};
use shardlab::launch::{self, CommFlags};
use shardlab::show::Screen;
use shardlab::workbook::Lesson;
use std::path::Path;
use std::process::ExitCode;

/// Ranks: who am I, where am I, and how was this job started?
#[derive(Parser)]
#[command(name = "lab00", version)]
struct Args {
    /// Ranks that introduce themselves: threads of this process [default: 4], or the launcher's processes
    #[arg(long)]
    ranks: Option<usize>,
    #[command(flatten)]
    wishes: Wishes,
    #[command(flatten)]
    comm: CommFlags,
    /// Draw with ASCII characters only
    #[arg(long)]
    ascii: bool,
    /// Get something wrong, and see which check notices
    #[arg(long = "break", value_enum)]
    broken: Option<Break>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Break {
    /// The last rank takes the number of the one before it
    DuplicateRank,
}

fn main() -> ExitCode {
    launch::main(|| run(launch::arguments()?))
}

fn run(args: Args) -> Result<()> {
    let ranks = launch::ranks(args.ranks, 4)?;
    if args.broken.is_some() && ranks < 2 {
        return Err(BadInput::new("--break needs ranks that can differ", "give --ranks 2 or more").into());
    }
    let screen = Screen::detect(args.ascii);
    let failed =
        launch::run_with(ranks, &args.comm.options(Path::new("runs/lab00")), |comm| one_rank(&args, &screen, &comm))?;
    ensure!(failed[0].is_empty(), "{}", failed[0].join("; "));
    Ok(())
}

// ANCHOR: one_rank
/// One rank's work. Returns what the checks found wrong.
fn one_rank(args: &Args, screen: &Screen, comm: &Comm) -> Result<Vec<String>> {
    let mut number = comm.rank();
    if args.broken == Some(Break::DuplicateRank) && comm.rank() == comm.size() - 1 {
        number -= 1;
    }
    // Every rank sends its host's name to all, and counts the ranks before itself on the same host.
    let places = Place::gather(comm)?;
    let hosts: Vec<String> = places.iter().map(|place| place.host.clone()).collect();
    let seats = seats(&hosts);
    if comm.rank() == 0 {
        introduce(args, screen, comm, &places, seats[0])?;
    }
    let mut numbers = vec![0; comm.size()];
    comm.gather(&[number as u64], if comm.rank() == 0 { &mut numbers } else { &mut [] }, 0)?;
    if comm.rank() == 0 {
        for ((&number, place), seat) in numbers.iter().zip(&places).zip(&seats) {
            screen.say(rank_line(screen, number, comm.size(), place, seat));
        }
    }
    check(screen, comm, number as u64, &numbers)
}
// ANCHOR_END: one_rank

// ANCHOR: ring
/// A number goes around: each rank passes on what comes from its left, so that in N-1 steps all ranks see all numbers.
fn around_the_ring(comm: &Comm, mine: u64) -> Result<Vec<u64>> {
    let (rank, size) = (comm.rank(), comm.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    let mut seen = vec![mine];
    for _ in 1..size {
        let mut incoming = [0];
        comm.send(&[seen[seen.len() - 1]], right)?;
        comm.recv(&mut incoming, left)?;
        seen.push(incoming[0]);
    }
    Ok(seen)
}
// ANCHOR_END: ring

/// The checks, for the reader and for the exit code. `numbers` are all ranks' own, gathered at rank 0.
fn check(screen: &Screen, comm: &Comm, number: u64, numbers: &[u64]) -> Result<Vec<String>> {
    let size = comm.size() as u64;
    let mut seen = around_the_ring(comm, number)?;
    seen.sort_unstable();
    let complete = seen.iter().copied().eq(0..size);
    // One all-reduce adds up the numbers, the sizes that the ranks know, and the rings that came out right.
    let mut sums = [number, size, u64::from(complete)];
    comm.all_reduce(&mut sums, Reduce::Sum)?;
    if comm.rank() != 0 {
        return Ok(Vec::new());
    }
    let mut failed = Vec::new();
    let mut hold = |sound: bool, what: &str, result: &str, otherwise: String| {
        screen.say(screen.check(sound, what, result));
        if !sound {
            failed.push(otherwise);
        }
    };
    screen.say("");
    let twice = (0..size).find(|number| numbers.iter().filter(|&other| other == number).count() > 1);
    let (what, result) = (format!("each number from 0 to {} is one rank's", size - 1), listed(numbers));
    let otherwise = twice.map_or("a number is nobody's".into(), |number| format!("two ranks are rank {number}"));
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    hold(sorted.into_iter().eq(0..size), &what, &result, otherwise);
    let result = format!("{} of {size} ranks", sums[2]);
    hold(sums[2] == size, "all numbers came around the ring", &result, "a number is missing in the ring".into());
    hold(sums[1] == size * size, "all agree on the size", &size.to_string(), "the ranks disagree on the size".into());
    let (expected, product) = (size * (size - 1) / 2, format!("{size}*{}/2", size - 1));
    let sign = if sums[0] == expected { "=" } else { "is not" };
    let result = format!("{} {sign} {product}", sums[0]);
    let otherwise = format!("the ranks' numbers add up to {}, not to {expected}", sums[0]);
    hold(sums[0] == expected, "the numbers' sum, by all-reduce", &result, otherwise);
    if failed.is_empty() {
        screen.say(Lesson::of("lab00")?.ending(screen, ""));
    }
    Ok(failed)
}

/// The first eight numbers.
fn listed(numbers: &[u64]) -> String {
    let first: Vec<String> = numbers.iter().take(8).map(u64::to_string).collect();
    format!("{}{}", first.join(" "), if numbers.len() > 8 { " .." } else { "" })
}

/// `[device='cpu'][rank=2/3]…`: a rank, the last rank; a local rank, the last one of the node; a node, the last node.
fn rank_line(screen: &Screen, number: u64, size: usize, place: &Place, seat: &Seat) -> String {
    let me = format!(
        "[device='cpu'][rank={number}/{}][local_rank={}/{}][node={}/{}]",
        size - 1,
        seat.local_rank,
        seat.local_size - 1,
        seat.node,
        seat.nodes - 1
    );
    let Place { host, process, thread } = place;
    let dot = screen.separator();
    let rest = format!("{host}{dot}process\u{a0}{process}{dot}thread\u{a0}'{}'", thread.replace(' ', "\u{a0}"));
    format!("{}\n{}", screen.rank(number as usize, me), screen.wrap(&rest, 4))
}

/// A block of the seed: its title in brackets, then `NAME=value` lines.
fn block(screen: &Screen, title: &str, lines: &[(&str, String)]) {
    let bullet = if screen.ascii { "*" } else { "•" };
    screen.say(screen.bold(title));
    for (name, value) in lines {
        screen.say(screen.wrap(&format!("{bullet} {name}{value}"), 2));
    }
    screen.say("");
}

/// Everything that is known before a rank does anything.
fn introduce(args: &Args, screen: &Screen, comm: &Comm, places: &[Place], seat: Seat) -> Result<()> {
    // Only rank 0 looks: a host file may lie on the job's first node alone.
    let job = Job::here(&args.wishes)?;
    let launcher = Launcher::here(&job);
    let lab = std::env::args().next().unwrap_or_else(|| "lab00".into());
    let line = launcher.line(&job, job.room())?;
    let launch = if launcher == Launcher::Threads { quote(&line.command(&[lab])) } else { line.to_string() };
    let host_file = job.host_file.as_ref().map_or("none".into(), |(path, _)| path.display().to_string());
    let names: Vec<String> = job.hosts.iter().map(|host| format!("'{}'", host.name)).collect();

    screen.say(Lesson::of("lab00")?.heading(screen, None));
    let hosts: Vec<(String, String)> =
        job.hosts.iter().enumerate().map(|(i, host)| (format!("[host:{i}] - "), host.name.clone())).collect();
    block(screen, "[HOSTS]", &hosts.iter().map(|(name, host)| (name.as_str(), host.clone())).collect::<Vec<_>>());
    screen.say(screen.wrap(
        "The names are those of a cluster with GPUs. Here a rank computes on CPUs: read GPU as \"place for a rank\".",
        0,
    ));
    screen.say("");
    block(
        screen,
        "[DIST INFO]",
        &[
            ("NGPUS=", job.room().to_string()),
            ("NHOSTS=", job.hosts.len().to_string()),
            ("NGPU_PER_HOST=", format!("{} ({})", job.per_node, job.per_node_from)),
            ("HOSTFILE=", host_file.clone()),
            ("DIST_LAUNCH=", launch.clone()),
            ("DEPTH=", format!("{} ({})", job.depth, job.depth_from)),
        ],
    );
    let bullet = if screen.ascii { "*" } else { "•" };
    screen.say(screen.bold("[LAUNCH]:"));
    screen.say(format!("  {bullet} To launch across all places for ranks, use: launch\n"));
    // One line, however long: it is there to be copied.
    screen.say(format!("launch = {launch}\n"));
    let fields = [
        ("DEVICE=", "cpu".into()),
        ("DEVICE_ID=", "cpu:0".into()),
        ("DISTRIBUTED_BACKEND=", if launch::is_mpi() { "mpi" } else { "threads" }.into()),
        ("GPUS_PER_NODE=", job.per_node.to_string()),
        ("HOSTS=", format!("[{}]", names.join(", "))),
        ("HOSTFILE=", host_file),
        ("HOSTNAME=", places[0].host.clone()),
        ("LOCAL_RANK=", seat.local_rank.to_string()),
        ("MACHINE=", job.machine.clone()),
        ("NUM_NODES=", job.hosts.len().to_string()),
        ("NGPUS=", job.room().to_string()),
        ("NGPUS_AVAILABLE=", job.room().to_string()),
        ("NODE_ID=", seat.node.to_string()),
        ("RANK=", comm.rank().to_string()),
        ("SCHEDULER=", job.scheduler.map_or("none", Scheduler::name).into()),
        ("WORLD_SIZE_TOTAL=", job.room().to_string()),
        ("WORLD_SIZE_IN_USE=", comm.size().to_string()),
        ("LAUNCH_CMD=", launch),
    ];
    block(screen, "[dist_info]:", &fields);
    if comm.size() < job.room() {
        screen.say(screen.wrap(&format!("Using [{} / {}] available \"cpu\" devices !!", comm.size(), job.room()), 0));
    } else if !launch::is_mpi() && comm.size() > launch::cores() {
        screen.say(format!("{} ranks take turns on {} cores", comm.size(), launch::cores()));
    }
    Ok(())
}
