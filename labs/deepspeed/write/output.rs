//! The files of the result. They are written beside the output folder, which appears when it is
//! complete.

use super::earlier::{ensure_ours, store};
use crate::STATES;
use crate::know::{Inner, Part, Rule, Size};
use crate::options::Format;
use crate::read::Step;
use crate::report::lock;
use crate::torch::{Dtype, Fields, Graph, Id, TorchFile, Value, save_number, save_tensor};
use half::{bf16, f16};
use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype as Safe, TensorView};
use shardlab::checkpoint::universal::{Parameter, Universal, write_index};
use shardlab::checkpoint::{cause, files};
use shardlab::error::BadInput;
use shardlab::sha256;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

pub(crate) struct Output {
    to: PathBuf,
    side: PathBuf,
    format: Format,
    /// The files of states.
    written: Mutex<Vec<PathBuf>>,
}

/// The folder that names the newest universal checkpoint in this file contains it.
const LATEST: &str = "latest_universal";

impl Output {
    /// Begins a conversion to the folder `to`. Removes what an interrupted conversion has left.
    pub fn begin(to: &Path, input: &Path, format: Format) -> Result<Output, BadInput> {
        let refuse = |what: &str| {
            let help = "give --output_folder a new folder, or that of an earlier conversion to which nothing was added";
            Err(BadInput::new(
                format!("{} cannot be the output folder: {what}", to.display()),
                help,
            ))
        };
        if to.file_name().is_none() {
            return refuse("it has no name");
        }
        let there = absolute(to);
        let input = absolute(input);
        if there == input {
            return refuse("it is the input folder");
        }
        // An output folder that an earlier conversion has written is replaced.
        if there.starts_with(&input) || input.starts_with(&there) {
            return refuse("one of the input and the output folder contains the other");
        }
        if let Err(what) = ensure_ours(to) {
            return refuse(&what);
        }
        let side = files::beside(to)?;
        let output = Output {
            to: to.to_path_buf(),
            side,
            format,
            written: Mutex::default(),
        };
        match output.make(&output.side.join("zero")) {
            Ok(()) => Ok(output),
            Err(error) => Err(output.discard(error)),
        }
    }

    fn make(&self, folder: &Path) -> Result<(), BadInput> {
        std::fs::create_dir_all(folder).map_err(|error| cause::unwritten(folder, &error, ""))
    }

    /// The folder as long as it is not complete.
    pub fn folder(&self) -> &Path {
        &self.side
    }

    fn path(&self, name: &str, file: &str) -> PathBuf {
        self.side.join("zero").join(name).join(file)
    }

    pub fn parameter(&self, name: &str) -> Result<(), BadInput> {
        self.make(&self.side.join("zero").join(name))
    }

    /// Writes one state of a parameter. `rule` is what joined it, and is `None` in stage 3, whose
    /// files are bare tensors. Returns the hash of its elements, if the format needs it.
    pub fn state(
        &self,
        name: &str,
        state: usize,
        dtype: Dtype,
        part: &Part,
        rule: Option<(&Rule, bool)>,
    ) -> Result<String, BadInput> {
        let path = self.path(name, &format!("{}.{}", STATES[state], self.ending()));
        lock(&self.written).push(path.clone());
        match self.format {
            Format::Torch => {
                let fields = |graph: &mut Graph| {
                    rule.map_or(Vec::new(), |(rule, words)| fields(graph, rule, words))
                };
                let fields: Option<Fields> = if rule.is_some() { Some(&fields) } else { None };
                save_tensor(&path, dtype, &part.shape, &part.bytes, fields)
                    .map_err(|error| cause::unwritten(&path, &error, ""))?;
                Ok(String::new())
            }
            Format::Safetensors => {
                let bytes = single(dtype, &part.bytes);
                let view = TensorView::new(Safe::F32, part.shape.clone(), &bytes)
                    .map_err(|error| failed(&path, error))?;
                safetensors::serialize_to_file([(STATES[state], view)], None, &path)
                    .map_err(|error| failed(&path, error))?;
                Ok(sha256::hex(&bytes))
            }
        }
    }

