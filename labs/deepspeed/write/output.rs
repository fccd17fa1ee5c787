//! The files of the result.

use crate::STATES;
use crate::folder::Folder;
use crate::know::{Inner, Part, Rule, Size};
use crate::read::Step;
use crate::report::lock;
use crate::torch::{Dtype, Fields, Graph, Id, TorchFile, Value, save_number, save_tensor};
use shardlab::checkpoint::files;
use shardlab::error::BadInput;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

pub(crate) struct Output {
    folder: Folder,
    /// The files of states.
    written: Mutex<Vec<PathBuf>>,
}

/// The folder that names the newest universal checkpoint in this file contains it.
const LATEST: &str = "latest_universal";

impl Output {
    /// Begins a conversion to the folder `to`, which must not exist, or be empty. Removes what an
    /// interrupted conversion has left.
    pub fn begin(to: &Path) -> Result<Output, BadInput> {
        let folder = Folder::begin(to, "give --output_folder a folder that does not exist yet")?;
        files::make(&folder.path().join("zero"))?;
        Ok(Output { folder, written: Mutex::default() })
    }

    /// The folder as long as it is not complete.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn path(&self, name: &str, file: &str) -> PathBuf {
        self.folder().join("zero").join(name).join(file)
    }

    pub fn parameter(&self, name: &str) -> Result<(), BadInput> {
        files::make(&self.folder().join("zero").join(name))
    }

    /// Writes one state of a parameter. `rule` is what joined it, and is `None` in stage 3, whose
    /// files are bare tensors.
    pub fn state(
        &self,
        name: &str,
        state: usize,
        dtype: Dtype,
        part: &Part,
        rule: Option<(&Rule, bool)>,
    ) -> Result<(), BadInput> {
        let path = self.path(name, &format!("{}.pt", STATES[state]));
        lock(&self.written).push(path.clone());
        let fields = rule.map(|(rule, words)| move |graph: &mut Graph| fields(graph, rule, words));
        let fields = fields.as_ref().map(|fields| fields as Fields);
        save_tensor(&path, dtype, &part.shape, &part.bytes, fields)
    }

    pub fn step(&self, name: &str, step: &Step) -> Result<(), BadInput> {
        let path = self.path(name, "step.pt");
        match &step.tensor {
            Some((dtype, bytes)) => save_tensor(&path, *dtype, &[], bytes, None),
            None => save_number(&path, step.value),
        }
    }

    /// Writes a tensor that the optimizer does not have, as f32.
    pub fn other(&self, name: &str, dtype: Dtype, part: &Part) -> Result<(), BadInput> {
        self.parameter(name)?;
        let path = self.path(name, "fp32.pt");
        lock(&self.written).push(path.clone());
        let bytes = dtype.to_f32(&part.bytes);
        save_tensor(&path, Dtype::F32, &part.shape, &bytes, Some(&|_| Vec::new()))
    }

    /// Reads every state back, and compares it with what was written. Returns how many there are.
    pub fn verify(&self) -> Result<usize, BadInput> {
        let written = lock(&self.written);
        // The checksum in a file is that of the elements in memory when they were written.
        for path in written.iter() {
            TorchFile::open(path)?.ensure_undamaged()?;
        }
        Ok(written.len())
    }

    /// Makes the folder visible, and names it as the newest. Returns its bytes.
    pub fn publish(self) -> Result<u64, BadInput> {
        let to = self.folder.to().to_path_buf();
        let bytes = self.folder.publish()?;
        let beside = to.with_file_name(format!(".{LATEST}.partial"));
        let name = to.file_name().unwrap_or_default().to_string_lossy();
        let named = files::write(&beside, name.as_bytes())
            .and_then(|()| files::rename(&beside, &to.with_file_name(LATEST)));
        named.map_err(|error| {
            let to = to.display();
            let what = format!("{to} is complete, and not named in {LATEST}: {}", error.what);
            BadInput { what, ..error }
        })?;
        Ok(bytes)
    }
}

/// The entries beside the tensor: how DeepSpeed divides it among ranks again.
fn fields(graph: &mut Graph, rule: &Rule, words: bool) -> Vec<(Id, Id)> {
    let mut entries = match rule {
        Rule::Replicated | Rule::Average | Rule::Map(_) => vec![],
        Rule::Joined(dim) => vec![("cat_dim", graph.push(Value::Int(*dim as i64)))],
        Rule::Halves => vec![
            ("cat_dim", graph.push(Value::Int(0))),
            ("param_n_sub_params", graph.push(Value::Int(2))),
        ],
        Rule::Inner(inner) => vec![("sub_param_shape", shape_of(graph, inner))],
    };
    if words {
        entries.push(("vocab_tensor", graph.push(Value::Bool(true))));
    }
    entries.into_iter().map(|(key, value)| (graph.text(key), value)).collect()
}

/// DeepSpeed's object for a parameter that consists of several.
fn shape_of(graph: &mut Graph, inner: &Inner) -> Id {
    let class = graph.class("deepspeed.checkpoint.universal_checkpoint", "SubparamShape");
    let patterns = inner.patterns.iter().map(|pattern| graph.text(pattern)).collect();
    let patterns = graph.push(Value::List(patterns));
    let sizes = inner.shape.iter().map(|size| match size {
        Size::One(size) => graph.push(Value::Int(*size)),
        Size::Several(sizes) => {
            let sizes = sizes.iter().map(|size| graph.push(Value::Int(*size as i64))).collect();
            graph.push(Value::Tuple(sizes))
        }
    });
    let sizes = sizes.collect();
    let sizes = graph.push(Value::Tuple(sizes));
    let dim = graph.push(Value::Int(inner.dim as i64));
    graph.call(class, vec![patterns, sizes, dim])
}
