//! The memory plan against what a training step really allocates.

use crate::alone;
use book::{Keep, activations_over_a_step};
use shardlab::allocator::{live, peak_of};
use shardlab::data::{Corpus, Sampler, Sampling};
use shardlab::launch;
use shardlab::model::{Gpt, Pass};
use shardlab::plan::{DropoutMasks, Family, ModelShape};
use shardlab::tensor::Dropout;

#[test]
fn the_plan_foresees_what_a_step_takes() {
    if !alone("memory::the_plan_foresees_what_a_step_takes") {
        return;
    }
    launch::one_compute_thread_a_rank();
    let corpus = Corpus::embedded().unwrap();
    for (layers, heads, embd, block, batch, p) in [
        (4, 4, 128, 64, 12, 0.0),
        (3, 2, 64, 128, 5, 0.1),
        (2, 8, 256, 32, 9, 0.0),
        (6, 6, 192, 64, 3, 0.0),
    ] {
        let shape = ModelShape {
            vocabulary: 65,
            block,
            layers,
            heads,
            embd,
            family: Family::Gpt,
            experts: None,
        };
        let plan = shape.memory(batch, DropoutMasks::of(f64::from(p)));
        let gpt = Gpt::new(&shape).unwrap();
        // The layout is built when it is first asked for.
        gpt.params.layout();
        let before = live();
        gpt.params.allocate(0);
        let held = (live() - before) as u64;
        assert_eq!(held, plan.parameters + plan.gradients);

        let sampler = Sampler {
            sampling: Sampling::Seeds,
            seed: 1,
            rank: 0,
            ranks: 1,
            batch,
            block,
        };
        let batch = sampler.batch(&corpus.train, 0, 0);
        let rules = Dropout {
            p,
            seed: 1,
            step: 0,
            sequences: batch.sequences.clone(),
            slices: Default::default(),
        };
        let pass = Pass::training((p > 0.0).then_some(rules));
        let step = || gpt.loss(&batch, &pass)?.backward().map(drop);
        // gemm takes its packing buffers, one size whatever the model, at a thread's first product.
        step().unwrap();
        let (peak, result) = peak_of(step);
        result.unwrap();
        let planned = plan.activations as f64;
        println!("{shape:?}: {peak} bytes, planned {planned}");
        assert!(
            (0.99..=1.01).contains(&(peak as f64 / planned)),
            "{shape:?}: {peak} bytes at the peak, {planned} planned"
        );
    }
}

/// With recomputation, a step keeps the blocks' inputs alone, as the plan's curve for it says, and
/// has the same gradients.
#[test]
fn recomputed_blocks_take_the_memory_of_their_inputs() {
    if !alone("memory::recomputed_blocks_take_the_memory_of_their_inputs") {
        return;
    }
    launch::one_compute_thread_a_rank();
    let corpus = Corpus::embedded().unwrap();
    for (shape, batch) in [
        (
            ModelShape {
                vocabulary: 65,
                block: 64,
                layers: 8,
                heads: 4,
                embd: 128,
                family: Family::Gpt,
                experts: None,
            },
            6,
        ),
        (
            ModelShape {
                vocabulary: 65,
                block: 32,
                layers: 12,
                heads: 2,
                embd: 64,
                family: Family::Gpt,
                experts: None,
            },
            9,
        ),
    ] {
        let sampler = Sampler {
            sampling: Sampling::Seeds,
            seed: 1,
            rank: 0,
            ranks: 1,
            batch,
            block: shape.block,
        };
        let draw = sampler.batch(&corpus.train, 0, 0);
        let rules = Dropout {
            p: 0.1,
            seed: 1,
            step: 0,
            sequences: draw.sequences.clone(),
            slices: Default::default(),
        };
        let pass = Pass::training(Some(rules));
        let train = |every: usize| {
            let mut gpt = Gpt::new(&shape).unwrap();
            gpt.params.allocate(0);
            gpt.recompute(every);
            let step = || gpt.loss(&draw, &pass)?.backward().map(drop);
            step().unwrap();
            gpt.params.zero_gradients();
            let (peak, result) = peak_of(step);
            result.unwrap();
            let gradients = gpt.params.gradients().clone();
            (peak as f64, gradients)
        };
        let (all, expected) = train(0);
        let (inputs, gradients) = train(1);
        let (pairs, _) = train(2);
        assert!(gradients == expected, "the second forward pass has other bits");
        let planned = activations_over_a_step(&shape, batch, DropoutMasks::Kept, Keep::BlockInputs)
            .into_iter()
            .max()
            .unwrap() as f64;
        assert!(
            (0.99..=1.01).contains(&(inputs / planned)),
            "{inputs} bytes at the peak, {planned} planned"
        );
        assert!(
            inputs < pairs && pairs < 0.6 * all,
            "every block {inputs}, every second {pairs}, none {all}"
        );
    }
}
