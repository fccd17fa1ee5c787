//! Files that `torch.load` reads: stored entries, each tensor's numbers at a multiple of 64 bytes,
//! so that they can be mapped.
//!
//! Not the crate `zip` 9.2.2: its writer completes the archive when it is dropped after an error,
//! and where the disk is full it prints that on its own.

use super::encode::encode;
use super::file::{TorchFile, copy};
use super::tensor::Dtype;
use super::value::{Graph, Id, Value};
use shardlab::checkpoint::cause;
use shardlab::error::BadInput;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Every entry's bytes begin at a multiple of this.
const ALIGNMENT: u64 = 64;

/// Entries and files up to this size have plain 32-bit fields.
const SMALL: u64 = 0xffff_fffe;

/// An archive that is being written.
struct TorchWriter {
    out: BufWriter<File>,
    at: u64,
    /// The folder of all entries.
    folder: String,
    directory: Vec<u8>,
    entries: u64,
}

impl TorchWriter {
    /// `folder` is the file's name, without its ending.
    fn new(out: BufWriter<File>, folder: &str) -> TorchWriter {
        TorchWriter {
            out,
            at: 0,
            folder: folder.to_string(),
            directory: Vec::new(),
            entries: 0,
        }
    }

    fn entry(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.stream(name, bytes.len() as u64, crc32fast::hash(bytes), |out| out.write_all(bytes))
    }

