//! lab01 · Collectives, taken apart
//!
//! What does a collective do, what does it cost, and what if a rank is missing?
//!
//! A collective is a call that all ranks make together: add up our numbers, and give every rank the
//! sum. This lab shows the effect of one, the all-reduce. It takes the all-reduce apart into sends
//! and receives, counts them, and predicts which of four algorithms is the fastest.
//!
//! [`all_reduce`] below is the plainest one; the first check runs it beside the library's.
//!
//! Run `cargo run --bin lab01`. You will see numbers whose digits belong to ranks, a ring in which
//! each rank talks only to its neighbours, and four algorithms with the same result and different
//! costs. Then look closer: `--rounds` shows every round, `--bench` measures,
//! `--simulate 768 --network polaris` predicts, `--collective all` shows the other collectives,
//! `--feed readers 2` reads data, and `--break missing-rank` breaks it.

use anyhow::{Context, Result};
use clap::Parser;
use kit::busy::Watch;
use kit::help;
use kit::show::{Screen, bytes_decimal, thousands};
use kit::{Beside, Checks, CommFlags, Lesson, report};
use lab01::counts::{self, Count, ELEMENTS};
use lab01::feeding::{self, FeedFlags};
use lab01::{Feed, Store, Study, StudyFlags, Way, benchmark, breaking, picture, predict};
use shardlab::comm::algorithms::{Algorithm, Collective};
use shardlab::comm::{Comm, Options, Reduce};
use shardlab::launch;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Collectives, taken apart: what each does, what it costs, and what if a rank is missing?
#[derive(Parser)]
#[command(name = "lab01", version)]
#[command(after_long_help = help::examples("lab01", &[
    ("--collective reduce-scatter --rounds", "each round of another collective"),
    ("--simulate 768 --network polaris", "predicted times on 768 ranks"),
    ("--break missing-rank", "a rank that never comes: who is missing, and where"),
]))]
struct Args {
    #[command(flatten)]
    study: StudyFlags,
    #[command(flatten)]
    feed: FeedFlags,
    #[command(flatten)]
    comm: CommFlags,
    /// Folder for the run's files [default: runs/lab01]
    #[arg(long, value_name = "DIR", help_heading = help::OUTPUT)]
    out: Option<PathBuf>,
    /// Draw with ASCII characters only
    #[arg(long, help_heading = help::OUTPUT)]
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
    /// Whether to show the whole lab: no flag asks for one section of it.
    fn tells_the_story(&self) -> bool {
        let Study { flags, all, timed, .. } = &self.study;
        !(flags.rounds
            || flags.bench
            || *timed
            || *all
            || flags.simulate.is_some()
            || self.feed.is_some())
    }
}

// ANCHOR: heart
/// Adds up the ranks' numbers, element by element, and gives every rank the sums. Rank 0 does all
/// the adding: the others send it their numbers, and get the sums back.
///
/// It is right, and it does not scale: rank 0 receives and sends n-1 times the numbers, one rank
/// after the other, while all wait.
fn all_reduce(mine: &[f32], comm: &Comm) -> Result<Vec<f32>> {
    let mut sums = mine.to_vec();
    if comm.rank() == 0 {
        let mut theirs = vec![0.0; mine.len()];
        for other in 1..comm.size() {
            comm.recv(&mut theirs, other)?;
            for (sum, x) in sums.iter_mut().zip(&theirs) {
                *sum += x;
            }
        }
        for other in 1..comm.size() {
            comm.send(&sums, other)?;
        }
    } else {
        comm.send(mine, 0)?;
        comm.recv(&mut sums, 0)?;
    }
    Ok(sums)
}

/// The same numbers with the all-reduce above, and with the library's.
fn compare(comm: &Comm) -> Result<Beside> {
    // 1, 1/2, 1/3, …: sums that f32 has to round, so that the order of adding shows.
    let mine: Vec<f32> = (1..=ELEMENTS).map(|i| 1.0 / (i + comm.rank()) as f32).collect();
    let lesson = all_reduce(&mine, comm)?;
    let mut library = mine;
    comm.all_reduce(&mut library, Reduce::Sum)?;
    let bound = Beside::of_any_order(comm, comm.size() as f64); // no number is above 1
    Ok(Beside::of(comm, &lesson, &library, bound)?)
}
// ANCHOR_END: heart

