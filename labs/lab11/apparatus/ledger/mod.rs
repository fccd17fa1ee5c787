//! The ledger: one job's figures in the order of the book's pages, from one device that is too
//! small to a plan that trains.
//!
//! Each entry says what the page's idea means for the job. All figures are the planner's or the
//! library's, so the ledger can be asked about any job that the planner can be asked about.
//! `job.rs` has what entries are made from, `entries.rs` the entries.

mod entries;
mod job;

use super::report::Found;
use entries::{ENTRIES, Entry};
use job::{Ledger, Line};
use kit::show::{Screen, thousands};
use shardlab::error::BadInput;

/// The entry of a page, or all of them.
///
/// # Errors
/// If there is no entry of this name.
pub fn ledger(
    screen: &Screen,
    found: &Found,
    name: &str,
    tokens: f64,
    page: Option<&str>,
) -> Result<String, BadInput> {
    let ledger = Ledger { screen, found, job: &found.job, tokens };
    let asked = |entry: &&(&str, Entry)| page.is_none_or(|page| page == entry.0);
    let chosen: Vec<_> = ENTRIES.iter().filter(asked).collect();
    if chosen.is_empty() {
        let names = ENTRIES.map(|entry| entry.0).join(", ");
        return Err(BadInput::new(
            format!("the ledger has no entry {:?}", page.unwrap_or_default()),
            format!("choose one of {names}, or give none for the whole ledger"),
        ));
    }
    let devices = thousands(found.job.devices as u64);
    let device = &found.job.cluster.device.name;
    let mut lines = vec![format!("  The ledger: {name} on {devices} x {device}")];
    for (page, entry) in chosen {
        lines.push(String::new());
        lines.extend(rows(screen, page, &entry(&ledger)));
    }
    Ok(lines.join("\n"))
}

/// An entry's lines in three columns, below its page's name.
fn rows(screen: &Screen, page: &str, lines: &[Line]) -> Vec<String> {
    let width = |column: fn(&Line) -> &String| {
        let widths = lines.iter().map(|line| column(line).chars().count());
        widths.max().unwrap_or(0)
    };
    let what = width(|line| &line.what).max(25);
    let how = width(|line| &line.how).max(29);
    let mut rows = vec![format!("  {}", screen.bold(page))];
    for line in lines {
        let Line { what: name, how: made, figure } = line;
        let row = format!("    {name:<what$}  {made:<how$}  {figure}");
        rows.push(row.trim_end().to_string());
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apparatus::planner::model;
    use crate::apparatus::strategy::{Cluster, Device, TrainingJob};

    fn found(name: &str, devices: usize) -> Found {
        let device = Device::named("h100-80g").unwrap();
        let cluster = Cluster::new(device, "dgx-h100").unwrap();
        Found::new(TrainingJob::new(model(name).unwrap(), cluster, devices))
    }

    /// Whether a page's line begins and ends so.
    fn has(text: &str, page: &str, what: &str, figure: &str) -> bool {
        let entry = text.lines().skip_while(|line| line.trim() != page);
        let mut entry = entry.skip(1).take_while(|line| !line.is_empty());
        entry.any(|line| {
            line.trim_start().starts_with(what) && line.ends_with(&format!("  {figure}"))
        })
    }

    #[test]
    fn the_ledger_of_70_billion_parameters_is_what_one_computes_by_hand() {
        let found = found("llama-3-70b", 512);
        let tokens = 20.0 * 70_553_706_496.0;
        let text = ledger(&Screen::plain(), &found, "llama-3-70b", tokens, None).unwrap();
        for (page, what, by_hand) in [
            ("one-device", "weights", "1.27 TB"), // 18 x 70.55
            ("lab00", "rank 300", "node 37, local 4"),
            ("lab01", "a rank sends", "563 GB"), // 2 x 511/512 x 282.2
            ("lab03", "DDP's largest", "4.2 billion"), // 76.4 / 18
            ("lab04", "ZeRO-1: state", "425 GB, too large"), // (6 + 12/512) x 70.55
            ("lab04", "ZeRO-3: state", "2.48 GB, fits"),
            ("lab06", "PP 4: bubble", "9.4%"), // 3/32
            ("lab10", "accumulation", "32"),
            ("checkpoints", "a checkpoint", "988 GB"),
            ("checkpoints", "between failures", "99 hours"), // 3.095 h x 16,384 / 512
            ("lab09", "universal", "2,169 files"),           // 3 x (80 x 9 + 3)
            ("life-cycle", "training takes", "6.0e23 FLOPs"),
        ] {
            assert!(has(&text, page, what, by_hand), "{page}: {what} {by_hand}: {text}");
        }
    }

    #[test]
    fn every_job_has_a_ledger_that_fits_the_screen() {
        for (name, devices) in
            [("llama-3-70b", 512), ("gpt2", 1), ("megatron-1t", 3072), ("llama-2-7b", 6)]
        {
            let text = ledger(&Screen::plain(), &found(name, devices), name, 1e12, None).unwrap();
            for line in text.lines() {
                let wide = line.chars().count() > 80;
                let wrong = line.contains("NaN") || line.contains("inf");
                assert!(!wide && !wrong, "{name} on {devices}: {line}");
            }
        }
    }

    #[test]
    fn a_page_without_an_entry_is_refused() {
        let error =
            ledger(&Screen::plain(), &found("gpt2", 1), "gpt2", 1e9, Some("lab12")).unwrap_err();
        assert!(error.what.contains("lab12") && error.help.contains("one-device"), "{error}");
    }
}
