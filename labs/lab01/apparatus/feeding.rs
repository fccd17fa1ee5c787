//! How long ranks wait for their batches, read in several ways.

use super::feed::{Fed, Feed, Store};
use anyhow::Result;
use kit::show::{Screen, bytes_decimal, thousands};
use shardlab::comm::{Comm, Reduce};
use std::time::Duration;

/// For each step, the seconds that the slowest rank waits for its batch: read when it is wanted,
/// and read ahead.
pub struct Waits {
    pub when_wanted: Vec<f64>,
    pub ahead: Vec<f64>,
    /// Whether every rank got its own batches.
    pub right: bool,
}

/// Feeds all ranks twice.
pub fn measure(comm: &Comm, store: &Store, feed: Feed, compute: Duration) -> Result<Waits> {
    store.write(comm, feed)?;
    let longest = |fed: &Fed| -> Result<Vec<f64>> {
        let mut waits = fed.waits.clone();
        comm.all_reduce(&mut waits, Reduce::Max)?;
        Ok(waits)
    };
    let without = store.feed(comm, feed, compute, false)?;
    let with = store.feed(comm, feed, compute, true)?;
    store.remove(comm, feed)?;
    let right = !comm.any(!without.right || !with.right)?;
    Ok(Waits {
        when_wanted: longest(&without)?,
        ahead: longest(&with)?,
        right,
    })
}

/// Describes how the files were read, and prints the mean waits beside the file server's own time.
pub fn show(
    screen: &Screen,
    store: &Store,
    feed: Feed,
    ranks: usize,
    compute: Duration,
    waits: &Waits,
) -> String {
    let batch = (store.batch * size_of::<f32>()) as f64;
    let who = match feed {
        Feed::EachFile => "every rank reads its own file".to_owned(),
        Feed::SharedFile => "every rank reads its slice of one file".to_owned(),
        Feed::Readers(count) => format!("{count} of {ranks} ranks read one file and scatter it"),
    };
    let mut lines = vec![screen.row("feed", &who)];
    let batches = format!("{} per rank per step, {} steps", bytes_decimal(batch), store.steps);
    lines.push(screen.row(
        "batch",
        &format!("{batches}; a rank computes for {} on it", screen.seconds(compute.as_secs_f64())),
    ));
    if let Some(disk) = store.disk {
        let requests = match feed.readers(ranks) {
            1 => "1 request".to_owned(),
            readers => format!("{} requests", thousands(readers as u64)),
        };
        let server = format!(
            "simulated, one for all ranks: {requests} x {} + {} / {}/s = {} per step",
            screen.seconds(disk.latency),
            bytes_decimal(batch * ranks as f64),
            bytes_decimal(disk.bandwidth),
            screen.seconds(store.disk_seconds(feed, ranks)),
        );
        lines.push(
            screen.row("disk", &server.replace(" / ", "\u{a0}/\u{a0}").replace(" MB", "\u{a0}MB")),
        );
    }
    // No batch is computed on while the first one is read.
    let mean =
        |waits: &[f64]| screen.seconds(waits[1..].iter().sum::<f64>() / (waits.len() - 1) as f64);
    let means = format!(
        "{} when read as wanted, {} when read ahead (mean after the first step)",
        mean(&waits.when_wanted),
        mean(&waits.ahead)
    );
    lines.push(screen.row("waiting", &means));
    lines.join("\n")
}