fn main() -> ExitCode {
    kit::main(run)
}

fn run(args: Args) -> Result<()> {
    let study = args.study.resolve(args.comm.link, args.feed.is_asked_for())?;
    let folder = args.out.clone().unwrap_or_else(|| PathBuf::from("runs/lab01"));
    let feed = args.feed.resolve(study.ranks, &folder)?;
    let deadline = args.comm.deadline.unwrap_or(Duration::from_secs(10));
    let options = Options { deadline, ..args.comm.options(&folder) };
    let mut lesson = Lesson::of("lab01")?;
    if feed.is_some() {
        lesson.lab.takeaway = "read ahead, and in few large requests.".into();
    }
    let lab = Lab {
        study,
        feed,
        options,
        screen: Screen::detect(args.ascii),
        lesson,
        args,
    };
    if let Some(path) = &lab.study.flags.json {
        benchmark::ensure_writable(path, lab.study.timed || lab.study.flags.simulate.is_some())?;
    }
    kit::run(lab.study.ranks, &lab.options, |comm| one_rank(&lab, &comm))
}

/// One rank's work: the sections that the flags ask for, then the checks. Returns the checks that
/// failed.
fn one_rank(lab: &Lab, comm: &Comm) -> Result<Vec<String>> {
    let flags = &lab.study.flags;
    let story = lab.tells_the_story();
    if comm.rank() == 0 {
        introduce(lab);
    }
    if let Some(broken) = flags.broken {
        let late = lab.options.notice() * 5 / 2; // long enough for the notice that a rank is late
        return breaking::run(comm, &lab.screen, broken, late);
    }
    if story || lab.study.all {
        pictures(lab, comm)?;
    }
    if (story || flags.rounds) && comm.size() > 1 {
        show_rounds(lab, comm)?;
    }
    // Every algorithm of every collective runs once. Its result is compared with that of the
    // library's own collective, and its messages are counted. `auto` chooses one of the others: it
    // is counted if --algorithm asks for it.
    let auto = lab
        .study
        .ways
        .iter()
        .copied()
        .filter(|way| way.algorithm == Some(Algorithm::Auto));
    let ways = Collective::ALL.into_iter().flat_map(Way::algorithms).chain(auto);
    let counts: Vec<Count> = ways.map(|way| counts::count(comm, way)).collect::<Result<_, _>>()?;
    if story && comm.size() > 1 && comm.rank() == 0 {
        costs(lab, &counts)?;
    }
    if lab.study.timed {
        time(lab, comm, &counts)?;
    }
    if let Some(ranks) = flags.simulate
        && comm.rank() == 0
    {
        predict_on_network(lab, ranks)?;
    }
    let fed = lab.feed.as_ref().map(|(how, store)| feed(lab, comm, *how, store)).transpose()?;
    let compared = compare(comm)?;
    check(lab, comm, &counts, compared, fed)
}

fn introduce(lab: &Lab) {
    let screen = &lab.screen;
    screen.say(lab.lesson.heading(screen, None));
    report::ranks(screen, lab.study.ranks);
    if let Some(link) = lab.args.comm.link {
        screen.say(screen.row("link", &format!("simulated, one for each rank: {link}")));
    }
    if lab.study.ranks == 1 {
        screen.say(screen.row("", "one rank has no other rank to talk to; give --ranks 2 or more"));
    }
}

fn section(lab: &Lab, title: &str) {
    lab.screen.say(format!("\n{}", lab.screen.heading(title, "")));
}

/// `4 ranks`, or the number of ranks that are shown.
fn in_words(shown: &Comm, lab: &Lab) -> String {
    let shown = shown.size();
    let all = lab.study.ranks;
    if shown == all {
        format!("{all} ranks")
    } else {
        format!("the first {shown} of {all} ranks")
    }
}

