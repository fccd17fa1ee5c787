//! The files of a universal checkpoint. Its folders have DeepSpeed's names:
//!
//! ```text
//! universal.json                         the index: steps, shapes, checksums, trainer's record
//! zero/blocks.0.qkv.weight/fp32.safetensors
//! zero/blocks.0.qkv.weight/exp_avg.safetensors
//! zero/blocks.0.qkv.weight/exp_avg_sq.safetensors
//! zero/…
//! ```

use crate::checkpoint::manifest::Manifest;
use crate::checkpoint::{Settings, files, numel};
use crate::error::BadInput;
use crate::plan::ModelShape;
use crate::sha256;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The index's name in the folder.
pub const INDEX: &str = "universal.json";

/// The tensors of a parameter's state, by DeepSpeed's names: the f32 value, and the moments of
/// Adam.
pub const STATES: [&str; 3] = ["fp32", "exp_avg", "exp_avg_sq"];

const DAMAGED: &str = "convert the checkpoint again";

/// One parameter of a universal checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// The shape of the whole parameter.
    pub shape: Vec<usize>,
    /// The SHA-256 of the elements of each of [`STATES`], as little-endian f32. Empty: there is no
    /// such state, as Muon has no second moment.
    pub sha256: [String; 3],
}

impl Parameter {
    /// Whether Muon has updated it: then `exp_avg` is its momentum.
    pub fn is_muons(&self) -> bool {
        self.sha256[2].is_empty()
    }
}

/// A complete universal checkpoint.
///
/// Two ranks save, and three go on:
///
/// ```
/// use shardlab::checkpoint::universal::{Universal, merge};
/// use shardlab::checkpoint::{Checkpoints, Job, Settings};
/// use shardlab::model::Gpt;
/// use shardlab::optim::AdamWConfig;
/// use shardlab::parallel::Strategy;
/// use shardlab::parallel::zero::{Stage, Zero, ZeroConfig};
/// use shardlab::plan::{Family, ModelShape};
/// use shardlab::tensor::Precision;
/// use shardlab::{comm::Comm, launch};
/// use std::collections::BTreeMap;
///
/// let (heads, embd, family, experts) = (2, 8, Family::Gpt, None);
/// let shape = ModelShape { vocabulary: 5, block: 4, layers: 1, heads, embd, family, experts };
/// // This rank's shard of a new model.
/// let begin = |comm: &Comm, seed: u64| -> anyhow::Result<Zero> {
///     let model = Gpt::new(&shape)?;
///     let config = ZeroConfig::new(Stage::One, Precision::F32, AdamWConfig::default());
///     Zero::init(&model.params, comm, config, seed)
/// };
/// let dir = tempfile::tempdir()?;
/// let whole = dir.path().join("universal");
///
/// launch::run(2, |comm| {
///     let settings = Settings::new();
///     let strategy = Some(Strategy::data(2, Stage::One));
///     let job = Job { shape, seed: 1, ranks: 2, strategy, settings };
///     let checkpoints = Checkpoints::new(dir.path(), 1, job, &comm);
///     let saved = checkpoints.save(0, &mut begin(&comm, 1)?, &"my own record")?;
///     if comm.rank() == 0 {
///         merge(&saved, &whole)?;
///     }
///     Ok(())
/// })?;
///
/// // All values of a training, by name.
/// let values = |zero: &mut Zero| -> anyhow::Result<BTreeMap<String, Vec<f32>>> {
///     let mut all = BTreeMap::new();
///     zero.each(|spec, values| drop(all.insert(spec.name.clone(), values.to_vec())))?;
///     Ok(all)
/// };
/// let universal = Universal::open(&whole)?;
/// launch::run(3, |comm| {
///     let mut zero = begin(&comm, 2)?; // another seed: all values must come from the checkpoint
///     let record: String = universal.restore(&comm, &mut zero)?;
///     assert_eq!(record, "my own record");
///     assert_eq!(values(&mut zero)?, values(&mut begin(&comm, 1)?)?);
///     Ok(())
/// })?;
/// # anyhow::Ok(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Universal {
    /// The checkpoint's folder.
    #[serde(skip)]
    pub dir: PathBuf,
    /// The model, if a run of this crate saved it.
    pub model: Option<ModelShape>,
    /// Steps that the optimizer had taken.
    pub optimizer_steps: u64,
    /// Steps that the run had made.
    pub step: usize,
    /// All parameters, by name.
    pub parameters: BTreeMap<String, Parameter>,
    /// The settings of the run that saved it. Empty if they are not known.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub settings: Settings,
    /// The trainer's own state, such as counters and the loss scaler.
    pub record: serde_json::Value,
}

impl Universal {
    /// Reads the index of the checkpoint in `dir`.
    ///
    /// # Errors
    /// If there is none, or it is damaged.
    pub fn open(dir: &Path) -> Result<Universal, BadInput> {
        let path = dir.join(INDEX);
        let text = files::read(&path, files::LIST)
            .map_err(|error| BadInput { help: DAMAGED.to_string(), ..error })?;
        let broken = |how: String| {
            BadInput::new(
                format!("{} is no index of a universal checkpoint: {how}", path.display()),
                DAMAGED,
            )
        };
        let mut found: Universal =
            serde_json::from_slice(&text).map_err(|error| broken(error.to_string()))?;
        for (name, Parameter { shape, .. }) in &found.parameters {
            if !is_name(name) || numel(shape).is_none() {
                return Err(broken(format!("it has a parameter {name:?} of shape {shape:?}")));
            }
        }
        found.dir = dir.to_path_buf();
        Ok(found)
    }

