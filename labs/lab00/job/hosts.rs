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
    let refuse =
        |what: String, help: &str| Err(BadInput::new(format!("{} {what}", path.display()), help));
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
        let (word, slots, form) = match host_line(line) {
            Ok(host) => host,
            Err(why) => {
                let line = cut(line);
                let what = format!("cannot be read as a host file, line {number}: {line:?}: {why}");
                return refuse(what, LINES);
            }
        };
        let names = match names(word) {
            Ok(names) => names,
            Err((why, help)) => {
                let name = cut(word);
                return refuse(
                    format!("has no host's name in line {number}: {name:?}: {why}"),
                    help,
                );
            }
        };
        short |= word.contains('[') && !word.contains(':');
        if *file_form.get_or_insert(form) != form {
            let what = format!(
                "contradicts itself: line {number} counts ranks in a different way than the lines before"
            );
            return refuse(what, "write every line alike: `host`, or `host slots=4`, or `host:4`");
        }
        for name in names {
            match places.get(&name).map(|&at: &usize| &mut hosts[at]) {
                None => {
                    places.insert(name.clone(), hosts.len());
                    hosts.push(Host { name, slots });
                }
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
        if hosts.len() > MOST {
            return refuse("has too many hosts".into(), LINES);
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
    let address = word.strip_prefix('[').and_then(|word| word.strip_suffix(']')).unwrap_or(word);
    if address.contains("::") || address.matches(':').count() > 1 {
        return match ipv6(address) {
            Some(ip) if !ip.is_unspecified() => Ok(vec![address.to_string()]),
            Some(_) => Err((format!("{address} is the address of no host"), NAMES)),
            None => Err(("':' is foreign in a name, and this is no IPv6 address".into(), LINES)),
        };
    }
    if word.contains('[') {
        return slurm_hosts(word).map_err(|error| {
            (error.what, "Slurm's short form is x[001-003,007]; or write one host per line")
        });
    }
    ensure_name(word)?;
    Ok(vec![word.to_string()])
}

/// An IPv6 address, perhaps with the interface by which it is reached: `fe80::1%eth0`.
fn ipv6(text: &str) -> Option<Ipv6Addr> {
    let (address, interface) = text.split_once('%').unwrap_or((text, "lo"));
    ensure_name(interface).ok()?;
    address.parse().ok()
}

/// Refuses what cannot be a host's name or IPv4 address, and says by which character. Names are
/// printed and handed to launchers, so none has characters that a terminal obeys, and none begins
/// as a flag does. Some sites have names with underscores.
fn ensure_name(name: &str) -> Result<(), Wrong> {
    let fits = |c: &char| c.is_ascii_alphanumeric() || "-._".contains(*c);
    if let Some(foreign) = name.chars().find(|c| !fits(c)) {
        let help = match foreign {
            '@' => "leave the user out, and write it into ~/.ssh/config: Host …, User …",
            ',' | ';' => LINES,
            _ => NAMES,
        };
        return Err((format!("{foreign:?} is foreign in a name"), help));
    }
    let first = name.chars().next().unwrap_or('-');
    if !first.is_ascii_alphanumeric() && first != '_' {
        return Err((format!("a name does not begin with {first:?}"), NAMES));
    }
    if name.len() > LONGEST {
        return Err((format!("it has {} characters", name.len()), NAMES));
    }
    match name.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() => Err((format!("{ip} is the address of no host"), NAMES)),
        _ => Ok(()),
    }
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
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    // Open MPI reads `slots = 4`, too.
    let rest = rest.replace('=', " = ");
    let words: Vec<&str> = rest.split_whitespace().collect();
    let mut slots = None;
    let mut at = 0;
    while at < words.len() {
        let key = words[at];
        let pairs = words.get(at + 1) == Some(&"=");
        let value = words.get(at + 2).filter(|_| pairs).unwrap_or(&"");
        let pair = format!("{key}{}{value}", if pairs { "=" } else { "" });
        if !pairs || !SLOTS.contains(&key) && !LIMITS.contains(&key) {
            return Err(format!("{:?} is foreign in a line of a name and a count", cut(&pair)));
        }
        let Some(number) = count(value) else {
            return Err(format!("{:?} has no number from 1 to {MOST}", cut(&pair)));
        };
        if SLOTS.contains(&key) && slots.replace(number).is_some() {
            return Err(format!("{:?} is a second count", cut(&pair)));
        }
        at += 3;
    }
    // A colon outside brackets counts. Two colons and more are an IPv6 address, or no name.
    let from = name.rfind(']').unwrap_or(0);
    let colon = name[from..].find(':').map(|at| from + at);
    match colon {
        Some(at) if from > 0 || !name[at + 1..].contains(':') => {
            let (name, number) = (&name[..at], &name[at + 1..]);
            if name.is_empty() {
                return Err(format!("no name is before \":{}\"", cut(number)));
            }
            if slots.is_some() {
                return Err(format!("\":{}\" is a second count", cut(number)));
            }
            let number = count(number)
                .ok_or_else(|| format!("\":{}\" is no number from 1 to {MOST}", cut(number)))?;
            Ok((name, number, Form::Colon))
        }
        _ => Ok((
            name,
            slots.unwrap_or(1),
            if slots.is_some() { Form::Slots } else { Form::Lines },
        )),
    }
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
