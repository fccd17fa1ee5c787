//! Tokens that travel to their experts while the shared expert computes:
//! `cargo bench --bench experts -- [LATENCY,BANDWIDTH]`.
//!
//! Two ranks share the experts of a GPT, and train it with overlap and without in turns. Prints the
//! milliseconds of a forward pass, and of those that a rank spent in calls: dispatch, combine, and
//! what ranks tell each other before. Let nothing else run meanwhile.

use anyhow::Result;
use shardlab::comm::{Comm, Options};
use shardlab::data::{Corpus, Sampler, Sampling};
use shardlab::launch;
use shardlab::model::{Gpt, Pass};
use shardlab::parallel::{ExpertParallel, TensorParallel};
use shardlab::plan::{Experts, Family, ModelShape};
use std::time::Instant;

/// Pairs of turns, and steps of a turn.
const PAIRS: usize = 3;
const STEPS: usize = 12;

fn main() -> Result<()> {
    let words: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let link = words.first().map_or("100us,100MB/s", String::as_str);
    let link = kit::flags::link(link).map_err(anyhow::Error::msg)?;
    launch::one_compute_thread_a_rank();
    let measured =
        launch::run_with(2, &Options { link: Some(link), ..Options::default() }, one_rank)?;
    println!("2 ranks, {link}; milliseconds of a forward pass (in calls)");
    for pair in measured[0].chunks(2) {
        let [with, without] = [pair[0], pair[1]];
        let [all, calls] = [0, 1].map(|i| (1e3 * with[i], 1e3 * without[i]));
        println!(
            "with overlap {:.1} ({:.1}), without {:.1} ({:.1}): {:.2} of the time ({:.2})",
            all.0,
            calls.0,
            all.1,
            calls.1,
            all.0 / all.1,
            calls.0 / calls.1
        );
    }
    Ok(())
}

/// For each turn the medians of a forward pass's seconds, and of its seconds in calls.
fn one_rank(comm: Comm) -> Result<Vec<[f64; 2]>> {
    let corpus = Corpus::embedded()?;
    let experts = Experts { number: 4, chosen: 2, shared: 1, ..Experts::default() };
    let shape = ModelShape {
        vocabulary: corpus.vocabulary.size(),
        block: 64,
        layers: 4,
        heads: 4,
        embd: 128,
        family: Family::GptExperts { ffn: 512, experts },
    };
    let sampler = Sampler {
        seed: 1,
        sampling: Sampling::Partition,
        ranks: comm.size(),
        rank: comm.rank(),
        batch: 12,
        block: shape.block,
    };
    let models = [true, false].map(|overlap| {
        let experts = ExpertParallel::new(comm.clone()).overlap(overlap);
        let gpt = Gpt::build(&shape, &TensorParallel::new(Comm::alone()).with_experts(experts))?;
        gpt.params.allocate(1);
        anyhow::Ok(gpt)
    });
    let [with, without] = models;
    let models = [with?, without?];
    let mut turns = Vec::new();
    for turn in 0..2 * PAIRS {
        let gpt = &models[turn % 2];
        let mut steps = Vec::new();
        for step in 0..STEPS {
            let batch = sampler.batch(&corpus.train, step, 0);
            gpt.params.zero_gradients();
            comm.barrier()?;
            let before = comm.traffic();
            let start = Instant::now();
            let loss = gpt.loss(&batch, &Pass::training(None))?;
            let seconds = start.elapsed().as_secs_f64();
            steps.push([seconds, (comm.traffic() - before).seconds]);
            loss.backward()?;
        }
        let median = |i: usize| {
            let mut values: Vec<f64> = steps[2..].iter().map(|step| step[i]).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        turns.push([median(0), median(1)]);
    }
    Ok(turns)
}
