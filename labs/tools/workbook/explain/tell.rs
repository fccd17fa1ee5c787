//! The screen: the verdict, the call, who is in it and who is not, and what of it is certain.

use super::differ::What;
use super::dump::Call;
use super::find::{Absence, Found, Stuck, Why};
use super::job::{Job, named};
use super::stack::Stack;
use kit::show::Screen;

/// Rows of one kind, and numbers in one list. A job of a thousand ranks could have as many.
const FEW: usize = 8;

const MEANINGS: &str = include_str!("meaning.txt");

pub fn found(screen: &Screen, job: &Job, found: &Found) -> String {
    let shown = &found.verdict[..found.verdict.len().min(4)];
    let Some(first) = shown.first() else {
        let verdict = screen.bold("missing in no call: no rank has recorded one");
        let help = "set TORCH_FR_BUFFER_SIZE=2000 before the job starts";
        return format!("{verdict}\n\n{}", screen.row("help", help));
    };
    let verdicts: Vec<String> = shown.iter().map(|one| verdict(job, one)).collect();
    let mut lines = vec![screen.bold(verdicts.join("; ")), String::new()];
    for one in shown {
        let group = &job.groups[one.group];
        let known = if group.is_known {
            ""
        } else {
            " (as far as the dumps tell)"
        };
        let name = named(&group.name, &group.description);
        let of = format!("{} {} of {name}, {}{known}", one.op, one.number, ranks(&group.ranks));
        lines.push(screen.row("call", &of));
        let inside = one.inside.keys().map(|rank| (*rank, inside(job, one, *rank)));
        lines.extend(rows(screen, "in it", inside));
        let absent = one.absences.iter().map(|(rank, how)| (*rank, absent(job, one, *rank, *how)));
        lines.extend(rows(screen, "missing", absent));
    }
    let others = found.others.iter().take(FEW);
    let others: Vec<String> = others
        .map(|one| format!("{} in {}", ranks(one.inside.keys()), place(job, one)))
        .collect();
    if !others.is_empty() {
        lines.push(screen.row("also", &format!("wait: {}", others.join("; "))));
    }
    let [certain, open] = meaning(first, shown.len() > 1);
    lines.extend([String::new(), screen.row("certain", &certain), screen.row("open", &open)]);
    if let (Why::Nobody(_), Some(apart)) = (first.why, apart(job, first)) {
        lines.push(screen.row("times", &apart));
    }
    lines.push(screen.row("read", &read(job)));
    lines.join("\n")
}

/// The first line: `missing in call 5 (all_reduce): rank 2`.
fn verdict(job: &Job, one: &Stuck) -> String {
    let what = match one.why {
        Why::Missing | Why::Nobody(_) => "missing",
        Why::Differ(What::Operations) => "operations differ",
        Why::Differ(What::Sizes) => "sizes differ",
        Why::Differ(What::Types) => "types differ",
        Why::Differ(What::Roots) => "roots differ",
    };
    let who = if one.ranks.is_empty() {
        "nobody".to_string()
    } else {
        ranks(&one.ranks)
    };
    format!("{what} in {}: {who}", place(job, one))
}

/// `call 5 (all_reduce)`, with the group's name where there are several.
fn place(job: &Job, one: &Stuck) -> String {
    let call = format!("call {} ({})", one.number, one.op);
    let group = &job.groups[one.group];
    let is_only = job.groups.len() == 1 && job.dumps.values().all(|dump| dump.groups.len() < 2);
    if is_only {
        call
    } else {
        format!("{call} of {}", named(&group.name, &group.description))
    }
}

/// A row for all ranks of which the same is said.
fn rows(screen: &Screen, label: &str, said: impl Iterator<Item = (usize, String)>) -> Vec<String> {
    let mut rows: Vec<(String, Vec<usize>)> = Vec::new();
    for (rank, text) in said {
        match rows.iter_mut().find(|(other, _)| *other == text) {
            Some((_, ranks)) => ranks.push(rank),
            None => rows.push((text, vec![rank])),
        }
    }
    let more = rows.len().saturating_sub(FEW);
    let row = |(at, (text, all)): (usize, &(String, Vec<usize>))| {
        screen.row(if at == 0 { label } else { "" }, &format!("{}: {text}", ranks(all)))
    };
    let mut lines: Vec<String> = rows.iter().take(FEW).enumerate().map(row).collect();
    if more > 0 {
        lines.push(screen.row("", &format!("and {more} more rows")));
    }
    lines
}

fn inside(job: &Job, one: &Stuck, rank: usize) -> String {
    let call = job.call(rank, one.inside[&rank]);
    let mut text = line(call);
    match one.why {
        Why::Differ(What::Operations) => text = format!("{text}, {}", call.op),
        Why::Differ(What::Types) => {
            let types: Vec<&str> = call.input_dtypes.iter().map(String::as_str).take(FEW).collect();
            text = format!("{text}, {}", types.join(" "));
        }
        Why::Differ(What::Sizes | What::Roots) => {
            text =
                format!("{text}, {} to {}", shapes(&call.input_sizes), shapes(&call.output_sizes));
        }
        _ => {}
    }
    if job.groups[one.group].knows_ends {
        text = format!("{text}, {}", format!("{:?}", call.state).to_lowercase());
    }
    text
}

