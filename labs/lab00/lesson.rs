//! lab00 · Ranks
//!
//! Who am I, where am I, and how was this job started?
//!
//! A job is N ranks that run the same program. Each rank learns three things at the start: its
//! number, the number of ranks, and its node. Everything else in distributed training is built on
//! these three.
//!
//! A rank can only be sure of the others by hearing from them: [`around_the_ring`] below passes
//! each rank's number from neighbour to neighbour. The second check looks at what arrived.
//!
//! Run `cargo run --bin lab00`. You will see one line for each rank, the numbers' way around the
//! ring, and checks that the numbers are what a job needs. Then run
//! `cargo run --bin lab00 -- --break duplicate-rank`. Two ranks take the same number: a mild form
//! of what happens when copies of a program start without knowing of each other. `--info` prints
//! the job as a cluster's user sees it: the nodes, how many ranks fit, and the line that starts
//! them there.

use anyhow::Result;
use clap::{Parser, ValueEnum};
use kit::flags::ensure_ranks_can_differ;
use kit::help;
use kit::job::{Job, JobFlags, Scheduler};
use kit::job_env::{self, Session};
use kit::line::{Launcher, quote};
use kit::show::{Screen, table};
use kit::{Checks, CommFlags, Lesson, report};
use shardlab::comm::{Comm, Reduce};
use shardlab::launch;
use shardlab::launch::place::{Place, Seat, seats};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Ranks: who am I, where am I, and how was this job started?
#[derive(Parser)]
#[command(name = "lab00", version)]
#[command(after_long_help = help::examples("lab00", &[
    ("", "four ranks, their numbers, and a token around the ring"),
    ("--ranks 8 --info", "the job in a cluster's words: nodes, room, the launch line"),
    ("--break duplicate-rank", "two ranks with one number, and the check that notices"),
]))]
struct Args {
    /// Number of ranks: threads of this process [default: 4], or the launcher's processes
    #[arg(long, help_heading = help::RANKS)]
    ranks: Option<usize>,
    /// Print the job in a cluster's words: nodes, room for ranks, and the launch line
    #[arg(long, help_heading = help::INSTEAD)]
    info: bool,
    /// Write the scheduler's variables to this file, so that another shell can read them: source
    /// FILE
    #[arg(long, value_name = "FILE", help_heading = help::INSTEAD)]
    jobenv: Option<PathBuf>,
    #[command(flatten)]
    job: JobFlags,
    #[command(flatten)]
    comm: CommFlags,
    /// Draw with ASCII characters only
    #[arg(long, help_heading = help::OUTPUT)]
    ascii: bool,
    /// Make a mistake on purpose, and see which check notices
    #[arg(long = "break", value_enum, help_heading = help::BREAK)]
    broken: Option<Break>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Break {
    /// The last rank takes the number of the one before it
    DuplicateRank,
}

fn main() -> ExitCode {
    kit::main(run)
}

fn run(args: Args) -> Result<()> {
    let ranks = launch::ranks(args.ranks, 4)?;
    ensure_ranks_can_differ(args.broken.is_some(), ranks)?;
    let screen = Screen::detect(args.ascii);
    let options = args.comm.options(Path::new("runs/lab00"));
    // Starts the ranks: threads of this process, or one in each process of a launcher. Each of them
    // runs `one_rank`.
    kit::run(ranks, &options, |comm| one_rank(&args, &screen, &comm))
}

// ANCHOR: one_rank
/// One rank's work. Returns the checks that failed.
fn one_rank(args: &Args, screen: &Screen, comm: &Comm) -> Result<Vec<String>> {
    // The number that this rank claims to have.
    let mut number = comm.rank() as u64;
    if args.broken == Some(Break::DuplicateRank) && comm.rank() == comm.size() - 1 {
        number -= 1;
    }
    // Every rank tells every other rank its number and its host. A seat is a node, and the rank's
    // number on that node.
    let mut numbers = vec![0; comm.size()];
    comm.all_gather(&[number], &mut numbers)?;
    let places = Place::gather(comm)?;
    let hosts: Vec<String> = places.iter().map(|place| place.host.clone()).collect();
    let seats = seats(&hosts);

    let seen = around_the_ring(comm, number)?;

    if comm.rank() == 0 {
        introduce(args, screen, comm, &places, &seats, &numbers)?;
    }
    show_ring(args, screen, comm, &seen)?;
    check(screen, comm, &numbers, seen)
}
// ANCHOR_END: one_rank

// ANCHOR: heart
/// Each rank passes on what its left neighbour sent. After N-1 rounds every rank has seen every
/// number.
fn around_the_ring(comm: &Comm, mine: u64) -> Result<Vec<u64>> {
    let rank = comm.rank();
    let size = comm.size();
    let left = (rank + size - 1) % size;
    let right = (rank + 1) % size;
    let mut seen = vec![mine];
    for _ in 1..size {
        let mut incoming = [0];
        // If it waited for the receiver, all would wait here.
        comm.send(&[seen[seen.len() - 1]], right)?;
        comm.recv(&mut incoming, left)?;
        seen.push(incoming[0]);
    }
    Ok(seen)
}
// ANCHOR_END: heart

/// The job, and a line for each rank: its number, its local rank, its node, host, process and
/// thread.
fn introduce(
    args: &Args,
    screen: &Screen,
    comm: &Comm,
    places: &[Place],
    seats: &[Seat],
    numbers: &[u64],
) -> Result<()> {
    // Only rank 0 looks: a host file may be on the job's first node alone.
    let job = Job::here(&args.job)?;
    let saved = match &args.jobenv {
        Some(path) => Some(save_environment(&job, path)?),
        None => None,
    };
    screen.say(Lesson::of("lab00")?.heading(screen, None));
    if args.info {
        info(screen, comm, &job, places, (seats[0], saved))?;
    } else {
        report::ranks(screen, comm.size());
        let nodes = if job.hosts.len() == 1 {
            "1 node".into()
        } else {
            format!("{} nodes", job.hosts.len())
        };
        let room = format!("{nodes} with room for {} ranks: {}", job.room(), job.per_node_from);
        screen.say(screen.row("job", &room));
        if let Some(saved) = saved {
            screen.say(screen.row("jobenv", &saved));
        }
        screen.say("");
    }
    let mut rows = Vec::new();
    for ((&number, seat), place) in numbers.iter().zip(seats).zip(places) {
        rows.push(vec![
            screen.rank(number as usize, format!("rank {number}")),
            seat.local_rank.to_string(),
            seat.node.to_string(),
            place.host.clone(),
            place.process.to_string(),
            format!("'{}'", place.thread),
        ]);
    }
    screen.say(table(
        screen,
        &["number", "local rank", "node", "host", "process", "thread"],
        &rows,
    ));
    Ok(())
}

/// The numbers that each rank has seen, round by round. All ranks send them, and rank 0 prints
/// those of the first ranks and rounds.
fn show_ring(args: &Args, screen: &Screen, comm: &Comm, seen: &[u64]) -> Result<()> {
    const SHOWN: usize = 8;
    let mut all = Vec::new();
    if comm.rank() == 0 {
        all.resize(comm.size() * comm.size(), 0);
    }
    comm.gather(seen, &mut all, 0)?;
    if comm.rank() != 0 || args.info || comm.size() == 1 {
        return Ok(());
    }
    let rounds = comm.size() - 1;
    let title =
        format!("A ring: in {rounds} rounds, each rank passes on what its left neighbour sent");
    let header: Vec<String> =
        (1..SHOWN.min(comm.size())).map(|round| format!("round {round}")).collect();
    let header: Vec<&str> = ["rank", "starts with"]
        .into_iter()
        .chain(header.iter().map(String::as_str))
        .collect();
    let mut rows = Vec::new();
    for (rank, seen) in all.chunks(comm.size()).enumerate().take(SHOWN) {
        let mut row = vec![screen.rank(rank, format!("rank {rank}"))];
        for &number in seen.iter().take(SHOWN) {
            row.push(screen.rank(number as usize, number));
        }
        rows.push(row);
    }
    screen.say(format!("\n{}\n{}", screen.title(&title, 0), table(screen, &header, &rows)));
    Ok(())
}

/// The checks, for the reader and for the exit code. `numbers` are every rank's, `seen` what this
/// rank saw in the ring.
fn check(screen: &Screen, comm: &Comm, numbers: &[u64], mut seen: Vec<u64>) -> Result<Vec<String>> {
    let size = comm.size() as u64;
    seen.sort_unstable();
    let complete = seen.iter().copied().eq(0..size);
    // One all-reduce adds up three things: the numbers, the sizes that the ranks know, and the
    // rings that came out right.
    let mut sums = [numbers[comm.rank()], size, u64::from(complete)];
    comm.all_reduce(&mut sums, Reduce::Sum)?;
    let [sum_of_numbers, sum_of_sizes, complete_rings] = sums;
    if comm.rank() != 0 {
        return Ok(Vec::new());
    }
    screen.say("");
    let mut checks = Checks::new(screen);
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let twice = sorted.windows(2).find(|pair| pair[0] == pair[1]);
    let otherwise = twice
        .map_or("a number is missing".into(), |pair| format!("two ranks are rank {}", pair[0]));
    let what =
        format!("the ranks are {}, each exactly once", listed(&(0..size).collect::<Vec<_>>()));
    let found = if twice.is_some() {
        format!("found {}", listed(numbers))
    } else {
        String::new()
    };
    checks.check(sorted.into_iter().eq(0..size), &what, &found, &otherwise);
    let result = format!("{complete_rings} of {size} ranks");
    checks.check(
        complete_rings == size,
        "the ring brought each number once",
        &result,
        "the ring brought a number twice, or not at all",
    );
    let what = format!("the world sizes that ranks know add up to {size}*{size}");
    checks.check(sum_of_sizes == size * size, &what, "", "the ranks disagree on the world size");
    let expected = size * (size - 1) / 2;
    let what = format!("the numbers add up to {size}*{}/2 = {expected} (by all-reduce)", size - 1);
    let otherwise = format!("the ranks' numbers add up to {sum_of_numbers}, not to {expected}");
    checks.check(
        sum_of_numbers == expected,
        &what,
        &format!("found {sum_of_numbers}"),
        &otherwise,
    );
    let failed = checks.failed();
    if failed.is_empty() {
        let more = "More: --info, --ranks 7, --break duplicate-rank";
        screen.say(Lesson::of("lab00")?.ending(screen, more));
    }
    Ok(failed)
}

/// The first eight numbers.
fn listed(numbers: &[u64]) -> String {
    let first: Vec<String> = numbers.iter().take(8).map(u64::to_string).collect();
    format!("{}{}", first.join(" "), if numbers.len() > 8 { " .." } else { "" })
}

/// A title in brackets, then `NAME=value` lines, as the source's launcher (ezpz) prints them.
fn block(screen: &Screen, title: &str, lines: &[(&str, String)]) {
    let bullet = if screen.ascii { "*" } else { "•" };
    screen.say(screen.bold(title));
    for (name, value) in lines {
        screen.say(screen.wrap(&format!("{bullet} {name}{value}"), 2));
    }
    screen.say("");
}

/// Saves the scheduler's variables, and says so.
fn save_environment(job: &Job, path: &Path) -> Result<String> {
    let saved = job_env::save(path, job, std::env::vars_os())?;
    let path = path.display();
    Ok(format!(
        "{path}: {saved} variables of the scheduler. Another shell on its nodes reads them by source {path}"
    ))
}

/// The job in ezpz's blocks, which a cluster's user looks at first.
fn info(
    screen: &Screen,
    comm: &Comm,
    job: &Job,
    places: &[Place],
    (seat, saved): (Seat, Option<String>),
) -> Result<()> {
    let launcher = Launcher::here(job);
    let lab = std::env::args().next().unwrap_or_else(|| "lab00".into());
    let line = launcher.line(job, job.room())?;
    let launch = if launcher == Launcher::Threads {
        quote(&line.command(&[lab]))
    } else {
        line.to_string()
    };
    let host_file = job
        .host_file
        .as_ref()
        .map_or("none".into(), |(path, _)| path.display().to_string());
    let names: Vec<String> = job.hosts.iter().map(|host| format!("'{}'", host.name)).collect();
    let hosts: Vec<(String, String)> = job
        .hosts
        .iter()
        .enumerate()
        .map(|(i, host)| (format!("[host:{i}] - "), host.name.clone()))
        .collect();
    let Session { user, time } = Session::here();
    let mut session = vec![
        ("USER=", user),
        ("MACHINE=", job.machine.clone()),
        ("HOST=", places[0].host.clone()),
        ("TSTAMP=", time),
    ];
    session.extend(saved.map(|saved| ("jobenv_file: ", saved)));
    block(screen, "[JOB]", &session);
    block(
        screen,
        "[HOSTS]",
        &hosts
            .iter()
            .map(|(name, host)| (name.as_str(), host.clone()))
            .collect::<Vec<_>>(),
    );
    screen.say(screen.wrap(
        "These are the names that a cluster with GPUs uses. Here a rank computes on CPUs: read GPU as \"room for a rank\".",
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
    screen.say(format!(
        "  {bullet} To launch as many ranks as there is room for, use: launch\n"
    ));
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
        let text =
            format!("Using [{} / {}] available \"cpu\" devices !!\n", comm.size(), job.room());
        screen.say(screen.wrap(&text, 0));
    }
    Ok(())
}
