//! Units: the parameters that stage 3 gathers together, and how they are sharded.
//!
//! Each parameter is sharded on its own, into ceil(numel / ranks) elements per rank ([`Sharded`]).
//! A rank's shard of a unit is the shards of the unit's parameters, one after the other. A gather
//! brings all ranks' shards, and `join` rearranges them into whole parameters.
//!
//! With Muon, a unit's hidden matrices belong to ranks as wholes ([`owners_by_unit`]). They follow
//! what is cut. In a gather, all ranks' shards of a unit are as long as the fullest one; at rest
//! each rank has its own matrices only.

use crate::named::named;
use crate::optim::Fragment;
use crate::parallel::partition::{Sharded, owners_by_unit};
use crate::tensor::stored::widen;
use crate::tensor::{Spec, Stored};
use std::ops::Range;
use std::sync::Arc;

named! {
    /// The rule that groups parameters into units. FSDP's users choose it when they wrap modules.
    pub enum Wrap by default Blocks {
        /// Each block, and each parameter outside of blocks: few messages, and memory for the
        /// largest block
        Blocks = "blocks",
        /// Each parameter: the least memory, the most messages
        Parameters = "parameters",
        /// All parameters: the fewest messages, and the whole model in memory during each pass
        Model = "model",
    }
}

impl Wrap {
    /// The unit of a parameter: `blocks.3.qkv.weight` belongs to `blocks.3`, and
    /// `model.layers.3.mlp.up_proj.weight` to `model.layers.3`.
    fn unit(self, name: &str) -> &str {
        match self {
            Wrap::Model => "model",
            Wrap::Parameters => name,
            Wrap::Blocks => {
                let ends = name.match_indices('.').map(|(at, _)| at);
                let is_number = |end: &usize| {
                    let last = name[..*end].rsplit('.').next();
                    last.is_some_and(|last| last.parse::<usize>().is_ok())
                };
                let end = ends.clone().find(is_number).or_else(|| ends.clone().next_back());
                &name[..end.unwrap_or(name.len())]
            }
        }
    }
}

/// Parameters that are gathered together.
pub struct Unit {
    pub name: String,
    pub specs: Vec<Arc<Spec>>,
    pub numel: usize,
    /// Elements of each rank's shard of the unit in a gather, padding included.
    pub shard: usize,
    /// Those at the shard's start that are cut out of parameters, padding included.
    pub cut: usize,
    /// Offset of what is cut in a rank's shard of the model.
    pub start: usize,
    /// This rank's own matrices in its shard of the model.
    pub owned: Range<usize>,
    /// Whether it stays whole on every rank from the start of a step to its end.
    pub persistent: bool,
    /// Whether its parameters belong to experts.
    pub expert: bool,
    /// The ranks that shard it.
    pub ranks: usize,
}

impl Unit {
    /// Elements that a gather of it carries. The few with which equal slices are filled up do not
    /// count, those with which owners are do.
    pub fn gathered(&self) -> usize {
        let owned = |spec: &&Arc<Spec>| self.shard > self.cut && spec.is_hidden_matrix();
        let matrices: usize = self.specs.iter().filter(owned).map(|spec| spec.numel()).sum();
        self.numel - matrices + self.ranks * (self.shard - self.cut)
    }
}

/// A parameter's unit, and its offsets there.
#[derive(Clone, Copy)]
pub(super) struct Offsets {
    pub unit: usize,
    /// Offset in the whole unit.
    pub in_unit: usize,
    /// Offset in each rank's shard of the unit, or in its owner's.
    in_shard: usize,
    pub sharded: Sharded,
    /// The rank that has all of it.
    owner: Option<usize>,
}

impl Offsets {
    /// `rank`'s elements, as offsets in the parameter.
    pub fn range(self, rank: usize) -> Range<usize> {
        match self.owner {
            None => self.sharded.range(rank),
            Some(owner) if owner == rank => 0..self.sharded.numel,
            Some(_) => 0..0,
        }
    }
}

/// A model's units.
pub(super) struct Units {
    pub units: Vec<Unit>,
    /// By the parameters' index.
    offsets: Vec<Offsets>,
}

