//! Tensor and sequence parallelism against the model in one piece.

use crate::suite::tensor::a_mesh_trains_what_one_rank_trains;
use shardlab::comm::Comm;
use shardlab::difference::{largest_difference, largest_relative_difference};
use shardlab::launch;
use shardlab::model::{Gpt, Input, Pass};
use shardlab::optim::AdamWConfig;
use shardlab::parallel::TensorParallel;
use shardlab::parallel::zero::{Stage, Zero, ZeroConfig};
use shardlab::plan::{Family, ModelShape};
use shardlab::tensor::{Dropout, IGNORED, Params, Precision};
use std::collections::HashMap;

const SHAPE: ModelShape = ModelShape {
    vocabulary: 11,
    block: 8,
    layers: 2,
    heads: 4,
    embd: 16,
    family: Family::Gpt,
    experts: None,
};
const SEQUENCES: usize = 3;

/// Which ranks there are, and how they shard.
#[derive(Clone, Copy, Debug)]
struct Case {
    ranks: usize,
    sequence: bool,
    multiple: usize,
}

const CASES: [Case; 6] = [
    Case { ranks: 1, sequence: false, multiple: 1 },
    Case { ranks: 2, sequence: false, multiple: 1 },
    Case { ranks: 2, sequence: true, multiple: 1 },
    // Rank 1 has padding only.
    Case { ranks: 2, sequence: false, multiple: 16 },
    Case { ranks: 4, sequence: false, multiple: 1 },
    Case { ranks: 4, sequence: true, multiple: 2 },
];

fn tokens(step: usize, shift: usize) -> Vec<u32> {
    (0..SEQUENCES * SHAPE.block)
        .map(|i| ((i * 7 + i * i + 3 * step + shift) % SHAPE.vocabulary) as u32)
        .collect()
}

/// The tokens that follow. Some do not count, on every third position.
fn targets(step: usize) -> Vec<u32> {
    let mut targets = tokens(step, 1);
    targets.iter_mut().step_by(3).for_each(|t| *t = IGNORED);
    targets
}

/// The optimizer of a rank's shard, without data parallelism.
fn begin(gpt: &Gpt) -> anyhow::Result<Zero> {
    let adamw = AdamWConfig { beta2: 0.95, ..AdamWConfig::NANOGPT };
    Zero::init(
        &gpt.params,
        &Comm::alone(),
        ZeroConfig::new(Stage::Ddp, Precision::F32, adamw),
        5,
    )
}

/// A rank's model, and the optimizer of its shard.
struct Rank {
    gpt: Gpt,
    parallel: TensorParallel,
    zero: Zero,
}

impl Rank {
    fn new(case: Case, group: &Comm) -> anyhow::Result<Rank> {
        let mut parallel = TensorParallel::new(group.clone()).pad_vocabulary_to(case.multiple);
        if case.sequence {
            parallel = parallel.sequence_parallel();
        }
        let gpt = Gpt::build(&SHAPE, &parallel)?;
        let zero = begin(&gpt)?.with_tensor(&parallel)?;
        Ok(Rank { gpt, parallel, zero })
    }

    /// One rank alone, with the model in one piece.
    fn alone() -> anyhow::Result<Rank> {
        let case = Case { ranks: 1, sequence: false, multiple: 1 };
        let whole = Gpt::new(&SHAPE)?;
        let rank = Rank::new(case, &Comm::alone())?;
        let zero = begin(&whole)?;
        Ok(Rank { gpt: whole, zero, ..rank })
    }

    /// The loss, and the gradients in the parameters.
    fn backward(&mut self, step: usize) -> anyhow::Result<f32> {
        let sequences: Vec<u64> = (0..SEQUENCES as u64).collect();
        let dropout = Dropout {
            p: 0.2,
            seed: 9,
            step: step as u64,
            sequences: sequences.into(),
            slices: Default::default(),
        };
        let pass = self.parallel.pass(Pass::training(Some(dropout)), SHAPE.block);
        self.zero.begin()?;
        let input = Input::Tokens { ids: &tokens(step, 0), length: SHAPE.block };
        let loss = self.gpt.forward(input, &targets(step), &pass)?;
        let value = loss.scalar()?;
        loss.backward(vec![1.0], None)?;
        self.zero.finish()?;
        Ok(value)
    }

    /// The loss of each step.
    fn train(&mut self, steps: usize) -> anyhow::Result<Vec<f32>> {
        let step = |step| {
            let loss = self.backward(step)?;
            self.zero.update(3e-3, 1.0)?;
            Ok(loss)
        };
        (1..=steps).map(step).collect()
    }
}

