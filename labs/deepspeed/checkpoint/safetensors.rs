//! Safetensors: the length of a header, the header as JSON, the elements of all tensors. What is
//! no tensor, and the keys that names were joined of, are in the header's metadata under `dcp`.

use crate::options::Watch;
use crate::tensors::DAMAGED;
use crate::tensors::{Checkpoint, Content, Key, Part, Place, Setting, Tensor};
use crate::torch::Dtype;
use crate::workers::parallel;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};
use shardlab::checkpoint::{cause, numel};
use shardlab::error::BadInput;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file that is written.
pub(super) const FILE: &str = "model.safetensors";

/// A header, in bytes: as long as the format allows.
const HEADER: u64 = 100_000_000;

/// Names of types, in the order of [`Dtype`].
const DTYPES: [(Dtype, &str); 10] = [
    (Dtype::F64, "F64"),
    (Dtype::F32, "F32"),
    (Dtype::F16, "F16"),
    (Dtype::BF16, "BF16"),
    (Dtype::I64, "I64"),
    (Dtype::I32, "I32"),
    (Dtype::I16, "I16"),
    (Dtype::I8, "I8"),
    (Dtype::U8, "U8"),
    (Dtype::Bool, "BOOL"),
];

/// The key of the header's metadata for what DCP has and safetensors has not.
const DCP: &str = "dcp";

