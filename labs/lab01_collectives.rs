//! lab01 · Collectives, taken apart
//!
//! What does a collective do, what does it cost, and what if a rank is missing?
//!
//! A collective is a call that all ranks make together: add these numbers up, give everyone the sum. This lab shows what each
//! one does, takes the all-reduce apart into sends and receives, counts them, times them here, and predicts what they would
//! take on machines that you do not have.
//!
//! Run `cargo run --bin lab01`. You will see numbers in which each digit is a rank's, so that a sum shows who is in it; the
//! ring, on which each rank talks to its neighbours alone; four algorithms with the same result and different bills; and
//! where one of them overtakes another. Then look closer: `--step-by-step`, `--bench`, `--simulate 768 --network polaris`,
//! `--feed readers 2`; at other collectives, for example `--collective broadcast`; and break it: `--break missing-rank`.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use shardlab::comm::algorithms::{Algorithm, Collective};
use shardlab::comm::{Comm, Options};
use shardlab::data::{Feed, Store};
use shardlab::launch::{self, CommFlags};
use shardlab::show::{Screen, bytes_decimal, thousands};
use shardlab::study::collectives::counts::{self, Count, ELEMENTS};
use shardlab::study::collectives::feeding::{self, FeedFlags};
use shardlab::study::collectives::{Study, StudyFlags, Way, benchmark, breaking, picture, predict};
use shardlab::train::{Checks, report};
use shardlab::workbook::Lesson;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Collectives, taken apart: what each does, what it costs, and what if a rank is missing?
#[derive(Parser)]
#[command(name = "lab01", version)]
struct Args {
    #[command(flatten)]
    study: StudyFlags,
    #[command(flatten)]
    feed: FeedFlags,
    #[command(flatten)]
    comm: CommFlags,
    /// Folder for the run's files [default: runs/lab01]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Draw with ASCII characters only
    #[arg(long)]
    ascii: bool,
}

/// Data that all ranks read and no rank changes.
struct Lab {
    args: Args,
    study: Study,
    feed: Option<(Feed, Store)>,
    options: Options,
    screen: Screen,
    lesson: Lesson,
}

impl Lab {
    /// Whether nothing was asked for in particular.
    fn tells_the_story(&self) -> bool {
        let flags = &self.study.flags;
        !(flags.step_by_step || flags.bench || flags.simulate.is_some() || self.feed.is_some())
    }

    fn times(&self) -> bool {
        (self.tells_the_story() || self.study.flags.bench) && self.study.ranks > 1
    }
}

fn main() -> ExitCode {
    launch::main(|| run(launch::arguments()?))
}

fn run(args: Args) -> Result<()> {
    let study = args.study.resolve()?;
    let folder = args.out.clone().unwrap_or_else(|| PathBuf::from("runs/lab01"));
    let feed = args.feed.resolve(study.ranks, &folder)?;
    let deadline = args.comm.deadline.unwrap_or(Duration::from_secs(10));
    let options = Options { deadline, ..args.comm.options(&folder) };
    let mut lesson = Lesson::of("lab01")?;
    if feed.is_some() {
        lesson.lab.take_along = "read ahead, and in few large requests.".into();
    }
    let lab = Lab { study, feed, options, screen: Screen::detect(args.ascii), lesson, args };
    if let Some(path) = &lab.study.flags.json {
        benchmark::ensure_writable(path, lab.times())?;
    }
    let failed = launch::run_with(lab.study.ranks, &lab.options, |comm| one_rank(&lab, &comm))?;
    ensure!(failed[0].is_empty(), "{}", failed[0].join("; "));
    Ok(())
}

/// The measurements that the checks are about.
#[derive(Default)]
struct Found {
    counts: Vec<Count>,
    /// Measured times as multiples of the simulator's, on a simulated link, in ascending order.
    ratios: Vec<f64>,
    /// Whether every rank got its own batches.
    fed: Option<bool>,
}

