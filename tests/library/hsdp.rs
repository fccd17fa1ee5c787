//! HSDP on ranks that are threads. `tests/mpi` runs the same on processes.

use crate::suite::hsdp;
use shardlab::launch;

#[test]
fn groups_train_what_one_rank_trains() {
    for (ranks, shard) in [(4, 2), (4, 1), (6, 3), (6, 2)] {
        launch::run(ranks, |comm| hsdp::groups_train_what_one_rank_trains(&comm, shard)).unwrap();
    }
}

#[test]
fn two_ranks_take_zero_threes_steps() {
    launch::run(2, |comm| hsdp::two_ranks_take_zero_threes_steps(&comm)).unwrap();
}

#[test]
fn bytes_inside_and_between_groups() {
    launch::run(4, |comm| hsdp::bytes_are_the_formulas(&comm)).unwrap();
}

#[test]
fn groups_begin_alike() {
    launch::run(4, |comm| hsdp::groups_begin_alike(&comm)).unwrap();
}

#[test]
fn each_mistake_shows() {
    launch::run(4, |comm| hsdp::mistakes_show(&comm)).unwrap();
}

#[test]
fn checkpoints_continue() {
    let dir = tempfile::tempdir().unwrap();
    launch::run(4, |comm| hsdp::checkpoints_continue(&comm, dir.path())).unwrap();
}

#[test]
fn losses_and_norms_are_pytorchs() {
    for shard in [1, 2, 4] {
        launch::run(4, |comm| hsdp::pytorchs_figures(&comm, shard)).unwrap();
    }
}
