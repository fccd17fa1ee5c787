//! The one trainer, on ranks that are threads. `tests/mpi` runs the same on processes.

use crate::suite::trained::config;
use crate::suite::training;
use shardlab::comm::Comm;
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::parallel::pipeline::Times;
use shardlab::train::Training;
use std::time::Instant;

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

/// It is a bound from below, which holds on any machine.
#[test]
fn a_pace_is_the_least_time_of_each_pass() {
    let (config, corpus) = config(1, |config| config.grad_accum = 2);
    let mut training = Training::new(&config, &Strategy::SINGLE, &Comm::alone()).unwrap();
    let pace = Times { forward: 0.02, backward: 0.03, weights: 0.0, message: 0.0 };
    training.stages.pace = Some(pace);
    let begun = Instant::now();
    training.step(&corpus.train, 0).unwrap();
    assert!(begun.elapsed().as_secs_f64() >= 2.0 * 0.05);
}
