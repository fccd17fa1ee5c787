//! The nodes of a job, as schedulers and launchers write them: host files and Slurm's lists.

use shardlab::error::BadInput;
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
}

/// The content of a host file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFile {
    /// The nodes in the order of their first lines. In a file of plain lines, `slots` is the number
    /// of a node's lines.
    pub hosts: Vec<Host>,
    /// The form of all lines.
    pub form: Form,
    /// Whether the file has numbers of ranks. One line per node does not.
    pub counts: bool,
}

/// Reads the text of a host file. `path` is for messages.
pub fn host_file(text: &str, path: &Path) -> Result<HostFile, BadInput> {
    let refuse =
        |what: String, help: &str| Err(BadInput::new(format!("{} {what}", path.display()), help));
    let mut hosts: Vec<Host> = Vec::new();
    let mut file_form = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let Some((name, slots, form)) = host_line(line) else {
            let what =
                format!("cannot be read as a host file, line {}: {:?}", number + 1, cut(line));
            return refuse(what, "write `host`, `host slots=4` or `host:4`, one host per line");
        };
        if !is_name(name) {
            let what = format!("has no host's name in line {}: {:?}", number + 1, cut(name));
            return refuse(what, NAMES);
        }
        if *file_form.get_or_insert(form) != form {
            let what = format!(
                "contradicts itself: line {} counts ranks in a different way than the lines before",
                number + 1
            );
            return refuse(what, "write every line alike: `host`, or `host slots=4`, or `host:4`");
        }
        match hosts.iter_mut().find(|host| host.name == name) {
            None => hosts.push(Host { name: name.to_string(), slots }),
            Some(host) if form == Form::Lines => host.slots += 1,
            Some(host) => {
                let what = format!(
                    "contradicts itself: it has two counts for {name}, {} and {slots}",
                    host.slots
                );
                return refuse(what, "give each host one line");
            }
        }
    }
    if hosts.is_empty() {
        return refuse(
            "names no host".into(),
            "a host file has one host per line; is the job still running?",
        );
    }
    let form = file_form.unwrap_or(Form::Lines);
    let counts = form != Form::Lines || hosts.iter().any(|host| host.slots > 1);
    Ok(HostFile { hosts, form, counts })
}

/// The most bytes of a host's name (RFC 1035).
const LONGEST: usize = 253;

const NAMES: &str = "a name has at most 253 letters, digits, dots and hyphens; is this the list that the scheduler wrote?";

/// Whether this may be a host's name or address. Names are printed and handed to launchers, so none
/// has characters that a terminal obeys. Some sites have names with underscores, and an IPv6
/// address has colons, perhaps brackets, and an interface.
fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._:[]%".contains(c);
    (1..=LONGEST).contains(&name.len()) && name.chars().all(fits)
}

/// The beginning of a text, for an error.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(80)]
}

/// A line's host, its slots and its form. None if it has no known form.
fn host_line(line: &str) -> Option<(&str, usize, Form)> {
    let mut words = line.split_whitespace();
    let name = words.next()?;
    let mut slots = None;
    for word in words {
        let (key, value) = word.split_once('=')?;
        match key {
            "slots" if slots.is_none() => slots = Some(count(value)?),
            "max_slots" | "max-slots" => _ = count(value)?,
            _ => return None,
        }
    }
    match (slots, name.split_once(':')) {
        (Some(slots), None) => Some((name, slots, Form::Slots)),
        // Two colons and more are an IPv6 address.
        (None, Some((name, after))) if !after.contains(':') => {
            Some((name, count(after)?, Form::Colon))
        }
        (None, _) => Some((name, 1, Form::Lines)),
        (Some(_), Some(_)) => None,
    }
    .filter(|(name, ..)| !name.is_empty())
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
            let (inside, after) =
                after.split_once(']').ok_or_else(|| wrong("a bracket is left open"))?;
            let room = MOST / names.len();
            let numbers = slurm_numbers(inside, room).map_err(wrong)?;
            names = names
                .iter()
                .flat_map(|name| {
                    numbers.iter().map(move |number| format!("{name}{before}{number}"))
                })
                .collect();
            rest = after;
        }
        for name in &mut names {
            name.push_str(rest);
        }
        if names[0].is_empty() {
            return Err(wrong("a name is missing"));
        }
        // Names of one part differ only in their digits.
        if !is_name(&names[0]) {
            return Err(wrong("it has what is no host's name"));
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
    let number = |digits: &str| -> Result<u64, &'static str> {
        let all_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits
            .parse()
            .ok()
            .filter(|_| all_digits)
            .ok_or("brackets hold numbers and ranges such as 001-003")
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
