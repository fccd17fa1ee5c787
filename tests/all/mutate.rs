//! Damages files in ways that their readers must survive: bytes, archives with right checksums,
//! instructions of pickles, their values, JSON, and folders. A seed always does the same damage.

use deepspeed::torch::{Graph, Id, TorchFile, Value, save_graph};
use std::collections::{BTreeMap, HashMap};

/// Random numbers (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// A number at which arithmetic, an allocation or a loop may break.
    fn number(&mut self) -> i64 {
        let edge = self.pick(&[
            0,
            1,
            -1,
            2,
            3,
            8,
            63,
            255,
            4096,
            1 << 20,
            1 << 31,
            1 << 32,
            1 << 40,
            1 << 50,
            1 << 62,
            i64::MAX,
            i64::MIN,
        ]);
        edge.wrapping_add(if self.one_in(3) { self.below(5) as i64 - 2 } else { 0 })
    }

    fn text(&mut self) -> String {
        let texts = [
            "../evil",
            "/evil",
            "..",
            ".",
            "",
            "a/b",
            "a\\b",
            "a\0b",
            "\u{1b}[2J",
            "optimizer_state.pt",
            "x\n",
            "CON:",
            "(a+)+$",
            "\\w{900}",
            "(?:(?:(?:a{90}){90}){90})",
            "[",
            ".*",
            "wte",
            "norm",
            "zero_stage",
            "param_shapes",
            "universal_checkpoint_info",
            "data/0",
            "0",
        ];
        if self.one_in(9) {
            "n".repeat(1 << self.below(12))
        } else {
            self.pick(&texts).to_string()
        }
    }
}

/// Changes some bytes, cuts, repeats or inserts some.
pub fn bytes(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let to = random.below(bytes.len() + 1);
    match random.below(7) {
        0 | 1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        2 if at < bytes.len() => bytes[at] = random.pick(&[0, 1, 0x7f, 0x80, 0xff, b'.', b'(']),
        3 => bytes.truncate(at),
        4 => drop(bytes.drain(at.min(to)..at.max(to).min(at.min(to) + 40))),
        5 => {
            let part = bytes[at.min(to)..at.max(to).min(at.min(to) + 4000)].to_vec();
            drop(bytes.splice(at..at, part));
        }
        _ => {
            let number = random.number().to_le_bytes();
            let size = random.pick(&[1, 2, 4, 8]);
            bytes
                .iter_mut()
                .skip(at)
                .zip(&number[..size])
                .for_each(|(byte, new)| *byte = *new);
        }
    }
}

/// The entries of an archive whose entries are stored as they are.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn field(file: &[u8], at: usize, size: usize) -> Option<usize> {
    let mut number = [0; 8];
    number[..size].copy_from_slice(file.get(at..at + size)?);
    Some(u64::from_le_bytes(number) as usize)
}

fn entries(file: &[u8]) -> Option<Entries> {
    let end = (0..file.len().checked_sub(21)?)
        .rev()
        .find(|at| file[*at..].starts_with(b"PK\x05\x06"))?;
    let count = field(file, end + 10, 2)?;
    let mut at = field(file, end + 16, 4)?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let name = field(file, at + 28, 2)?;
        let extra = field(file, at + 30, 2)?;
        let header = field(file, at + 42, 4)?;
        let begin = header + 30 + field(file, header + 26, 2)? + field(file, header + 28, 2)?;
        let bytes = file.get(begin..begin + field(file, at + 24, 4)?)?;
        entries.push((file.get(at + 46..at + 46 + name)?.to_vec(), bytes.to_vec()));
        at += 46 + name + extra;
    }
    Some(entries)
}

