//! The screen: the verdict, the call, who is in it and who is not, and what of it is certain.

use super::differ::What;
use super::dump::{Call, name};
use super::find::Stuck;
use super::job::Job;
use kit::show::Screen;
use std::collections::{BTreeMap, BTreeSet};

/// Other calls, and numbers in one list. A job of a thousand ranks could have as many.
const FEW: usize = 8;

/// Said of a group of which no dump tells the ranks.
const TOLD: &str = " (as far as the dumps tell)";

const MEANINGS: &str = include_str!("meaning.txt");

pub fn found(screen: &Screen, job: &Job, found: &[Stuck], others: &[Stuck]) -> String {
    let Some(first) = found.first() else {
        let verdict = screen.bold("missing in no call: no rank has recorded one");
        let help = "set TORCH_FR_BUFFER_SIZE=2000 before the job starts";
        return format!("{verdict}\n\n{}", screen.row("help", help));
    };
    let verdicts: Vec<String> = found.iter().map(|one| verdict(job, one)).collect();
    let mut lines = vec![screen.bold(verdicts.join("; ")), String::new()];
    for one in found {
        let name = format!("{} {} of {}", one.op, one.number, one.group.name);
        let doubt = if one.group.is_known { "" } else { TOLD };
        lines.push(screen.row("call", &format!("{name}, {}{doubt}", ranks(&one.group.ranks))));
        let inside = one.inside().into_iter().map(|(rank, call)| (rank, inside(one, call)));
        lines.extend(rows(screen, "in it", inside));
        if one.what == What::Missing {
            let absent = one.ranks.iter().map(|rank| (*rank, absent(job, one, rank)));
            lines.extend(rows(screen, "missing", absent));
        }
    }
    for one in others.iter().take(FEW) {
        let waiting = ranks(one.inside().keys());
        lines.push(screen.row("also", &format!("{waiting} in {}", place(job, one))));
    }
    let meaning = meaning(job, first, found.len() > 1);
    let (certain, open) = meaning.split_once(" | ").unwrap_or_default();
    lines.extend([String::new(), screen.row("certain", certain), screen.row("open", open)]);
    let apart = apart(first).filter(|_| first.ranks.is_empty());
    lines.extend(apart.map(|apart| screen.row("times", &apart)));
    lines.push(screen.row("read", &read(job)));
    lines.join("\n")
}

/// The first line: `missing in call 5 (all_reduce): rank 2`.
fn verdict(job: &Job, one: &Stuck) -> String {
    let what = match one.what {
        What::Missing => "missing".to_string(),
        differ => format!("{differ:?} differ").to_lowercase(),
    };
    format!("{what} in {}: {}", place(job, one), ranks(&one.ranks))
}

/// `call 5 (all_reduce)`, with the group's name where there are several.
fn place(job: &Job, one: &Stuck) -> String {
    let call = format!("call {} ({})", one.number, one.op);
    let is_only = job.groups.len() == 1 && job.dumps.values().all(|dump| dump.groups.len() < 2);
    if is_only {
        return call;
    }
    format!("{call} of {}", one.group.name)
}

/// A row for all ranks of which the same is said.
fn rows(screen: &Screen, label: &str, said: impl Iterator<Item = (usize, String)>) -> Vec<String> {
    let mut rows: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (rank, text) in said {
        rows.entry(text).or_default().push(rank);
    }
    let row = |(text, all)| screen.row(label, &format!("{}: {text}", ranks(all)));
    rows.iter().map(row).collect()
}

/// Where a rank made the call, and what differs.
fn inside(one: &Stuck, call: &Call) -> String {
    let mut parts = vec![line(call)];
    if one.what != What::Missing {
        parts.push(call.op.clone());
        parts.push(format!("{} to {}", shapes(&call.input_sizes), shapes(&call.output_sizes)));
        parts.extend(call.input_dtypes.iter().map(|dtype| name(dtype)));
    }
    parts.extend(one.group.knows_ends.then(|| format!("{:?}", call.state).to_lowercase()));
    parts.join(", ")
}

