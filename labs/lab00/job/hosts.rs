//! The nodes of a job, as schedulers and launchers write them: host files and Slurm's lists.

use shardlab::error::BadInput;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

/// The largest number of hosts, and of ranks on one host. No machine has more, so a larger number
/// is a mistake.
pub(super) const MOST: usize = 1 << 20;

/// A node of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The node's name, as the scheduler spells it.
    pub name: String,
    /// How many ranks the node takes.
    pub slots: usize,
}

/// So many nodes, in words.
pub fn in_nodes(nodes: usize) -> String {
    format!("{nodes} node{}", if nodes == 1 { "" } else { "s" })
}

/// The form of a host file: how it writes the number of ranks per node. Not every launcher reads
/// every form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `host`, with one line per node (as on Polaris) or one line per rank.
    Lines,
    /// `host slots=4`, Open MPI's form.
    Slots,
    /// `host:4`, MPICH's form.
    Colon,
    /// `host[01-04]`, Slurm's short form, with or without a count. No launcher reads it in a file.
    Short,
}

/// The content of a host file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFile {
    /// The nodes in the order of their first lines. In a file of plain lines, `slots` is the number
    /// of a node's lines.
    pub hosts: Vec<Host>,
    /// The form of all lines; [`Form::Short`] if one of them names several hosts.
    pub form: Form,
    /// Whether the file has numbers of ranks. One line per node does not.
    pub counts: bool,
}

impl HostFile {
    /// The ranks of each node as the file counts them, and in words how it does.
    pub(super) fn ranks(&self) -> (Vec<usize>, String) {
        let by = if self.form == Form::Lines {
            "lines of the host file"
        } else {
            "the host file's counts"
        };
        (self.hosts.iter().map(|host| host.slots).collect(), by.to_string())
    }
}

/// Reads the text of a host file. `path` is for messages.
pub fn host_file(text: &str, path: &Path) -> Result<HostFile, BadInput> {
    let refuse = |what: String, help| BadInput::new(format!("{} {what}", path.display()), help);
    let mut hosts: Vec<Host> = Vec::new();
    let mut file_form = None;
    let mut short = false;
    // The places of names: a short form can have a million.
    let mut places = HashMap::new();
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (word, slots, form) = host_line(line).map_err(|why| {
            let what = format!("cannot be read as a host file, line {number}");
            refuse(format!("{what}: {:?}: {why}", cut(line)), LINES)
        })?;
        let names = names(word).map_err(|(why, help)| {
            let what = format!("has no host's name in line {number}");
            refuse(format!("{what}: {:?}: {why}", cut(word)), help)
        })?;
        short |= word.contains('[') && !word.contains(':');
        if *file_form.get_or_insert(form) != form {
            let what = format!(
                "contradicts itself: line {number} counts ranks in a different way than the lines before"
            );
            let help = "write every line alike: `host`, or `host slots=4`, or `host:4`";
            return Err(refuse(what, help));
        }
        for name in names {
            let at = *places.entry(name.clone()).or_insert(hosts.len());
            if at == hosts.len() {
                hosts.push(Host { name, slots });
            } else if form == Form::Lines {
                hosts[at].slots += 1;
            } else {
                let before = hosts[at].slots;
                let what = format!("it has two counts for {name}, {before} and {slots}");
                let help = "give each host one line";
                return Err(refuse(format!("contradicts itself: {what}"), help));
            }
        }
        if hosts.len() > MOST {
            return Err(refuse("has too many hosts".into(), LINES));
        }
    }
    if hosts.is_empty() {
        let help = "a host file has one host per line; is the job still running?";
        return Err(refuse("names no host".into(), help));
    }
    let form = file_form.unwrap_or(Form::Lines);
    let counts = form != Form::Lines || hosts.iter().any(|host| host.slots > 1);
    Ok(HostFile { hosts, form: if short { Form::Short } else { form }, counts })
}

/// The most bytes of a host's name (RFC 1035).
const LONGEST: usize = 253;

const LINES: &str = "write `host`, `host slots=4` or `host:4`, one host per line";

const NAMES: &str = "a name has at most 253 letters, digits, dots and hyphens; is this the list that the scheduler wrote?";

