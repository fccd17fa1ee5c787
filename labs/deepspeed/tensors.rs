//! A checkpoint of any format as a list of tensors, each with its parts: which file has which
//! box of it.

use crate::torch::{Dtype, TorchFile};
use serde::{Deserialize, Serialize};
use shardlab::checkpoint::cause;
use shardlab::error::BadInput;
use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Help for a file that is not as its format says.
pub(crate) const DAMAGED: &str = "use a different copy of this file, or an earlier checkpoint";

/// Bytes that are read at a time where a part's rows are short.
const BUFFER: usize = 1 << 20;

/// What a folder has, whichever program wrote it.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    /// The tensors, in the order of the file that lists them.
    pub tensors: Vec<Tensor>,
    /// What is no tensor: settings, counters, texts.
    pub values: Vec<Setting>,
    /// Names that cannot be read, with the reason.
    pub unread: Vec<(String, String)>,
}

/// One step of the way into nested dictionaries and lists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Key {
    /// Of a dictionary.
    Name(String),
    /// Of a list.
    At(i64),
}

/// A tensor, and where it is.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    /// The keys that its name was joined of: `a.b` may be one or two.
    pub keys: Vec<Key>,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// Boxes that cover it, each element once. None of them is empty.
    pub parts: Vec<Part>,
}

/// A box of a tensor.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its first element in the tensor, by dimension.
    pub offset: Vec<usize>,
    /// Its size, by dimension.
    pub shape: Vec<usize>,
    pub place: Place,
}

/// Bytes of a file.
#[derive(Clone, Debug)]
pub struct Place {
    pub file: Arc<Path>,
    pub bytes: Range<u64>,
    /// Whether they are an archive that `torch.save` wrote, and not the bare elements.
    pub archive: bool,
}

/// What is no tensor.
#[derive(Clone, Debug)]
pub struct Setting {
    pub name: String,
    pub keys: Vec<Key>,
    pub content: Content,
}

/// The content of a [`Setting`].
#[derive(Clone, Debug)]
pub enum Content {
    /// A number, a text, `None`, or a list of such, as `dcp/settings.rs` writes them.
    Plain(serde_json::Value),
    /// An archive that `torch.save` wrote.
    Archive(Place),
}

impl Tensor {
    /// The bytes of its elements.
    pub fn bytes(&self) -> u64 {
        self.shape.iter().product::<usize>() as u64 * self.dtype.size() as u64
    }

    /// Reads the whole tensor: its elements row by row, little-endian.
    ///
    /// # Errors
    /// If a file cannot be read, does not have what the list says, or its checksum is wrong.
    pub fn read(&self) -> Result<Vec<u8>, BadInput> {
        let mut whole = vec![0; self.bytes() as usize];
        for part in &self.parts {
            self.read_part(part, &mut whole)?;
        }
        Ok(whole)
    }

    fn read_part(&self, part: &Part, whole: &mut [u8]) -> Result<(), BadInput> {
        let Place { file, bytes, archive } = &part.place;
        let failed = |error: std::io::Error| {
            let what = format!("{} cannot be read: {error}", file.display());
            BadInput::new(what, cause::unread(&error, DAMAGED))
        };
        if !archive {
            let from = open(file, bytes.clone()).map_err(failed)?;
            return self.fill(part, from, whole).map(drop).map_err(failed);
        }
        let saved = TorchFile::open_part(file, Some(bytes.clone()))?;
        let error = |how: &str| saved.error(&format!("{}: {how}", self.name));
        let found = saved.layout(saved.graph.root())?.ok_or_else(|| error("it is no tensor"))?;
        if (found.dtype, &found.shape) != (self.dtype, &part.shape) {
            let how = format!(
                "it is {} {:?}, and the list says {} {:?}",
                found.dtype.name(),
                found.shape,
                self.dtype.name(),
                part.shape
            );
            return Err(error(&how));
        }
        let size = self.dtype.size() as u64;
        let begin = found.storage.start + found.elements.0 as u64 * size;
        let end = found.storage.start + found.elements.1 as u64 * size;
        let all = (begin..end) == found.storage;
        // A part is all of its storage; else the checksum is that of more than is read below.
        if !all || !found.contiguous {
            saved.ensure_undamaged()?;
        }
        let from = open(file, begin..end).map_err(failed)?;
        if !found.contiguous {
            let rows = gather(from, size as usize, &found.shape, &found.stride).map_err(failed)?;
            return self.fill(part, Cursor::new(rows), whole).map(drop).map_err(failed);
        }
        let sum = self.fill(part, from, whole).map_err(failed)?;
        if all && found.sum != 0 && found.sum != sum {
            return Err(error("its checksum is wrong: at least one bit differs"));
        }
        Ok(())
    }

