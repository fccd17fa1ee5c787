//! Conversions of small checkpoints, right and wrong. Reading order: `whole.rs` (all stages),
//! `frozen.rs` (what the optimizer does not have), `parallel.rs` (parts of tensor parallelism),
//! `repairs.rs` (records that are wrong), `refusals.rs` (what cannot be converted).

mod frozen;
mod parallel;
mod refusals;
mod repairs;
mod whole;

use super::example::{Example, Group, group, value};
use super::{Options, Report, STATES, convert};
use crate::torch::{Graph, Id, TorchFile, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::{TempDir, tempdir};

/// Sizes that no number of ranks divides, in two groups. The last has fewer elements than some jobs
/// have ranks.
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
