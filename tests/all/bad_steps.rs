//! Steps that are skipped or refused: every rank draws the same data as without them, and nothing
//! moves that should not.

use crate::suite::bad_steps;
use labs::lab08::skipping::emulate_half;
use shardlab::comm::Comm;
use shardlab::launch;
use shardlab::mesh::Coordinates;
use shardlab::model::LinearStack;
use shardlab::parallel::zero::{Stage, Zero, ZeroConfig};
use shardlab::tensor::Precision;

#[test]
fn skipping_draws_the_same_tokens() {
    for ranks in [1, 3] {
        launch::run(ranks, |comm| bad_steps::skipping_draws_the_same_tokens(&comm)).unwrap();
    }
}

#[test]
fn a_bound_skips_like_ranges() {
    for stage in Stage::ALL {
        launch::run(2, |comm| bad_steps::a_bound_skips_like_ranges(&comm, stage)).unwrap();
    }
}

#[test]
fn a_loss_scale_alone_changes_no_bit() {
    for stage in Stage::ALL {
        launch::run(2, |comm| bad_steps::a_loss_scale_alone_changes_no_bit(&comm, stage)).unwrap();
    }
}

#[test]
fn a_loss_scale_changes_no_bit_of_a_pipeline() {
    for (data, pipeline, tensor) in [(2, 2, 1), (1, 2, 2)] {
        let sizes = Coordinates { data, pipeline, tensor };
        launch::run(4, |comm| bad_steps::a_loss_scale_changes_no_bit_of_a_pipeline(&comm, sizes))
            .unwrap();
    }
}

#[test]
fn in_fp16_the_first_steps_are_skipped() {
    for stage in [Stage::Ddp, Stage::One] {
        launch::run(2, |comm| bad_steps::in_fp16_the_first_steps_are_skipped(&comm, stage))
            .unwrap();
    }
}

/// Where a rank has no buffer of all gradients, fp16 is not emulated, and an error says so.
#[test]
fn fp16_needs_whole_gradients() {
    for (stage, reduce) in [(Stage::Two, Precision::F32), (Stage::Ddp, Precision::Bf16)] {
        let stack = LinearStack::new(&[4, 3, 4]).unwrap();
        let _half = emulate_half(&stack.params);
        let zero = ZeroConfig {
            reduce,
            ..ZeroConfig::new(stage, Precision::F32, crate::suite::zero::ADAMW)
        };
        let mut zero = Zero::init(&stack.params, &Comm::alone(), zero, 1).unwrap();
        zero.begin().unwrap();
        let error = stack.loss(&[1.0, 2.0, 3.0, 4.0]).unwrap().backward().unwrap_err().to_string();
        assert!(error.contains("help: use stage 0 or 1 of ZeRO"), "{error}");
    }
}
