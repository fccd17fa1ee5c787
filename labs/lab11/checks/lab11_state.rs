//! The check of lab11-state: a plan's bytes by the library's formula, and what each mistake would
//! give.

use exercise::one_rank;
use kit::check::{Evidence, number, run};
use shardlab::Result;
use shardlab::plan::{BytesEach, zero_memory};
use std::process::ExitCode;

const PARAMETERS: u64 = 24_000_000_000;
const DATA: u64 = 12;
const TENSOR: u64 = 4;
const STAGES: u64 = 2;
const DEVICES: u64 = DATA * TENSOR * STAGES;

pub fn main() -> ExitCode {
    run(&[("what a rank holds under the plan", holds)])
}

/// The GB of a rank that has one of `parts` parts of the parameters, of which ZeRO divides some
/// among `ranks`.
fn gb(parts: u64, zero: usize, ranks: u64, each: BytesEach) -> f64 {
    let bytes = zero_memory(zero, PARAMETERS / parts, ranks, each);
    bytes.iter().sum::<u64>() as f64 / 1e9
}

fn holds(evidence: &mut Evidence) -> Result<()> {
    let got: f64 = one_rank();
    let each = BytesEach::MEGATRON;
    let part = TENSOR * STAGES;
    let right = gb(part, 1, DATA, each);
    evidence.row((got - right).abs() < 0.05, "GB on one rank", "?", number(got));
    evidence.means_if(got >= 1e9, "These are bytes, not GB.");
    // Readers round to one place, or to a whole number.
    let near = |gb: f64| (got - gb).abs() < 0.05 || got == gb.round();
    evidence.means_if(near(gb(1, 0, 1, each)), "This is the whole, not one rank's share.");
    evidence.means_if(
        near(gb(DEVICES, 0, 1, each)),
        "Everything is divided by all 96 devices: that is ZeRO-3. Under ZeRO-1 the data ranks hold copies of parameters and \
         gradients. A plan that is computed so seems to fit, and runs out of memory.",
    );
    evidence.means_if(
        near(gb(part, 2, DATA, each)),
        "The data ranks divide the gradients, too: this is ZeRO-2.",
    );
    evidence.means_if(
        near(gb(part, 0, 1, each)),
        "ZeRO divides nothing here: each of 12 data ranks keeps the whole optimizer.",
    );
    evidence.means_if(
        near(gb(part, 1, DEVICES, each)) || near(6.0 * gb(part, 0, 1, each) / 18.0),
        "Little or nothing of the optimizer is left here. ZeRO-1 divides it among the data ranks, and each keeps its part.",
    );
    evidence.means_if(
        near(gb(1, 1, DATA, each)),
        "Each rank has all parameters here. Tensor ranks and stages divide them.",
    );
    evidence.means_if(
        near(gb(TENSOR, 1, DATA, each)) || near(gb(STAGES, 1, DATA, each)),
        "Only the tensor ranks, or only the stages, divide the parameters here. Both do.",
    );
    evidence.means_if(
        near(gb(TENSOR + STAGES, 1, DATA, each)),
        "Each stage has 4 tensor ranks, so the two multiply. They are added here.",
    );
    evidence.means_if(
        near(gb(DATA, 1, DATA, each)),
        "The data ranks divide the parameters here. They hold copies: the others divide.",
    );
    evidence.means_if(
        near(gb(part, 1, DATA, BytesEach::MIXED)),
        "Two bytes of each parameter are missing here: the weight's, or half of the gradient's.",
    );
    evidence.means_if(
        near(gb(part, 1, DATA, each) - 4.0 * (PARAMETERS / part) as f64 / 1e9),
        "The gradients are missing: the data ranks hold copies of them, and each has its own.",
    );
    evidence.means_if(
        near((PARAMETERS / part) as f64 / 1e9),
        "A rank has this many billion parameters, and holds several bytes for each.",
    );
    evidence.means(
        "First count the parameters of one rank. Then count the bytes that it keeps of each.",
    );
    Ok(())
}