/// Draws the collective before and after, or all of them.
fn pictures(lab: &Lab, comm: &Comm) -> Result<()> {
    let drawn = if lab.study.all {
        &Collective::ALL[..]
    } else {
        &[lab.study.collective]
    };
    for (i, &collective) in drawn.iter().enumerate() {
        let few = picture::few(comm, collective)?;
        let Some(text) =
            picture::collective(&few, &lab.screen, collective)?.filter(|_| comm.rank() == 0)
        else {
            continue;
        };
        if i == 0 {
            section(
                lab,
                &format!(
                    "What it does: before and after, {}; each digit is one rank's",
                    in_words(&few, lab)
                ),
            );
            if lab.study.all {
                let blank = "A blank: this rank holds nothing there.";
                lab.screen.say(lab.screen.wrap(blank, 2));
            }
        }
        lab.screen
            .say(format!("{}{text}", if i > 0 || lab.study.all { "\n" } else { "" }));
    }
    if lab.study.all {
        let few = picture::few(comm, Collective::AllReduce)?;
        for (op, what) in [(Reduce::Max, "largest"), (Reduce::Min, "smallest")] {
            if let Some(text) = picture::chosen(&few, &lab.screen, op, what)?
                && comm.rank() == 0
            {
                lab.screen.say(format!("\n{text}"));
            }
        }
    }
    Ok(())
}

/// An algorithm's rounds on real numbers: all of them, or in the story those that tell it.
fn show_rounds(lab: &Lab, comm: &Comm) -> Result<()> {
    let study = &lab.study;
    let screen = &lab.screen;
    let way = picture::simplest(&study.ways).context("every collective has an algorithm")?;
    let few = picture::few(comm, study.collective)?;
    let rounds = picture::rounds(&few, screen, way)?;
    if comm.rank() != 0 {
        return Ok(());
    }
    let what = format!(
        "{} by {}, {}",
        study.collective.name(),
        rounds.task.algorithm.name(),
        in_words(&few, lab)
    );
    section(lab, &format!("How: {what}. Left: [sent]. Right: [received]"));
    let ring = (way.collective, way.algorithm) == (Collective::AllReduce, Some(Algorithm::Ring));
    let n = few.size();
    let total = rounds.frames.len();
    for (number, frame) in (1..).zip(&rounds.frames) {
        let caption = match number {
            1 if ring => ": each rank sends one chunk to the next rank, which adds it",
            _ if ring && number == n - 1 => ": after n-1 rounds, each sum is complete on one rank",
            _ if ring && number == total => ": after n-1 more, every rank has every sum",
            _ => "",
        };
        if study.flags.rounds || !ring || number == 1 {
            let title = screen.wrap(&format!("round {number} of {total}{caption}"), 2);
            screen.say(format!("{title}\n{frame}"));
        }
    }
    if ring && !study.flags.rounds && total > 1 {
        let rest = format!(
            "Round {} completes each sum on one rank, round {total} on every rank: --rounds.",
            n - 1
        );
        screen.say(screen.wrap(&rest, 2));
    }
    if study.flags.rounds {
        let size = n * size_of::<u64>();
        screen.say(format!(
            "\n  rank 0 sent {} messages, {} bytes; its array has {size}",
            rounds.messages, rounds.bytes
        ));
    }
    Ok(())
}

/// The cost of each algorithm, and the fastest one for few and for many bytes.
fn costs(lab: &Lab, counts: &[Count]) -> Result<()> {
    let study = &lab.study;
    let screen = &lab.screen;
    let network = &lab.study.network;
    let size = bytes_decimal((ELEMENTS * size_of::<u64>()) as f64);
    section(lab, &format!("What it costs: the busiest of {} ranks, S = {size}", study.ranks));
    let shown: Vec<&Count> =
        counts.iter().filter(|count| study.ways.contains(&count.way)).collect();
    screen.say(counts::show(screen, &shown));
    section(
        lab,
        &format!("Which is the fastest? Predicted for {} ranks on {}", study.ranks, network.name),
    );
    screen.say(screen.wrap(&predict::in_words(screen, network), 2));
    let timings = predict::predict(
        study.collective,
        study.ranks,
        &[1 << 10, 1 << 16, 1 << 20, 1 << 26],
        network,
    )?;
    screen.say(benchmark::sizes_table(screen, &timings));
    Ok(())
}

