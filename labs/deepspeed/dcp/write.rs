//! A DCP folder that PyTorch loads, on any number of ranks: each tensor whole, in one of a few
//! files.

use super::METADATA;
use super::settings::from_json;
use crate::options::Watch;
use crate::tensors::{Content, Key, Setting, Tensor};
use crate::torch::{Graph, Id, Value, encode, strides, write_archive};
use crate::workers::parallel;
use shardlab::checkpoint::{cause, files};
use shardlab::error::BadInput;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

/// Files of the result. PyTorch reads those of many ranks at the same time.
const FILES: usize = 8;

/// The version that PyTorch 2.15 writes.
const VERSION: &str = "1.0.0";

/// One entry of the table.
enum Entry<'a> {
    Tensor(&'a Tensor),
    Setting(&'a Setting),
}

/// Where an entry was written.
type Written<'a> = (&'a Entry<'a>, String, Range<u64>);

/// Writes all files of a folder.
pub(crate) fn write(
    folder: &Path,
    tensors: &[Tensor],
    settings: &[Setting],
    workers: usize,
    watch: &dyn Watch,
) -> Result<(), BadInput> {
    let lists = divide(tensors, settings);
    let tasks: Vec<usize> = (0..lists.len()).collect();
    let written = parallel(workers, &tasks, |rank| {
        let name = format!("__{rank}_0.distcp");
        write_file(folder, &name, &lists[*rank], watch)
    })?;
    let graph = table(&written.into_iter().flatten().collect::<Vec<_>>());
    files::write(&folder.join(METADATA), &encode(&graph).0)
}

/// The entries of each file: about as many bytes in all.
fn divide<'a>(tensors: &'a [Tensor], settings: &'a [Setting]) -> Vec<Vec<Entry<'a>>> {
    let count = tensors.len().clamp(1, FILES);
    let mut lists: Vec<(u64, Vec<Entry>)> = (0..count).map(|_| (0, Vec::new())).collect();
    lists[0].1.extend(settings.iter().map(Entry::Setting));
    let mut sorted: Vec<&Tensor> = tensors.iter().collect();
    sorted.sort_by_key(|tensor| std::cmp::Reverse(tensor.bytes()));
    for tensor in sorted {
        if let Some((bytes, list)) = lists.iter_mut().min_by_key(|(bytes, _)| *bytes) {
            *bytes += tensor.bytes();
            list.push(Entry::Tensor(tensor));
        }
    }
    lists.into_iter().map(|(_, list)| list).collect()
}

fn write_file<'a>(
    folder: &Path,
    name: &str,
    entries: &'a [Entry<'a>],
    watch: &dyn Watch,
) -> Result<Vec<Written<'a>>, BadInput> {
    let path = folder.join(name);
    let failed = |error: io::Error| cause::unwritten(&path, &error, "");
    let mut out = BufWriter::new(File::create(&path).map_err(failed)?);
    let mut begin = 0;
    let mut written = Vec::new();
    for entry in entries {
        match entry {
            Entry::Tensor(tensor) => {
                let bytes = tensor.read()?;
                let mut graph = Graph::default();
                graph.root = graph.tensor(tensor.dtype, &tensor.shape, "0");
                write_archive(&mut out, &graph, &[("0", &bytes)]).map_err(failed)?;
            }
            Entry::Setting(setting) => write_setting(&mut out, setting)?.map_err(failed)?,
        }
        let end = out.stream_position().map_err(failed)?;
        written.push((entry, name.to_string(), begin..end));
        begin = end;
        watch.advance();
    }
    out.flush().map_err(failed)?;
    Ok(written)
}

/// Writes an archive with one setting. The outer error is about where it is read.
fn write_setting(out: &mut impl Write, setting: &Setting) -> Result<io::Result<()>, BadInput> {
    match &setting.content {
        // Whatever it is, as it is.
        Content::Archive(place) => {
            let read = || -> io::Result<Vec<u8>> {
                let mut file = File::open(&place.file)?;
                file.seek(SeekFrom::Start(place.bytes.start))?;
                let mut bytes = vec![0; (place.bytes.end - place.bytes.start) as usize];
                file.read_exact(&mut bytes)?;
                Ok(bytes)
            };
            let bytes = read().map_err(|error| {
                let what = format!("{} cannot be read: {error}", place.file.display());
                BadInput::new(what, cause::unread(&error, "use a different copy of this file"))
            })?;
            Ok(out.write_all(&bytes))
        }
        Content::Plain(value) => {
            let mut graph = Graph::default();
            graph.root = from_json(&mut graph, value).ok_or_else(|| {
                let what = format!("{} is {value}, which is no value of Python here", setting.name);
                BadInput::new(what, "convert again from the folder that PyTorch has saved")
            })?;
            Ok(write_archive(out, &graph, &[]))
        }
    }
}

/// The classes of the table.
struct Classes {
    index: Id,
    info: Id,
    chunk: Id,
    tensor: Id,
    properties: Id,
    bytes: Id,
    size: Id,
}