#[derive(Default, Serialize, Deserialize)]
struct Beside {
    values: BTreeMap<String, Json>,
    keys: BTreeMap<String, Vec<Key>>,
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

/// Reads the headers of some files, which together are one checkpoint.
pub(super) fn read(files: &[PathBuf]) -> Result<Checkpoint, BadInput> {
    let mut all = Checkpoint::default();
    let mut names: BTreeMap<String, &Path> = BTreeMap::new();
    for path in files {
        let broken = |how: String| {
            BadInput::new(format!("{} cannot be used: {how}", path.display()), DAMAGED)
        };
        let one = header(path).map_err(broken)?;
        for tensor in &one.tensors {
            if let Some(other) = names.insert(tensor.name.clone(), path) {
                let how = format!("{} also has {}", other.display(), tensor.name);
                return Err(BadInput {
                    help: "parts of tensors in several files: join them with consolidate_safetensors_files of \
                           torch.distributed.checkpoint"
                        .to_string(),
                    ..broken(how)
                });
            }
        }
        all.tensors.extend(one.tensors);
        all.values.extend(one.values);
        all.unread.extend(one.unread);
    }
    Ok(all)
}

fn header(path: &Path) -> Result<Checkpoint, String> {
    let (mut file, length) =
        shardlab::files::open(path).map_err(|error| format!("it cannot be opened: {error}"))?;
    let mut first = [0; 8];
    file.read_exact(&mut first).map_err(|_| "it has no header".to_string())?;
    let size = u64::from_le_bytes(first);
    let begin = size.checked_add(8).filter(|begin| size <= HEADER && *begin <= length);
    let begin = begin.ok_or_else(|| format!("its header would have {size} bytes of {length}"))?;
    let mut text = vec![0; size as usize];
    file.read_exact(&mut text)
        .map_err(|error| format!("its header cannot be read: {error}"))?;
    let broken = |error: serde_json::Error| format!("its header is broken: {error}");
    let mut entries: Map<String, Json> = serde_json::from_slice(&text).map_err(broken)?;
    let metadata = entries.remove("__metadata__").unwrap_or_default();
    let beside = match metadata.get(DCP).and_then(Json::as_str) {
        Some(text) => serde_json::from_str(text).map_err(broken)?,
        None => Beside::default(),
    };
    let keys = |name: &String| {
        beside.keys.get(name).cloned().unwrap_or_else(|| vec![Key::Name(name.clone())])
    };
    let mut checkpoint = Checkpoint::default();
    let file: Arc<Path> = path.into();
    for (name, entry) in entries {
        let Entry { dtype, shape, data_offsets: (from, to) } =
            serde_json::from_value(entry).map_err(broken)?;
        let Some((dtype, _)) = DTYPES.into_iter().find(|(_, name)| *name == dtype) else {
            checkpoint.unread.push((name, format!("of type {dtype}")));
            continue;
        };
        let bytes = numel(&shape).map(|numel| (numel * dtype.size()) as u64);
        if bytes != to.checked_sub(from) || to > length - begin {
            return Err(format!("{name} of shape {shape:?} is at bytes {from} to {to}"));
        }
        let bytes = begin + from..begin + to;
        let place = Place { file: file.clone(), bytes, archive: false };
        let whole = Part { offset: vec![0; shape.len()], shape: shape.clone(), place };
        let parts = if shape.contains(&0) { vec![] } else { vec![whole] };
        checkpoint.tensors.push(Tensor { keys: keys(&name), name, dtype, shape, parts });
    }
    for (name, value) in &beside.values {
        let content = Content::Plain(value.clone());
        checkpoint
            .values
            .push(Setting { name: name.clone(), keys: keys(name), content });
    }
    Ok(checkpoint)
}

/// Writes all tensors to one file, with the settings in its header.
pub(super) fn write(
    folder: &Path,
    tensors: &[Tensor],
    settings: &[(&Setting, Json)],
    workers: usize,
    watch: &dyn Watch,
) -> Result<(), BadInput> {
    let path = folder.join(FILE);
    let failed = |error: io::Error| cause::unwritten(&path, &error, "");
    // Large types first, so that each tensor begins at a multiple of its type's size.
    let mut sorted: Vec<&Tensor> = tensors.iter().collect();
    sorted.sort_by_key(|tensor| (std::cmp::Reverse(tensor.dtype.size()), &tensor.name));
    let mut beside = Beside::default();
    for (setting, value) in settings {
        beside.values.insert(setting.name.clone(), value.clone());
    }
    let named = tensors.iter().map(|tensor| (&tensor.name, &tensor.keys));
    for (name, keys) in named.chain(settings.iter().map(|(at, _)| (&at.name, &at.keys))) {
        if *keys != [Key::Name(name.clone())] {
            beside.keys.insert(name.clone(), keys.clone());
        }
    }
    let mut header = Map::new();
    let mut metadata = json!({ "format": "pt" });
    if !(beside.values.is_empty() && beside.keys.is_empty()) {
        metadata[DCP] =
            serde_json::to_string(&beside).map_err(io::Error::from).map_err(failed)?.into();
    }
    header.insert("__metadata__".to_string(), metadata);
    let mut at = 0;
    let mut tasks = Vec::new();
    for tensor in sorted {
        let end = at + tensor.bytes();
        let dtype = DTYPES[tensor.dtype as usize].1;
        let entry = json!({ "dtype": dtype, "shape": tensor.shape, "data_offsets": [at, end] });
        header.insert(tensor.name.clone(), entry);
        tasks.push((tensor, at));
        at = end;
    }
    let mut text = serde_json::to_vec(&header).map_err(io::Error::from).map_err(failed)?;
    text.resize(text.len().next_multiple_of(8), b' ');
    let begin = 8 + text.len() as u64;
    let create = || -> io::Result<()> {
        let mut file = File::create(&path)?;
        file.write_all(&(text.len() as u64).to_le_bytes())?;
        file.write_all(&text)?;
        file.set_len(begin + at)
    };
    create().map_err(failed)?;
    parallel(workers, &tasks, |(tensor, at)| {
        let bytes = tensor.read()?;
        let write = || -> io::Result<()> {
            let mut file = File::options().write(true).open(&path)?;
            file.seek(SeekFrom::Start(begin + at))?;
            file.write_all(&bytes)
        };
        write().map_err(failed)?;
        watch.advance();
        Ok(())
    })
    .map(drop)
}
