//! What stage 3 gathers together: units of parameters, and how they are cut.
//!
//! Each parameter is cut by itself, into ceil(numel / ranks) elements a rank ([`Sharded`]). A rank's part of a unit is its
//! parts of the unit's parameters, end to end; a gathered unit comes as all ranks' parts, and is put together from them.

use crate::parallel::partition::{Sharded, is_persistent};
use crate::tensor::{Spec, Stored};
use std::sync::Arc;

/// The rule that makes units: the choice that FSDP's users make when they wrap modules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Wrap {
    /// Each block, and each parameter outside of blocks: the largest unit bounds the memory, and there are few messages.
    #[default]
    Blocks,
    /// Each parameter: the least memory, the most messages.
    Parameters,
    /// All parameters: as few messages as can be, and all is here while a pass goes on.
    Model,
}

impl Wrap {
    /// Parameters with the same answer are in one unit: `blocks.3.qkv.weight` belongs to `blocks.3`.
    fn unit(self, name: &str) -> &str {
        match self {
            Wrap::Model => "model",
            Wrap::Parameters => name,
            Wrap::Blocks => {
                let mut dots = name.match_indices('.').map(|(at, _)| at);
                let (first, second) = (dots.next().unwrap_or(name.len()), dots.next().unwrap_or(name.len()));
                let is_number = name[first..second].trim_start_matches('.').parse::<usize>().is_ok();
                &name[..if is_number { second } else { first }]
            }
        }
    }
}

pub(super) struct Unit {
    pub name: String,
    pub specs: Vec<Arc<Spec>>,
    pub numel: usize,
    /// Elements of each rank's part, padding included.
    pub part: usize,
    /// Offset of a rank's part of this unit in its share of the model.
    pub start: usize,
    /// Whether it stays whole on every rank from the beginning of a step to its end.
    pub persistent: bool,
}

/// A parameter's offsets.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub unit: usize,
    /// Its first element in the whole unit, and in each rank's part of it.
    pub start: usize,
    pub part_start: usize,
    pub sharded: Sharded,
}

/// A model's units.
pub(super) struct Units {
    pub units: Vec<Unit>,
    /// By the parameters' index.
    places: Vec<Place>,
    pub ranks: usize,
}

impl Units {
    /// Parameters up to `threshold` elements make one persistent unit; the rest is wrapped.
    pub fn new(specs: &[Arc<Spec>], ranks: usize, wrap: Wrap, threshold: usize) -> Units {
        let mut all = Units { units: Vec::new(), places: Vec::new(), ranks };
        for spec in specs {
            let persistent = is_persistent(spec.numel(), threshold);
            let name = if persistent { "persistent" } else { wrap.unit(&spec.name) };
            let number = match all.units.iter().position(|unit| unit.persistent == persistent && unit.name == name) {
                Some(number) => number,
                None => {
                    let (name, specs) = (name.to_string(), Vec::new());
                    all.units.push(Unit { name, specs, numel: 0, part: 0, start: 0, persistent });
                    all.units.len() - 1
                }
            };
            let (unit, sharded) = (&mut all.units[number], Sharded { numel: spec.numel(), ranks });
            all.places.push(Place { unit: number, start: unit.numel, part_start: unit.part, sharded });
            unit.specs.push(spec.clone());
            unit.numel += spec.numel();
            unit.part += sharded.part();
        }
        let mut start = 0;
        for unit in &mut all.units {
            unit.start = start;
            start += unit.part;
        }
        all
    }

    pub fn place(&self, spec: &Spec) -> Place {
        self.places[spec.index]
    }

    /// Elements of each rank's share of the model, padding included.
    pub fn share(&self) -> usize {
        self.units.iter().map(|unit| unit.part).sum()
    }

    /// A unit's whole parameters, end to end, as all ranks' parts of it.
    pub fn cut<T: Stored>(&self, unit: &Unit, whole: &[T]) -> Vec<T> {
        let mut parts = vec![T::zeroed(); self.ranks * unit.part];
        self.stretches(unit, |part, at| parts[part..][..at.len()].copy_from_slice(&whole[at]));
        parts
    }

    /// All ranks' parts of a unit as its whole parameters, in f32.
    pub fn join<T: Stored>(&self, unit: &Unit, parts: &[T]) -> Vec<f32> {
        let mut whole = vec![0.0; unit.numel];
        self.stretches(unit, |part, at| crate::tensor::stored::widen(&parts[part..][..at.len()], &mut whole[at]));
        whole
    }

    /// For each parameter of a unit and each rank: where that rank's elements begin in the parts, and which they are of the
    /// whole unit.
    fn stretches(&self, unit: &Unit, mut each: impl FnMut(usize, std::ops::Range<usize>)) {
        for spec in &unit.specs {
            let place = self.place(spec);
            for rank in 0..self.ranks {
                let held = place.sharded.range(rank);
                each(rank * unit.part + place.part_start, place.start + held.start..place.start + held.end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Init, Params};
    use proptest::prelude::*;

    #[test]
    fn names_say_what_is_a_block() {
        for (name, unit) in [
            ("blocks.3.qkv.weight", "blocks.3"),
            ("blocks.12.ln1.weight", "blocks.12"),
            ("wte.weight", "wte"),
            ("layers.0.bias", "layers.0"),
            ("gain", "gain"),
        ] {
            assert_eq!(Wrap::Blocks.unit(name), unit);
            assert_eq!(Wrap::Parameters.unit(name), name);
        }
    }

    proptest! {
        /// For any sizes and ranks, also more ranks than elements.
        #[test]
        fn a_unit_cut_and_joined_is_what_it_was(
            sizes in proptest::collection::vec(1usize..40, 1..12), ranks in 1usize..50, threshold in 0usize..20,
            wrap in prop_oneof![Just(Wrap::Blocks), Just(Wrap::Parameters), Just(Wrap::Model)],
        ) {
            let params = Params::new();
            for (i, &numel) in sizes.iter().enumerate() {
                params.declare(format!("blocks.{}.p{i}", i / 3), &[numel], Init::Constant(0.0)).unwrap();
            }
            let units = Units::new(params.specs(), ranks, wrap, threshold);
            prop_assert_eq!(units.units.iter().map(|unit| unit.numel).sum::<usize>(), params.numel());
            prop_assert_eq!(units.share(), sizes.iter().map(|numel| numel.div_ceil(ranks)).sum::<usize>());
            for unit in &units.units {
                let whole: Vec<f32> = (1..=unit.numel).map(|i| i as f32).collect();
                let parts = units.cut(unit, &whole);
                prop_assert_eq!(parts.iter().filter(|&&x| x != 0.0).count(), unit.numel);
                prop_assert_eq!(units.join(unit, &parts), whole);
                prop_assert!(unit.specs.iter().all(|spec| (spec.numel() <= threshold) == unit.persistent));
            }
        }
    }
}
