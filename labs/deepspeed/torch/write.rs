//! Files that `torch.load` reads: stored entries, each tensor's numbers at a multiple of 64
//! bytes, so that they can be mapped.

use super::encode::encode;
use super::file::{TorchFile, copy};
use super::tensor::Dtype;
use super::value::{Graph, Id, Value};
use shardlab::checkpoint::cause;
use shardlab::error::BadInput;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use zip::write::{SimpleFileOptions, StreamWriter};
use zip::{CompressionMethod, ZIP64_BYTES_THR, ZipWriter};

/// Every entry's bytes begin at a multiple of this.
const ALIGNMENT: u16 = 64;

/// A file that keeps its first error until it is asked for it. `ZipWriter` completes its archive
/// when it is dropped, and prints if it cannot.
struct Patient<'a> {
    file: &'a mut dyn Write,
    error: Option<io::Error>,
}

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.error.is_none() {
            self.error = self.file.write_all(bytes).err();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

type Zip<'a> = ZipWriter<StreamWriter<Patient<'a>>>;

/// An archive that is being written.
struct Archive<'a> {
    zip: Zip<'a>,
    /// The folder of all entries.
    folder: &'a str,
}

impl<'a> Archive<'a> {
    /// Begins an entry of `size` bytes, which the caller writes to the result.
    fn entry(&mut self, name: &str, size: u64) -> io::Result<&mut Zip<'a>> {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .with_alignment(ALIGNMENT)
            .large_file(size >= ZIP64_BYTES_THR);
        self.zip.start_file(format!("{}/{name}", self.folder), options)?;
        Ok(&mut self.zip)
    }

    fn whole_entry(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.entry(name, bytes.len() as u64)?.write_all(bytes)
    }
}

/// Writes a file: its pickle, and the entries that `storages` writes.
fn create(
    path: &Path,
    pickle: &[u8],
    storages: impl FnOnce(&mut Archive) -> io::Result<()>,
) -> Result<(), BadInput> {
    let write = || -> io::Result<()> {
        // As torch.save does, which names the folder like the file.
        let folder = path.file_stem().map_or("archive".into(), |stem| stem.to_string_lossy());
        let mut file = BufWriter::new(File::create(path)?);
        archive(&mut file, &folder, pickle, storages)?;
        file.flush()
    };
    write().map_err(|error| cause::unwritten(path, &error, ""))
}

/// Writes an archive: its pickle, and the entries that `storages` writes.
fn archive(
    out: &mut dyn Write,
    folder: &str,
    pickle: &[u8],
    storages: impl FnOnce(&mut Archive) -> io::Result<()>,
) -> io::Result<()> {
    let file = Patient { file: out, error: None };
    let mut archive = Archive { zip: ZipWriter::new_stream(file), folder };
    archive.whole_entry("data.pkl", pickle)?;
    archive.whole_entry("byteorder", b"little")?;
    storages(&mut archive)?;
    archive.whole_entry("version", b"3\n")?;
    let file = archive.zip.finish()?.into_inner();
    file.error.map_or(Ok(()), Err)
}

/// Writes an archive with any values to `out`, as one of several in a file. `storages` has the
/// bytes of their tensors, by the keys that the values use.
///
/// # Errors
/// If `out` refuses.
pub fn write_archive(
    out: &mut dyn Write,
    graph: &Graph,
    storages: &[(&str, &[u8])],
) -> io::Result<()> {
    archive(out, "archive", &encode(graph).0, |archive| {
        let mut storages = storages.iter();
        storages.try_for_each(|(key, bytes)| archive.whole_entry(&format!("data/{key}"), bytes))
    })
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
) -> Result<(), BadInput> {
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
    create(path, &encode(&graph).0, |archive| archive.whole_entry("data/0", bytes))
}

/// Writes a file with one number, which Python reads as an integer if it is one.
///
/// # Errors
/// If the file cannot be written.
pub fn save_number(path: &Path, number: f64) -> Result<(), BadInput> {
    let whole = number.fract() == 0.0 && number.abs() < 9e15;
    let mut graph = Graph::default();
    graph.root = graph.push(if whole {
        Value::Int(number as i64)
    } else {
        Value::Float(number)
    });
    save_graph(path, &graph, &[])
}

/// Writes a file with any values. `storages` has the bytes of their tensors, by the keys that
/// the values use.
///
/// # Errors
/// If the file cannot be written.
pub fn save_graph(
    path: &Path,
    graph: &Graph,
    storages: &[(String, Vec<u8>)],
) -> Result<(), BadInput> {
    create(path, &encode(graph).0, |archive| {
        let mut storages = storages.iter();
        storages.try_for_each(|(key, bytes)| archive.whole_entry(&format!("data/{key}"), bytes))
    })
}

/// Writes values of `source` as their own file, with their tensors.
///
/// # Errors
/// If `source` lacks a tensor's numbers or they cannot be read, or if the file cannot be
/// written.
pub fn save_value(path: &Path, source: &TorchFile, graph: &Graph) -> Result<(), BadInput> {
    let (pickle, storages) = encode(graph);
    let storages = storages
        .into_iter()
        .map(|key| Ok((source.storage(&key)?, key)))
        .collect::<Result<Vec<_>, BadInput>>()?;
    create(path, &pickle, |archive| {
        for (range, key) in storages {
            let entry = archive.entry(&format!("data/{key}"), range.end - range.start)?;
            copy(source.file(), range, entry)?;
        }
        Ok(())
    })
}
