//! Which ranks' files have the elements of which parameter.

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
        let mut all: BTreeMap<String, Vec<Option<Slice>>> = BTreeMap::new();
        let mut order = Vec::new();
        for mp in 0..self.files.mp {
            let stage = mp / self.tp;
            let tp = mp % self.tp;
            let model = &self.models[mp];
            let shards = &self.shards[mp];
            for (group, shapes) in model.groups.iter().enumerate() {
                for (name, shape) in shapes {
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
                    let piece = |dp: usize| {
                        let group = shards[dp].groups.get(buffer)?;
                        group.fragments.get(name)
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
