//! Conversions of small checkpoints, right and wrong. Reading order: `whole.rs` (all stages),
//! `frozen.rs` (what the optimizer does not have), `parallel.rs` (parts of tensor parallelism),
//! `joined.rs` (one state from its parts), `repairs.rs` (records that are wrong), `refusals.rs`
//! (what cannot be converted), `phases.rs` (what a watcher sees), `dcp.rs` (a folder of
//! PyTorch's).

mod dcp;
mod frozen;
mod joined;
mod parallel;
mod phases;
mod refusals;
mod repairs;
mod whole;

use super::example::{Contents, Example, Group, Values, value};
use super::{Options, Report, STATES, convert};
use crate::torch::{Graph, Id, TorchFile, Value, save_graph};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::{TempDir, tempdir};

/// A group of these names and shapes.
fn group(parameters: &[(&str, &[usize])]) -> Group {
    parameters
        .iter()
        .map(|(name, shape)| (name.to_string(), shape.to_vec()))
        .collect()
}

/// Sizes that no number of ranks divides, in two groups. The last has fewer elements than some
/// jobs have ranks.
fn groups() -> Vec<Group> {
    vec![
        group(&[
            ("wte.weight", &[5, 7]),
            ("a.weight", &[3, 11]),
            ("b.weight", &[13, 1]),
            ("head.weight", &[17]),
        ]),
        group(&[("a.bias", &[3]), ("b.bias", &[7])]),
    ]
}

fn values(_mp: usize, name: &str, state: usize, element: usize) -> f32 {
    value(name, state, element)
}

fn options(dir: &Path) -> Options {
    Options {
        verify: true,
        ..Options::new(dir.join("global_step5"), dir.join("global_step5_universal"))
    }
}

fn run(options: &Options) -> Result<Report, String> {
    convert(options, &()).map_err(|error| error.what)
}

fn saved(example: &Example) -> TempDir {
    let dir = tempdir().unwrap();
    example.save(&dir.path().join("global_step5"), &values).unwrap();
    dir
}

/// The folder that `saved` writes.
fn folder(dir: &TempDir) -> PathBuf {
    dir.path().join("global_step5")
}

/// Changes a file: its values, and the numbers of its tensors.
fn change(path: &Path, edit: impl FnOnce(&mut Contents)) {
    let file = TorchFile::open(path).unwrap();
    let bytes = std::fs::read(path).unwrap();
    let storage = |key: usize| {
        let range = file.storage(&key.to_string()).ok()?;
        Some((key.to_string(), bytes[range.start as usize..range.end as usize].to_vec()))
    };
    let storages = (0..).map_while(storage).collect();
    let mut contents = Contents { graph: file.graph.clone(), storages };
    edit(&mut contents);
    save_graph(path, &contents.graph, &contents.storages).unwrap();
}

/// Changes all files of a kind: `model` or `optim`.
fn change_each(folder: &Path, kind: &str, edit: impl Fn(&mut Contents)) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if entry.file_name().to_string_lossy().ends_with(&format!("{kind}_states.pt")) {
            change(&entry.path(), &edit);
        }
    }
}

/// The value that a path of keys leads to.
fn at(contents: &Contents, keys: &[&str]) -> Id {
    let root = contents.graph.root();
    keys.iter().fold(root, |node, key| node.get(key).unwrap()).id
}

/// Adds an entry to the dictionary that a path of keys leads to.
fn insert(contents: &mut Contents, keys: &[&str], key: &str, value: Id) {
    let id = at(contents, keys);
    let key = contents.graph.text(key);
    let Value::Dict(pairs) = contents.graph.value_mut(id) else {
        panic!("{keys:?}")
    };
    pairs.push((key, value));
}

/// The optimizer's states in a file, by group.
fn states_of(contents: &Contents) -> Id {
    let root = contents.graph.root().get("optimizer_state_dict").unwrap();
    let inner = ["base_optimizer_state", "optimizer_state_dict"].into_iter();
    let inner = inner.filter_map(|key| root.get(key)).next().unwrap();
    inner.get("state").unwrap().id
}

/// Records rules of tensor parallelism.
fn record(folder: &Path, info: fn(&mut Graph) -> Id) {
    change_each(folder, "model", |contents| {
        let info = info(&mut contents.graph);
        insert(contents, &[], "universal_checkpoint_info", info);
    });
}

/// The elements of a file of the result, and its shape.
fn state(output: &Path, name: &str, state: &str) -> (Vec<usize>, Vec<f32>) {
    let file =
        TorchFile::open(&output.join("zero").join(name).join(format!("{state}.pt"))).unwrap();
    let root = file.graph.root();
    let stored = file.tensor(root.get("param").unwrap_or(root)).unwrap().unwrap();
    let mut bytes = vec![0; stored.numel() * 4];
    stored.read(0..stored.numel(), &mut bytes).unwrap();
    (
        stored.shape.clone(),
        bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
    )
}

fn ensure_right(output: &Path, groups: &[Group], flat: bool) {
    for (name, shape) in groups.iter().flatten() {
        let numel: usize = shape.iter().product();
        for (number, kind) in STATES.iter().enumerate() {
            let expected: Vec<f32> =
                (0..numel).map(|element| value(name, number, element)).collect();
            let shape = if flat { vec![numel] } else { shape.clone() };
            assert_eq!(state(output, name, kind), (shape, expected), "{kind} of {name}");
        }
    }
}

/// All files below a folder, with their contents.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            let name = path.strip_prefix(folder).unwrap().into();
            all.insert(name, std::fs::read(&path).unwrap());
        }
    }
    all.into_iter()
        .map(|(path, bytes)| (folder.file_name().map(PathBuf::from).unwrap().join(path), bytes))
        .collect()
}