/// What is wrong with a name, and what to do.
type Wrong = (String, &'static str);

/// The hosts of a line's first word: one name or address, or Slurm's short form of several.
fn names(word: &str) -> Result<Vec<String>, Wrong> {
    // An IPv6 address may be in brackets.
    let inside = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
    let name = inside.filter(|inside| inside.contains(':')).unwrap_or(word);
    // Perhaps with the interface by which it is reached: fe80::1%eth0.
    let (address, interface) = name.split_once('%').unwrap_or((name, "lo"));
    let is_address = address.parse().is_ok_and(|ip: Ipv6Addr| !ip.is_unspecified());
    if is_address && ensure_name(interface).is_ok() {
        return Ok(vec![name.to_string()]);
    }
    if name.contains('[') {
        let help = "Slurm's short form is x[001-003,007]; or write one host per line";
        return slurm_hosts(word).map_err(|error| (error.what, help));
    }
    ensure_name(name)?;
    Ok(vec![name.to_string()])
}

/// Refuses what cannot be a host's name or IPv4 address, and says by which character. Names are
/// printed and handed to launchers, so none has characters that a terminal obeys, and none begins
/// as a flag does. Some sites have names with underscores.
fn ensure_name(name: &str) -> Result<(), Wrong> {
    if name.parse().is_ok_and(|ip: IpAddr| ip.is_unspecified()) {
        return Err((format!("{name} is the address of no host"), NAMES));
    }
    let fits = |c: &char| c.is_ascii_alphanumeric() || "-._".contains(*c);
    if let Some(foreign) = name.chars().find(|c| !fits(c)) {
        let help = match foreign {
            '@' => "leave the user out, and write it into ~/.ssh/config: Host …, User …",
            ',' | ';' => LINES,
            ':' => "write `host:4`, or an IPv6 address; one host per line",
            _ => NAMES,
        };
        return Err((format!("{foreign:?} is foreign in a name"), help));
    }
    let first = name.chars().next().unwrap_or(' ');
    if !first.is_ascii_alphanumeric() && first != '_' {
        return Err((format!("a name does not begin with {first:?}"), NAMES));
    }
    if name.len() > LONGEST {
        return Err((format!("it has {} characters", name.len()), NAMES));
    }
    Ok(())
}

/// The beginning of a text, for an error.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(80)]
}

/// Keys of Open MPI's host files that count ranks, and those that limit them.
const SLOTS: [&str; 3] = ["slots", "cpu", "count"];
const LIMITS: [&str; 4] = ["max_slots", "max-slots", "slots_max", "slots-max"];

/// A line's host, its slots and its form, or what is foreign in the line.
fn host_line(line: &str) -> Result<(&str, usize, Form), String> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    // A colon outside brackets counts. Two colons and more are an IPv6 address, or no name.
    let end = word.rfind(']').map_or(0, |at| at + 1);
    let colon = word[end..].find(':').filter(|_| end > 0 || word.matches(':').count() == 1);
    let (name, number) = word.split_at(colon.map_or(word.len(), |at| end + at));
    if name.is_empty() {
        return Err(format!("no name is before {:?}", cut(number)));
    }
    let mut form = Form::Lines;
    let mut slots = None;
    if !number.is_empty() {
        form = Form::Colon;
        slots = Some(number_of(number, &number[1..])?);
    }
    // Open MPI reads `slots = 4`, too.
    let rest = rest.split_whitespace().collect::<Vec<_>>().join(" ");
    let rest = rest.replace(" =", "=").replace("= ", "=");
    for pair in rest.split_whitespace() {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let limits = LIMITS.contains(&key);
        if !limits && !SLOTS.contains(&key) {
            return Err(format!("{:?} is foreign in a line of a name and a count", cut(pair)));
        }
        let given = number_of(pair, value)?;
        if limits {
            continue;
        }
        if slots.replace(given).is_some() {
            let second = if form == Form::Colon { number } else { pair };
            return Err(format!("{:?} is a second count", cut(second)));
        }
        form = Form::Slots;
    }
    Ok((name, slots.unwrap_or(1), form))
}

