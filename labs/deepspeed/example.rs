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

/// A group of these names and shapes.
pub fn group(parameters: &[(&str, &[usize])]) -> Group {
    parameters
        .iter()
        .map(|(name, shape)| (name.to_string(), shape.to_vec()))
        .collect()
}

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
    /// Whether the optimizer has made a step, and so has moments.
    pub moments: bool,
    /// Tensors of the model that the optimizer does not have, and that no list names.
    pub others: Group,
    /// Weights that are frozen. In stage 3 each rank's file of model states has a part of them.
    pub frozen: Group,
    /// Whether frozen weights are left out: `exclude_frozen_parameters`.
    pub without_frozen: bool,
    /// The model's buffers, which are whole in every stage.
    pub buffers: Group,
    /// A third state of the optimizer, by its name.
    pub third: Option<&'static str>,
    /// Entries that DeepSpeed does not write, of the files of model states and of optimizer states.
    pub unknown: [&'static [&'static str]; 2],
    /// The version of DeepSpeed that each rank records.
    pub version: &'static str,
    /// Rules of tensor parallelism.
    pub info: Option<fn(&mut Graph) -> Id>,
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
            moments: true,
            others: Vec::new(),
            frozen: Vec::new(),
            without_frozen: false,
            buffers: Vec::new(),
            third: None,
            unknown: [&[], &[]],
            version: "0.19.8",
            info: None,
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
                self.save_model(&folder.join(name), mp, dp, values)?;
            }
            let buffers = self.buffers(mp, values);
            for dp in 0..self.ranks {
                let name = format!("zero_pp_rank_{dp}_mp_rank_{mp:02}_optim_states.pt");
                self.save_shard(&folder.join(name), mp, dp, &buffers)?;
            }
        }
        Ok(())
    }

    fn save_model(
        &self,
        path: &Path,
        mp: usize,
        dp: usize,
        values: Values,
    ) -> Result<(), BadInput> {
        let mut file = Contents::default();
        let mut weights = Vec::new();
        let mut shapes = Vec::new();
        let frozen = if self.without_frozen { &Vec::new() } else { &self.frozen };
        for group in self.groups[mp].iter().chain([&self.buffers, &self.others, frozen]) {
            let mut of_group = Vec::new();
            for (name, shape) in group {
                // In stage 3 no rank has a whole weight.
                let whole = self.stage < 3 || std::ptr::eq(group, &self.buffers);
                let here = if whole { shape.clone() } else { vec![0] };
                let numel = here.iter().product();
                let numbers: Vec<f32> =
                    (0..numel).map(|element| values(mp, name, 0, element)).collect();
                let weight = file.weight(self.bf16, &here, &numbers);
                weights.push((file.graph.text(name), weight));
                let size = file.graph.class("torch", "Size");
                let sizes = file.numbers(shape);
                let sizes = file.graph.push(Value::Tuple(sizes));
                of_group.push((file.graph.text(name), file.graph.call(size, vec![sizes])));
            }
            shapes.push(file.graph.push(Value::Dict(of_group)));
        }
        // The optimizer does not have the rest.
        let frozen_shapes = shapes.split_off(self.groups[mp].len())[2];
        let weights = file.graph.push(Value::Dict(weights));
        let shapes = file.graph.push(Value::List(shapes));
        let degrees = [self.degrees.0, self.degrees.1]
            .map(|degree| file.graph.push(Value::Int(degree as i64)));
        let degrees = file.dict([("pp_degree", degrees[0]), ("tp_degree", degrees[1])]);
        let steps = file.graph.push(Value::Int(self.step as i64));
        let mut entries =
            vec![("module", weights), ("param_shapes", shapes), ("global_steps", steps)];
        entries.push(("checkpoint_parallel_dimensions", degrees));
        if let Some(info) = self.info {
            entries.push(("universal_checkpoint_info", info(&mut file.graph)));
        }
        if !self.buffers.is_empty() {
            let names = self.buffers.iter().map(|(name, _)| file.graph.text(name)).collect();
            entries.push(("buffer_names", file.graph.push(Value::List(names))));
        }
        if self.without_frozen {
            entries.push(("frozen_param_shapes", file.graph.push(Value::None)));
        } else if !frozen.is_empty() && self.stage > 1 {
            let mut parts = Vec::new();
            for (name, shape) in frozen {
                let numel: usize = shape.iter().product();
                let of_each = if self.stage == 3 {
                    numel.div_ceil(self.ranks)
                } else {
                    numel
                };
                let own = of_each * dp..of_each * (dp + 1);
                let number = |at| if at < numel { values(mp, name, 0, at) } else { -7.0 };
                let numbers: Vec<f32> = own.map(number).collect();
                let shape = if self.stage == 3 { vec![of_each] } else { shape.clone() };
                parts.push((file.graph.text(name), file.weight(self.bf16, &shape, &numbers)));
            }
            entries.push(("frozen_param_shapes", frozen_shapes));
            entries.push(("frozen_param_fragments", file.graph.push(Value::Dict(parts))));
        }
        for key in self.unknown[0] {
            entries.push((key, file.graph.push(Value::List(vec![]))));
        }
        file.save(path, entries)
    }

    /// The flat buffer of each group: its size, and its states.
    fn buffers(&self, mp: usize, values: Values) -> Vec<(usize, [Vec<f32>; 3])> {
        let buffer = |group: &Group| {
            let numel = |(_, shape): &(String, Vec<usize>)| shape.iter().product::<usize>();
            let used: usize = group.iter().map(numel).sum();
            let order = if self.round_robin {
                by_turns(group.len(), self.ranks)
            } else {
                (0..group.len()).collect()
            };
            let state = |state: usize| {
                let mut buffer = Vec::new();
                for at in &order {
                    let (name, _) = &group[*at];
                    buffer.extend(
                        (0..numel(&group[*at])).map(|element| values(mp, name, state, element)),
                    );
                }
                buffer.resize(used.next_multiple_of(2 * self.ranks), 0.0);
                buffer
            };
            (used, [0, 1, 2].map(state))
        };
        // In stage 3 each rank has its part of every parameter.
        let parts = |group: &Group| {
            let state = |state: usize| {
                let mut buffer = Vec::new();
                for dp in 0..self.ranks {
                    for (name, shape) in group {
                        let numel: usize = shape.iter().product();
                        let part = numel.div_ceil(self.ranks);
                        let own = numel.min(dp * part)..numel.min((dp + 1) * part);
                        let padding = part - own.len();
                        buffer.extend(own.map(|at| values(mp, name, state, at)));
                        buffer.extend(vec![0.0; padding]);
                    }
                }
                buffer
            };
            (0, [0, 1, 2].map(state))
        };
        self.groups[mp]
            .iter()
            .map(|group| if self.stage == 3 { parts(group) } else { buffer(group) })
            .collect()
    }

    fn save_shard(
        &self,
        path: &Path,
        mp: usize,
        dp: usize,
        buffers: &[(usize, [Vec<f32>; 3])],
    ) -> Result<(), BadInput> {
        let mut file = Contents::default();
        let mut of_groups = Vec::new();
        let mut fp32 = Vec::new();
        let mut pads = Vec::new();
        let mut mappings = Vec::new();
        for (at, (used, states)) in buffers.iter().enumerate() {
            let part = states[0].len() / self.ranks;
            let slice = |state: usize| &states[state][dp * part..(dp + 1) * part];
            let [value, exp_avg, exp_avg_sq] =
                [0, 1, 2].map(|state| file.floats(&[part], slice(state)));
            let step = file.floats(&[], &[self.step as f32]);
            let mut state = vec![("step", step), (STATES[1], exp_avg), (STATES[2], exp_avg_sq)];
            if let Some(third) = self.third {
                state.push((third, file.floats(&[part], slice(2))));
            }
            let state = state.into_iter().map(|(key, id)| (file.graph.text(key), id)).collect();
            let state = file.graph.push(Value::Dict(state));
            if self.moments {
                of_groups.push((file.graph.push(Value::Int(at as i64)), state));
            }
            fp32.push(value);
            let padding = if !self.last_rank_only {
                paddings(*used, part, self.ranks)[dp]
            } else if dp + 1 == self.ranks {
                states[0].len() - used
            } else {
                0
            };
            pads.push(padding);
            let shapes = &self.groups[mp][at];
            let mapping = fragments(shapes, 0..shapes.len(), part, self.ranks).swap_remove(dp);
            let mapping = mapping
                .into_iter()
                .map(|(name, range)| (file.graph.text(&name), file.address(range)))
                .collect();
            mappings.push(file.graph.push(Value::Dict(mapping)));
        }
        let state = file.graph.push(Value::Dict(of_groups));
        let fp32 = file.graph.push(Value::List(fp32));
        let groups = file.graph.push(Value::List(vec![]));
        let base = file.dict([("state", state), ("param_groups", groups)]);
        let stage = file.graph.class("deepspeed.runtime.zero.config", "ZeroStageEnum");
        let number = file.graph.push(Value::Int(self.stage as i64));
        let stage = file.graph.call(stage, vec![number]);
        let count = file.numbers(&[self.ranks])[0];
        let inner = if self.stage == 3 {
            file.dict([
                ("zero_stage", stage),
                ("partition_count", count),
                ("optimizer_state_dict", base),
                ("fp32_flat_groups", fp32),
            ])
        } else {
            let pads = file.numbers(&pads);
            let counts = file.numbers(&vec![self.ranks; buffers.len()]);
            let [pads, counts, mappings] =
                [pads, counts, mappings].map(|list| file.graph.push(Value::List(list)));
            file.dict([
                ("zero_stage", stage),
                ("partition_count", counts),
                ("group_paddings", pads),
                ("base_optimizer_state", base),
                ("single_partition_of_fp32_groups", fp32),
                ("param_slice_mappings", mappings),
            ])
        };
        let turns = file.graph.push(Value::Bool(self.round_robin));
        let zero = file.dict([("round_robin_gradients", turns)]);
        let config = file.dict([("zero_optimization", zero)]);
        let version = file.graph.text(self.version);
        let mut entries =
            vec![("optimizer_state_dict", inner), ("ds_config", config), ("ds_version", version)];
        for key in self.unknown[1] {
            entries.push((key, file.graph.push(Value::List(vec![]))));
        }
        file.save(path, entries)
    }
}

