//! A checkpoint as DeepSpeed writes it, without DeepSpeed: for tests, and for labs that reproduce
//! its mistakes.

use super::STATES;
use super::know::{by_turns, fragments, paddings};
use crate::torch::{Dtype, Graph, Id, Value, save_graph};
use half::bf16;
use shardlab::checkpoint::files;
use shardlab::error::BadInput;
use std::ops::Range;
use std::path::Path;

/// Names and shapes of a group's parameters, in order.
pub type Group = Vec<(String, Vec<usize>)>;

/// A number that no other element of a small checkpoint has, by name, state, and offset.
pub fn value(name: &str, state: usize, element: usize) -> f32 {
    let name = name.bytes().fold(7usize, |hash, byte| (hash * 31 + usize::from(byte)) % 9973);
    (name * 3 + state) as f32 * 0.37 + element as f32 * 0.013
}

/// The job that is saved, and how.
#[derive(Clone)]
pub struct Example {
    /// The stage of ZeRO: 1, 2 or 3.
    pub stage: usize,
    /// Ranks of data parallelism.
    pub ranks: usize,
    /// Ranks of pipeline and of tensor parallelism.
    pub degrees: (usize, usize),
    /// The optimizer's groups of each rank of pipeline and tensor parallelism together.
    pub groups: Vec<Vec<Group>>,
    /// Steps that the optimizer has taken.
    pub step: f64,
    /// Whether the model computes with bf16.
    pub bf16: bool,
    /// Whether all padding is recorded on the last rank, as older versions do.
    pub last_rank_only: bool,
    /// Whether the buffer's order is that of `round_robin_gradients`, and the model's order is
    /// recorded.
    pub round_robin: bool,
}

/// The element of a state: by rank of tensor and pipeline parallelism, name, number of the state,
/// and offset.
pub type Values<'a> = &'a (dyn Fn(usize, &str, usize, usize) -> f32 + Sync);

impl Example {
    /// A model with these groups, saved by `ranks` ranks.
    pub fn new(stage: usize, ranks: usize, groups: Vec<Group>) -> Example {
        Example {
            stage,
            ranks,
            degrees: (1, 1),
            groups: vec![groups],
            step: 5.0,
            bf16: false,
            last_rank_only: false,
            round_robin: false,
        }
    }

    /// Writes all files of the checkpoint to `folder`.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn save(&self, folder: &Path, values: Values) -> Result<(), BadInput> {
        files::make(folder)?;
        for mp in 0..self.groups.len() {
            let models = if self.stage == 3 { self.ranks } else { 1 };
            for dp in 0..models {
                let name = match self.stage {
                    3 => format!("zero_pp_rank_{dp}_mp_rank_{mp:02}_model_states.pt"),
                    _ => format!("mp_rank_{mp:02}_model_states.pt"),
                };
                self.save_model(&folder.join(name), mp, values)?;
            }
            let buffers = self.buffers(mp, values);
            for dp in 0..self.ranks {
                let name = format!("zero_pp_rank_{dp}_mp_rank_{mp:02}_optim_states.pt");
                self.save_shard(&folder.join(name), mp, dp, &buffers)?;
            }
        }
        Ok(())
    }

    fn save_model(&self, path: &Path, mp: usize, values: Values) -> Result<(), BadInput> {
        let mut file = Contents::default();
        let mut weights = Vec::new();
        let mut shapes = Vec::new();
        for group in &self.groups[mp] {
            let mut of_group = Vec::new();
            for (name, shape) in group {
                // In stage 3 no rank has a whole weight.
                let here = if self.stage == 3 { vec![0] } else { shape.clone() };
                let numel = here.iter().product();
                let numbers: Vec<f32> = (0..numel).map(|at| values(mp, name, 0, at)).collect();
                weights.push((name, file.weight(self.bf16, &here, &numbers)));
                of_group.push((name, file.size(shape)));
            }
            shapes.push(file.dict(of_group));
        }
        let (pp, tp) = self.degrees;
        let degrees = [("pp_degree", file.int(pp)), ("tp_degree", file.int(tp))];
        let entries = [
            ("module", file.dict(weights)),
            ("param_shapes", file.list(shapes)),
            ("global_steps", file.int(self.step as usize)),
            ("checkpoint_parallel_dimensions", file.dict(degrees)),
        ];
        file.save(path, entries)
    }

    /// The elements of a group's flat buffer, by name. Padding has none.
    fn layout<'a>(&self, group: &'a Group) -> Vec<(Option<&'a str>, Range<usize>)> {
        let mut order: Vec<usize> = (0..group.len()).collect();
        if self.round_robin {
            order = by_turns(group.len(), self.ranks);
        }
        // In stage 3 each rank has its part of every parameter.
        let parts = if self.stage == 3 { self.ranks } else { 1 };
        let mut layout = Vec::new();
        for part in 0..parts {
            for (name, shape) in order.iter().map(|at| &group[*at]) {
                let numel: usize = shape.iter().product();
                let size = numel.div_ceil(parts);
                let own = numel.min(part * size)..numel.min((part + 1) * size);
                let padding = 0..size - own.len();
                layout.extend([(Some(name.as_str()), own), (None, padding)]);
            }
        }
        if self.stage < 3 {
            let numel = numel(group);
            layout.push((None, numel..numel.next_multiple_of(2 * self.ranks)));
        }
        layout
    }

    /// The states of each group's flat buffer.
    fn buffers(&self, mp: usize, values: Values) -> Vec<[Vec<f32>; 3]> {
        let buffer = |group: &Group, state: usize| {
            let mut buffer = Vec::new();
            for (name, range) in self.layout(group) {
                let number = |at| name.map_or(0.0, |name| values(mp, name, state, at));
                buffer.extend(range.map(number));
            }
            buffer
        };
        self.groups[mp]
            .iter()
            .map(|group| [0, 1, 2].map(|state| buffer(group, state)))
            .collect()
    }

    fn save_shard(
        &self,
        path: &Path,
        mp: usize,
        dp: usize,
        buffers: &[[Vec<f32>; 3]],
    ) -> Result<(), BadInput> {
        let mut file = Contents::default();
        let mut of_groups = Vec::new();
        let mut fp32 = Vec::new();
        let mut pads = Vec::new();
        let mut mappings = Vec::new();
        for (at, (group, states)) in self.groups[mp].iter().zip(buffers).enumerate() {
            let part = states[0].len() / self.ranks;
            let [value, exp_avg, exp_avg_sq] =
                states.each_ref().map(|state| file.floats(&[part], &state[dp * part..][..part]));
            let step = file.floats(&[], &[self.step as f32]);
            let state = file.dict([("step", step), (STATES[1], exp_avg), (STATES[2], exp_avg_sq)]);
            of_groups.push((file.int(at), state));
            fp32.push(value);
            let paddings = paddings(numel(group), part, self.ranks);
            pads.push(match (self.last_rank_only, dp + 1 == self.ranks) {
                (false, _) => paddings[dp],
                (true, true) => paddings.iter().sum(),
                (true, false) => 0,
            });
            let mapping = fragments(group, 0..group.len(), part, self.ranks).swap_remove(dp);
            let mapping = mapping.into_iter().map(|(name, range)| (name, file.address(range)));
            let mapping: Vec<(String, Id)> = mapping.collect();
            mappings.push(file.dict(mapping));
        }
        let state = file.graph.push(Value::Dict(of_groups));
        let base = [("state", state), ("param_groups", file.list(vec![]))];
        let base = file.dict(base);
        let stage = file.graph.class("deepspeed.runtime.zero.config", "ZeroStageEnum");
        let number = file.int(self.stage);
        let mut inner = vec![("zero_stage", file.graph.call(stage, vec![number]))];
        let fp32 = file.list(fp32);
        if self.stage == 3 {
            inner.push(("partition_count", file.int(self.ranks)));
            inner.push(("optimizer_state_dict", base));
            inner.push(("fp32_flat_groups", fp32));
        } else {
            inner.push(("partition_count", file.ints(&vec![self.ranks; buffers.len()])));
            inner.push(("group_paddings", file.ints(&pads)));
            inner.push(("base_optimizer_state", base));
            inner.push(("single_partition_of_fp32_groups", fp32));
            inner.push(("param_slice_mappings", file.list(mappings)));
        }
        let turns = file.graph.push(Value::Bool(self.round_robin));
        let zero = file.dict([("round_robin_gradients", turns)]);
        let entries = [
            ("optimizer_state_dict", file.dict(inner)),
            ("ds_config", file.dict([("zero_optimization", zero)])),
            ("ds_version", file.graph.text("0.19.8")),
        ];
        file.save(path, entries)
    }
}