/// The archive of some entries. `wrong` of its header fields are wrong; checksums are those of the
/// entries.
fn archive(entries: &Entries, mut wrong: usize, random: &mut Random) -> Vec<u8> {
    let mut file = Vec::new();
    let mut directory = Vec::new();
    for (name, bytes) in entries {
        let sum = if random.one_in(8) { 0 } else { crc32(bytes) };
        let header = file.len() as u32;
        let mut common = Vec::from([0, 0, 0, 0, 0, 0, 0x21, 0]);
        common.extend([sum, bytes.len() as u32, bytes.len() as u32].map(u32::to_le_bytes).concat());
        common.extend([name.len() as u16, 0].map(u16::to_le_bytes).concat());
        file.extend([b"PK\x03\x04\x14\0", &common[..], name, bytes].concat());
        let begin = if random.one_in(40) {
            random.below(file.len()) as u32
        } else {
            header
        };
        directory.extend(
            [b"PK\x01\x02\x2d\0\x14\0", &common[..], &[0; 10], &begin.to_le_bytes(), name].concat(),
        );
    }
    let begin = file.len() as u32;
    let count = entries.len() as u16;
    let mut end = [&b"PK\x05\x06\0\0\0\0"[..], &count.to_le_bytes(), &count.to_le_bytes()].concat();
    end.extend([directory.len() as u32, begin].map(u32::to_le_bytes).concat());
    end.extend([0, 0]);
    if random.one_in(20) {
        // A large archive's record, with different numbers.
        let mut record = [&b"PK\x06\x06"[..], &[0; 28]].concat();
        let numbers = [count as i64, directory.len() as i64, begin as i64];
        numbers
            .map(|number| if random.one_in(3) { random.number() } else { number })
            .iter()
            .for_each(|n| record.extend(n.to_le_bytes()));
        let at = (file.len() + directory.len()) as u64;
        record.extend([&b"PK\x06\x07\0\0\0\0"[..], &at.to_le_bytes(), &[1, 0, 0, 0]].concat());
        directory.extend(record);
        end[10] = 0xff;
        end[11] = 0xff;
    }
    while wrong > 0 {
        wrong -= 1;
        let (into, first) = match random.below(3) {
            0 => (&mut file, 0),
            1 => (&mut directory, 0),
            _ => (&mut end, 4),
        };
        // Headers begin with 30 to 46 bytes of fields.
        let at = first + random.below(42);
        let number = random.number().to_le_bytes();
        let size = random.pick(&[1, 2, 4]);
        into.iter_mut()
            .skip(at)
            .zip(&number[..size])
            .for_each(|(byte, new)| *byte = *new);
    }
    [file, directory, end].concat()
}

fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Damages a file of PyTorch.
pub fn torch_file(file: &mut Vec<u8>, random: &mut Random) {
    if random.one_in(6) {
        return bytes(file, random);
    }
    if random.one_in(3)
        && let Some(changed) = values(file, random)
    {
        *file = changed;
        return;
    }
    let Some(mut entries) = entries(file).filter(|entries| !entries.is_empty()) else {
        return bytes(file, random);
    };
    let at = random.below(entries.len());
    let other = random.below(entries.len());
    let mut wrong = 0;
    match random.below(10) {
        0 => drop(entries.remove(at)),
        1 => {
            let name = random.text();
            entries[at].0 = if random.one_in(2) {
                [b"archive/", name.as_bytes()].concat()
            } else {
                name.into()
            };
        }
        2 => entries[at].0.push(0xff),
        3 => entries[at].1 = entries[other].1.clone(),
        4 => bytes(&mut entries[at].1, random),
        5 => wrong = 1 + random.below(3),
        6 => entries.push(entries[at].clone()),
        _ => {
            if let Some((_, pickle)) =
                entries.iter_mut().find(|(name, _)| name.ends_with(b"/data.pkl"))
            {
                let mut program = instructions(pickle);
                (0..1 + random.below(3)).for_each(|_| instruction(&mut program, random));
                *pickle = program.concat();
            }
        }
    }
    *file = archive(&entries, wrong, random);
}

/// The instructions of a pickle, each with its argument.
fn instructions(pickle: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < pickle.len() {
        let counted =
            |size: usize| 1 + size + field(pickle, at + 1, size).unwrap_or(0).min(pickle.len());
        let lines = || {
            pickle[at..]
                .iter()
                .enumerate()
                .filter(|(_, byte)| **byte == b'\n')
                .nth(1)
                .map_or(1, |(end, _)| end + 1)
        };
        let size = match pickle[at] {
            b'K' | b'h' | b'q' | 0x80 => 2,
            b'M' => 3,
            b'J' | b'j' | b'r' => 5,
            b'G' | 0x95 => 9,
            b'U' | b'C' | 0x8c | 0x8a => counted(1),
            b'X' | b'T' | b'B' | 0x8b => counted(4),
            0x8d | 0x8e | 0x96 => counted(8),
            b'c' => lines(),
            _ => 1,
        };
        let end = (at + size).min(pickle.len());
        all.push(pickle[at..end].to_vec());
        at = end;
    }
    all
}