/// Where a rank is that is missing.
fn absent(job: &Job, one: &Stuck, rank: &usize) -> String {
    let last = job.dumps.get(rank).map(|dump| dump.entries.last());
    let text = match (one.calls.get(rank), last) {
        (Some(call), _) => format!("its call {} is {}, {}", one.number, call.op, line(call)),
        (None, None) => "no dump".to_string(),
        (None, Some(None)) => "has recorded no call".to_string(),
        (None, Some(Some(call))) => {
            let group = Some(call.group_name()).filter(|name| *name != one.group.name);
            let of = group.map_or(String::new(), |name| format!(" of {name}"));
            format!("its last call is {} {}{of}, {}", call.op, call.number, line(call))
        }
    };
    let seen = job.stacks.get(rank).map(|place| format!("; py-spy saw it at {place}"));
    text + &seen.unwrap_or_default()
}

fn line(call: &Call) -> String {
    call.line.clone().unwrap_or_else(|| "line unknown".to_string())
}

fn shapes(shapes: &[Vec<u64>]) -> String {
    if shapes.is_empty() {
        return "nothing".to_string();
    }
    let parts: Vec<String> = shapes.iter().map(|shape| format!("{shape:?}")).collect();
    name(&parts.join(" "))
}

/// What is certain of a call, and what the dumps leave open: a line of `meaning.txt`.
fn meaning(job: &Job, one: &Stuck, is_circle: bool) -> String {
    let has_majority = one.what != What::Roots && one.ranks.len() < one.calls.len();
    let mut their_ops = one.ranks.iter().filter_map(|rank| Some(&one.calls.get(rank)?.op));
    let has_dump = |rank| job.dumps.contains_key(rank);
    let case = match one.what {
        _ if is_circle => "circle",
        What::Missing if one.ranks.is_empty() && one.is_open() => "not ended",
        What::Missing if one.ranks.is_empty() && one.group.knows_ends => "ended",
        What::Missing if one.ranks.is_empty() => "perhaps ended",
        What::Missing if their_ops.clone().any(|op| op != one.op) => "elsewhere",
        What::Missing if their_ops.next().is_some() => "not begun",
        What::Missing if !one.ranks.iter().any(has_dump) => "no file",
        What::Missing if one.calls.len() == 1 && one.ranks.len() > 1 => "alone",
        What::Missing => "behind",
        _ if has_majority => "differ",
        _ => "differ without majority",
    };
    let of_case = |line: &'static str| line.strip_prefix(case)?.strip_prefix(" | ");
    let text = MEANINGS.lines().find_map(of_case).unwrap_or_default();
    text.replace("INSIDE", &ranks(one.inside().keys()))
        .replace("NAMED", &ranks(&one.ranks))
}

/// Who came last to a call that all are in.
fn apart(one: &Stuck) -> Option<String> {
    let times = one.inside().into_iter().map(|(rank, call)| (call.time_created_ns, rank));
    let times: BTreeSet<(i64, usize)> = times.collect();
    let ((first, _), (last, rank)) = (times.first()?, times.last()?);
    let seconds = last.saturating_sub(*first) as f64 / 1e9;
    let after = format!("{seconds:.1} s after the first, by the machines' clocks");
    Some(format!("rank {rank} came last, {after}"))
}

/// What was read, and what is lacking.
fn read(job: &Job) -> String {
    let mut text = format!("dumps of {}", ranks(job.dumps.keys()));
    if !job.stacks.is_empty() {
        text += &format!(", py-spy's stacks of {}", ranks(job.stacks.keys()));
    }
    let mut calls = job.dumps.values().flat_map(|dump| &dump.entries);
    if !calls.any(|call| call.line.is_some()) {
        text += "; a dump as pickle names lines, too";
    }
    if job.dumps.values().any(|dump| dump.has_wrapped()) {
        text += "; the oldest calls are gone (TORCH_FR_BUFFER_SIZE)";
    }
    text
}

/// `rank 2`, `ranks 1, 2, 3`, and of many `ranks 0 to 6, 8 to 1023`.
fn ranks<'a>(ranks: impl IntoIterator<Item = &'a usize>) -> String {
    let ranks: Vec<usize> = ranks.into_iter().copied().collect();
    if ranks.is_empty() {
        return "nobody".to_string();
    }
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for rank in &ranks {
        match runs.last_mut() {
            Some((_, last)) if ranks.len() > FEW && *last + 1 == *rank => *last = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let run = |(first, last): &(usize, usize)| match last - first {
        0 => first.to_string(),
        _ => format!("{first} to {last}"),
    };
    let shown: Vec<String> = runs.iter().take(FEW).map(run).collect();
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    let more = if runs.len() > FEW { " …" } else { "" };
    format!("{word} {}{more}", shown.join(", "))
}
