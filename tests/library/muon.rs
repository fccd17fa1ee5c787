//! Muon between threads.

use crate::suite::muon::{
    owners_hold_whole_matrices, owners_take_one_ranks_steps, tensor_ranks_take_one_ranks_step,
};
use shardlab::launch;

#[test]
fn owners_take_one_ranks_steps_to_the_bit() {
    for ranks in [1, 2, 4] {
        launch::run(ranks, |comm| owners_take_one_ranks_steps(&comm, true)).unwrap();
    }
}

#[test]
fn tensor_ranks_take_one_ranks_step_to_the_bit() {
    for ranks in [1, 2] {
        launch::run(ranks, |comm| tensor_ranks_take_one_ranks_step(&comm)).unwrap();
    }
}

#[test]
fn whole_matrices_have_owners() {
    for ranks in 1..=5 {
        launch::run(ranks, |comm| owners_hold_whole_matrices(&comm)).unwrap();
    }
}
