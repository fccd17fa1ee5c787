//! One file, opened: its values in memory, its tensors on the disk until they are asked for.

use super::node::Node;
use super::tensor::{self, Dtype, Tensor};
use super::value::Graph;
use super::{legacy, pickle, zip};
use shardlab::checkpoint::{cause, files};
use shardlab::error::BadInput;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The pickle of a file, in bytes. A model with 10,000 parameters has one of about 2 MB.
const PICKLE: u64 = 64 << 20;

/// Bytes that are read at a time when a checksum is computed.
const CHUNK: usize = 1 << 20;

const DAMAGED: &str = "use a different copy of this file, or an earlier checkpoint";

/// A file that `torch.save` wrote.
pub struct TorchFile {
    path: Arc<Path>,
    file: File,
    storages: Storages,
    pub graph: Graph,
}

/// The offsets of a file's tensors.
enum Storages {
    Zip(zip::Listing),
    Legacy(legacy::Storages),
}

impl Storages {
    /// The bytes of the file that a storage has.
    fn find(&self, mut file: &File, key: &str) -> Result<Range<u64>, String> {
        match self {
            Storages::Zip(listing) => {
                let (at, entry) = listing.locate(&mut file, &format!("data/{key}"))?;
                Ok(at..at + entry.size)
            }
            Storages::Legacy(storages) => storages
                .get(key)
                .cloned()
                .ok_or_else(|| format!("its storage {key:?} is missing")),
        }
    }
}

/// A tensor's elements in a file. The file is not open meanwhile: a checkpoint can have more files than a process may open.
#[derive(Clone, Debug)]
pub struct Stored {
    pub path: Arc<Path>,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// The first element's offset in the file, in bytes.
    at: u64,
}

impl TorchFile {
    /// Reads the values of a file, and checks them against their checksum. Errors name the file.
    pub fn open(path: &Path) -> Result<TorchFile, BadInput> {
        let (mut file, length) = files::open(path)
            .map_err(|error| unread(path, &format!("it cannot be opened: {error}"), &error))?;
        let open = || -> Result<TorchFile, String> {
            let first = zip::read_at(&mut file, 0, length.min(16) as usize)?;
            if legacy::begins(&first) {
                let (graph, storages) = legacy::read(&mut file, length)?;
                return Ok(TorchFile {
                    path: path.into(),
                    file,
                    storages: Storages::Legacy(storages),
                    graph,
                });
            }
            let listing = zip::list(&mut file, length)?;
            let (at, entry) = listing.locate(&mut file, "data.pkl")?;
            if entry.size > PICKLE {
                return Err(format!("its pickle has {} bytes", entry.size));
            }
            let bytes = zip::read_at(&mut file, at, entry.size as usize)?;
            ensure_sum("data.pkl", crc32fast::hash(&bytes), entry.crc)?;
            if listing.entries.contains_key("byteorder") {
                let (at, entry) = listing.locate(&mut file, "byteorder")?;
                if zip::read_at(&mut file, at, entry.size.min(8) as usize)? != b"little" {
                    return Err("its numbers are not in little-endian order".to_string());
                }
            }
            let graph = pickle::read(&bytes)?;
            Ok(TorchFile {
                path: path.into(),
                file,
                storages: Storages::Zip(listing),
                graph,
            })
        };
        open().map_err(|how| damaged(path, &how))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name that `torch.save` was given for this file, without its ending: the archive's folder has it. Other writers call
    /// that folder `archive`.
    pub fn written_as(&self) -> Option<&str> {
        match &self.storages {
            Storages::Zip(listing) => Some(&listing.folder),
            Storages::Legacy(_) => None,
        }
    }

    /// An error about this file.
    pub fn error(&self, how: &str) -> BadInput {
        damaged(&self.path, how)
    }

    /// The tensor that a value is, or `None` if it is none. All of its elements are in the file.
    pub fn tensor(&self, node: Node) -> Result<Option<Stored>, BadInput> {
        let found = tensor::find(node).map_err(|how| self.error(&how))?;
        found.map(|tensor| self.locate(&tensor)).transpose()
    }

    fn locate(&self, tensor: &Tensor) -> Result<Stored, BadInput> {
        let Tensor {
            dtype,
            shape,
            contiguous,
            key,
            elements,
        } = tensor;
        let path = self.path.clone();
        let size = dtype.size() as u64;
        let locate = || {
            let storage = self.storages.find(&self.file, key)?;
            let bytes = storage.end - storage.start;
            if (elements.1 as u64)
                .checked_mul(size)
                .is_none_or(|end| end > bytes)
            {
                let name = dtype.name();
                let (_, end) = elements;
                return Err(format!(
                    "a tensor ends at {name} {end} of storage {key:?}, which has {bytes} bytes"
                ));
            }
            if !contiguous {
                return Err(format!(
                    "a tensor of shape {shape:?} is not contiguous in storage {key:?}"
                ));
            }
            let at = storage.start + elements.0 as u64 * size;
            Ok(Stored {
                path: path.clone(),
                dtype: *dtype,
                shape: shape.clone(),
                at,
            })
        };
        locate().map_err(|how| damaged(&self.path, &how))
    }

    /// Compares every storage with its checksum. Files that were written without checksums pass.
    pub fn ensure_undamaged(&self) -> Result<(), BadInput> {
        let Storages::Zip(listing) = &self.storages else {
            return Ok(());
        };
        let mut buffer = vec![0; CHUNK];
        let mut check = |name: &String| -> Result<(), String> {
            let (at, entry) = listing.locate(&mut &self.file, name)?;
            let mut sum = crc32fast::Hasher::new();
            let read = |error| format!("its entry {name:?} cannot be read: {error}");
            (&self.file).seek(SeekFrom::Start(at)).map_err(read)?;
            let mut left = entry.size as usize;
            while left > 0 {
                let part = &mut buffer[..left.min(CHUNK)];
                (&self.file).read_exact(part).map_err(read)?;
                sum.update(part);
                left -= part.len();
            }
            ensure_sum(name, sum.finalize(), entry.crc)
        };
        let mut names = listing
            .entries
            .keys()
            .filter(|name| name.starts_with("data/"));
        names
            .try_for_each(&mut check)
            .map_err(|how| damaged(&self.path, &how))
    }

    /// The bytes of the file that a storage has.
    pub(super) fn storage(&self, key: &str) -> Result<Range<u64>, BadInput> {
        self.storages
            .find(&self.file, key)
            .map_err(|how| damaged(&self.path, &how))
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Stored {
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// Reads some elements, as bytes.
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
            unread(
                &self.path,
                &format!("its numbers cannot be read: {error}"),
                &error,
            )
        })
    }
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

pub(super) fn damaged(path: &Path, how: &str) -> BadInput {
    BadInput::new(format!("{} cannot be used: {how}", path.display()), DAMAGED)
}