impl Units {
    /// Parameters of up to `threshold` elements form one persistent unit. `wrap` groups the others.
    /// `ranks` shard a parameter; those of experts, which may be others, have units of their own.
    /// With `owner`, this rank's number, hidden matrices belong to ranks as wholes.
    pub fn new(
        specs: &[Arc<Spec>],
        ranks: impl Fn(bool) -> usize,
        wrap: Wrap,
        threshold: usize,
        owner: Option<usize>,
    ) -> Units {
        let mut all = Units { units: Vec::new(), offsets: Vec::new() };
        for spec in specs {
            let expert = spec.whole.part.is_expert();
            let ranks = ranks(expert);
            let persistent = spec.numel() <= threshold;
            let name = if persistent {
                "persistent"
            } else {
                wrap.unit(&spec.name)
            };
            let name = format!("{name}{}", if expert { ".experts" } else { "" });
            let is_it = |unit: &Unit| unit.persistent == persistent && unit.name == name;
            let known = all.units.iter().position(is_it);
            let number = known.unwrap_or(all.units.len());
            if known.is_none() {
                all.units.push(Unit {
                    name,
                    specs: Vec::new(),
                    numel: 0,
                    shard: 0,
                    cut: 0,
                    start: 0,
                    owned: 0..0,
                    persistent,
                    expert,
                    ranks,
                });
            }
            let unit = &mut all.units[number];
            let sharded = Sharded { numel: spec.numel(), ranks };
            all.offsets.push(Offsets {
                unit: number,
                in_unit: unit.numel,
                in_shard: unit.cut,
                sharded,
                owner: None,
            });
            unit.specs.push(spec.clone());
            unit.numel += spec.numel();
            if owner.is_none() || !spec.is_hidden_matrix() {
                unit.cut += sharded.shard_numel();
            }
        }
        let mut start = 0;
        for unit in &mut all.units {
            unit.start = start;
            start += unit.cut;
            unit.shard = unit.cut;
        }
        if let Some(rank) = owner {
            all.give_matrices(rank, start);
        }
        all
    }

    /// Gives hidden matrices to ranks, of which this is number `rank`. In its shard of the model
    /// its own follow from `start` on.
    fn give_matrices(&mut self, rank: usize, mut start: usize) {
        let hidden = |unit: &Unit| {
            let specs = unit.specs.iter().filter(|spec| spec.is_hidden_matrix());
            specs.cloned().collect::<Vec<_>>()
        };
        let matrices: Vec<Vec<Arc<Spec>>> = self.units.iter().map(hidden).collect();
        let sizes = |specs: &Vec<Arc<Spec>>| specs.iter().map(|spec| spec.numel()).collect();
        let sizes: Vec<Vec<usize>> = matrices.iter().map(sizes).collect();
        let ranks = self.units.first().map_or(1, |unit| unit.ranks);
        let owners = owners_by_unit(&sizes, ranks);
        for ((unit, specs), owners) in self.units.iter_mut().zip(matrices).zip(owners) {
            let mut held = vec![0; ranks];
            for (spec, owner) in specs.iter().zip(owners) {
                let offsets = &mut self.offsets[spec.index];
                offsets.owner = Some(owner);
                offsets.in_shard = unit.cut + held[owner];
                held[owner] += spec.numel();
            }
            unit.owned = start..start + held[rank];
            start += held[rank];
            unit.shard = unit.cut + held.into_iter().max().unwrap_or(0);
        }
    }

    pub fn offsets(&self, spec: &Spec) -> Offsets {
        self.offsets[spec.index]
    }

    /// Elements of this rank's shard of the model: what is cut, padding included, and then its own
    /// matrices.
    pub fn shard_numel(&self) -> [usize; 2] {
        let cut = self.units.iter().map(|unit| unit.cut).sum();
        [cut, self.units.iter().map(|unit| unit.owned.len()).sum()]
    }

