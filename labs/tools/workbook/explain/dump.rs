//! One rank's dump: its calls in the order in which it made them, and the groups that it names.

use deepspeed::torch::{Node, Value as Pickled};
use serde::Deserialize;
use serde_json::Value;
use shardlab::error::printable;
use std::collections::{BTreeMap, BTreeSet};

/// What the values of one pickle may take, each counted wherever it is used: the bytes of texts,
/// and `VALUE` for each. A dump of 2,000 calls has 200,000 values.
pub const VALUES: usize = 1 << 28;
const VALUE: usize = 64;

/// Ranks of a job, at the most.
pub const RANKS: usize = 1 << 17;

/// Ranks of all groups of one dump, together.
const MEMBERS: usize = 1 << 20;

/// Characters of a name. More is cut.
const NAME: usize = 80;

/// What one rank has recorded.
#[derive(Deserialize)]
pub struct Dump {
    version: String,
    #[serde(default)]
    pub entries: Vec<Call>,
    /// Of each group its ranks, as a text: `[0, 1, 2]`.
    pg_config: BTreeMap<String, Value>,
    /// The ranks of groups, by the group's name. gloo's recorder keeps one group only, without its
    /// name: the one that was made last.
    #[serde(skip)]
    pub groups: BTreeMap<String, BTreeSet<usize>>,
}

/// How far a call has come on the device, as far as the recorder knows.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum State {
    #[default]
    Scheduled,
    Started,
    Completed,
}

/// One call. Fields are named as in the file, unless they are not in it.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Call {
    record_id: i64,
    /// The group's name and its description.
    pub process_group: (String, String),
    /// The group's number on this rank.
    pub pg_id: i64,
    /// The number of a collective or a message in its group.
    #[serde(rename = "collective_seq_id")]
    pub number: i64,
    p2p_seq_id: i64,
    /// `nccl:all_reduce`, `nccl:send 0->1`. It becomes `op` and `peers`.
    profiling_name: String,
    pub op: String,
    /// Sender and receiver of a message, by their numbers in the group.
    pub peers: Option<(usize, usize)>,
    pub input_sizes: Vec<Vec<u64>>,
    pub output_sizes: Vec<Vec<u64>>,
    pub input_dtypes: BTreeSet<String>,
    pub state: State,
    /// Whether nobody waits for it any more.
    retired: bool,
    /// Whether the recorder knows which calls have ended.
    pub knows_ends: bool,
    /// Nanoseconds by the clock of the rank's machine.
    pub time_created_ns: i64,
    frames: Vec<Value>,
    /// `train.py:17 in step`, where the dump has it.
    pub line: Option<String>,
}

impl Dump {
    /// Reads a dump. Errors say what is wrong with the file.
    pub fn read(value: Value) -> Result<Dump, String> {
        let mut dump: Dump = serde_json::from_value(value)
            .map_err(|error| format!("it is no dump of a flight recorder: {error}"))?;
        if !dump.version.starts_with("2.") {
            return Err(format!("it is of version {}, and versions 2.x are known", dump.version));
        }
        let mut members = 0;
        for (group, config) in &dump.pg_config {
            let ranks: BTreeSet<usize> =
                serde_json::from_str(config["ranks"].as_str().unwrap_or_default())
                    .map_err(|_| "its `pg_config` has ranks that are none")?;
            members += ranks.len();
            if members > MEMBERS || ranks.last() >= Some(&RANKS) {
                return Err("its groups have too many ranks".to_string());
            }
            dump.groups.insert(name(group), ranks);
        }
        dump.entries.iter_mut().try_for_each(Call::complete)?;
        // The mark around messages has the number of the collective before them.
        dump.entries
            .dedup_by(|call, before| call.op == "coalesced" && before.is_message());
        Ok(dump)
    }

    /// Whether older calls have made room for newer ones.
    pub fn has_wrapped(&self) -> bool {
        self.entries.first().is_some_and(|call| call.record_id > 0)
    }
}

