//! The sections of lab01's screen, in the order in which it shows them.

use super::counts::{self, Count, ELEMENTS};
use super::{Feed, Store, Way, benchmark, feeding, picture, predict};
use crate::flags::Study;
use anyhow::{Context, Result};
use kit::show::{Screen, bytes_decimal, thousands};
use kit::{OtherWork, output};
use shardlab::comm::algorithms::{Algorithm, Collective};
use shardlab::comm::{Comm, Reduce};
use shardlab::launch;
use std::time::Duration;

fn section(screen: &Screen, title: &str) {
    screen.say(format!("\n{}", screen.heading(title, "")));
}

/// `4 ranks`, or the number of ranks that are shown.
fn in_words(shown: &Comm, study: &Study) -> String {
    let shown = shown.size();
    let all = study.ranks;
    if shown == all {
        format!("{all} ranks")
    } else {
        format!("the first {shown} of {all} ranks")
    }
}

/// Draws the collective before and after, or all of them.
pub fn pictures(study: &Study, screen: &Screen, comm: &Comm) -> Result<()> {
    let drawn = if study.all {
        &Collective::ALL[..]
    } else {
        &[study.collective]
    };
    for (i, &collective) in drawn.iter().enumerate() {
        let few = picture::few(comm, collective)?;
        let Some(text) =
            picture::collective(&few, screen, collective)?.filter(|_| comm.rank() == 0)
        else {
            continue;
        };
        if i == 0 {
            section(
                screen,
                &format!(
                    "What it does: before and after, {}; each digit is one rank's",
                    in_words(&few, study)
                ),
            );
            if study.all {
                screen.say(screen.wrap("A blank: this rank holds nothing there.", 2));
            }
        }
        screen.say(format!("{}{text}", if i > 0 || study.all { "\n" } else { "" }));
    }
    if study.all {
        let few = picture::few(comm, Collective::AllReduce)?;
        for (op, what) in [(Reduce::Max, "largest"), (Reduce::Min, "smallest")] {
            if let Some(text) = picture::chosen(&few, screen, op, what)?
                && comm.rank() == 0
            {
                screen.say(format!("\n{text}"));
            }
        }
    }
    Ok(())
}

/// An algorithm's rounds on real numbers: all of them, or in the story those that tell it.
pub fn rounds(study: &Study, screen: &Screen, comm: &Comm) -> Result<()> {
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
        in_words(&few, study)
    );
    section(screen, &format!("How: {what}. Left: [sent]. Right: [received]"));
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
pub fn costs(study: &Study, screen: &Screen, counts: &[Count]) -> Result<()> {
    let network = &study.network;
    let size = bytes_decimal((ELEMENTS * size_of::<u64>()) as f64);
    let ranks = study.ranks;
    section(screen, &format!("What it costs: the busiest of {ranks} ranks, S = {size}"));
    let shown: Vec<&Count> =
        counts.iter().filter(|count| study.ways.contains(&count.way)).collect();
    screen.say(counts::show(screen, &shown));
    section(
        screen,
        &format!("Which is the fastest? Predicted for {ranks} ranks on {}", network.name),
    );
    screen.say(screen.wrap(&predict::in_words(screen, network), 2));
    let sizes = [1 << 10, 1 << 16, 1 << 20, 1 << 26];
    let timings = predict::predict(study.collective, ranks, &sizes, network)?;
    screen.say(benchmark::sizes_table(screen, &timings));
    Ok(())
}

/// Times the algorithms here. On a simulated link, it also compares with the simulator.
pub fn times(study: &Study, screen: &Screen, comm: &Comm, counts: &[Count]) -> Result<()> {
    let collective = study.collective;
    let name = study.collective.name();
    let sizes = benchmark::sizes(4, study.most);
    let watch = OtherWork::watch();
    let mut timings = vec![benchmark::time(comm, Way { collective, algorithm: None }, &sizes)?];
    for &way in &study.ways {
        timings.push(benchmark::time(comm, way, &sizes)?);
    }
    if comm.rank() != 0 {
        return Ok(());
    }
    let busy = watch.row(screen, comm.size());
    section(screen, "How long it takes here");
    let title = format!("{name} on {} ranks", study.ranks);
    screen.say(benchmark::plot(&title, &timings).render(screen));
    screen.say(format!("\n{}", benchmark::sizes_table(screen, &timings)));
    screen.say(format!("\n{}", benchmark::fits(screen, &timings)));
    if let Some(busy) = busy {
        screen.say(busy);
    }
    if let Some(words) = benchmark::overlapping(&timings) {
        screen.say(screen.wrap(&words, 2));
    }
    if let Some(link) = study.link {
        let words =
            predict::compared(&predict::beside(&timings, link)?, study.ranks, launch::cores());
        screen.say(screen.row("formula", &words));
    } else if !launch::is_mpi() {
        let words = "Threads share one memory. To time them over a network: --link 100us,1GB/s";
        screen.say(screen.wrap(words, 2));
    }
    let network = if launch::is_mpi() { "mpi" } else { "threads" };
    write(study, benchmark::json(&timings, counts, network))
}

/// Predicts the collective on a network that is not here, and a training step on more and more
/// ranks.
pub fn predictions(study: &Study, screen: &Screen, ranks: usize) -> Result<()> {
    let network = &study.network;
    let count = thousands(ranks as u64);
    section(screen, &format!("How long it would take: {count} ranks on {}", network.name));
    screen.say(screen.row("network", &predict::in_words(screen, network)));
    let timings =
        predict::predict(study.collective, ranks, &benchmark::sizes(4, 64 << 20), network)?;
    let title = format!("{} on {count} ranks", study.collective.name());
    screen.say(benchmark::plot(&title, &timings).render(screen));
    screen.say(format!("\n{}", benchmark::sizes_table(screen, &timings)));
    section(
        screen,
        &format!("Weak and strong scaling: a training step on {}, 4 ranks and more", network.name),
    );
    screen.say(predict::scaling(screen, network)?);
    if study.timed {
        Ok(())
    } else {
        write(study, benchmark::json(&timings, &[], network.name))
    }
}

/// Writes the file that --json asks for.
fn write(study: &Study, times: serde_json::Value) -> Result<()> {
    match &study.flags.json {
        Some(path) => output::write(path, &format!("{times:#}\n")),
        None => Ok(()),
    }
}

/// Shows how long ranks wait for their batches. Returns whether each rank got its own.
pub fn feed(screen: &Screen, comm: &Comm, how: Feed, store: &Store) -> Result<bool> {
    const COMPUTE: Duration = Duration::from_millis(10);
    let waits = feeding::measure(comm, store, how, COMPUTE)?;
    if comm.rank() == 0 {
        section(screen, "Bringing in the data");
        screen.say(feeding::show(screen, store, how, comm.size(), COMPUTE, &waits));
    }
    Ok(waits.right)
}
