//! What lab01 runs, in which order, and its checks.

use crate::apparatus::counts::{self, Count};
use crate::apparatus::{Feed, Store, Way, benchmark, breaking, sections};
use crate::flags::{Args, Study};
use crate::lesson::compare_all_reduces;
use anyhow::Result;
use kit::show::{Screen, bytes_decimal};
use kit::{Beside, Checks, Lesson, report};
use shardlab::comm::algorithms::{Algorithm, Collective};
use shardlab::comm::{Comm, Options};
use std::path::PathBuf;
use std::time::Duration;

/// Data that all ranks read and no rank changes.
struct Lab {
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

/// Checks the flags, starts the ranks, and runs the lab on each.
///
/// # Errors
/// If the flags do not fit together, a rank fails, or a check does.
pub fn run(args: Args) -> Result<()> {
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
    };
    if let Some(path) = &lab.study.flags.json {
        benchmark::ensure_writable(path, lab.study.timed || lab.study.flags.simulate.is_some())?;
    }
    kit::run(lab.study.ranks, &lab.options, |comm| one_rank(&lab, &comm))
}

/// One rank's work: the sections that the flags ask for, then the checks. Returns the checks that
/// failed.
fn one_rank(lab: &Lab, comm: &Comm) -> Result<Vec<String>> {
    let study = &lab.study;
    let screen = &lab.screen;
    let flags = &study.flags;
    let story = lab.tells_the_story();
    if comm.rank() == 0 {
        introduce(lab);
    }
    if let Some(broken) = flags.broken {
        let late = lab.options.notice() * 5 / 2; // long enough for the notice that a rank is late
        return breaking::run(comm, screen, broken, late);
    }
    if story || study.all {
        sections::pictures(study, screen, comm)?;
    }
    if (story || flags.rounds) && comm.size() > 1 {
        sections::rounds(study, screen, comm)?;
    }
    // Every algorithm of every collective runs once. Its result is compared with that of the
    // library's own collective, and its messages are counted. `auto` chooses one of the others: it
    // is counted if --algorithm asks for it.
    let auto = study.ways.iter().copied().filter(|way| way.algorithm == Some(Algorithm::Auto));
    let ways = Collective::ALL.into_iter().flat_map(Way::algorithms).chain(auto);
    let counts: Vec<Count> = ways.map(|way| counts::count(comm, way)).collect::<Result<_, _>>()?;
    if story && comm.size() > 1 && comm.rank() == 0 {
        sections::costs(study, screen, &counts)?;
    }
    if study.timed {
        sections::times(study, screen, comm, &counts)?;
    }
    if let Some(ranks) = flags.simulate
        && comm.rank() == 0
    {
        sections::predictions(study, screen, ranks)?;
    }
    let mut fed = None;
    if let Some((how, store)) = &lab.feed {
        fed = Some(sections::feed(screen, comm, *how, store)?);
    }
    let beside = compare_all_reduces(comm)?;
    check(lab, comm, &counts, beside, fed)
}

fn introduce(lab: &Lab) {
    let screen = &lab.screen;
    screen.say(lab.lesson.heading(screen, None));
    report::ranks(screen, lab.study.ranks);
    if let Some(link) = lab.study.link {
        let speed = bytes_decimal(link.bandwidth);
        let latency = screen.seconds(link.latency);
        let words = format!("simulated, one for each rank: {speed}/s, {latency}");
        screen.say(screen.row("link", &words));
    }
    if lab.study.ranks == 1 {
        screen.say(screen.row("", "one rank has no other rank to talk to; give --ranks 2 or more"));
    }
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