    /// Writes an entry of `size` bytes, which `write` supplies. Their checksum comes first in the
    /// file.
    fn stream(
        &mut self,
        name: &str,
        size: u64,
        crc: u32,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> io::Result<()> {
        let name = format!("{}/{name}", self.folder);
        let header = self.at;
        let large = size > SMALL;
        // A large entry has its size twice in an extra field.
        let extra = if large { 20 } else { 0 };
        let begin = header + 30 + name.len() as u64 + extra + 4;
        let padding = begin.next_multiple_of(ALIGNMENT) - begin;
        let narrow = if large { u32::MAX } else { size as u32 };
        let mut bytes = b"PK\x03\x04".to_vec();
        let fields = |bytes: &mut Vec<u8>, extra: u64| {
            let version: u16 = if large || header > SMALL { 45 } else { 20 };
            bytes.extend(version.to_le_bytes());
            // Flags, method, time and date: none, stored, midnight of 1 January 1980.
            bytes.extend([0, 0, 0, 0, 0, 0, 0x21, 0]);
            bytes.extend(crc.to_le_bytes());
            bytes.extend(narrow.to_le_bytes());
            bytes.extend(narrow.to_le_bytes());
            bytes.extend((name.len() as u16).to_le_bytes());
            bytes.extend((extra as u16).to_le_bytes());
        };
        fields(&mut bytes, extra + 4 + padding);
        bytes.extend(name.as_bytes());
        if large {
            bytes.extend([1, 0, 16, 0]);
            bytes.extend(size.to_le_bytes());
            bytes.extend(size.to_le_bytes());
        }
        // The kind of field that torch.save pads with.
        bytes.extend(b"FB");
        bytes.extend((padding as u16).to_le_bytes());
        bytes.resize(bytes.len() + padding as usize, b'Z');
        self.out.write_all(&bytes)?;
        write(&mut self.out)?;
        self.at += bytes.len() as u64 + size;

        let mut wide = Vec::new();
        if large {
            wide.extend([size, size]);
        }
        if header > SMALL {
            wide.push(header);
        }
        let directory = &mut self.directory;
        directory.extend(b"PK\x01\x02\x2d\x00");
        fields(directory, if wide.is_empty() { 0 } else { 4 + 8 * wide.len() as u64 });
        // Comment, disk and attributes: none.
        directory.extend([0; 10]);
        let offset = if header > SMALL { u32::MAX } else { header as u32 };
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
        if !wide.is_empty() {
            directory.extend([1, 0, 8 * wide.len() as u8, 0]);
            for value in wide {
                directory.extend(value.to_le_bytes());
            }
        }
        self.entries += 1;
        Ok(())
    }

    /// Writes the directory. Without it the file is no archive.
    fn finish(mut self) -> io::Result<()> {
        let begin = self.at;
        let size = self.directory.len() as u64;
        let mut end = std::mem::take(&mut self.directory);
        if begin > SMALL || self.entries > 0xfffe {
            let record = begin + size;
            end.extend(b"PK\x06\x06");
            end.extend(44u64.to_le_bytes());
            end.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            for value in [self.entries, self.entries, size, begin] {
                end.extend(value.to_le_bytes());
            }
            end.extend(b"PK\x06\x07\0\0\0\0");
            end.extend(record.to_le_bytes());
            end.extend(1u32.to_le_bytes());
        }
        let count = self.entries.min(0xffff) as u16;
        end.extend(b"PK\x05\x06\0\0\0\0");
        end.extend(count.to_le_bytes());
        end.extend(count.to_le_bytes());
        end.extend((size.min(u32::MAX.into()) as u32).to_le_bytes());
        end.extend((begin.min(u32::MAX.into()) as u32).to_le_bytes());
        end.extend([0, 0]);
        self.out.write_all(&end)?;
        self.out.flush()
    }
}

/// Writes a file: its pickle, and the entries that `storages` writes.
fn create(
    path: &Path,
    pickle: &[u8],
    storages: impl FnOnce(&mut TorchWriter) -> io::Result<()>,
) -> io::Result<()> {
    let folder = path.file_stem().map_or("archive".into(), |stem| stem.to_string_lossy());
    let mut writer = TorchWriter::new(BufWriter::new(File::create(path)?), &folder);
    writer.entry("data.pkl", pickle)?;
    writer.entry("byteorder", b"little")?;
    storages(&mut writer)?;
    writer.entry("version", b"3\n")?;
    writer.finish()
}

/// Adds entries to a dictionary: values of the graph, with their keys.
pub type Fields<'a> = &'a dyn Fn(&mut Graph) -> Vec<(Id, Id)>;

/// Writes a file with one tensor: its elements in `bytes`, row by row, little-endian. With
/// `fields`, the tensor is the entry `param` of a dictionary, before these.
///
/// # Errors
/// If the file cannot be written.
pub fn save_tensor(
    path: &Path,
    dtype: Dtype,
    shape: &[usize],
    bytes: &[u8],
    fields: Option<Fields>,
) -> io::Result<()> {
    let mut graph = Graph::default();
    let tensor = graph.tensor(dtype, shape, "0");
    graph.root = match fields {
        None => tensor,
        Some(fields) => {
            let mut pairs = vec![(graph.text("param"), tensor)];
            pairs.extend(fields(&mut graph));
            graph.push(Value::Dict(pairs))
        }
    };
    let pickle = encode(&graph, &|_, _| true);
    create(path, &pickle, |writer| writer.entry("data/0", bytes))
}

/// Writes a file with one number, which Python reads as an integer if it is one.
///
/// # Errors
/// If the file cannot be written.
pub fn save_number(path: &Path, number: f64) -> io::Result<()> {
    let whole = number.fract() == 0.0 && number.abs() < 9e15;
    let mut graph = Graph::default();
    graph.root = graph.push(if whole {
        Value::Int(number as i64)
    } else {
        Value::Float(number)
    });
    save_graph(path, &graph, &[])
}

/// Writes a file with any values. `storages` has the bytes of their tensors, by the keys that the
/// values use.
///
/// # Errors
/// If the file cannot be written.
pub fn save_graph(path: &Path, graph: &Graph, storages: &[(String, Vec<u8>)]) -> io::Result<()> {
    let pickle = encode(graph, &|_, _| true);
    create(path, &pickle, |writer| {
        for (key, bytes) in storages {
            writer.entry(&format!("data/{key}"), bytes)?;
        }
        Ok(())
    })
}

/// Writes a value of `source` as its own file, with its tensors. Objects whose class `keep` refuses
/// become `None`: a file never asks its reader for a class that is not known to be harmless.
///
/// # Errors
/// If `source` lacks a tensor's numbers or they cannot be read, or if the file cannot be written.
pub fn save_value(
    path: &Path,
    source: &TorchFile,
    graph: &Graph,
    keep: &dyn Fn(&str, &str) -> bool,
) -> Result<(), BadInput> {
    let pickle = encode(graph, keep);
    let mut storages = Vec::new();
    for key in keys(graph) {
        let range = source.storage(&key)?;
        let crc = copy(source.file(), range.clone(), &mut io::sink());
        let crc = crc.map_err(|error| cause::unwritten(path, &error, ""))?;
        storages.push((key, range, crc));
    }
    let written = create(path, &pickle, |writer| {
        for (key, range, crc) in storages {
            let size = range.end - range.start;
            writer.stream(&format!("data/{key}"), size, crc, |out| {
                copy(source.file(), range, out).map(drop)
            })?;
        }
        Ok(())
    });
    written.map_err(|error| cause::unwritten(path, &error, ""))
}

/// The names of the storages that the values refer to.
fn keys(graph: &Graph) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut stack = vec![graph.root];
    while let Some(id) = stack.pop() {
        if !seen.insert(id) {
            continue;
        }
        if let Value::Persistent(reference) = graph.value(id)
            && let Some(key) = graph.node(*reference).items().nth(2).and_then(|key| key.text())
        {
            keys.insert(key.to_string());
        }
        graph.children(id, &mut |child| stack.push(child));
    }
    keys
}