/// A file's values and storages.
#[derive(Default)]
struct Contents {
    graph: Graph,
    storages: Vec<(String, Vec<u8>)>,
}

impl Contents {
    fn tensor(&mut self, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) -> Id {
        let key = self.storages.len().to_string();
        let tensor = self.graph.tensor(dtype, shape, &key);
        self.storages.push((key, bytes));
        tensor
    }

    fn floats(&mut self, shape: &[usize], numbers: &[f32]) -> Id {
        self.tensor(Dtype::F32, shape, bytemuck::cast_slice(numbers).to_vec())
    }

    /// A weight, in the type that the model computes with.
    fn weight(&mut self, half: bool, shape: &[usize], numbers: &[f32]) -> Id {
        if !half {
            return self.floats(shape, numbers);
        }
        let bytes = numbers.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes());
        self.tensor(Dtype::BF16, shape, bytes.collect())
    }

    fn numbers(&mut self, numbers: &[usize]) -> Vec<Id> {
        numbers
            .iter()
            .map(|number| self.graph.push(Value::Int(*number as i64)))
            .collect()
    }

    fn dict<const N: usize>(&mut self, entries: [(&str, Id); N]) -> Id {
        let entries = entries.map(|(key, value)| (self.graph.text(key), value));
        self.graph.push(Value::Dict(entries.to_vec()))
    }

    /// DeepSpeed's object for a fragment.
    fn address(&mut self, range: Range<usize>) -> Id {
        let class = self.graph.class("deepspeed.utils.tensor_fragment", "fragment_address");
        let numbers = self.numbers(&[range.len(), range.start]);
        let object = self.graph.call(class, numbers.clone());
        let state = self.dict([("numel", numbers[0]), ("start", numbers[1])]);
        self.graph.set_state(object, state);
        object
    }

    fn save(mut self, path: &Path, entries: Vec<(&str, Id)>) -> Result<(), BadInput> {
        let entries =
            entries.into_iter().map(|(key, value)| (self.graph.text(key), value)).collect();
        self.graph.root = self.graph.push(Value::Dict(entries));
        save_graph(path, &self.graph, &self.storages)
    }
}
