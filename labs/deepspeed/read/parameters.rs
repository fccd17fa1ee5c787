//! Which ranks' files have the elements of which parameter.

use super::shard::Shard;
use super::source::Source;
use crate::broken;
use shardlab::error::BadInput;
use std::collections::BTreeMap;
use std::ops::Range;

/// One parameter: the slices of all ranks of tensor parallelism.
pub(crate) struct Parameter {
    pub name: String,
    pub slices: Vec<Slice>,
}

/// A rank's part in tensor parallelism, and where its elements are: each rank of data parallelism
/// has some.
pub(crate) struct Slice {
    pub mp: usize,
    pub group: usize,
    pub shape: Vec<usize>,
    /// Elements of the flat buffer of each `dp`, in order.
    pub pieces: Vec<(usize, Range<usize>)>,
}

impl Slice {
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// Reads some elements of a state.
    pub fn read(
        &self,
        source: &Source,
        state: usize,
        elements: Range<usize>,
    ) -> Result<Vec<u8>, BadInput> {
        let shards = &source.shards[self.mp];
        let size = shards[0].groups[self.group].states[state].dtype.size();
        let mut bytes = vec![0; elements.len() * size];
        let mut begin = 0;
        for (dp, piece) in &self.pieces {
            let from = begin.max(elements.start);
            let to = (begin + piece.len()).min(elements.end);
            if from < to {
                let into = &mut bytes[(from - elements.start) * size..(to - elements.start) * size];
                let stored = &shards[*dp].groups[self.group].states[state];
                stored.read(piece.start + from - begin..piece.start + to - begin, into)?;
            }
            begin += piece.len();
        }
        Ok(bytes)
    }

    /// The rank whose file has an element.
    pub fn owner(&self, element: usize) -> usize {
        let mut begin = 0;
        let has = |(dp, piece): &(usize, Range<usize>)| {
            begin += piece.len();
            (element < begin).then_some(*dp)
        };
        self.pieces.iter().find_map(has).unwrap_or(0)
    }
}

impl Source {
    /// Finds the elements of all parameters. `notes` gets what is odd.
    pub fn parameters(&self, notes: &mut Vec<String>) -> Result<Vec<Parameter>, BadInput> {
        let mut all = BTreeMap::<&String, BTreeMap<usize, Slice>>::new();
        let mut order = Vec::new();
        for (mp, model) in self.models.iter().enumerate() {
            let tp = mp % self.tp;
            for (group, shapes) in model.groups.iter().enumerate() {
                for (name, shape) in shapes {
                    if mp >= self.tp && matches!(model.rules.tied(name), Ok(true)) {
                        continue;
                    }
                    let slice = self.slice(mp, group, name, shape);
                    self.ensure_whole(name, &slice)?;
                    let slices = all.entry(name).or_insert_with(|| {
                        order.push(name);
                        BTreeMap::new()
                    });
                    if slices.contains_key(&tp) {
                        notes.push(format!("{name} is in several stages of the pipeline: the first stage's is taken"));
                    }
                    slices.entry(tp).or_insert(slice);
                }
            }
        }
        let complete = |name: &String| {
            let slices = self.of_all(name, all.remove(name).unwrap_or_default())?;
            Ok(Parameter { name: name.clone(), slices })
        };
        order.into_iter().map(complete).collect()
    }

    /// One rank's part of a parameter, of which all ranks of data parallelism have some.
    fn slice(&self, mp: usize, mut group: usize, name: &str, shape: &[usize]) -> Slice {
        let shards = &self.shards[mp];
        if self.stage == 3 {
            // The flat buffers need not be those of the list of shapes.
            let has = |shard: &Shard| {
                shard.groups.iter().position(|group| group.fragments.contains_key(name))
            };
            group = shards.iter().find_map(has).unwrap_or(group);
        }
        let piece = |shard: &Shard| shard.groups.get(group)?.fragments.get(name).cloned();
        let pieces = shards.iter().enumerate();
        let pieces = pieces.filter_map(|(dp, shard)| Some((dp, piece(shard)?)));
        let pieces = pieces.filter(|(_, piece)| !piece.is_empty()).collect();
        Slice { mp, group, shape: shape.to_vec(), pieces }
    }

    fn ensure_whole(&self, name: &str, slice: &Slice) -> Result<(), BadInput> {
        let found: usize = slice.pieces.iter().map(|(_, piece)| piece.len()).sum();
        if found == slice.numel() {
            return Ok(());
        }
        let shown = slice.pieces.iter().take(8);
        let shown: Vec<String> =
            shown.map(|(dp, piece)| format!("rank {dp}: {}", piece.len())).collect();
        let more = if slice.pieces.len() > shown.len() { ", …" } else { "" };
        let ranks = shown.join(", ");
        let model = &self.models[slice.mp].path;
        let shape = &slice.shape;
        let how = format!(
            "{name} has shape {shape:?} there, and fragments of {found} elements ({ranks}{more})"
        );
        Err(broken(model, how))
    }
}
