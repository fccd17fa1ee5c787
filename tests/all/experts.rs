//! Models with experts on several ranks.

use crate::suite::{context, experts as suite, selection, trained};
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::parallel::zero::Stage;
use shardlab::plan::{Experts, Family};

/// Experts that every rank holds, and experts that ranks share: losses, weights, and each gradient.
#[test]
fn a_mesh_trains_what_one_rank_trains() {
    let experts = Experts { count: 4, top_k: 2, normalized: true, ..Experts::default() };
    let model = (Family::Gpt, Some(Experts { ffn: 64, ..experts }));
    for strategy in [
        "dp=1,recompute=full",
        "dp=2",
        "dp=2,zero=1",
        "dp=2,zero=2",
        "dp=2,zero=3",
        "tp=2",
        "cp=2",
        "pp=2,m=2,zero=1",
        "dp=2,tp=2,pp=2,m=2,zero=1,recompute=full",
        "dp=2,ep=2",
        "dp=2,ep=2,zero=1",
        "dp=2,ep=2,zero=2",
        "dp=2,ep=2,zero=3",
        "dp=4,ep=2",
        "dp=4,ep=2,zero=1",
        "dp=4,ep=2,zero=2",
        "dp=4,ep=2,zero=3",
        "cp=2,ep=2,cp-comm=ring",
        "dp=2,cp=2,ep=4,zero=3",
        "dp=2,tp=2,ep=2,zero=2",
        "dp=2,pp=2,ep=2,m=2,zero=1,recompute=full",
    ] {
        let ranks = strategy.parse::<Strategy>().unwrap().ranks();
        launch::run(ranks, |comm| {
            context::a_mesh_trains_what_one_rank_trains(&comm, model, strategy)
        })
        .unwrap();
    }
}

/// Sigmoids, groups, a shared expert and a bias, with a balancing loss of such scores.
#[test]
fn a_mesh_selects_what_one_rank_selects() {
    for strategy in [
        "dp=1,recompute=full",
        "dp=2",
        "dp=2,ep=2",
        "cp=2,ep=2,zero=1",
        "dp=2,tp=2,ep=2,zero=2",
        "dp=4,ep=4,zero=3",
        "dp=2,pp=2,ep=2,m=2,zero=1,recompute=full",
    ] {
        let ranks = strategy.parse::<Strategy>().unwrap().ranks();
        let model = (Family::Gpt, Some(trained::SELECTING));
        launch::run(ranks, |comm| {
            context::a_mesh_trains_what_one_rank_trains(&comm, model, strategy)
        })
        .unwrap();
    }
}

#[test]
fn overlap_changes_no_bit() {
    for ranks in [2, 4] {
        launch::run(ranks, |comm| suite::overlap_changes_no_bit(&comm)).unwrap();
    }
}

#[test]
fn a_step_moves_each_bias_once() {
    selection::a_step_moves_each_bias_once().unwrap();
}

#[test]
fn each_rank_drops_its_own() {
    for ranks in [1, 2, 4] {
        launch::run(ranks, |comm| selection::each_rank_drops_its_own(&comm)).unwrap();
    }
}

#[test]
fn ranks_move_the_biases_of_one() {
    for strategy in [
        "dp=1,recompute=full",
        "dp=2",
        "dp=2,ep=2,zero=1",
        "dp=4,ep=2,zero=2",
        "dp=4,ep=4,zero=3",
        "cp=2,ep=2",
        "tp=2",
        "dp=2,pp=2,ep=2,m=2,zero=1,recompute=full",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let ranks = strategy.parse::<Strategy>().unwrap().ranks();
        launch::run(ranks, |comm| {
            selection::ranks_move_the_biases_of_one(&comm, strategy, dir.path())
        })
        .unwrap();
    }
}

#[test]
fn sums_in_one_order_have_the_same_bits() {
    launch::run(2, |comm| suite::sums_in_one_order_have_the_same_bits(&comm)).unwrap();
}

#[test]
fn shared_experts_compute_what_one_rank_computes() {
    for ranks in 1..=4 {
        launch::run(ranks, |comm| {
            suite::shared_experts_compute_what_one_rank_computes(&comm)?;
            suite::copies_travel_in_the_type_of_the_pass(&comm)?;
            suite::a_load_over_all_ranks_is_one_ranks(&comm)
        })
        .unwrap();
    }
}

#[test]
fn shared_experts_are_saved() {
    for stage in Stage::ALL {
        let dir = tempfile::tempdir().unwrap();
        launch::run(2, |comm| suite::shared_experts_are_saved(&comm, stage, dir.path())).unwrap();
    }
}