/// The number that a `word` gives.
fn number_of(word: &str, number: &str) -> Result<usize, String> {
    count(number).ok_or_else(|| format!("{:?} has no number from 1 to {MOST}", cut(word)))
}

/// A positive number of a plausible size.
fn count(text: &str) -> Option<usize> {
    text.parse().ok().filter(|number| (1..=MOST).contains(number))
}

/// Reads names in Slurm's short form: `x[001-003,007],login` is x001, x002, x003, x007 and login.
pub fn slurm_hosts(list: &str) -> Result<Vec<String>, BadInput> {
    let wrong = |why: &str| {
        BadInput::new(
            format!("{:?} is no list of hosts: {why}", cut(list)),
            "Slurm writes x[001-003,007]; set it as Slurm did",
        )
    };
    let mut hosts = Vec::new();
    for part in split_outside_brackets(list).map_err(wrong)? {
        // Each bracket multiplies the names before it. The rightmost bracket counts fastest.
        let mut names = vec![String::new()];
        let mut rest = part;
        while let Some((before, after)) = rest.split_once('[') {
            let (inside, after) = after.split_once(']').unwrap_or((after, ""));
            let room = MOST / names.len();
            let numbers = slurm_numbers(inside, room).map_err(wrong)?;
            let mut longer = Vec::new();
            for name in names {
                longer.extend(numbers.iter().map(|number| format!("{name}{before}{number}")));
            }
            names = longer;
            rest = after;
        }
        for name in &mut names {
            name.push_str(rest);
        }
        if names[0].is_empty() {
            return Err(wrong("a name is missing"));
        }
        // Names of one part differ only in their digits.
        if let Err((why, _)) = ensure_name(&names[0]) {
            return Err(wrong(&format!("it has what is no host's name: {why}")));
        }
        hosts.append(&mut names);
        if hosts.len() > MOST {
            return Err(wrong("it has too many hosts"));
        }
    }
    Ok(hosts)
}

/// Splits at commas that are not inside brackets.
fn split_outside_brackets(list: &str) -> Result<Vec<&str>, &'static str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut inside = false;
    for (at, character) in list.char_indices() {
        match character {
            '[' if inside => return Err("a bracket is inside a bracket"),
            ']' if !inside => return Err("a bracket is closed that was not open"),
            '[' | ']' => inside = !inside,
            ',' if !inside => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    if inside {
        Err("a bracket is left open")
    } else {
        Ok(parts)
    }
}

/// `001-003,007` as 001, 002, 003, 007. Numbers have as many digits as the first number of their
/// range. An error if there are more than `room`.
fn slurm_numbers(inside: &str, room: usize) -> Result<Vec<String>, &'static str> {
    let number = |digits: &str| match digits.parse::<u64>() {
        Ok(number) if !digits.starts_with('+') => Ok(number),
        _ => Err("brackets hold numbers and ranges such as 001-003"),
    };
    let mut numbers = Vec::new();
    for range in inside.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let from = number(first)?;
        let to = number(last)?;
        if from > to {
            return Err("a range runs backwards");
        }
        if to - from >= (room - numbers.len()) as u64 {
            return Err("it has too many hosts");
        }
        numbers.extend((from..=to).map(|n| format!("{n:0width$}", width = first.len())));
    }
    Ok(numbers)
}

/// Reads numbers in Slurm's short form: `4(x2),3` is 4, 4, 3.
pub fn slurm_counts(list: &str) -> Result<Vec<usize>, BadInput> {
    let read = || {
        let mut counts = Vec::new();
        for part in list.split(',') {
            let (value, times) = match part.split_once("(x") {
                Some((value, times)) => (value, count(times.strip_suffix(')')?)?),
                None => (part, 1),
            };
            counts.extend(std::iter::repeat_n(count(value)?, times));
            if counts.len() > MOST {
                return None;
            }
        }
        Some(counts)
    };
    read().ok_or_else(|| {
        BadInput::new(
            format!("{:?} is no list of ranks per node", cut(list)),
            "Slurm writes 4(x2),3 for 4, 4 and 3; set it as Slurm did",
        )
    })
}