/// The table of what was written, as PyTorch's objects.
fn table(written: &[Written]) -> Graph {
    const OF: &str = "torch.distributed.checkpoint.metadata";
    let mut graph = Graph::default();
    let class = graph.class(OF, "Metadata");
    let classes = Classes {
        index: graph.class(OF, "MetadataIndex"),
        info: graph.class("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        chunk: graph.class(OF, "ChunkStorageMetadata"),
        tensor: graph.class(OF, "TensorStorageMetadata"),
        properties: graph.class(OF, "TensorProperties"),
        bytes: graph.class(OF, "BytesStorageMetadata"),
        size: graph.class("torch", "Size"),
    };
    let (mut tensors, mut places, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    for (entry, file, bytes) in written {
        let (name, path) = match entry {
            Entry::Tensor(tensor) => (&tensor.name, &tensor.keys),
            Entry::Setting(setting) => (&setting.name, &setting.keys),
        };
        let (about, offset) = match entry {
            Entry::Tensor(tensor) => about(&mut graph, &classes, tensor),
            Entry::Setting(_) => (graph.object(classes.bytes, &[]), graph.push(Value::None)),
        };
        let fqn = graph.text(name);
        let hint = match entry {
            Entry::Tensor(_) => graph.push(Value::Int(0)),
            Entry::Setting(_) => graph.push(Value::None),
        };
        let index = [("fqn", fqn), ("offset", offset), ("index", hint)];
        let index = graph.object(classes.index, &index);
        let file = graph.text(file);
        let at = graph.push(Value::Int(bytes.start as i64));
        let length = graph.push(Value::Int((bytes.end - bytes.start) as i64));
        let info = [("relative_path", file), ("offset", at), ("length", length)];
        let info = graph.object(classes.info, &info);
        let path = path.iter().map(|key| match key {
            Key::Name(name) => graph.text(name),
            Key::At(at) => graph.push(Value::Int(*at)),
        });
        let path = path.collect();
        let path = graph.push(Value::Tuple(path));
        tensors.push((fqn, about));
        places.push((index, info));
        keys.push((fqn, path));
    }
    let tensors = graph.push(Value::Dict(tensors));
    let places = graph.push(Value::Dict(places));
    let keys = graph.push(Value::Dict(keys));
    let none = graph.push(Value::None);
    let version = graph.text(VERSION);
    let fields = [
        ("state_dict_metadata", tensors),
        ("planner_data", keys),
        ("storage_data", places),
        ("storage_meta", none),
        ("version", version),
    ];
    graph.root = graph.object(class, &fields);
    graph
}

/// A tensor's entry, with one part, and the offset of this.
fn about(graph: &mut Graph, classes: &Classes, tensor: &Tensor) -> (Id, Id) {
    let size = |graph: &mut Graph, sizes: &[usize]| {
        let sizes = graph.sizes(sizes);
        graph.call(classes.size, vec![sizes])
    };
    let whole = size(graph, &tensor.shape);
    let offset = size(graph, &vec![0; tensor.shape.len()]);
    let chunk = graph.object(classes.chunk, &[("offsets", offset), ("sizes", whole)]);
    let chunks = graph.push(Value::List(vec![chunk]));
    let properties = properties(graph, classes, tensor);
    let about = [("properties", properties), ("size", whole), ("chunks", chunks)];
    (graph.object(classes.tensor, &about), offset)
}

/// Type, layout, whether it needs gradients, memory format, whether it is pinned, strides.
fn properties(graph: &mut Graph, classes: &Classes, tensor: &Tensor) -> Id {
    let dtype = graph.class("torch", tensor.dtype.name());
    let layout = graph.class("torch.serialization", "_get_layout");
    let strided = graph.text("torch.strided");
    let layout = graph.call(layout, vec![strided]);
    let format = graph.class("torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING");
    let contiguous = graph.push(Value::Int(0));
    let format = graph.call(format, vec![contiguous]);
    let no = graph.push(Value::Bool(false));
    let strides = graph.sizes(&strides(&tensor.shape));
    let state = graph.push(Value::Tuple(vec![dtype, layout, no, format, no, strides]));
    let properties = graph.object(classes.properties, &[]);
    graph.set_state(properties, state);
    properties
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torch::Dtype;

    /// A table can claim any size and place: no memory is taken for the one, and nothing read twice
    /// for the other.
    #[test]
    fn parts_that_do_not_fit_into_their_bytes_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("__0_0.distcp"), [0; 100]).unwrap();
        let mut tensor = Tensor {
            name: "w".to_string(),
            keys: vec![Key::Name("w".to_string())],
            dtype: Dtype::F32,
            shape: vec![1 << 40],
            parts: vec![],
        };
        let refused = |tensors: &[(&Tensor, Range<u64>)]| {
            let entries: Vec<_> = tensors.iter().map(|(one, _)| Entry::Tensor(one)).collect();
            let places = entries.iter().zip(tensors);
            let file = "__0_0.distcp".to_string();
            let written = places.map(|(entry, (_, bytes))| (entry, file.clone(), bytes.clone()));
            let graph = table(&written.collect::<Vec<_>>());
            std::fs::write(dir.path().join(METADATA), encode(&graph).0).unwrap();
            crate::dcp::read(dir.path()).err().map(|error| error.what)
        };
        assert!(refused(&[(&tensor, 0..100)]).unwrap().ends_with("bytes, stored in 100"));
        tensor.shape = vec![12];
        assert_eq!(refused(&[(&tensor, 0..50)]), None);
        let twin = Tensor { name: "twin".to_string(), ..tensor.clone() };
        assert_eq!(refused(&[(&tensor, 0..50), (&twin, 50..100)]), None);
        let both = refused(&[(&tensor, 0..50), (&twin, 49..99)]).unwrap();
        assert!(both.ends_with("in the same bytes"), "{both}");
    }
}
