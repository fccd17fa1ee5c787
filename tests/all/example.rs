//! `examples/train.rs`, the training that one would copy: every strategy has one rank's losses,
//! and what is saved goes on.

#[allow(dead_code, reason = "its main is a program's")]
#[path = "../../examples/train.rs"]
mod train;

use kit::parity;
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::parallel::Strategy;
use shardlab::train::{Config, Training};

const STEPS: usize = 5;

fn losses(strategy: &str) -> Vec<f64> {
    train::train(&strategy.parse().unwrap(), STEPS, None).unwrap()
}

/// One rank, which takes the batches of both replicas one after the other.
fn one_ranks(strategy: &str) -> Vec<f64> {
    let corpus = Corpus::embedded().unwrap();
    let job = train::settings(&strategy.parse().unwrap(), &corpus).unwrap();
    let one = Config { ranks: 1, ..job.clone() };
    let alone = Training::new(&one, &Strategy::SINGLE, &Comm::alone()).unwrap();
    parity::serial(alone, &job, &corpus.train, STEPS).unwrap().losses
}

#[test]
fn every_strategy_has_one_ranks_losses() {
    let one = one_ranks("dp=2,zero=1");
    let bits = |losses: &[f64]| losses.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&losses("dp=2,zero=1")), bits(&one));
    for strategy in ["dp=2,tp=2,zero=1", "dp=1", "dp=2,zero=3", "pp=2", "dp=4", "cp=2"] {
        let found = losses(strategy);
        assert_eq!(found.len(), STEPS);
        for (found, one) in found.iter().zip(&one) {
            let off = (found - one).abs();
            assert!(
                off <= parity::loss_bound(shardlab::tensor::Precision::F32),
                "{strategy} {off}"
            );
        }
    }
    assert!(one[STEPS - 1] < one[0]);
}

#[test]
fn what_is_saved_goes_on() {
    let strategy: Strategy = "dp=2,zero=1".parse().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let save = Some(folder.path());
    let mut both = train::train(&strategy, 3, save).unwrap();
    both.extend(train::train(&strategy, STEPS - 3, save).unwrap());
    assert_eq!(both, losses("dp=2,zero=1"));
    // Another number of ranks cannot go on, and is told so.
    let other = train::train(&Strategy::default(), 1, save).unwrap_err();
    assert!(other.to_string().contains("a different world size"), "{other:#}");
}

#[test]
fn a_batch_that_is_not_divided_is_refused() {
    let three: Strategy = "dp=3".parse().unwrap();
    let error = train::train(&three, 1, None).unwrap_err().to_string();
    assert_eq!(error, "dp=3 makes 3 micro-batches, which do not divide 8 sequences");
}