impl Call {
    /// Fills in what follows from the fields of the file.
    fn complete(&mut self) -> Result<(), String> {
        let (library, op) = self.profiling_name.split_once(':').unwrap_or_default();
        if op.is_empty() || self.process_group.0.is_empty() {
            return Err("an entry has no `profiling_name`, or no `process_group`".to_string());
        }
        let (op, peers) = op.split_once(' ').unwrap_or((op, ""));
        let ends = |sign| {
            let (one, other) = peers.split_once(sign)?;
            Some((one.parse().ok()?, other.parse().ok()?))
        };
        self.peers = ends("->").or(ends("<-").map(|(to, from)| (from, to)));
        // gloo may call a call retired that has not ended.
        self.knows_ends = self.state != State::Scheduled || (library != "gloo" && !self.retired);
        self.op = name(op);
        let (group, description) = &self.process_group;
        self.process_group = (name(group), name(description));
        if self.is_message() {
            self.number = self.p2p_seq_id;
        }
        self.line = self.frames.iter().find_map(|frame| {
            place(frame["filename"].as_str()?, &frame["line"].to_string(), frame["name"].as_str()?)
        });
        self.frames = Vec::new();
        Ok(())
    }

    pub fn is_message(&self) -> bool {
        self.op == "send" || self.op.starts_with("recv")
    }

    /// `group 1 (tp)`.
    pub fn group_name(&self) -> String {
        let (name, description) = &self.process_group;
        match description.as_str() {
            "" | "undefined" => format!("group {name}"),
            _ => format!("group {name} ({description})"),
        }
    }
}

/// A pickle's value as JSON has it. PyTorch writes a list of whole numbers as a call that has the
/// list as its argument.
pub fn plain(node: Node, left: &mut usize) -> Result<Value, String> {
    let size = VALUE + node.text().map_or(0, str::len);
    *left = left.checked_sub(size).ok_or("its pickle has millions of values")?;
    Ok(match node.value() {
        Pickled::Bool(value) => (*value).into(),
        Pickled::Int(value) => (*value).into(),
        Pickled::Float(value) => (*value).into(),
        Pickled::Text(text) => (**text).into(),
        Pickled::List(_) | Pickled::Tuple(_) => {
            Value::Array(node.items().map(|item| plain(item, left)).collect::<Result<_, _>>()?)
        }
        Pickled::Dict(_) => {
            let entries = node.entries().map(|(key, value)| {
                let key = plain(key, left)?;
                Ok((key.as_str().unwrap_or_default().to_string(), plain(value, left)?))
            });
            Value::Object(entries.collect::<Result<_, String>>()?)
        }
        Pickled::Object(_) => match node.call().and_then(|(_, args)| args.items().next()) {
            Some(list) => plain(list, left)?,
            None => Value::Null,
        },
        _ => Value::Null,
    })
}

/// A name that the screen may show.
pub fn name(text: &str) -> String {
    let short: String = text.chars().take(NAME).collect();
    printable(&short).replace('\n', " ")
}

/// Parts of paths that are PyTorch's and Python's. py-spy leaves out the folder of the latter.
const THEIRS: &str = "/torch/ /lib/python3 /site-packages/ /dist-packages/ /< /threading.py \
    /queue.py /selectors.py /socket.py /subprocess.py /multiprocessing/ /concurrent/";

/// `train.py:17 in step`, if the file is neither PyTorch's nor Python's.
pub fn place(file: &str, line: &str, function: &str) -> Option<String> {
    let path = format!("/{file}");
    if THEIRS.split(' ').any(|part| path.contains(part)) {
        return None;
    }
    let file = file.rsplit('/').next().unwrap_or(file);
    let function = function.rsplit('.').next().unwrap_or(function);
    Some(name(&format!("{file}:{line} in {function}")))
}