    fn ending(&self) -> &'static str {
        if self.format == Format::Torch {
            "pt"
        } else {
            "safetensors"
        }
    }

    pub fn step(&self, name: &str, step: &Step) -> Result<(), BadInput> {
        let path = self.path(name, "step.pt");
        let written = match &step.tensor {
            Some((dtype, bytes)) => save_tensor(&path, *dtype, &[], bytes, None),
            None => save_number(&path, step.value),
        };
        written.map_err(|error| cause::unwritten(&path, &error, ""))
    }

    /// Writes a tensor that the optimizer does not have, as f32.
    pub fn other(&self, name: &str, dtype: Dtype, part: &Part) -> Result<(), BadInput> {
        self.parameter(name)?;
        let path = self.path(name, "fp32.pt");
        let bytes = single(dtype, &part.bytes);
        save_tensor(&path, Dtype::F32, &part.shape, &bytes, Some(&|_| Vec::new()))
            .map_err(|error| cause::unwritten(&path, &error, ""))
    }

    /// Writes the list of parameters, which only safetensors need.
    pub fn index(
        &self,
        parameters: BTreeMap<String, Parameter>,
        steps: (u64, usize),
        record: serde_json::Value,
    ) -> Result<(), BadInput> {
        write_index(&self.side, parameters, steps, record)
    }

    /// Reads every state back, and compares it with what was written. Returns how many there are.
    pub fn verify(&self) -> Result<usize, BadInput> {
        let written = lock(&self.written);
        if self.format == Format::Safetensors {
            let universal = Universal::open(&self.side)?;
            for name in universal.parameters().keys() {
                universal.read(name)?;
            }
        } else {
            // The checksum in a file is that of the elements in memory when they were written.
            for path in written.iter() {
                TorchFile::open(path)?.ensure_undamaged()?;
            }
        }
        Ok(written.len())
    }

    /// Removes what has been written, after an error. The error names what could not be removed.
    pub fn discard(self, error: BadInput) -> BadInput {
        discarded(&self.side, error)
    }

    /// Makes the folder visible, and names it as the newest. Returns its bytes. `notes` gets what
    /// is left of the folder that it replaces.
    pub fn publish(self, notes: &mut Vec<String>) -> Result<u64, BadInput> {
        let Output { to, side, .. } = self;
        let bytes = store(&side).and_then(|bytes| {
            replace(&side, &to, notes)?;
            Ok(bytes)
        });
        let bytes = bytes.map_err(|error| discarded(&side, error))?;
        let latest = to.with_file_name(LATEST);
        let beside = to.with_file_name(format!(".{LATEST}.partial"));
        // A link of this name would be followed.
        files::discard(&beside);
        let name = to.file_name().unwrap_or_default().to_string_lossy();
        let named =
            files::write(&beside, name.as_bytes()).and_then(|()| files::rename(&beside, &latest));
        named.map_err(|error| {
            let what =
                format!("{} is complete, and not named in {LATEST}: {}", to.display(), error.what);
            discarded(&beside, BadInput { what, ..error })
        })?;
        Ok(bytes)
    }
}

/// Removes an incomplete file or folder, after an error. The error names it if it remains.
fn discarded(side: &Path, mut error: BadInput) -> BadInput {
    files::discard(side);
    if side.symlink_metadata().is_ok() {
        error.help +=
            &format!("; {} is left half-made: remove it, or convert again", side.display());
    }
    error
}

/// Puts a complete folder in the place of an earlier one.
fn replace(side: &Path, to: &Path, notes: &mut Vec<String>) -> Result<(), BadInput> {
    if to.symlink_metadata().is_err() {
        return files::rename(side, to);
    }
    // Someone may have added a file meanwhile.
    ensure_ours(to).map_err(|what| {
        let help = "give --output_folder a new folder";
        BadInput::new(format!("{} cannot be replaced: {what}", to.display()), help)
    })?;
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let old = to.with_file_name(format!(".{name}.old.partial"));
    files::discard(&old);
    files::rename(to, &old)?;
    if let Err(mut error) = files::rename(side, to) {
        if files::rename(&old, to).is_err() {
            error.help += &format!("; the earlier conversion is {} now", old.display());
        }
        return Err(error);
    }
    files::discard(&old);
    if old.symlink_metadata().is_ok() {
        notes.push(format!(
            "{} is left of the earlier conversion, and could not be removed",
            old.display()
        ));
    }
    Ok(())
}

