//! The check of lab11-state: three plans' bytes by the library's formula, and what each mistake would give.

use exercise::gigabytes;
use kit::check::{Evidence, run};
use shardlab::Result;
use shardlab::plan::{BytesEach, zero_memory};
use std::process::ExitCode;

const PARAMETERS: u64 = 7_000_000_000;

fn main() -> ExitCode {
    run(&[
        ("plan A: ZeRO-1 on 8 data ranks", |evidence| {
            plan(evidence, 0)
        }),
        ("plan B: 4 tensor ranks, 2 replicas", |evidence| {
            plan(evidence, 1)
        }),
        ("plan C: all three axes, and ZeRO-1", |evidence| {
            plan(evidence, 2)
        }),
    ])
}

/// Data ranks, tensor ranks, stages, and ZeRO's stage.
const PLANS: [[u64; 4]; 3] = [[8, 1, 1, 1], [2, 4, 1, 0], [2, 2, 2, 1]];

/// The GB of a rank that holds a part of the parameters, of which ZeRO divides some among `ranks`.
fn gb(part: u64, zero: u64, ranks: u64, each: BytesEach) -> f64 {
    let bytes: u64 = zero_memory(zero as usize, PARAMETERS / part, ranks, each)
        .iter()
        .sum();
    bytes as f64 / 1e9
}

fn plan(evidence: &mut Evidence, which: usize) -> Result<()> {
    let [data, tensor, stages, zero] = PLANS[which];
    let got = gigabytes()[which];
    let each = BytesEach::MEGATRON;
    let part = tensor * stages;
    let expected = gb(part, zero, data, each);
    let near = |gb: f64| (got - gb).abs() < 0.06;
    evidence.row(
        near(expected),
        format!("dp {data}, tp {tensor}, pp {stages}, ZeRO-{zero}"),
        format!("{expected:.1} GB"),
        format!("{got} GB"),
    );
    let devices = data * part;
    evidence.means_if(
        near(gb(1, 0, 1, each)),
        "This is the whole, not one rank's share.",
    );
    evidence.means_if(
        part > 1 && near(gb(devices, 0, 1, each)),
        "This divides by all 8 devices. But the replicas hold copies of each other: without ZeRO, data ranks divide nothing. A plan that is \
         computed so seems to fit, and runs out of memory.",
    );
    evidence.means_if(
        part == 1 && near(gb(1, 3, data, each)),
        "All 18 bytes are divided by data ranks: this is ZeRO-3. Stage 1 divides the optimizer's 12 alone.",
    );
    evidence.means_if(
        zero > 0 && near(gb(part, 2, data, each)),
        "The gradients are divided, too: this is ZeRO-2.",
    );
    evidence.means_if(
        zero > 0 && part > 1 && near(gb(part, 0, 1, each)),
        "Nothing is divided by ZeRO here. The two replicas each keep half of the optimizer's bytes.",
    );
    evidence.means_if(
        part > 1 && near(gb(part, zero.max(1), devices, each)),
        "ZeRO divides among data ranks alone. Here it divides among all devices.",
    );
    evidence.means_if(
        part > 1 && near(gb(1, zero, data, each)),
        "The whole model is on every rank here. Tensor ranks and stages divide its parameters.",
    );
    evidence.means_if(
        tensor > 1 && stages > 1 && near(gb(tensor, zero, data, each)),
        "Tensor ranks and stages both divide the parameters: 2 x 2 ranks share one copy.",
    );
    evidence.means_if(
        part > 1 && near(gb(data, zero, data, each)),
        "The parameters are divided by the number of replicas. Replicas are copies: the others divide.",
    );
    evidence.means_if(
        near(gb(part, zero, data, BytesEach::MIXED)),
        "A gradient has 2 bytes here. This plan adds gradients up in f32: 4 bytes.",
    );
    evidence.means_if(
        near(PARAMETERS as f64 / 1e9 * 6.0 / part as f64),
        "The optimizer is missing. ZeRO-1 leaves a part of it on every rank.",
    );
    evidence.means(
        "Divide the parameters by tensor ranks and stages. Then add 2 + 4 + 12 bytes for each; ZeRO-1 divides the 12 \
         by data ranks.",
    );
    Ok(())
}