    /// Reads the states of one parameter, in the order of [`STATES`], and compares them with their
    /// checksums. Each has the parameter's elements, row by row.
    ///
    /// # Errors
    /// If there is no such parameter, or a file is missing or damaged.
    pub fn read(&self, name: &str) -> Result<[Vec<f32>; 3], BadInput> {
        let Some(parameter) = self.parameters.get(name) else {
            return Err(BadInput::new(
                format!("{} has no {name}", self.dir.display()),
                "check the model's shape",
            ));
        };
        let mut states = [const { Vec::new() }; 3];
        let all = STATES.iter().zip(&parameter.sha256).zip(&mut states);
        for ((state, sum), numbers) in all.filter(|((_, sum), _)| !sum.is_empty()) {
            *numbers = read_tensor(&path(&self.dir, name, state), state, &parameter.shape, sum)?;
        }
        Ok(states)
    }
}

/// Whether a parameter's name can be that of a folder. Nothing outside the checkpoint's folder is
/// read or written.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 200
        && !name.starts_with('.')
        && !name.contains(['/', '\\', ':', '\0'])
}

fn path(dir: &Path, name: &str, state: &str) -> PathBuf {
    dir.join("zero").join(name).join(format!("{state}.safetensors"))
}

fn read_tensor(path: &Path, state: &str, shape: &[usize], sum: &str) -> Result<Vec<f32>, BadInput> {
    let damaged =
        |why: String| BadInput::new(format!("{} is damaged: {why}", path.display()), DAMAGED);
    // The file has its own list of one tensor, and the elements.
    let most = (1 << 20) + 4 * numel(shape).unwrap_or(0) as u64;
    let bytes =
        files::read(path, most).map_err(|error| BadInput { help: DAMAGED.to_string(), ..error })?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| damaged(error.to_string()))?;
    let tensor = file.tensor(state).map_err(|error| damaged(error.to_string()))?;
    if tensor.shape() != shape || tensor.dtype() != Dtype::F32 {
        return Err(damaged(format!(
            "it has {:?} {:?}, and the index f32 {shape:?}",
            tensor.dtype(),
            tensor.shape()
        )));
    }
    if sha256::hex(tensor.data()) != sum {
        return Err(damaged(format!("the SHA-256 of its elements is not the one in {INDEX}")));
    }
    Ok(floats(tensor.data()))
}

/// The numbers in a file's bytes, which need not be aligned.
pub(super) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect()
}

/// Writes a universal checkpoint beside its final place. It becomes visible when it is complete.
pub(super) struct Writer {
    to: PathBuf,
    side: PathBuf,
    parameters: BTreeMap<String, Parameter>,
}

/// A checkpoint that could not be completed is removed.
impl Drop for Writer {
    fn drop(&mut self) {
        files::discard(&self.side);
    }
}

impl Writer {
    /// Begins a checkpoint that will be `to`, which must not exist.
    ///
    /// # Errors
    /// If it exists, or its folder cannot be written.
    pub fn begin(to: &Path) -> Result<Writer, BadInput> {
        if to.file_name().is_none() || to.exists() {
            let help = "name a folder that does not exist yet";
            return Err(BadInput::new(format!("{} cannot be a new folder", to.display()), help));
        }
        let side = files::beside(to)?;
        Ok(Writer { to: to.to_path_buf(), side, parameters: BTreeMap::new() })
    }

    /// Writes one parameter's states, in the order of [`STATES`], each with its elements row by
    /// row. An empty second moment is not written.
    ///
    /// # Errors
    /// If the name is no name of a folder, the elements are not as many as the shape says, or the
    /// disk refuses.
    pub fn write(
        &mut self,
        name: &str,
        shape: &[usize],
        states: [&[f32]; 3],
    ) -> Result<(), BadInput> {
        if !is_name(name) {
            let help = "names come from the model: letters, digits, dots and underscores";
            return Err(BadInput::new(format!("a parameter cannot have the name {name:?}"), help));
        }
        files::make(&self.side.join("zero").join(name))?;
        let mut sums = [const { String::new() }; 3];
        for ((state, numbers), sum) in STATES.iter().zip(states).zip(&mut sums) {
            if *state == STATES[2] && numbers.is_empty() {
                continue;
            }
            let bytes = bytemuck::cast_slice(numbers);
            let refused = |error| {
                BadInput::new(format!("{name} cannot be stored as {shape:?}: {error}"), DAMAGED)
            };
            let view = TensorView::new(Dtype::F32, shape.to_vec(), bytes).map_err(refused)?;
            let file = safetensors::serialize([(*state, view)], None).map_err(refused)?;
            files::write(&path(&self.side, name, state), &file)?;
            *sum = sha256::hex(bytes);
        }
        self.parameters
            .insert(name.to_string(), Parameter { shape: shape.to_vec(), sha256: sums });
        Ok(())
    }

    /// Completes the checkpoint: writes the index, and renames the folder.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn finish(
        mut self,
        optimizer_steps: u64,
        manifest: Manifest,
    ) -> Result<Universal, BadInput> {
        let universal = Universal {
            dir: self.to.clone(),
            model: Some(manifest.job.shape),
            optimizer_steps,
            step: manifest.step,
            parameters: std::mem::take(&mut self.parameters),
            settings: manifest.job.settings,
            record: manifest.record,
        };
        let text = serde_json::to_string_pretty(&universal).map_err(|error| {
            BadInput::new(format!("cannot write {INDEX}: {error}"), "store plain numbers")
        })?;
        files::write(&self.side.join(INDEX), text.as_bytes())?;
        files::rename(&self.side, &self.to)?;
        Ok(universal)
    }
}