/// Every whole's elements, as far as this rank has them.
fn wholes(params: &Params, flat: &[f32]) -> HashMap<String, Vec<Option<f32>>> {
    let mut wholes = HashMap::new();
    for spec in params.specs() {
        let numel = spec.whole.shape.iter().product();
        let whole: &mut Vec<Option<f32>> =
            wholes.entry(spec.whole.name.clone()).or_insert_with(|| vec![None; numel]);
        spec.runs(0..spec.numel(), |here, at| {
            let from = &flat[spec.range()][here];
            whole[at..at + from.len()]
                .iter_mut()
                .zip(from)
                .for_each(|(to, x)| *to = Some(*x));
        });
    }
    wholes
}

/// The largest difference, relative to the largest element of the parameter; an error where ranks
/// that hold the same element differ, or no rank holds one.
fn difference(
    ranks: &[HashMap<String, Vec<Option<f32>>>],
    serial: &HashMap<String, Vec<Option<f32>>>,
) -> f64 {
    let mut worst = 0f64;
    for (name, expected) in serial {
        // What no rank had is NaN, and so an infinite difference.
        let expected: Vec<f32> = expected.iter().map(|x| x.unwrap_or(f32::NAN)).collect();
        let mut all = Vec::new();
        for i in 0..expected.len() {
            let found: Vec<f32> = ranks.iter().filter_map(|rank| rank[name][i]).collect();
            assert!(!found.is_empty(), "no rank has element {i} of {name}");
            assert!(
                found.iter().all(|x| x.to_bits() == found[0].to_bits()),
                "ranks differ: element {i} of {name}: {found:?}"
            );
            all.push(found[0]);
        }
        let top = largest_difference(&expected, &vec![0.0; expected.len()]).max(1e-12);
        worst = worst.max(largest_difference(&all, &expected) / top);
    }
    worst
}

#[test]
fn shards_begin_as_slices_and_give_the_unsharded_loss_and_gradients() {
    let mut serial = Rank::alone().unwrap();
    let begun = wholes(&serial.gpt.params, &serial.gpt.params.values());
    let loss = serial.backward(0).unwrap();
    let gradients = wholes(&serial.gpt.params, &serial.gpt.params.gradients());
    for case in CASES {
        let ranks = launch::run(case.ranks, |comm| {
            let mut rank = Rank::new(case, &comm)?;
            let begun = wholes(&rank.gpt.params, &rank.gpt.params.values());
            let loss = rank.backward(0)?;
            Ok((begun, loss, wholes(&rank.gpt.params, &rank.gpt.params.gradients())))
        });
        let ranks = ranks.unwrap();
        let (all_begun, all_gradients): (Vec<_>, Vec<_>) =
            ranks.iter().map(|r| (r.0.clone(), r.2.clone())).unzip();
        assert_eq!(difference(&all_begun, &begun), 0.0, "{case:?}");
        let worst = difference(&all_gradients, &gradients);
        println!("{case:?}: loss {loss} {}, gradients within {worst:e}", ranks[0].1);
        assert!(ranks.iter().all(|rank| rank.1.to_bits() == ranks[0].1.to_bits()), "{case:?}");
        assert!((ranks[0].1 - loss).abs() < 1e-5 * loss, "{case:?}: {} {loss}", ranks[0].1);
        assert!(worst < 1e-5, "{case:?}: gradients differ by {worst}");
    }
}

/// Also where rank 1 has padding only.
#[test]
fn every_rank_has_the_whole_vocabularys_logits() {
    let logits = |rank: Rank| {
        let pass = rank.parallel.pass(Pass::evaluate(), SHAPE.block);
        Ok(rank
            .gpt
            .logits(&tokens(0, 0), SHAPE.block, &pass)?
            .flatten_all()?
            .to_vec1::<f32>()?)
    };
    let expected = logits(Rank::alone().unwrap()).unwrap();
    for case in CASES {
        let found = launch::run(case.ranks, |comm| logits(Rank::new(case, &comm)?)).unwrap();
        for logits in found {
            let apart = largest_difference(&logits, &expected);
            assert!(apart < 1e-5, "{case:?}: {apart}");
        }
    }
}

#[test]
fn training_goes_as_on_one_rank() {
    let serial = Rank::alone().unwrap().train(20).unwrap();
    assert!(serial[19] < 0.9 * serial[0], "{serial:?}");
    for case in CASES {
        let losses = launch::run(case.ranks, |comm| Rank::new(case, &comm)?.train(20)).unwrap();
        let apart = largest_relative_difference(&losses[0], &serial);
        assert!(apart < 1e-4, "{case:?}: {losses:?} {serial:?}");
    }
}

#[test]
fn a_mesh_of_data_and_tensor_ranks_trains_what_one_rank_trains() {
    for (ranks, tensor) in [(2, 1), (2, 2), (4, 2), (4, 4), (6, 2)] {
        launch::run(ranks, |comm| a_mesh_trains_what_one_rank_trains(&comm, tensor, true)).unwrap();
    }
}