    /// Puts a part's elements where they belong. Returns their checksum.
    fn fill(&self, part: &Part, mut from: impl Read, whole: &mut [u8]) -> std::io::Result<u32> {
        let size = self.dtype.size();
        let mut sum = crc32fast::Hasher::new();
        runs(&self.shape, &part.offset, &part.shape, |run| {
            let into = &mut whole[run.start * size..run.end * size];
            from.read_exact(into)?;
            sum.update(into);
            Ok(())
        })?;
        Ok(sum.finalize())
    }
}

fn open(file: &Path, bytes: Range<u64>) -> std::io::Result<impl Read> {
    let mut open = File::open(file)?;
    open.seek(SeekFrom::Start(bytes.start))?;
    let length = bytes.end - bytes.start;
    Ok(BufReader::with_capacity(BUFFER.min(length as usize), open.take(length)))
}

/// The elements of a tensor with any strides, row by row.
fn gather(
    mut from: impl Read,
    size: usize,
    shape: &[usize],
    stride: &[usize],
) -> std::io::Result<Vec<u8>> {
    let mut stored = Vec::new();
    from.read_to_end(&mut stored)?;
    let mut rows = Vec::new();
    for at in 0..shape.iter().product() {
        let mut rest: usize = at;
        let mut element = 0;
        for (size, stride) in shape.iter().zip(stride).rev() {
            element += rest % size * stride;
            rest /= size;
        }
        rows.extend_from_slice(&stored[element * size..][..size]);
    }
    Ok(rows)
}

/// Calls `each` with every run of a box that is contiguous in the whole, in order: elements of
/// the whole, row by row.
fn runs(
    whole: &[usize],
    offset: &[usize],
    part: &[usize],
    mut each: impl FnMut(Range<usize>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    // In all later dimensions the box is as wide as the whole.
    let cut = (0..whole.len()).rev().find(|dim| part[*dim] != whole[*dim]).unwrap_or(0);
    let length: usize = part[cut.min(part.len())..].iter().product();
    for index in 0..part[..cut].iter().product() {
        let (mut rest, mut start, mut step): (usize, usize, usize) = (index, 0, 1);
        for dim in (0..whole.len()).rev() {
            let within = if dim < cut { rest % part[dim] } else { 0 };
            rest = if dim < cut { rest / part[dim] } else { rest };
            start += (offset[dim] + within) * step;
            step *= whole[dim];
        }
        each(start..start + length)?;
    }
    Ok(())
}

/// Whether boxes cover a tensor, each element once.
pub(crate) fn ensure_whole(shape: &[usize], parts: &[Part]) -> Result<(), String> {
    for Part { offset, shape: size, .. } in parts {
        let inside =
            |dim: usize| offset[dim].checked_add(size[dim]).is_some_and(|end| end <= shape[dim]);
        if offset.len() != shape.len() || size.len() != shape.len() || !(0..shape.len()).all(inside)
        {
            return Err(format!("a part of size {size:?} at {offset:?} is not inside {shape:?}"));
        }
    }
    let covered: usize = parts.iter().map(|part| part.shape.iter().product::<usize>()).sum();
    let all: usize = shape.iter().product();
    if covered < all {
        return Err(format!("its parts have {covered} of its {all} elements"));
    }
    // By the first dimension: only parts that share rows can share elements.
    let first = |part: &Part| part.offset.first().map_or(0, |at| *at);
    let mut sorted: Vec<&Part> = parts.iter().collect();
    sorted.sort_by_key(|part| first(part));
    for (at, one) in sorted.iter().enumerate() {
        let end = first(one) + one.shape.first().map_or(1, |size| *size);
        for other in sorted[at + 1..].iter().take_while(|other| first(other) < end) {
            let shared = |dim: usize| {
                let (low, high) = (one.offset[dim], other.offset[dim]);
                low < high + other.shape[dim] && high < low + one.shape[dim]
            };
            if (0..shape.len()).all(shared) {
                let (one, other) = (&one.offset, &other.offset);
                return Err(format!("its parts at {one:?} and {other:?} overlap"));
            }
        }
    }
    Ok(())
}