// ANCHOR: one_rank
/// One rank's work: the parts that were asked for, or all in short; then the checks. Returns what they found wrong.
fn one_rank(lab: &Lab, comm: &Comm) -> Result<Vec<String>> {
    let flags = &lab.study.flags;
    let story = lab.tells_the_story();
    let mut found = Found::default();
    if comm.rank() == 0 {
        introduce(lab);
    }
    if let Some(broken) = flags.broken {
        return breaking::run(comm, &lab.screen, broken, lab.options.notice() * 5 / 2);
    }
    if story {
        pictures(lab, comm)?;
    }
    if (story || flags.step_by_step) && comm.size() > 1 {
        film(lab, comm)?;
    }
    // Every algorithm of every collective, run once: what it gives, and what it costs.
    let auto = lab.study.ways.iter().copied().filter(|way| way.algorithm == Some(Algorithm::Auto));
    for way in Collective::ALL.into_iter().flat_map(Way::algorithms).chain(auto) {
        found.counts.push(counts::count(comm, way)?);
    }
    if lab.times() {
        found.ratios = time(lab, comm, &found.counts)?;
    }
    if (story || flags.simulate.is_some()) && comm.rank() == 0 {
        elsewhere(lab, flags.simulate.unwrap_or(768), flags.simulate.is_some())?;
    }
    if let Some((how, store)) = &lab.feed {
        found.fed = Some(feed(lab, comm, *how, store)?);
    }
    check(lab, comm, &found)
}
// ANCHOR_END: one_rank

fn introduce(lab: &Lab) {
    let screen = &lab.screen;
    screen.say(lab.lesson.heading(screen, None));
    report::ranks(screen, lab.study.ranks);
    if let Some(link) = lab.args.comm.link {
        screen.say(screen.row("link", &format!("simulated, one for each rank: {link}")));
    }
    if lab.study.ranks == 1 {
        screen.say(screen.row("", "one rank has nobody to talk to; give --ranks 2 or more"));
    }
}

fn section(lab: &Lab, title: &str) {
    lab.screen.say(format!("\n{}\n", lab.screen.bold(title)));
}

/// `4 ranks`, or how many of them are shown.
fn in_words(shown: &Comm, lab: &Lab) -> String {
    let (shown, all) = (shown.size(), lab.study.ranks);
    if shown == all { format!("{all} ranks") } else { format!("the first {shown} of {all} ranks") }
}

/// Draws what each collective does: those of the seed's figures, or the one that was asked for.
fn pictures(lab: &Lab, comm: &Comm) -> Result<()> {
    let chosen = lab.study.collective;
    let seed = [chosen, Collective::Reduce, Collective::Broadcast, Collective::AllGather, Collective::Scatter];
    for (i, &collective) in seed.iter().enumerate().filter(|&(i, _)| i == 0 || chosen == Collective::AllReduce) {
        let few = picture::few(comm, collective)?;
        let Some(text) = picture::collective(&few, &lab.screen, collective)?.filter(|_| comm.rank() == 0) else {
            continue;
        };
        if i == 0 {
            section(lab, &format!("What it does: before and after, {}", in_words(&few, lab)));
            let digits =
                "Each digit is a rank's: ones are rank 0's, tens rank 1's, and so on. A sum shows who is in it.";
            lab.screen.say(lab.screen.wrap(digits, 2));
        }
        lab.screen.say(format!("\n{text}"));
    }
    Ok(())
}

/// An algorithm's steps on real numbers: all of them, or in the story those that tell it.
fn film(lab: &Lab, comm: &Comm) -> Result<()> {
    let (study, screen) = (&lab.study, &lab.screen);
    let way = picture::simplest(&study.ways).context("every collective has an algorithm")?;
    let few = picture::few(comm, study.collective)?;
    let film = picture::film(&few, screen, way)?;
    if comm.rank() != 0 {
        return Ok(());
    }
    let name = film.task.algorithm.name();
    section(lab, &format!("How: {} by {name}, {}", study.collective.name(), in_words(&few, lab)));
    screen.say(screen.wrap("Left, in brackets: what is about to be sent. Right: what has come.", 2));
    if study.collective == Collective::AllToAll {
        screen.say(screen.wrap("The first half of a row is what a rank sends, the second half what it receives.", 2));
    }
    let ring = (way.collective, way.algorithm) == (Collective::AllReduce, Some(Algorithm::Ring));
    let (n, total) = (few.size(), film.frames.len());
    for (number, frame) in (1..).zip(&film.frames) {
        let caption = match number {
            1 if ring => ": each rank passes one number to the next, and adds what comes",
            _ if ring && number == n - 1 => ": after n-1 steps every sum is complete, on one rank",
            _ if ring && number == total => ": n-1 steps more, in which the sums go round",
            _ => "",
        };
        if study.flags.step_by_step || !ring || !caption.is_empty() {
            screen.say(format!("\n  step {number} of {total}{caption}\n{frame}"));
        }
    }
    let size = n * size_of::<u64>();
    screen.say(format!("\n  rank 0 has sent {} messages, {} bytes; its array has {size}", film.messages, film.bytes));
    Ok(())
}

