//! One file, opened: its values in memory, its tensors on the disk until they are asked for.

use super::node::Node;
use super::tensor::{self, Dtype, Tensor};
use super::value::Graph;
use super::{pickle, zip};
use shardlab::checkpoint::{cause, files};
use shardlab::error::BadInput;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The pickle of a file, in bytes. A model with 10,000 parameters has one of about 2 MB.
const PICKLE: u64 = 64 << 20;

/// Bytes that are copied at a time.
const CHUNK: usize = 1 << 20;

const DAMAGED: &str = "use a different copy of this file, or an earlier checkpoint";

/// What files begin with that are no archive, after some bytes of their first pickle:
/// 0x1950a86a20f9469cfc6c, little-endian.
const NO_ARCHIVE: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

/// A file that `torch.save` wrote.
pub struct TorchFile {
    path: Arc<Path>,
    file: File,
    /// Where the archive's entries are: each tensor's numbers are one.
    listing: zip::Listing,
    /// All values of its pickle.
    pub graph: Graph,
}

/// A tensor's elements in a file. The file is not open meanwhile: a checkpoint can have more
/// files than a process may open.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The file.
    pub path: Arc<Path>,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// The first element's offset in the file, in bytes.
    at: u64,
}

/// A tensor's elements in a file, with any strides.
pub(crate) struct Layout {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub stride: Vec<usize>,
    /// Whether the elements follow each other in the shape's order.
    pub contiguous: bool,
    /// The bytes of the file that its storage has.
    pub storage: Range<u64>,
    /// The first element's offset in the storage, and one past the last's.
    pub elements: (usize, usize),
    /// The storage's checksum, or 0 where the writer left it out.
    pub sum: u32,
}

impl TorchFile {
    /// Reads the values of a file, and checks them against their checksum. Errors name the file.
    ///
    /// # Errors
    /// If the file cannot be read, is none that `torch.save` writes today, or is damaged.
    pub fn open(path: &Path) -> Result<TorchFile, BadInput> {
        TorchFile::open_part(path, None)
    }

    /// The same for these bytes of a file, which has several such archives one after the other.
    ///
    /// # Errors
    /// As [`TorchFile::open`]; also if the file ends before.
    pub fn open_part(path: &Path, part: Option<Range<u64>>) -> Result<TorchFile, BadInput> {
        let (file, length) = files::open(path)
            .map_err(|error| unread(path, &format!("it cannot be opened: {error}"), &error))?;
        let part = part.unwrap_or(0..length);
        if part.end > length {
            let how = format!("it has {length} bytes, and should have {}", part.end);
            return Err(damaged(path, &how));
        }
        ensure_archive(&file, &part, path)?;
        let (listing, graph) = read(&file, part).map_err(|how| damaged(path, &how))?;
        Ok(TorchFile { path: path.into(), file, listing, graph })
    }

    /// The file's own path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name that `torch.save` was given for this file, without its ending: the archive's
    /// folder has it. Other writers call that folder `archive`.
    pub fn written_as(&self) -> &str {
        &self.listing.folder
    }

    /// An error about this file.
    pub fn error(&self, how: &str) -> BadInput {
        damaged(&self.path, how)
    }

    /// The tensor that a value is, or `None` if it is none. All of its elements are in the file.
    ///
    /// # Errors
    /// If the value describes a tensor that the file does not have, of a type that is not
    /// supported, or with gaps.
    pub fn tensor(&self, node: Node) -> Result<Option<Stored>, BadInput> {
        let found = tensor::find(node)
            .and_then(|found| found.map(|tensor| self.locate(tensor)).transpose());
        found.map_err(|how| self.error(&how))
    }

    /// The same, with any strides, and how its storage lies in the file.
    ///
    /// # Errors
    /// As [`TorchFile::tensor`], but for gaps.
    pub(crate) fn layout(&self, node: Node) -> Result<Option<Layout>, BadInput> {
        let found = tensor::find(node)
            .and_then(|found| found.map(|tensor| self.in_storage(tensor)).transpose());
        found.map_err(|how| self.error(&how))
    }

    fn in_storage(&self, tensor: Tensor) -> Result<Layout, String> {
        let Tensor { dtype, shape, stride, contiguous, key, elements } = tensor;
        let (at, entry) = self.listing.locate(&self.file, &format!("data/{key}"))?;
        let (end, bytes) = (elements.1, entry.size);
        if (end as u64).checked_mul(dtype.size() as u64).is_none_or(|end| end > bytes) {
            let name = dtype.name();
            return Err(format!(
                "a tensor ends at {name} {end} of storage {key:?}, which has {bytes} bytes"
            ));
        }
        let storage = at..at + bytes;
        Ok(Layout {
            dtype,
            shape,
            stride,
            contiguous,
            storage,
            elements,
            sum: entry.crc,
        })
    }

    fn locate(&self, tensor: Tensor) -> Result<Stored, String> {
        let key = tensor.key.clone();
        let Layout { dtype, shape, contiguous, storage, elements, .. } = self.in_storage(tensor)?;
        if !contiguous {
            return Err(format!(
                "a tensor of shape {shape:?} is not contiguous in storage {key:?}"
            ));
        }
        let at = storage.start + (elements.0 * dtype.size()) as u64;
        Ok(Stored { path: self.path.clone(), dtype, shape, at })
    }

