//! Context parallelism, with ranks as threads.

use crate::suite::context::{a_mesh_trains_what_one_rank_trains, attention_is_one_ranks};
use shardlab::comm::Reduce;
use shardlab::data::Batch;
use shardlab::launch;
use shardlab::model::{Llama, Pass};
use shardlab::parallel::ContextParallel;
use shardlab::parallel::context::{Exchange, Slicing};
use shardlab::plan::Family;

#[test]
fn attention_across_ranks_is_one_ranks() {
    for ranks in [2, 3, 4] {
        launch::run(ranks, |comm| attention_is_one_ranks(&comm)).unwrap();
    }
}

#[test]
fn a_mesh_with_context_ranks_trains_what_one_rank_trains() {
    for strategy in [
        "cp=2",
        "cp=4,cp-comm=ring",
        "cp=4,cp-comm=ulysses,cp-order=contiguous",
        "dp=2,cp=2,zero=1,cp-comm=ring",
        "cp=2,zero=3",
        "tp=2,cp=2,sp,cp-comm=ulysses",
        "pp=2,cp=2,m=2,zero=1",
        "dp=2,tp=2,pp=2,cp=2,m=2,zero=1,cp-comm=ring,sp",
    ] {
        let ranks = strategy.parse::<shardlab::parallel::Strategy>().unwrap().ranks();
        launch::run(ranks, |comm| {
            a_mesh_trains_what_one_rank_trains(&comm, (Family::Gpt, None), strategy)
        })
        .unwrap();
    }
}

/// A Llama's rotations are of the positions that a rank holds, and its key heads are fewer.
#[test]
fn a_llama_with_shared_sequences_has_one_ranks_loss() {
    let length = 32;
    let tokens = |first: usize| (first..first + length).map(|i| (i * i % 509) as u32).collect();
    let batch = || Batch {
        inputs: tokens(0),
        targets: tokens(1),
        length,
        sequences: [0].into(),
        starts: vec![0],
        documents: vec![vec![9, 20]].into(),
    };
    let loss = |context: &ContextParallel| {
        let llama = Llama::new(&shapes::llamas::LLAMAS[0].1)?;
        llama.params.allocate(5);
        let (batch, pass) = context.share(batch(), Pass::evaluate());
        anyhow::Ok(llama.loss(&batch, &pass)?.to_scalar::<f32>()?)
    };
    let of = |comm, exchange| ContextParallel::new(comm, exchange, Slicing::ZigZag);
    let whole = loss(&of(shardlab::comm::Comm::alone(), Exchange::Gather)).unwrap();
    for exchange in Exchange::ALL {
        let means = launch::run(2, |comm| {
            let mut mean = [loss(&of(comm.clone(), exchange))?];
            comm.all_reduce(&mut mean, Reduce::Mean)?;
            Ok(mean[0])
        });
        let apart = (means.unwrap()[0] - whole).abs();
        assert!(apart < 1e-5, "{exchange:?}: {apart:e}");
    }
}