fn absent(job: &Job, one: &Stuck, rank: usize, how: Absence) -> String {
    let text = match how {
        Absence::NoFile => "no dump".to_string(),
        Absence::Elsewhere(at) => {
            let call = job.call(rank, at);
            format!("its call {} is {}, {}", call.collective_seq_id, call.op, line(call))
        }
        Absence::NotBegun(at) => {
            format!("has issued it, {}; its device has not begun it", line(job.call(rank, at)))
        }
        Absence::Behind => match job.dumps[&rank].entries.last() {
            None => "has recorded no call".to_string(),
            Some(call) => {
                let (name, description) = &call.process_group;
                let group = if *name == job.groups[one.group].name {
                    String::new()
                } else {
                    format!(" of {}", named(name, description))
                };
                let number = if call.is_message() {
                    call.p2p_seq_id
                } else {
                    call.collective_seq_id
                };
                format!("its last call is {} {number}{group}, {}", call.op, line(call))
            }
        },
    };
    match job.stacks.get(&rank) {
        Some(stack) => format!("{text}; {}", seen(stack)),
        None => text,
    }
}

/// Where py-spy saw a rank.
fn seen(stack: &Stack) -> String {
    let line = stack.line.as_deref().unwrap_or("a line that is not yours");
    let op = stack.op.as_ref().map_or(String::new(), |op| format!(" in {op},"));
    format!("py-spy saw it{op} at {line}")
}

fn line(call: &Call) -> String {
    call.line.clone().unwrap_or_else(|| "line unknown".to_string())
}

fn shapes(shapes: &[Vec<u64>]) -> String {
    let parts: Vec<String> = shapes.iter().take(4).map(|shape| format!("{shape:?}")).collect();
    let more = if shapes.len() > 4 { " …" } else { "" };
    if parts.is_empty() {
        "nothing".to_string()
    } else {
        parts.join(" ") + more
    }
}

/// What is certain of a call, and what the dumps leave open: a line of `meaning.txt`.
fn meaning(one: &Stuck, is_circle: bool) -> [String; 2] {
    let has = |how: fn(&Absence) -> bool| one.absences.values().any(how);
    let case = match one.why {
        _ if is_circle => "circle",
        Why::Differ(_) if one.has_majority => "differ",
        Why::Differ(_) => "differ without majority",
        Why::Nobody(Some(true)) => "ended",
        Why::Nobody(Some(false)) => "not ended",
        Why::Nobody(None) => "perhaps ended",
        Why::Missing if has(|how| matches!(how, Absence::Elsewhere(_))) => "elsewhere",
        Why::Missing if has(|how| matches!(how, Absence::NotBegun(_))) => "not begun",
        Why::Missing if !has(|how| *how != Absence::NoFile) => "no file",
        Why::Missing if one.inside.len() == 1 && one.ranks.len() > 1 => "alone",
        Why::Missing => "behind",
    };
    let mut cases = MEANINGS.lines().map(|line| line.split(" | "));
    let mut parts = cases
        .find(|parts| parts.clone().next() == Some(case))
        .unwrap_or_else(|| "".split(""));
    let (inside, named) = (ranks(one.inside.keys()), ranks(&one.ranks));
    let said = |text: &str| text.replace("INSIDE", &inside).replace("NAMED", &named);
    [1, 0].map(|skip| said(parts.nth(skip).unwrap_or_default()))
}

/// Who came last to a call that all are in.
fn apart(job: &Job, one: &Stuck) -> Option<String> {
    let times = one
        .inside
        .iter()
        .map(|(rank, at)| (job.call(*rank, *at).time_created_ns, *rank));
    let ((first, _), (last, rank)) = (times.clone().min()?, times.max()?);
    let seconds = last.saturating_sub(first) as f64 / 1e9;
    Some(format!(
        "rank {rank} came last, {seconds:.1} s after the first, by the machines' clocks"
    ))
}

/// What was read, and what is lacking.
fn read(job: &Job) -> String {
    let mut text = format!("dumps of {}", ranks(job.dumps.keys()));
    if !job.stacks.is_empty() {
        text += &format!(", py-spy's stacks of {}", ranks(job.stacks.keys()));
    }
    let mut without = job.ranks.iter().filter(|rank| !job.dumps.contains_key(rank)).peekable();
    if without.peek().is_some() {
        text += &format!("; no dump of {}", ranks(without));
    }
    if !job.dumps.values().any(|dump| dump.has_lines()) {
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
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for rank in &ranks {
        match runs.last_mut() {
            Some((_, last)) if ranks.len() > FEW && *last + 1 == *rank => *last = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let run = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first} to {last}"),
    };
    let shown: Vec<String> = runs.iter().take(FEW).map(run).collect();
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    let more = if runs.len() > FEW { " …" } else { "" };
    format!("{word} {}{more}", shown.join(", "))
}
