//! The table of a DCP folder: every tensor with its parts, and where they are.

use crate::tensors::{Checkpoint, Content, Key, Part, Place, Setting, Tensor, ensure_whole};
use crate::torch::{Dtype, Node, read_pickle};
use shardlab::checkpoint::{cause, numel};
use shardlab::error::BadInput;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Component, Path};
use std::sync::Arc;

/// The table's name in its folder.
pub(crate) const METADATA: &str = ".metadata";

/// The table, in bytes. Each part takes about 200.
const LARGEST: u64 = 64 << 20;

const DAMAGED: &str = "use a different copy of this folder, or an earlier checkpoint";

/// Where an entry is, by its name and the offset of its part.
type Places = HashMap<(String, Option<Vec<usize>>), Place>;

/// Reads the table of a folder. The files that it names are there, and long enough.
pub(crate) fn read(folder: &Path) -> Result<Checkpoint, BadInput> {
    let path = folder.join(METADATA);
    let broken =
        |how: String| BadInput::new(format!("{} cannot be used: {how}", path.display()), DAMAGED);
    let bytes = shardlab::files::read(&path, LARGEST).map_err(|error| {
        let help = cause::unread(&error, DAMAGED);
        BadInput::new(format!("{} cannot be read: {error}", path.display()), help)
    })?;
    let graph = read_pickle(&bytes).map_err(broken)?;
    table(graph.root(), folder).map_err(broken)
}

fn table(root: Node, folder: &Path) -> Result<Checkpoint, String> {
    if class(root) != "Metadata" {
        return Err("it is a pickle, and no table of PyTorch's distributed checkpoint".to_string());
    }
    let part = |name: &str| root.attribute(name).ok_or_else(|| format!("it lacks {name}"));
    let mut places = places(part("storage_data")?, folder)?;
    ensure_apart(&places)?;
    let keys = all_keys(part("planner_data")?);
    let mut checkpoint = Checkpoint::default();
    let mut names = BTreeSet::new();
    for (name, about) in part("state_dict_metadata")?.entries() {
        let name = name.text().ok_or("a tensor's name is no text")?.to_string();
        if !names.insert(name.clone()) {
            return Err(format!("it has {name} twice"));
        }
        let keys = keys.get(&name).cloned().unwrap_or_else(|| vec![Key::Name(name.clone())]);
        match class(about) {
            "BytesStorageMetadata" => {
                let place = places.remove(&(name.clone(), None));
                let place = place.ok_or_else(|| format!("it does not say where {name} is"))?;
                let content = Content::Archive(place);
                checkpoint.values.push(Setting { name, keys, content });
            }
            "TensorStorageMetadata" => {
                let (found, shape, parts) =
                    tensor(&name, about, &mut places).map_err(|how| format!("{name}: {how}"))?;
                match Dtype::find(found) {
                    Some(dtype) => {
                        ensure_stored(dtype, &parts).map_err(|how| format!("{name}: {how}"))?;
                        checkpoint.tensors.push(Tensor { name, keys, dtype, shape, parts });
                    }
                    None => checkpoint.unread.push((name, format!("of type {found}"))),
                }
            }
            other => return Err(format!("{name} is a {other:?}, which is not known here")),
        }
    }
    // A table never names a part that its tensors do not have.
    if let Some((name, _)) = places.keys().min() {
        return Err(format!("it says where a part of {name} is, and lists no such part"));
    }
    Ok(checkpoint)
}

/// The name of an object's class.
fn class(node: Node<'_>) -> &str {
    node.call().map_or("", |((_, name), _)| name)
}