fn instruction(program: &mut Vec<Vec<u8>>, random: &mut Random) {
    if program.is_empty() {
        return program.push(hostile(random));
    }
    let at = random.below(program.len());
    let other = random.below(program.len());
    // Instructions that a hostile value can replace.
    let plain: Vec<usize> = (0..program.len())
        .filter(|at| {
            matches!(
                program[*at].first(),
                Some(b'K' | b'M' | b'J' | b'X' | b'N' | b'h' | b'j' | 0x88)
            )
        })
        .collect();
    match random.below(8) {
        0 => drop(program.remove(at)),
        1 => program.insert(at, program[other].clone()),
        2 => program.swap(at, other),
        3 => {
            program[at] = vec![
                random.pick(b"(012N]})tldaesuRbQ.\x88\x8f\x90\x91\x85\x86\x87\x81\x92\x93\x94"),
            ]
        }
        4 => program[at] = hostile(random),
        _ if !plain.is_empty() => {
            let at = random.pick(&plain);
            program[at] = hostile(random);
        }
        _ => {}
    }
}

/// Instructions that put one value on the stack.
fn hostile(random: &mut Random) -> Vec<u8> {
    let long =
        |text: &str| [&b"X"[..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
    let memo = |number: u32| [&b"r"[..], &number.to_le_bytes()].concat();
    let again = |number: u32| [&b"j"[..], &number.to_le_bytes()].concat();
    match random.below(14) {
        0 => [&[0x8a, 8][..], &random.number().to_le_bytes()].concat(),
        1 => long(&random.text()),
        2 => b"N".to_vec(),
        // A list that contains itself.
        3 => [&b"]"[..], &memo(900), &again(900), b"a"].concat(),
        4 => [b"(".repeat(300), b"t".repeat(300)].concat(),
        5 => [b"(".repeat(150), b"t".repeat(150)].concat(),
        // A tuple of ten tuples of ten tuples, and so on.
        6 => {
            let mut program = [&long("laugh")[..], &memo(901)].concat();
            for level in 0..random.below(20) as u32 {
                program.extend(
                    [&b"("[..], &again(901 + level).repeat(10), b"t", &memo(902 + level)].concat(),
                );
            }
            program
        }
        7 => [&b"N"[..], &[0x94; 5000]].concat(),
        8 => [&b"N("[..], &b"2".repeat(2000), b"l"].concat(),
        9 => [&[0x8b][..], &2000u32.to_le_bytes(), &[7; 2000]].concat(),
        10 => [&b"]("[..], &b"K\x05".repeat(random.below(3000)), b"e"].concat(),
        11 => b"cos\nsystem\n(X\x04\x00\x00\x00truetR".to_vec(),
        12 => [&b"X\xff\xff\xff\x7f"[..], b"a"].concat(),
        _ => again(random.below(60) as u32),
    }
}

/// The same file with some values changed, by the library's own writer.
fn values(file: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().ok()?;
    let path = dir.path().join("archive.pt");
    std::fs::write(&path, file).ok()?;
    let read = TorchFile::open(&path).ok()?;
    let mut copy = Copy {
        from: &read.graph,
        to: Graph::default(),
        made: HashMap::new(),
        left: 0,
        random,
    };
    copy.left = copy.random.below(read.graph.len());
    let root = copy.value(read.graph.root);
    copy.to.root = root;
    let storages = entries(file)?.into_iter().filter_map(|(name, bytes)| {
        let name = String::from_utf8(name).ok()?;
        Some((name.split_once("/data/")?.1.to_string(), bytes))
    });
    save_graph(&path, &copy.to, &storages.collect::<Vec<_>>()).ok()?;
    std::fs::read(&path).ok()
}

struct Copy<'a> {
    from: &'a Graph,
    to: Graph,
    made: HashMap<Id, Id>,
    /// Values until one is changed.
    left: usize,
    random: &'a mut Random,
}

impl Copy<'_> {
    fn value(&mut self, id: Id) -> Id {
        if let Some(made) = self.made.get(&id) {
            return *made;
        }
        let hit = self.left == 0;
        self.left = if hit {
            self.random.below(4 * self.from.len())
        } else {
            self.left - 1
        };
        let value = match self.from.value(id).clone() {
            _ if hit && self.random.one_in(12) => Value::None,
            Value::Int(_) if hit => Value::Int(self.random.number()),
            Value::Float(_) if hit => {
                Value::Float(self.random.pick(&[f64::NAN, f64::INFINITY, -1.0, 1e300, 0.0]))
            }
            Value::Text(_) if hit => Value::Text(self.random.text().into()),
            Value::List(items) => Value::List(self.items(items, hit)),
            Value::Tuple(items) => Value::Tuple(self.items(items, hit)),
            Value::Dict(pairs) => Value::Dict(self.pairs(pairs, hit)),
            Value::Persistent(reference) => Value::Persistent(self.value(reference)),
            Value::Object(object) => {
                let mut object = object.clone();
                (object.class, object.args) = (self.value(object.class), self.value(object.args));
                object.items = self.items(object.items, hit);
                object.pairs = self.pairs(object.pairs, hit);
                object.state = object.state.map(|state| self.value(state));
                Value::Object(object)
            }
            value => value,
        };
        let made = self.to.push(value);
        self.made.insert(id, made);
        made
    }

    fn items(&mut self, items: Vec<Id>, hit: bool) -> Vec<Id> {
        let mut made: Vec<Id> = items.into_iter().map(|item| self.value(item)).collect();
        if hit {
            self.rearrange(&mut made)
        }
        made
    }

    fn pairs(&mut self, pairs: Vec<(Id, Id)>, hit: bool) -> Vec<(Id, Id)> {
        let mut made: Vec<(Id, Id)> = pairs
            .into_iter()
            .map(|(key, value)| (self.value(key), self.value(value)))
            .collect();
        if hit {
            self.rearrange(&mut made)
        }
        made
    }

    fn rearrange<T: Clone>(&mut self, items: &mut Vec<T>) {
        if items.is_empty() {
            return;
        }
        let at = self.random.below(items.len());
        let other = self.random.below(items.len());
        match self.random.below(5) {
            0 => drop(items.remove(at)),
            1 => items.swap(at, other),
            2 => items.push(items[at].clone()),
            3 => items.clear(),
            _ => {
                *items = std::iter::repeat_n(items[at].clone(), self.random.pick(&[2, 40, 2000]))
                    .collect()
            }
        }
    }
}

