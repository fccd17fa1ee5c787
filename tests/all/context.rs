//! Context parallelism, with ranks as threads.

use crate::suite::context::{a_mesh_trains_what_one_rank_trains, attention_is_one_ranks};
use shardlab::launch;

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
        launch::run(ranks, |comm| a_mesh_trains_what_one_rank_trains(&comm, strategy)).unwrap();
    }
}