fn places(storage: Node, folder: &Path) -> Result<Places, String> {
    let mut places = Places::new();
    let mut files: HashMap<String, (Arc<Path>, u64)> = HashMap::new();
    for (index, info) in storage.entries() {
        let name = index.attribute("fqn").and_then(Node::text).ok_or("a part has no name")?;
        let offset = match index.attribute("offset").filter(|offset| !offset.is_none()) {
            Some(offset) => Some(offset.sizes().ok_or_else(|| format!("{name}: broken offset"))?),
            None => None,
        };
        let count = |key: &str| info.attribute(key)?.int().and_then(|at| u64::try_from(at).ok());
        let file = info.attribute("relative_path").and_then(Node::text);
        let (Some(file), Some(at), Some(length)) = (file, count("offset"), count("length")) else {
            return Err(format!("it does not say where a part of {name} is"));
        };
        if info.attribute("transform_descriptors").is_some_and(|how| how.items().len() > 0) {
            return Err(format!("{name} is stored transformed, which is not known here"));
        }
        if !files.contains_key(file) {
            // Nothing outside the folder.
            if !Path::new(file).components().all(|part| matches!(part, Component::Normal(_))) {
                return Err(format!("it names the file {file:?}, outside its folder"));
            }
            let path = folder.join(file);
            let (_, length) = shardlab::files::open(&path)
                .map_err(|error| format!("it names {file}, which cannot be opened: {error}"))?;
            files.insert(file.to_string(), (path.into(), length));
        }
        let (path, size) = &files[file];
        let end = at.checked_add(length).filter(|end| end <= size).ok_or_else(|| {
            format!("it says that {name} has {length} bytes at {at} of {file}, which has {size}")
        })?;
        let place = Place { file: path.clone(), bytes: at..end, archive: true };
        if places.insert((name.to_string(), offset), place).is_some() {
            return Err(format!("it says twice where a part of {name} is"));
        }
    }
    Ok(places)
}

/// No two parts are in the same bytes: the table has no checksum, and this shows many a wrong
/// place.
fn ensure_apart(places: &Places) -> Result<(), String> {
    let mut sorted: Vec<(&String, &Place)> =
        places.iter().map(|((name, _), place)| (name, place)).collect();
    sorted.sort_by_key(|(_, place)| (&place.file, place.bytes.start));
    for pair in sorted.windows(2) {
        let [(one, before), (other, after)] = pair else {
            continue;
        };
        if before.file == after.file && after.bytes.start < before.bytes.end {
            return Err(format!("it has parts of {one} and {other} in the same bytes"));
        }
    }
    Ok(())
}

/// A tensor's type, shape and parts.
fn tensor<'a>(
    name: &str,
    about: Node<'a>,
    places: &mut Places,
) -> Result<(&'a str, Vec<usize>, Vec<Part>), String> {
    let dtype = about.attribute("properties").and_then(|all| all.state()?.items().next());
    let (_, dtype) = dtype.and_then(Node::class).ok_or("it has no type")?;
    let size = |node: Node, key: &str| {
        let sizes = node.attribute(key).and_then(Node::sizes);
        sizes
            .filter(|sizes| numel(sizes).is_some())
            .ok_or_else(|| format!("it has no {key}"))
    };
    let shape = size(about, "size")?;
    let mut parts = Vec::new();
    let mut empty = Vec::new();
    for chunk in about.attribute("chunks").ok_or("it has no chunks")?.items() {
        let offset = chunk.attribute("offsets").and_then(Node::sizes).ok_or("a broken offset")?;
        let shape = size(chunk, "sizes")?;
        // A rank without elements writes an empty part.
        if shape.contains(&0) {
            empty.push(offset);
            continue;
        }
        let place = places.remove(&(name.to_string(), Some(offset.clone())));
        let place =
            place.ok_or_else(|| format!("it does not say where its part at {offset:?} is"))?;
        parts.push(Part { offset, shape, place });
    }
    for offset in empty {
        places.remove(&(name.to_string(), Some(offset)));
    }
    ensure_whole(&shape, &parts)?;
    Ok((dtype, shape, parts))
}

/// No part is larger than its archive, which is not compressed: room is made for it.
fn ensure_stored(dtype: Dtype, parts: &[Part]) -> Result<(), String> {
    for Part { offset, shape, place } in parts {
        let needed = (shape.iter().product::<usize>() * dtype.size()) as u64;
        let bytes = place.bytes.end - place.bytes.start;
        if needed > bytes {
            return Err(format!("its part at {offset:?} has {needed} bytes, stored in {bytes}"));
        }
    }
    Ok(())
}

/// The keys that names were joined of.
fn all_keys(planner: Node) -> BTreeMap<String, Vec<Key>> {
    let key = |node: Node| match node.text() {
        Some(text) => Some(Key::Name(text.to_string())),
        None => node.int().map(Key::At),
    };
    let entries = planner.entries().filter_map(|(name, keys)| {
        let keys: Option<Vec<Key>> = keys.items().map(key).collect();
        Some((name.text()?.to_string(), keys.filter(|keys| !keys.is_empty())?))
    });
    entries.collect()
}