    /// The checksums of all storages. Files with the same numbers have the same.
    pub(crate) fn sums(&self) -> Vec<u32> {
        let storages = self.listing.entries.iter().filter(|(name, _)| name.starts_with("data/"));
        let storages: BTreeMap<_, _> = storages.collect();
        storages.values().map(|entry| entry.crc).collect()
    }

    /// Compares every storage with its checksum. Files that were written without checksums pass.
    ///
    /// # Errors
    /// If one differs, or cannot be read.
    pub fn ensure_undamaged(&self) -> Result<(), BadInput> {
        let check = |name: &String| -> Result<(), String> {
            let (at, entry) = self.listing.locate(&self.file, name)?;
            let sum = copy(&self.file, at..at + entry.size, &mut io::sink())
                .map_err(|error| format!("its entry {name:?} cannot be read: {error}"))?;
            ensure_sum(name, sum, entry.crc)
        };
        let mut names = self.listing.entries.keys().filter(|name| name.starts_with("data/"));
        names.try_for_each(check).map_err(|how| self.error(&how))
    }

    /// The bytes of the file that a storage has.
    pub(crate) fn storage(&self, key: &str) -> Result<Range<u64>, BadInput> {
        self.find(key).map_err(|how| self.error(&how))
    }

    fn find(&self, key: &str) -> Result<Range<u64>, String> {
        let (at, entry) = self.listing.locate(&self.file, &format!("data/{key}"))?;
        Ok(at..at + entry.size)
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Stored {
    /// How many elements it has.
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// Reads some elements, as bytes: `elements` are offsets in the tensor, row by row, and
    /// `into` has room for them.
    ///
    /// # Errors
    /// If the file cannot be read.
    ///
    /// # Panics
    /// If `elements` are not in the tensor, or do not fill `into`.
    pub fn read(&self, elements: Range<usize>, into: &mut [u8]) -> Result<(), BadInput> {
        let size = self.dtype.size();
        assert!(
            elements.end <= self.numel() && into.len() == elements.len() * size,
            "the caller's ranges fit"
        );
        let mut read = || -> std::io::Result<()> {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(self.at + (elements.start * size) as u64))?;
            file.read_exact(into)
        };
        read().map_err(|error| {
            unread(&self.path, &format!("its numbers cannot be read: {error}"), &error)
        })
    }
}

/// Refuses a file that `torch.save` wrote in its old form, and one that is something else, with
/// the way out. Any other is for the archive's reader to judge.
fn ensure_archive(file: &File, part: &Range<u64>, path: &Path) -> Result<(), BadInput> {
    let length = (part.end - part.start).min(1024);
    let first = zip::read_at(file, part.start, length as usize).unwrap_or_default();
    // Every archive is a zip archive.
    if let Some(what) = shardlab::files::foreign(&first).filter(|_| !first.starts_with(b"PK")) {
        return Err(damaged(path, &what));
    }
    let begins = &first[..first.len().min(16)];
    if !begins.windows(NO_ARCHIVE.len()).any(|part| part == NO_ARCHIVE) {
        return Ok(());
    }
    let what = format!(
        "{} is no archive: PyTorch before 1.6 wrote it, or DeepSpeed with checkpoint_serialization off",
        path.display()
    );
    let help = "load it with a newer PyTorch and save it again, under the same name";
    Err(BadInput::new(what, help))
}

/// The entries of an archive, and the values of its pickle.
fn read(file: &File, part: Range<u64>) -> Result<(zip::Listing, Graph), String> {
    let listing = zip::list(file, part)?;
    let (at, entry) = listing.locate(file, "data.pkl")?;
    if entry.size > PICKLE {
        return Err(format!("its pickle has {} bytes", entry.size));
    }
    let bytes = zip::read_at(file, at, entry.size as usize)?;
    ensure_sum("data.pkl", crc32fast::hash(&bytes), entry.crc)?;
    if listing.entries.contains_key("byteorder") {
        let (at, entry) = listing.locate(file, "byteorder")?;
        if zip::read_at(file, at, entry.size.min(8) as usize)? != b"little" {
            return Err("its numbers are not in little-endian order".to_string());
        }
    }
    Ok((listing, pickle::read(&bytes)?))
}

/// Copies bytes of a file. Returns their checksum.
pub(super) fn copy(mut file: &File, range: Range<u64>, out: &mut impl Write) -> io::Result<u32> {
    file.seek(SeekFrom::Start(range.start))?;
    let mut sum = crc32fast::Hasher::new();
    let mut left = (range.end - range.start) as usize;
    let mut buffer = vec![0; CHUNK.min(left)];
    while left > 0 {
        let part = &mut buffer[..left.min(CHUNK)];
        file.read_exact(part)?;
        sum.update(part);
        out.write_all(part)?;
        left -= part.len();
    }
    Ok(sum.finalize())
}

fn ensure_sum(name: &str, found: u32, expected: u32) -> Result<(), String> {
    if expected != 0 && found != expected {
        return Err(format!(
            "the checksum of its entry {name:?} is {found:08x}, not {expected:08x}: at least one bit differs"
        ));
    }
    Ok(())
}

/// A file that the operating system does not let us read, which need not be the file's fault.
fn unread(path: &Path, how: &str, error: &std::io::Error) -> BadInput {
    BadInput {
        help: cause::unread(error, DAMAGED).to_string(),
        ..damaged(path, how)
    }
}

fn damaged(path: &Path, how: &str) -> BadInput {
    BadInput::new(format!("{} cannot be used: {how}", path.display()), DAMAGED)
}
