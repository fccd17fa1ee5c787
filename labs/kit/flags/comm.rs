//! Flags of every lab about communication.

use crate::help;
use shardlab::comm::{Link, Options};
use std::path::Path;
use std::time::Duration;

/// Flags about how ranks communicate.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = help::RANKS)]
pub struct CommFlags {
    /// Let threads communicate as over a network link, for example 50us,1GB/s
    #[arg(long, value_name = "LATENCY,BANDWIDTH", value_parser = link)]
    pub link: Option<Link>,
    /// How long to wait for a rank that is late
    #[arg(long, value_name = "SECONDS", value_parser = seconds, hide_short_help = true)]
    pub deadline: Option<Duration>,
    /// Over MPI: do not compare the ranks' calls before each collective. Ranks in different calls,
    /// and ranks that end early or never come, then go unnoticed: the job hangs, or the MPI library
    /// crashes
    #[arg(long, hide_short_help = true)]
    pub no_check: bool,
}

impl CommFlags {
    /// The options for [`run_with`](shardlab::launch::run_with). If the ranks cannot go on
    /// together, `folder` gets their last calls.
    pub fn options(&self, folder: &Path) -> Options {
        let Options { deadline, .. } = Options::default();
        Options {
            link: self.link,
            nodes: None,
            no_check: self.no_check,
            deadline: self.deadline.unwrap_or(deadline),
            flight_file: Some(folder.join("flight.jsonl")),
        }
    }
}

/// Reads a time of at least 10 ms.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match seconds {
        Some(time) if time >= Duration::from_millis(10) => Ok(time),
        _ => Err("give seconds, 0.01 or more".to_string()),
    }
}

const SECONDS: [(&str, f64); 5] =
    [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];

const BYTES_PER_SECOND: [(&str, f64); 7] = [
    ("B/s", 1.0),
    ("kB/s", 1e3),
    ("MB/s", 1e6),
    ("GB/s", 1e9),
    ("TB/s", 1e12),
    ("Mbit/s", 1.25e5),
    ("Gbit/s", 1.25e8),
];

/// Reads `50us,1GB/s`.
///
/// # Errors
/// If a number or a unit is missing, or no link is as slow.
pub fn link(text: &str) -> Result<Link, String> {
    let (latency, bandwidth) = text
        .split_once(',')
        .ok_or("two values are needed, latency and bandwidth, as in 50us,1GB/s")?;
    let latency = quantity("latency", latency, &SECONDS)?;
    let bandwidth = quantity("bandwidth", bandwidth, &BYTES_PER_SECOND)?;
    if latency > 3600.0 {
        return Err("the latency is more than an hour".to_string());
    }
    if bandwidth < 1.0 {
        return Err("the bandwidth is less than 1 B/s".to_string());
    }
    Ok(Link { latency, bandwidth })
}

/// Reads a number with one of the units.
fn quantity(what: &str, text: &str, units: &[(&str, f64)]) -> Result<f64, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number = &text[..end];
    let unit = text[end..].trim_start();
    let number: f64 = number
        .parse()
        .map_err(|_| format!("the {what} {text:?} does not begin with a number"))?;
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        let names: Vec<&str> = units.iter().map(|&(name, _)| name).collect();
        return Err(format!("the {what} {text:?} needs a unit: {}", names.join(", ")));
    };
    Ok(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_as_people_write_them() {
        for (text, latency, bandwidth) in [
            ("50us,1GB/s", 50e-6, 1e9),
            ("1.5 ms, 100 MB/s", 1.5e-3, 1e8),
            ("0s,1TB/s", 0.0, 1e12),
            ("200ns,200Gbit/s", 200e-9, 25e9),
            ("20µs,8Mbit/s", 20e-6, 1e6),
        ] {
            let link = link(text).unwrap();
            assert!((link.latency - latency).abs() <= 1e-12 * latency, "{text}: {link:?}");
            assert!((link.bandwidth - bandwidth).abs() <= 1e-12 * bandwidth, "{text}: {link:?}");
        }
        assert_eq!(link("50us,1GB/s").unwrap().to_string(), "1.00 GB/s, 50.0 µs");
    }

    #[test]
    fn what_is_no_link_is_told() {
        for (text, says) in [
            ("50us", "two values are needed"),
            ("fast,1GB/s", "the latency \"fast\" does not begin with a number"),
            ("50,1GB/s", "the latency \"50\" needs a unit: ns, us, "),
            ("-1s,1GB/s", "does not begin with a number"),
            ("50us,1GB", "the bandwidth \"1GB\" needs a unit: B/s, "),
            ("50us,1Gb/s", "the bandwidth \"1Gb/s\" needs a unit"),
            ("50us,0GB/s", "less than 1 B/s"),
            ("2000000ms,1B/s", ""),
            ("1e9s,1B/s", "needs a unit"),
            ("4000s,1B/s", "more than an hour"),
        ] {
            match link(text) {
                Err(error) => assert!(!says.is_empty() && error.contains(says), "{text}: {error}"),
                Ok(link) => assert!(says.is_empty(), "{text}: {link:?}"),
            }
        }
    }
}
