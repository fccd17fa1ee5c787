//! Whether ranks that share a model train the model of one rank, and take what the formulas say.

use super::{Measured, Way, formulas};
use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use kit::Checks;
use kit::show::{in_common, significant, thousands};
use shardlab::comm::{Comm, Reduce};
use shardlab::parallel::TensorParallel;
use shardlab::tensor;
use shardlab::train::Config;
use std::sync::Arc;

/// Relative differences up to this bound are rounding: sums of two ranks' summands have a different
/// order.
const ROUNDING: f64 = 1e-5;

/// The bound after some steps, because each step begins where the last one ended.
const DRIFT: f64 = 1e-4;

/// Bytes that the tape's links take for each block, beside the activations: more than 2% of a very
/// small model's.
const LINKS: f64 = 6e3;

/// How one way's dropout masks lie among the ranks: whether the masks of the residual stream are
/// the same on all of them, and whether they are slices of the unsharded model's mask, end to end.
pub fn same_masks(group: &Comm, config: &Config, sequence: bool) -> Result<[bool; 2]> {
    let length = config.shape.block;
    let width = config.shape.embd;
    let sequences: Arc<[u64]> = [0u64].as_slice().into();
    let mask = |group: &Comm| -> Result<Vec<f32>> {
        let mut tensor = TensorParallel::new(group.clone());
        if sequence {
            tensor = tensor.sequence_parallel();
        }
        let rules = tensor.pass(config.pass(0, &sequences), length).dropout;
        let positions = if sequence { length / group.size() } else { length };
        let ones = Tensor::ones((1, positions, width), DType::F32, &Device::Cpu)?;
        let dropped = match rules {
            Some(rules) => tensor::dropout(&ones, &rules, "blocks.0.proj")?,
            None => ones,
        };
        Ok(dropped.flatten_all()?.to_vec1()?)
    };
    let mine = mask(group)?;
    let whole = mask(&Comm::alone())?;
    let all = group.gathered(&mine)?;
    let same = all.chunks_exact(mine.len()).all(|one| one == mine);
    let mut result = [u8::from(same), u8::from(all == whole)];
    group.all_reduce(&mut result, Reduce::Min)?;
    Ok(result.map(|holds| holds == 1))
}

/// Runs all checks. `all` begins with one rank alone; `masks` are [`same_masks`] of the other ways.
pub fn check(checks: &mut Checks, all: &[Measured], masks: &[[bool; 2]]) {
    let one = &all[0];
    let shared = &all[1..];
    let each = |result: &dyn Fn(&Measured) -> String| in_common(shared.iter().map(result));
    let apart = |x: f64| {
        if x == 0.0 { "0".to_string() } else { format!("{x:.0e}") }
    };

    checks.check_bits(
        shared.iter().all(|measured| measured.begins_as_slices),
        "each rank begins with slices of the whole",
        "shards began as different numbers",
    );

    same_seed(checks, shared);

    // With tensor parallelism every rank holds the whole stream, and must drop the same of it.
    let sound = shared.iter().zip(masks).all(|(measured, &[same, slices])| match measured.way {
        Way::Sequence => slices && (!same || measured.shards.tensor == 1),
        _ => same,
    });
    let words = |measured: &Measured| {
        if measured.way == Way::Tensor { "same" } else { "slices" }.to_string()
    };
    let result = if sound {
        each(&words)
    } else {
        "different ones".to_string()
    };
    checks.check(
        sound,
        "dropout masks of the stream",
        &result,
        "ranks dropped what one rank does not drop",
    );

    let mut within = |what: &str, bound: f64, off: &dyn Fn(&Measured) -> f64, otherwise: &str| {
        let sound = shared.iter().all(|measured| off(measured) < bound);
        let claim = format!("{what} one rank's, within {}", apart(bound));
        let found = format!("off by {}", each(&|measured| apart(off(measured))));
        checks.check(sound, &claim, &found, otherwise);
    };
    within(
        "the first loss is",
        ROUNDING,
        &|measured| (measured.losses[0] - one.losses[0]).abs() / one.losses[0],
        "the forward pass differs from the unsharded model's",
    );
    within(
        "every gradient is",
        ROUNDING,
        &|measured| measured.gradients,
        "gradients differ from the unsharded model's",
    );
    within(
        &format!("{} steps: losses are", one.losses.len()),
        DRIFT,
        &|measured| measured.losses_apart,
        "the ranks trained a different model",
    );

    checks.check_equal(
        "parameters on each rank",
        &each(&|measured| thousands(measured.expected_parameters())),
        &each(&|measured| thousands(measured.parameters)),
        "a rank holds more than its share of the parameters",
    );
    let in_words = |[forward, backward]: [usize; 2]| format!("{forward} + {backward}");
    checks.check_equal(
        "collective calls per step",
        &each(&|measured| in_words(formulas::calls(&measured.shards))),
        &each(&|measured| in_words(measured.calls)),
        "the ranks made a different number of collective calls",
    );

    let off = |measured: f64, predicted: f64| {
        if predicted == 0.0 {
            measured
        } else {
            (measured / predicted - 1.0).abs()
        }
    };
    let activations =
        |measured: &Measured| off(measured.activations as f64, measured.expected_activations());
    let links = LINKS * (one.shards.shape.layers + 2) as f64;
    let percent = |x: f64| format!("{}%", significant(100.0 * x, 2));
    let most = all.iter().map(activations).fold(0.0, f64::max);
    checks.check(
        all.iter()
            .all(|measured| activations(measured) < 0.02 + links / measured.expected_activations()),
        "activations are within 2% + 6 kB per block",
        &format!("off by {}", percent(most)),
        "a rank keeps other activations than the formula says",
    );
    let sent = |measured: &Measured| off(measured.sent, measured.expected_bytes());
    let most = shared.iter().map(sent).fold(0.0, f64::max);
    let sound = shared.iter().all(|measured| sent(measured) < 0.01);
    checks.check(
        sound,
        "bytes sent are within 1% of the formulas",
        &format!("off by {}", percent(most)),
        "a rank sent other bytes than the formula says",
    );
}

/// Checks that no two ranks began with the same numbers. Unlike the check before it, this one needs
/// no whole matrix.
fn same_seed(checks: &mut Checks, shared: &[Measured]) {
    let claim = "no two ranks begin with the same slice";
    let alike = shared.iter().find(|measured| !measured.slices[0].alike.is_empty());
    let Some(measured) = alike else {
        // Each way cuts the same matrices.
        let matrices = format!("{} matrices", shared[0].slices[0].matrices);
        return checks.check(true, claim, &matrices, "");
    };
    let [begun, ended] = &measured.slices;
    let (name, [first, second]) = &begun.alike[0];
    let alike = format!("{} of {} alike", begun.alike.len(), begun.matrices);
    checks.check(
        false,
        claim,
        &format!("{alike}: {name} on ranks {first} and {second}"),
        &format!(
            "two ranks began with the same numbers in {} of {} cut matrices, and still have the same in {} after {} steps: \
             did they seed their generators alike?",
            begun.alike.len(),
            begun.matrices,
            ended.alike.len(),
            measured.losses.len()
        ),
    );
}
