//! Files that are no archive: `torch.save` wrote them until version 1.6, and DeepSpeed still does where its settings turn
//! the archive off. Five pickles follow each other: a mark, a version, the machine, the values, and the names of the
//! storages. Then come the storages, each with its length before it. There are no checksums.

use super::pickle;
use super::tensor::Dtype;
use super::value::{Graph, Value};
use super::zip::read_at;
use std::collections::HashMap;
use std::io::{Read, Seek};
use std::ops::Range;

/// The pickles of a file, in bytes.
const PICKLES: u64 = 64 << 20;

/// The first pickle: 0x1950a86a20f9469cfc6c, little-endian.
const MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

/// The bytes of each storage in the file.
pub(super) type Storages = HashMap<String, Range<u64>>;

/// Whether a file begins as these files do.
pub(super) fn begins(bytes: &[u8]) -> bool {
    bytes.windows(MAGIC.len()).take(6).any(|part| part == MAGIC)
}

pub(super) fn read<F: Read + Seek>(file: &mut F, length: u64) -> Result<(Graph, Storages), String> {
    // The pickles' length is not recorded. Most are small, and storages can be huge.
    let mut window = length.min(1 << 20);
    let (graph, keys, end) = loop {
        match pickles(&read_at(file, 0, window as usize)?) {
            Err(_) if window < length.min(PICKLES) => window = (window * 8).min(length).min(PICKLES),
            result => break result?,
        }
    };
    let sizes = element_sizes(&graph)?;
    let (mut storages, mut at) = (Storages::new(), end);
    for key in keys {
        let size = sizes.get(key.as_str()).ok_or_else(|| format!("no value refers to its storage {key:?}"))?;
        let header = if at + 8 <= length { read_at(file, at, 8)? } else { Vec::new() };
        let count = <[u8; 8]>::try_from(header).map_err(|_| format!("it ends before its storage {key:?}"))?;
        let end = u64::from_le_bytes(count).checked_mul(*size as u64).and_then(|bytes| bytes.checked_add(at + 8));
        let Some(end) = end.filter(|end| *end <= length) else {
            return Err(format!("its storage {key:?} ends beyond the file's {length} bytes"));
        };
        storages.insert(key, at + 8..end);
        at = end;
    }
    Ok((graph, storages))
}

/// The values, the names of the storages, and where the pickles end.
fn pickles(bytes: &[u8]) -> Result<(Graph, Vec<String>, u64), String> {
    let mut at = 0;
    let mut next = || -> Result<Graph, String> {
        let (graph, size) = pickle::read_first(&bytes[at..])?;
        at += size;
        Ok(graph)
    };
    let (magic, version, machine) = (next()?, next()?, next()?);
    if *magic.root().value() != Value::Long(MAGIC.into()) || version.root().int() != Some(1001) {
        return Err("it is no file of torch, or of an unknown version".to_string());
    }
    if machine.root().get("little_endian").is_none_or(|little| *little.value() != Value::Bool(true)) {
        return Err("its numbers are not in little-endian order".to_string());
    }
    let (graph, keys) = (next()?, next()?);
    let keys = keys.root().items().map(|key| key.text().map(str::to_string)).collect::<Option<_>>();
    Ok((graph, keys.ok_or("the list of its storages is broken")?, at as u64))
}

/// Bytes of an element of each storage.
fn element_sizes(graph: &Graph) -> Result<HashMap<&str, usize>, String> {
    let mut sizes = HashMap::new();
    for reference in graph.references() {
        let [_, class, key, _, _, rest @ ..] = &reference.items().collect::<Vec<_>>()[..] else {
            return Err("a storage of its pickle is broken".to_string());
        };
        let (Some((_, class)), Some(key)) = (class.class(), key.text()) else {
            return Err("a storage of its pickle is broken".to_string());
        };
        if rest.iter().any(|view| !view.is_none()) {
            return Err(format!("its storage {key:?} is a view of a different one, which is not supported"));
        }
        let Some(dtype) = Dtype::find(class) else {
            return Err(format!("its storage {key:?} has elements of type {class}, which is not supported"));
        };
        if sizes.insert(key, dtype.size()).is_some_and(|size| size != dtype.size()) {
            return Err(format!("its storage {key:?} has elements of two sizes"));
        }
    }
    Ok(sizes)
}
