//! What lab01 runs, in which order, and its checks.

use crate::apparatus::counts::{self, Count};
use crate::apparatus::{Feed, Store, Way, benchmark, breaking, sections};
use crate::flags::{Args, Study};
use crate::lesson::compare_all_reduces;
use anyhow::Result;
use kit::show::bytes_decimal;
use kit::{Checks, LabRun, report};
use shardlab::comm::Comm;
use shardlab::comm::algorithms::{Algorithm, Collective};
use std::path::PathBuf;
use std::time::Duration;

/// Data that all ranks read and no rank changes.
struct Lab {
    study: Study,
    feed: Option<(Feed, Store)>,
    run: LabRun,
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
    let mut run = LabRun {
        ranks: study.ranks,
        ..LabRun::plain("lab01", args.ascii, folder, &args.comm)?
    };
    run.options.deadline = args.comm.deadline.unwrap_or(Duration::from_secs(10));
    if feed.is_some() {
        run.lesson.lab.takeaway = "read ahead, and in few large requests.".into();
    }
    let lab = Lab { study, feed, run };
    if let Some(path) = &lab.study.flags.json {
        benchmark::ensure_writable(path, lab.study.timed || lab.study.flags.simulate.is_some())?;
    }
    lab.run.on_ranks(|comm, checks| one_rank(&lab, comm, checks))
}

/// One rank's work: the sections that the flags ask for, then the checks.
fn one_rank(lab: &Lab, comm: &Comm, checks: &mut Checks) -> Result<()> {
    let study = &lab.study;
    let screen = &lab.run.screen;
    let flags = &study.flags;
    let story = lab.tells_the_story();
    if comm.rank() == 0 {
        introduce(lab);
    }
    if let Some(broken) = flags.broken {
        // Long enough for the notice that a rank is late.
        let late = lab.run.options.notice() * 5 / 2;
        return breaking::run(comm, screen, broken, late, checks);
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
    if comm.rank() != 0 {
        return Ok(());
    }

    screen.say("");
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
    let more = "More: --rounds, --bench, --simulate 768, --collective all, --feed readers 2";
    checks.end_with(if story { more } else { "" });
    Ok(())
}

fn introduce(lab: &Lab) {
    let run = &lab.run;
    let screen = &run.screen;
    run.heading(None);
    report::ranks(screen, lab.study.ranks);
    if let Some(link) = lab.study.link {
        let speed = bytes_decimal(link.bandwidth);
        let latency = screen.seconds(link.latency);
        let words = format!("simulated, one for each rank: {speed}/s, {latency}");
        run.row("link", &words);
    }
    if lab.study.ranks == 1 {
        run.row("", "one rank has no other rank to talk to; give --ranks 2 or more");
    }
}
