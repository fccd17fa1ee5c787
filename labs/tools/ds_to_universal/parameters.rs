//! Which ranks' files have the elements of which parameter.

use super::names::Rank;
use super::source::Source;
use super::weights::{Difference, comparable, compare};
use super::{STATES, broken};
use shardlab::error::BadInput;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

/// One parameter: the slices of all ranks of tensor parallelism.
pub(super) struct Parameter {
    pub name: String,
    pub slices: Vec<Slice>,
}

/// A rank's part in tensor parallelism, and where its elements are: each rank of data parallelism
/// has some.
pub(super) struct Slice {
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

    /// Compares some elements of the value with the model's weight. `None` if the model's file does
    /// not have it.
    pub fn differs(
        &self,
        source: &Source,
        name: &str,
        first: usize,
        values: &[u8],
    ) -> Result<Option<Option<Difference>>, BadInput> {
        let dtype = source.shards[self.mp][0].groups[self.group].states[0].dtype;
        match source.models[self.mp].weights.get(name) {
            Some(weight) if weight.shape == self.shape && comparable(dtype, weight.dtype) => {
                compare(values, first, weight).map(Some)
            }
            _ => Ok(None),
        }
    }
}

impl Source {
    /// Finds the elements of all parameters. `notes` gets what is wrong and was put right.
    pub fn parameters(&self, notes: &mut Vec<String>) -> Result<Vec<Parameter>, BadInput> {
        let mut all: BTreeMap<String, Vec<Option<Slice>>> = BTreeMap::new();
        let mut order = Vec::new();
        for mp in 0..self.files.mp {
            let stage = mp / self.tp;
            let tp = mp % self.tp;
            let model = &self.models[mp];
            let shards = &self.shards[mp];
            self.ensure_alike(mp)?;
            for (group, shapes) in model.groups.iter().enumerate() {
                let repaired = if self.stage < 3 {
                    self.repair(mp, group, shapes, notes)?
                } else {
                    None
                };
                for (name, shape) in shapes {
                    let recorded =
                        |dp: usize| shards[dp].groups.iter().map(move |group| &group.fragments);
                    // In stage 3 the flat buffers need not be those of the list of shapes.
                    let buffer = match self.stage {
                        3 => (0..shards[0].groups.len())
                            .find(|group| {
                                shards
                                    .iter()
                                    .any(|shard| shard.groups[*group].fragments.contains_key(name))
                            })
                            .unwrap_or(group),
                        _ => group,
                    };
                    let piece = |dp: usize| match &repaired {
                        Some(fragments) => fragments[dp].get(name),
                        None => recorded(dp).nth(buffer).and_then(|fragments| fragments.get(name)),
                    };
                    let pieces: Vec<(usize, Range<usize>)> = (0..self.files.dp)
                        .filter_map(|dp| Some((dp, piece(dp)?.clone())))
                        .filter(|(_, piece)| !piece.is_empty())
                        .collect();
                    let slice = Slice { mp, group: buffer, shape: shape.clone(), pieces };
                    let tied = stage > 0
                        && model
                            .rules
                            .as_ref()
                            .is_some_and(|rules| matches!(rules.tied(name), Ok(true)));
                    if tied {
                        continue;
                    }
                    self.ensure_whole(name, &slice)?;
                    let slices = all.entry(name.clone()).or_insert_with(|| {
                        order.push(name.clone());
                        (0..self.tp).map(|_| None).collect()
                    });
                    if slices[tp].is_none() {
                        slices[tp] = Some(slice);
                    } else {
                        notes.push(format!("{name} is in several stages of the pipeline: the first stage's is taken"));
                    }
                }
            }
        }
        let complete = |name: String| {
            let slices = all.remove(&name).unwrap_or_default();
            let missing = slices.iter().position(Option::is_none);
            if let Some(tp) = missing {
                let how = format!("tp rank {tp} of {} has nothing of {name}", self.tp);
                return Err(broken(&self.files.folder, how));
            }
            Ok(Parameter { name, slices: slices.into_iter().flatten().collect() })
        };
        order.into_iter().map(complete).collect()
    }

    /// All ranks that share flat buffers have as many, of the same types.
    fn ensure_alike(&self, mp: usize) -> Result<(), BadInput> {
        let model = &self.models[mp];
        let shards = &self.shards[mp];
        let first = &shards[0];
        let listed: HashSet<&str> =
            model.groups.iter().flatten().map(|(name, _)| name.as_str()).collect();
        if self.stage < 3 && first.groups.len() != model.groups.len() {
            let groups = first.groups.len();
            let shapes = model.groups.len();
            let how = format!(
                "it has {groups} groups, and {} lists the parameters of {shapes}",
                model.path.display()
            );
            return Err(broken(&first.path, how));
        }
        for shard in shards {
            if shard.groups.len() != first.groups.len() {
                let here = shard.groups.len();
                let there = first.groups.len();
                return Err(broken(
                    &shard.path,
                    format!("it has {here} groups, and rank {}'s {there}", first.rank.dp),
                ));
            }
            for (at, (group, of_first)) in shard.groups.iter().zip(&first.groups).enumerate() {
                if group.states.len() != of_first.states.len() {
                    let here = group.states.len();
                    let there = of_first.states.len();
                    let how = format!(
                        "it has {here} states of group {at}, and rank {}'s {there}",
                        first.rank.dp
                    );
                    return Err(broken(&shard.path, how));
                }
                for (state, (a, b)) in group.states.iter().zip(&of_first.states).enumerate() {
                    if a.dtype != b.dtype {
                        let state = STATES[state];
                        let a = a.dtype.name();
                        let b = b.dtype.name();
                        return Err(broken(
                            &shard.path,
                            format!("{state} of group {at} is {a}, and rank 0's {b}"),
                        ));
                    }
                }
                if let Some(name) =
                    group.fragments.keys().find(|name| !listed.contains(name.as_str()))
                {
                    let how = format!(
                        "it has elements of {name}, which {} does not list",
                        model.path.display()
                    );
                    return Err(broken(&shard.path, how));
                }
                if group.step.as_ref().map(|step| step.value)
                    != of_first.step.as_ref().map(|step| step.value)
                {
                    let step = |group: &super::shard::Group| {
                        group.step.as_ref().map_or(f64::NAN, |step| step.value)
                    };
                    let Rank { dp, .. } = shard.rank;
                    let how = format!(
                        "group {at} of rank {dp} is at step {}, and rank 0 at {}",
                        step(group),
                        step(of_first)
                    );
                    return Err(broken(&shard.path, how));
                }
            }
        }
        Ok(())
    }

    fn ensure_whole(&self, name: &str, slice: &Slice) -> Result<(), BadInput> {
        let found: usize = slice.pieces.iter().map(|(_, piece)| piece.len()).sum();
        if found == slice.numel() {
            return Ok(());
        }
        let ranks: Vec<String> = slice
            .pieces
            .iter()
            .map(|(dp, piece)| format!("rank {dp}: {}", piece.len()))
            .collect();
        let model = &self.models[slice.mp].path;
        let shape = &slice.shape;
        let shown = ranks.len().min(8);
        let more = if ranks.len() > shown { ", …" } else { "" };
        let ranks = ranks[..shown].join(", ");
        let how = format!(
            "{name} has shape {shape:?} there, and fragments of {found} elements ({ranks}{more})"
        );
        Err(broken(model, how))
    }
}