/// Elements of a group.
fn numel(group: &Group) -> usize {
    group.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
}

/// A file's values and storages.
#[derive(Default)]
pub(crate) struct Contents {
    pub graph: Graph,
    pub storages: Vec<(String, Vec<u8>)>,
}

impl Contents {
    pub fn tensor(&mut self, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) -> Id {
        let key = self.storages.len().to_string();
        let tensor = self.graph.tensor(dtype, shape, &key);
        self.storages.push((key, bytes));
        tensor
    }

    fn floats(&mut self, shape: &[usize], numbers: &[f32]) -> Id {
        self.tensor(Dtype::F32, shape, bytemuck::cast_slice(numbers).to_vec())
    }

    /// A weight, in the type that the model computes with.
    pub fn weight(&mut self, half: bool, shape: &[usize], numbers: &[f32]) -> Id {
        if !half {
            return self.floats(shape, numbers);
        }
        let bytes = numbers.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes());
        self.tensor(Dtype::BF16, shape, bytes.collect())
    }

    fn int(&mut self, number: usize) -> Id {
        self.graph.push(Value::Int(number as i64))
    }

    fn ints(&mut self, numbers: &[usize]) -> Id {
        let numbers = numbers.iter().map(|number| self.int(*number)).collect();
        self.list(numbers)
    }

    pub fn list(&mut self, items: Vec<Id>) -> Id {
        self.graph.push(Value::List(items))
    }

    pub fn dict(&mut self, entries: impl IntoIterator<Item = (impl AsRef<str>, Id)>) -> Id {
        let entries = entries.into_iter();
        let entries = entries.map(|(key, value)| (self.graph.text(key.as_ref()), value)).collect();
        self.graph.push(Value::Dict(entries))
    }

    /// PyTorch's object for a shape.
    pub fn size(&mut self, shape: &[usize]) -> Id {
        let class = self.graph.class("torch", "Size");
        let sizes = shape.iter().map(|size| self.int(*size)).collect();
        let sizes = self.graph.push(Value::Tuple(sizes));
        self.graph.call(class, vec![sizes])
    }

    /// DeepSpeed's object for a fragment.
    fn address(&mut self, range: Range<usize>) -> Id {
        let class = self.graph.class("deepspeed.utils.tensor_fragment", "fragment_address");
        let numel = self.int(range.len());
        let start = self.int(range.start);
        let object = self.graph.call(class, vec![numel, start]);
        let state = self.dict([("numel", numel), ("start", start)]);
        self.graph.set_state(object, state);
        object
    }

    fn save<const N: usize>(
        mut self,
        path: &Path,
        entries: [(&str, Id); N],
    ) -> Result<(), BadInput> {
        self.graph.root = self.dict(entries);
        save_graph(path, &self.graph, &self.storages)
    }
}