/// Times the algorithms here. On a simulated link, it also compares with the simulator.
fn time(lab: &Lab, comm: &Comm, counts: &[Count]) -> Result<()> {
    let study = &lab.study;
    let screen = &lab.screen;
    let collective = study.collective;
    let name = study.collective.name();
    let sizes = benchmark::sizes(4, study.most);
    let watch = Watch::start();
    let mut timings = vec![benchmark::time(comm, Way { collective, algorithm: None }, &sizes)?];
    for &way in &study.ways {
        timings.push(benchmark::time(comm, way, &sizes)?);
    }
    if comm.rank() != 0 {
        return Ok(());
    }
    let busy = watch.row(screen, comm.size());
    section(lab, "How long it takes here");
    screen.say(benchmark::plot(screen, &format!("{name} on {} ranks", study.ranks), &timings));
    screen.say(format!("\n{}", benchmark::sizes_table(screen, &timings)));
    screen.say(format!("\n{}", benchmark::fits(screen, &timings)));
    if let Some(busy) = busy {
        screen.say(busy);
    }
    if let Some(words) = benchmark::overlapping(&timings) {
        screen.say(screen.wrap(&words, 2));
    }
    if let Some(link) = lab.args.comm.link {
        let words =
            predict::compared(&predict::beside(&timings, link)?, study.ranks, launch::cores());
        screen.say(screen.row("formula", &words));
    } else if !launch::is_mpi() {
        screen.say(
            screen.wrap(
                "Threads share one memory. To time them over a network: --link 100us,1GB/s",
                2,
            ),
        );
    }
    let network = if launch::is_mpi() { "mpi" } else { "threads" };
    write(lab, benchmark::json(&timings, counts, network))
}

/// Predicts the collective on a network that is not here, and a training step on more and more
/// ranks.
fn predict_on_network(lab: &Lab, ranks: usize) -> Result<()> {
    let screen = &lab.screen;
    let network = &lab.study.network;
    let count = thousands(ranks as u64);
    section(lab, &format!("How long it would take: {count} ranks on {}", network.name));
    screen.say(screen.row("network", &predict::in_words(screen, network)));
    let timings =
        predict::predict(lab.study.collective, ranks, &benchmark::sizes(4, 64 << 20), network)?;
    let title = format!("{} on {count} ranks", lab.study.collective.name());
    screen.say(benchmark::plot(screen, &title, &timings));
    screen.say(format!("\n{}", benchmark::sizes_table(screen, &timings)));
    section(
        lab,
        &format!("Weak and strong scaling: a training step on {}, 4 ranks and more", network.name),
    );
    screen.say(predict::scaling(screen, network)?);
    if lab.study.timed {
        Ok(())
    } else {
        write(lab, benchmark::json(&timings, &[], network.name))
    }
}

/// Writes the file that --json asks for.
fn write(lab: &Lab, times: serde_json::Value) -> Result<()> {
    let Some(path) = &lab.study.flags.json else {
        return Ok(());
    };
    std::fs::write(path, format!("{times:#}\n"))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Shows how long ranks wait for their batches. Returns whether each rank got its own.
fn feed(lab: &Lab, comm: &Comm, how: Feed, store: &Store) -> Result<bool> {
    const COMPUTE: Duration = Duration::from_millis(10);
    let waits = feeding::measure(comm, store, how, COMPUTE)?;
    if comm.rank() == 0 {
        section(lab, "Bringing in the data");
        lab.screen
            .say(feeding::show(&lab.screen, store, how, lab.study.ranks, COMPUTE, &waits));
    }
    Ok(waits.right)
}

/// The checks, for the reader and for the exit code.
fn check(
    lab: &Lab,
    comm: &Comm,
    counts: &[Count],
    beside: Beside,
    fed: Option<bool>,
) -> Result<Vec<String>> {
    if comm.rank() != 0 {
        return Ok(Vec::new());
    }
    lab.screen.say("");
    let mut checks = Checks::new(&lab.screen);
    checks.beside("all-reduce", beside);
    let all = counts.len();
    let right = counts.iter().filter(|count| count.right).count();
    checks.check_all(
        right,
        all,
        "every algorithm gives its collective's result",
        "an algorithm is wrong",
    );
    let matching = counts.iter().filter(|count| count.matches_formula());
    checks.check_all(
        matching.count(),
        all,
        "rounds, messages and bytes match the formulas",
        "a count is not its formula's",
    );
    if let Some(right) = fed {
        checks.check(
            right,
            "every rank got its own batch in every step",
            "",
            "a rank got the batch of a different rank",
        );
    }
    let failed = checks.failed();
    if failed.is_empty() {
        let more = "More: --rounds, --bench, --simulate 768, --collective all, --feed readers 2";
        lab.screen
            .say(lab.lesson.ending(&lab.screen, if lab.tells_the_story() { more } else { "" }));
    }
    Ok(failed)
}
