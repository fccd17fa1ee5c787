//! The one trainer, on ranks that are threads. `tests/mpi` runs the same on processes.

use crate::suite::training;
use shardlab::launch;

#[test]
fn a_training_takes_the_plain_step() {
    for ranks in 1..=3 {
        launch::run(ranks, |comm| training::a_training_takes_the_plain_step(&comm)).unwrap();
    }
}

#[test]
fn a_local_norm_changes_what_is_trained() {
    for ranks in 1..=2 {
        launch::run(ranks, |comm| training::a_local_norm_changes_what_is_trained(&comm)).unwrap();
    }
}