/// Shows the algorithms' cost and times. On a simulated link it returns times as multiples of the simulator's.
fn time(lab: &Lab, comm: &Comm, counts: &[Count]) -> Result<Vec<f64>> {
    let (study, screen) = (&lab.study, &lab.screen);
    let (collective, name) = (study.collective, study.collective.name());
    let sizes = benchmark::sizes(if study.flags.bench { 4 } else { 16 }, study.most);
    let mut timings = vec![benchmark::time(comm, Way { collective, algorithm: None }, &sizes)?];
    for &way in &study.ways {
        timings.push(benchmark::time(comm, way, &sizes)?);
    }
    if comm.rank() == 0 {
        let size = bytes_decimal((ELEMENTS * size_of::<u64>()) as f64);
        section(lab, &format!("What it costs: {name}, S = {size}, the busiest of {} ranks", study.ranks));
        let shown: Vec<&Count> = counts.iter().filter(|count| study.ways.contains(&count.way)).collect();
        screen.say(counts::show(screen, &shown));
        section(lab, "How long it takes here");
        screen.say(benchmark::plot(screen, &format!("{name} on {} ranks", study.ranks), &timings));
        for busbw in [false, true].into_iter().filter(|_| study.flags.bench) {
            screen.say(format!("\n{}", benchmark::sizes_table(screen, &timings, busbw)));
        }
        screen.say(format!("\n{}", benchmark::fits(screen, &timings)));
        screen.say(screen.wrap(&format!("Fastest here: {}.", benchmark::fastest(&timings)), 2));
        if lab.args.comm.link.is_none() && !launch::is_mpi() {
            screen.say(screen.wrap("Threads share one memory. As over a network: --link 100us,1GB/s", 2));
        }
        if let Some(path) = &study.flags.json {
            std::fs::write(path, format!("{:#}\n", benchmark::json(&timings, counts)))?;
        }
    }
    Ok(lab.args.comm.link.map_or(Ok(Vec::new()), |link| predict::beside(&timings, link))?)
}

/// How long it would take on a network that is not here.
fn elsewhere(lab: &Lab, ranks: usize, all: bool) -> Result<()> {
    let (screen, network) = (&lab.screen, &lab.study.network);
    section(lab, &format!("How long it would take: {} ranks, {}", thousands(ranks as u64), network.name));
    screen.say(screen.row("network", network.about));
    let predictions = predict::predict(lab.study.collective, ranks, &benchmark::sizes(4, 64 << 20), network)?;
    screen.say(predict::show(screen, ranks, &predictions));
    if all {
        section(lab, "Keeping things in sync: computing stalls while ranks communicate");
        screen.say(predict::in_sync(screen, network)?);
    }
    Ok(())
}

/// How long ranks wait for their batches. Returns whether each got its own.
fn feed(lab: &Lab, comm: &Comm, how: Feed, store: &Store) -> Result<bool> {
    const COMPUTE: Duration = Duration::from_millis(10);
    let waits = feeding::measure(comm, store, how, COMPUTE)?;
    if comm.rank() == 0 {
        section(lab, "Bringing in the data");
        lab.screen.say(feeding::show(&lab.screen, store, how, lab.study.ranks, COMPUTE, &waits));
    }
    Ok(waits.right)
}

/// The checks, for the reader and for the exit code.
fn check(lab: &Lab, comm: &Comm, found: &Found) -> Result<Vec<String>> {
    if comm.rank() != 0 {
        return Ok(Vec::new());
    }
    lab.screen.say("");
    let mut checks = Checks::new(&lab.screen);
    let all = found.counts.len();
    let right = found.counts.iter().filter(|count| count.right).count();
    let result = format!("{right} of {all}");
    checks.hold(right == all, "every algorithm does what its collective does", &result, "an algorithm is wrong");
    let said = found.counts.iter().filter(|count| count.is_as_said()).count();
    let result = format!("{said} of {all}");
    checks.hold(said == all, "steps, messages, bytes are as the formulas say", &result, "a count is not its formula's");
    predict::check(&lab.screen, &mut checks, &found.ratios);
    if let Some(right) = found.fed {
        checks.hold(right, "every rank got its own batch in every step", "", "a rank got another one's batch");
    }
    let failed = checks.failed();
    if failed.is_empty() {
        let more = "More: --step-by-step, --bench, --simulate 768, --feed readers 2";
        lab.screen.say(lab.lesson.ending(&lab.screen, if lab.tells_the_story() { more } else { "" }));
    }
    Ok(failed)
}
