//! The memory plan against what a training step really allocates.

use crate::alone;
use crate::counting::{live, peak_of};
use shardlab::data::{Corpus, Sampler, Sampling};
use shardlab::launch;
use shardlab::model::{Gpt, Pass};
use shardlab::plan::GptShape;
use shardlab::tensor::Dropout;

#[test]
fn the_plan_foresees_what_a_step_takes() {
    if !alone("memory::the_plan_foresees_what_a_step_takes") {
        return;
    }
    launch::one_compute_thread_a_rank();
    let corpus = Corpus::embedded().unwrap();
    for (layers, heads, embd, block, batch, p) in
        [(4, 4, 128, 64, 12, 0.0), (3, 2, 64, 128, 5, 0.1), (2, 8, 256, 32, 9, 0.0), (6, 6, 192, 64, 3, 0.0)]
    {
        let shape = GptShape { vocabulary: 65, block, layers, heads, embd };
        let plan = shape.memory(batch, p > 0.0);
        let gpt = Gpt::new(&shape).unwrap();
        // The layout is built when it is first asked for.
        gpt.params.layout();
        let before = live();
        gpt.params.allocate(0);
        let held = (live() - before) as u64;
        assert_eq!(held, plan.parameters + plan.gradients);

        let sampler = Sampler { sampling: Sampling::Seeds, seed: 1, rank: 0, ranks: 1, batch, block };
        let batch = sampler.batch(&corpus.train, 0, 0);
        let rules = Dropout { p, seed: 1, step: 0, sequences: batch.sequences.clone(), first_position: 0 };
        let pass = Pass { train: true, dropout: (p > 0.0).then_some(rules) };
        let step = || gpt.loss(&batch, &pass)?.backward().map(drop);
        // gemm takes its packing buffers, one size whatever the model, at a thread's first product.
        step().unwrap();
        let (peak, result) = peak_of(step);
        result.unwrap();
        let ratio = peak as f64 / plan.activations as f64;
        println!("{shape:?}: {peak} bytes, planned {}", plan.activations);
        assert!((0.99..=1.01).contains(&ratio), "{shape:?}: {peak} bytes at the peak, {} planned", plan.activations);
    }
}