/// Changes a value somewhere in a JSON document.
pub fn json(value: &mut serde_json::Value, random: &mut Random) {
    use serde_json::Value as Json;
    match value {
        Json::Array(items) if !items.is_empty() && !random.one_in(4) => {
            let at = random.below(items.len());
            match random.below(8) {
                0 => drop(items.remove(at)),
                1 => items.push(items[at].clone()),
                _ => json(&mut items[at], random),
            }
        }
        Json::Object(fields) if !fields.is_empty() && !random.one_in(8) => {
            let key = random.pick(&fields.keys().cloned().collect::<Vec<_>>());
            match random.below(8) {
                0 => drop(fields.remove(&key)),
                1 => {
                    let value = fields.remove(&key).unwrap_or_default();
                    fields.insert(random.text(), value);
                }
                _ => json(&mut fields[&key], random),
            }
        }
        Json::Number(_) if !random.one_in(8) => *value = Json::from(random.number()),
        Json::String(_) if !random.one_in(8) => *value = Json::from(random.text()),
        _ => {
            *value = random.pick(&[
                Json::Null,
                Json::from(0),
                Json::from(-1),
                Json::from(u64::MAX),
                Json::from(""),
                Json::Array(vec![]),
            ])
        }
    }
}

/// Files by name.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Takes a file away, or gives it a different name, or adds one of a different checkpoint.
pub fn folder(files: &mut Files, other: &Files, random: &mut Random) {
    let name = random.pick(&files.keys().cloned().collect::<Vec<_>>());
    let theirs = random.pick(&other.keys().cloned().collect::<Vec<_>>());
    match random.below(5) {
        0 => drop(files.remove(&name)),
        1 => {
            let bytes = files.remove(&name).unwrap_or_default();
            let digit = char::from(b'0' + random.below(10) as u8).to_string();
            let at = name.find(|c: char| c.is_ascii_digit()).unwrap_or(0);
            files.insert([&name[..at], &digit, &name[(at + 1).min(name.len())..]].concat(), bytes);
        }
        2 => drop(files.insert(theirs.clone(), other[&theirs].clone())),
        3 => drop(files.insert(name, other[&theirs].clone())),
        _ => drop(files.insert(format!("bf16_{name}"), other[&theirs].clone())),
    }
}