    /// What is cut and what is owned of a rank's shard of the model.
    pub fn parts<'a, T>(&self, shard: &'a mut [T]) -> [&'a mut [T]; 2] {
        let (cut, owned) = shard.split_at_mut(self.shard_numel()[0]);
        [cut, owned]
    }

    /// The fragments of all parameters that a rank has: those that are cut, in the order of the
    /// units, and then its own matrices. `rank` is its number among those that shard a parameter.
    pub fn fragments(&self, rank: impl Fn(bool) -> usize) -> [Vec<Fragment>; 2] {
        let specs = || self.units.iter().flat_map(|unit| &unit.specs);
        let fragment = |spec: &Arc<Spec>| {
            let Offsets { sharded, owner, .. } = self.offsets(spec);
            let elements = self.offsets(spec).range(rank(spec.whole.part.is_expert()));
            let padding = match owner {
                None => sharded.shard_numel() - elements.len(),
                Some(_) => 0,
            };
            (spec.clone(), elements, padding)
        };
        let is_cut = |spec: &&Arc<Spec>| self.offsets(spec).owner.is_none();
        let is_mine = |spec: &&Arc<Spec>| self.offsets(spec).owner == Some(rank(false));
        [
            Fragment::end_to_end(specs().filter(is_cut).map(fragment)),
            Fragment::end_to_end(specs().filter(is_mine).map(fragment)),
        ]
    }

    /// Rearranges a unit's whole parameters into all ranks' shards.
    pub fn cut<T: Stored>(&self, unit: &Unit, whole: &[T]) -> Vec<T> {
        let mut shards = vec![T::zeroed(); unit.ranks * unit.shard];
        self.slices(unit, |start, range| {
            shards[start..][..range.len()].copy_from_slice(&whole[range])
        });
        shards
    }

    /// Rearranges all ranks' shards of a unit into its whole parameters, in f32.
    pub fn join<T: Stored>(&self, unit: &Unit, shards: &[T]) -> Vec<f32> {
        let mut whole = vec![0.0; unit.numel];
        self.slices(unit, |start, range| widen(&shards[start..][..range.len()], &mut whole[range]));
        whole
    }

    /// Calls `each` for every parameter of a unit and every rank: with the offset of that rank's
    /// slice in the shards, and the slice's range in the whole unit.
    fn slices(&self, unit: &Unit, mut each: impl FnMut(usize, Range<usize>)) {
        for spec in &unit.specs {
            let offsets = self.offsets(spec);
            let Offsets { in_unit, in_shard, .. } = offsets;
            for rank in 0..unit.ranks {
                let Range { start, end } = offsets.range(rank);
                each(rank * unit.shard + in_shard, in_unit + start..in_unit + end);
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
            ("model.layers.3.mlp.up_proj.weight", "model.layers.3"),
            ("model.embed_tokens.weight", "model.embed_tokens"),
        ] {
            assert_eq!(Wrap::Blocks.unit(name), unit);
            assert_eq!(Wrap::Parameters.unit(name), name);
        }
    }

    /// Llama-3.2-1B: the numbers that the source notebook's log prints of its persistent
    /// parameters.
    #[test]
    fn the_persistent_parameters_are_the_logs() {
        let width = 2048;
        let kv = 512;
        let hidden = 8192;
        let vocabulary = 128_256;
        let attention = [width * width, width * kv, width * kv, width * width];
        let layer = attention.into_iter().chain([hidden * width; 3]).chain([width; 2]);
        let params = Params::new();
        for (i, numel) in (0..16)
            .flat_map(|_| layer.clone())
            .chain([width, vocabulary * width])
            .enumerate()
        {
            params.declare(format!("p{i}"), &[numel], Init::Constant(0.0)).unwrap();
        }
        assert_eq!(params.numel(), 1_235_814_400);
        let units = Units::new(params.specs(), |_| 8, Wrap::Blocks, 100_000, None).units;
        let persistent = units.iter().find(|unit| unit.persistent).unwrap();
        assert_eq!((persistent.numel, persistent.specs.len()), (67_584, 33));
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
            let units = Units::new(params.specs(), |_| ranks, wrap, threshold, None);
            prop_assert_eq!(units.units.iter().map(|unit| unit.numel).sum::<usize>(), params.numel());
            prop_assert_eq!(units.shard_numel(), [sizes.iter().map(|numel| numel.div_ceil(ranks)).sum::<usize>(), 0]);
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
