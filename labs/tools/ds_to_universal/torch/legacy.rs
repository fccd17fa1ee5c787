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
            Err(_) if window < length.min(PICKLES) => {
                window = (window * 8).min(length).min(PICKLES)
            }
            result => break result?,
        }
    };
    let sizes = element_sizes(&graph)?;
    let mut storages = Storages::new();
    let mut at = end;
    for key in keys {
        let size = sizes
            .get(key.as_str())
            .ok_or_else(|| format!("no value refers to its storage {key:?}"))?;
        let header = if at + 8 <= length {
            read_at(file, at, 8)?
        } else {
            Vec::new()
        };
        let count = <[u8; 8]>::try_from(header)
            .map_err(|_| format!("it ends before its storage {key:?}"))?;
        let end = u64::from_le_bytes(count)
            .checked_mul(*size as u64)
            .and_then(|bytes| bytes.checked_add(at + 8));
        let Some(end) = end.filter(|end| *end <= length) else {
            return Err(format!(
                "its storage {key:?} ends beyond the file's {length} bytes"
            ));
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
    let magic = next()?;
    let version = next()?;
    let machine = next()?;
    if *magic.root().value() != Value::Long(MAGIC.into()) || version.root().int() != Some(1001) {
        return Err("it is no file of torch, or of an unknown version".to_string());
    }
    if machine
        .root()
        .get("little_endian")
        .is_none_or(|little| *little.value() != Value::Bool(true))
    {
        return Err("its numbers are not in little-endian order".to_string());
    }
    let graph = next()?;
    let keys = next()?;
    keys.root()
        .ensure_bounded()
        .map_err(|how| format!("the list of its storages {how}"))?;
    let keys = keys
        .root()
        .items()
        .map(|key| key.text().map(str::to_string))
        .collect::<Option<_>>();
    Ok((
        graph,
        keys.ok_or("the list of its storages is broken")?,
        at as u64,
    ))
}

/// Bytes of an element of each storage.
fn element_sizes(graph: &Graph) -> Result<HashMap<&str, usize>, String> {
    let mut sizes = HashMap::new();
    for reference in graph.references() {
        // Many references can share one tuple, which may have millions of items.
        let [_, class, key, _, _, rest @ ..] = &reference.items().take(8).collect::<Vec<_>>()[..]
        else {
            return Err("a storage of its pickle is broken".to_string());
        };
        let (Some((_, class)), Some(key)) = (class.class(), key.text()) else {
            return Err("a storage of its pickle is broken".to_string());
        };
        if rest.iter().any(|view| !view.is_none()) {
            return Err(format!(
                "its storage {key:?} is a view of a different one, which is not supported"
            ));
        }
        let Some(dtype) = Dtype::find(class) else {
            return Err(format!(
                "its storage {key:?} has elements of type {class}, which is not supported"
            ));
        };
        if sizes
            .insert(key, dtype.size())
            .is_some_and(|size| size != dtype.size())
        {
            return Err(format!("its storage {key:?} has elements of two sizes"));
        }
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torch::encode::encode;
    use crate::torch::{Id, TorchFile};

    /// A file with two tensors, `a` of two numbers and `b` of three, in the reverse order of their storages.
    fn file() -> Vec<u8> {
        file_with(&|graph| vec![graph.text("5"), graph.text("17")])
    }

    fn file_with(keys: &dyn Fn(&mut Graph) -> Vec<Id>) -> Vec<u8> {
        // Python's form of a long integer.
        let mut bytes = [b"\x80\x02\x8a\n", &MAGIC[..], b"."].concat();
        let mut pickle = |fill: &dyn Fn(&mut Graph)| {
            let mut graph = Graph::default();
            fill(&mut graph);
            bytes.extend(encode(&graph, &|_, _| true));
        };
        pickle(&|graph| graph.root = graph.push(Value::Int(1001)));
        pickle(&|graph| {
            let key = graph.text("little_endian");
            let yes = graph.push(Value::Bool(true));
            graph.root = graph.push(Value::Dict(vec![(key, yes)]));
        });
        pickle(&|graph| {
            let a = graph.tensor(Dtype::F32, &[2], "17");
            let b = graph.tensor(Dtype::F64, &[3], "5");
            let pairs = vec![(graph.text("a"), a), (graph.text("b"), b)];
            graph.root = graph.push(Value::Dict(pairs));
        });
        pickle(&|graph| {
            let keys = keys(graph);
            graph.root = graph.push(Value::List(keys));
        });
        bytes.extend(3u64.to_le_bytes());
        bytes.extend(
            [0.5f64, 1.5, 2.5]
                .iter()
                .flat_map(|number| number.to_le_bytes()),
        );
        bytes.extend(2u64.to_le_bytes());
        bytes.extend([7.0f32, 8.0].iter().flat_map(|number| number.to_le_bytes()));
        bytes
    }

    fn open(bytes: &[u8]) -> Result<(), String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("old.pt");
        std::fs::write(&path, bytes).unwrap();
        TorchFile::open(&path).map(drop).map_err(|error| error.what)
    }

    #[test]
    fn storages_follow_the_pickles() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("old.pt");
        std::fs::write(&path, file()).unwrap();
        let torch = TorchFile::open(&path).unwrap();
        let mut bytes = [0; 4];
        let a = torch
            .tensor(torch.graph.root().get("a").unwrap())
            .unwrap()
            .unwrap();
        a.read(1..2, &mut bytes).unwrap();
        assert_eq!((a.shape, f32::from_le_bytes(bytes)), (vec![2], 8.0));
        let mut bytes = [0; 8];
        let b = torch
            .tensor(torch.graph.root().get("b").unwrap())
            .unwrap()
            .unwrap();
        b.read(2..3, &mut bytes).unwrap();
        assert_eq!(f64::from_le_bytes(bytes), 2.5);
    }

    /// A megabyte of text that a list names a thousand times is not copied a thousand times.
    #[test]
    fn names_that_unfold_to_gigabytes_are_refused() {
        let bytes = file_with(&|graph| vec![graph.text(&"x".repeat(1 << 20)); 1000]);
        let error = open(&bytes).unwrap_err();
        assert!(error.contains("the list of its storages"), "{error}");
    }

    /// Every prefix is an error, and no changed byte of the pickles or lengths is a panic.
    #[test]
    fn damaged_files_are_refused() {
        let whole = file();
        for end in 0..whole.len() {
            assert!(open(&whole[..end]).is_err(), "{end}");
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                drop(open(&changed));
            }
        }
        let mut huge = whole.clone();
        let at = whole.len() - 16;
        huge[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(
            open(&huge)
                .unwrap_err()
                .contains(r#"storage "17" ends beyond"#)
        );
    }
}