/// A path without links. Folders that do not exist have none.
fn absolute(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let there = path
        .ancestors()
        .find_map(|folder| Some((folder, std::fs::canonicalize(folder).ok()?)));
    there.map_or_else(
        || path.clone(),
        |(folder, real)| real.join(path.strip_prefix(folder).unwrap_or(&path)),
    )
}

/// An error of the writer of safetensors.
fn failed(path: &Path, error: SafeTensorError) -> BadInput {
    let error = match error {
        SafeTensorError::IoError(error) => error,
        error => std::io::Error::other(error),
    };
    cause::unwritten(path, &error, "")
}

/// Elements as f32.
fn single(dtype: Dtype, bytes: &[u8]) -> Cow<'_, [u8]> {
    fn each<const N: usize>(bytes: &[u8], to: impl Fn([u8; N]) -> f32) -> Cow<'static, [u8]> {
        bytes
            .as_chunks::<N>()
            .0
            .iter()
            .flat_map(|bytes| to(*bytes).to_le_bytes())
            .collect::<Vec<u8>>()
            .into()
    }
    match dtype {
        Dtype::F32 => Cow::Borrowed(bytes),
        Dtype::F64 => each(bytes, |bytes| f64::from_le_bytes(bytes) as f32),
        Dtype::BF16 => each(bytes, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        Dtype::F16 => each(bytes, |bytes| f16::from_le_bytes(bytes).to_f32()),
        Dtype::I64 => each(bytes, |bytes| i64::from_le_bytes(bytes) as f32),
        Dtype::I32 => each(bytes, |bytes| i32::from_le_bytes(bytes) as f32),
        Dtype::I16 => each(bytes, |bytes| i16::from_le_bytes(bytes).into()),
        Dtype::I8 => each(bytes, |bytes| i8::from_le_bytes(bytes).into()),
        Dtype::U8 | Dtype::Bool => each(bytes, |[byte]: [u8; 1]| byte.into()),
    }
}

/// The entries beside the tensor: how DeepSpeed divides it among ranks again.
fn fields(graph: &mut Graph, rule: &Rule, words: bool) -> Vec<(Id, Id)> {
    let mut pairs = Vec::new();
    let mut add = |graph: &mut Graph, key: &str, value: Id| {
        let key = graph.text(key);
        pairs.push((key, value));
    };
    match rule {
        Rule::Replicated | Rule::Average | Rule::Map(_) => {}
        Rule::Joined(dim) => {
            let dim = graph.push(Value::Int(*dim as i64));
            add(graph, "cat_dim", dim);
        }
        Rule::Halves => {
            let dim = graph.push(Value::Int(0));
            let count = graph.push(Value::Int(2));
            add(graph, "cat_dim", dim);
            add(graph, "param_n_sub_params", count);
        }
        Rule::Inner(inner) => {
            let shape = shape_of(graph, inner);
            add(graph, "sub_param_shape", shape);
        }
    }
    if words {
        let yes = graph.push(Value::Bool(true));
        add(graph, "vocab_tensor", yes);
    }
    pairs
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_becomes_f32() {
        let same = |dtype, bytes: &[u8], number: f32| {
            assert_eq!(single(dtype, bytes)[..], number.to_le_bytes())
        };
        same(Dtype::F64, &(-2.5f64).to_le_bytes(), -2.5);
        same(Dtype::F32, &(-2.5f32).to_le_bytes(), -2.5);
        same(Dtype::F16, &f16::from_f32(-2.5).to_le_bytes(), -2.5);
        same(Dtype::BF16, &bf16::from_f32(-2.5).to_le_bytes(), -2.5);
        same(Dtype::I64, &(-300i64).to_le_bytes(), -300.0);
        same(Dtype::I32, &(-300i32).to_le_bytes(), -300.0);
        same(Dtype::I16, &(-300i16).to_le_bytes(), -300.0);
        same(Dtype::I8, &(-3i8).to_le_bytes(), -3.0);
        same(Dtype::U8, &[253], 253.0);
        same(Dtype::Bool, &[1], 1.0);
    }
}
