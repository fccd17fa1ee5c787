//! The check of lab11-memory: parameters of 3D plans, ZeRO's stages, activations in flight.

use exercise::{Plan, bytes};
use kit::check::{Evidence, is_near, run};
use kit::show::bytes_decimal;
use shardlab::Result;
use std::process::ExitCode;

/// GPT-3 on 8 x 8 x 8 ranks.
const GPT3: Plan = Plan {
    parameters: 175e9,
    layers: 96.0,
    width: 12_288.0,
    tokens: 2048.0,
    data: 8.0,
    tensor: 8.0,
    pipeline: 8.0,
    micro_batches: 32.0,
    zero: 0,
    recompute: false,
};
const ONE: Plan = Plan {
    parameters: 1.3e9,
    layers: 24.0,
    width: 2048.0,
    data: 1.0,
    tensor: 1.0,
    pipeline: 1.0,
    micro_batches: 4.0,
    ..GPT3
};

fn main() -> ExitCode {
    run(&[
        ("1.3 billion parameters on one rank", |evidence| {
            check(evidence, &[ONE])
        }),
        ("tensor and pipeline ranks divide them", |evidence| {
            check(
                evidence,
                &[
                    Plan { tensor: 2.0, ..ONE },
                    Plan {
                        pipeline: 4.0,
                        ..ONE
                    },
                    GPT3,
                ],
            )
        }),
        ("ZeRO's stages on 8 data ranks", |evidence| {
            check(
                evidence,
                &[0, 1, 2, 3].map(|zero| Plan {
                    data: 8.0,
                    zero,
                    ..ONE
                }),
            )
        }),
        ("ZeRO-1 in three dimensions", |evidence| {
            check(evidence, &[Plan { zero: 1, ..GPT3 }])
        }),
        ("fewer micro-batches than stages", |evidence| {
            check(
                evidence,
                &[Plan {
                    micro_batches: 3.0,
                    ..GPT3
                }],
            )
        }),
        ("with recomputation", |evidence| {
            check(
                evidence,
                &[ONE, GPT3].map(|plan| Plan {
                    recompute: true,
                    ..plan
                }),
            )
        }),
    ])
}

const NAMES: [&str; 4] = ["parameters", "gradients", "optimizer", "activations"];

/// A way to count, right or wrong.
#[derive(Clone, Copy)]
struct Rule {
    /// Among how many ranks all parameters are divided, before ZeRO.
    model: fn(&Plan) -> f64,
    /// From which stage on ZeRO divides parameters, gradients and optimizer, and among how many ranks.
    from: [usize; 3],
    zero: fn(&Plan) -> f64,
    each: [f64; 3],
    in_flight: fn(&Plan) -> f64,
    layers: fn(&Plan) -> f64,
    layer: fn(&Plan) -> f64,
}

const RIGHT: Rule = Rule {
    model: |plan| plan.tensor * plan.pipeline,
    from: [3, 2, 1],
    zero: |plan| plan.data,
    each: [2.0, 4.0, 12.0],
    in_flight: |plan| plan.pipeline.min(plan.micro_batches),
    layers: |plan| plan.layers / plan.pipeline,
    layer: |plan| if plan.recompute { 2.0 } else { 34.0 } / plan.tensor,
};

impl Rule {
    fn bytes(&self, plan: &Plan) -> [f64; 4] {
        let held = plan.parameters / (self.model)(plan);
        let share = |i: usize| {
            self.each[i] * held
                / if plan.zero >= self.from[i] {
                    (self.zero)(plan)
                } else {
                    1.0
                }
        };
        let layer = (self.layer)(plan) * plan.tokens * plan.width;
        [
            share(0),
            share(1),
            share(2),
            (self.in_flight)(plan) * (self.layers)(plan) * layer,
        ]
    }
}

fn check(evidence: &mut Evidence, plans: &[Plan]) -> Result<()> {
    let mut found = Vec::new();
    for plan in plans {
        let Plan {
            data,
            tensor,
            pipeline,
            zero,
            ..
        } = *plan;
        let which = format!("dp {data}, tp {tensor}, pp {pipeline}, ZeRO-{zero}");
        evidence.given(format!("{which}, and {plan:?}"));
        let expected = RIGHT.bytes(plan);
        let got = bytes(plan);
        for ((name, expected), got) in NAMES.into_iter().zip(expected).zip(got) {
            evidence.row(
                is_near(expected, got),
                format!("{which}: {name}"),
                bytes_decimal(expected),
                bytes_decimal(got),
            );
        }
        found.push(got);
    }
    let agrees = |rule: Rule, kinds: std::ops::Range<usize>| {
        let same = |plan: &Plan, got: &[f64; 4]| {
            kinds.clone().all(|i| is_near(rule.bytes(plan)[i], got[i]))
        };
        plans.iter().zip(&found).all(|(plan, got)| same(plan, got))
            && plans.iter().any(|plan| {
                kinds
                    .clone()
                    .any(|i| !is_near(rule.bytes(plan)[i], RIGHT.bytes(plan)[i]))
            })
    };
    let state = |rule: Rule| agrees(rule, 0..3);
    let kept = |rule: Rule| agrees(rule, 3..4);
    evidence.means_if(
        state(Rule { model: |_| 1.0, ..RIGHT }),
        "Every rank holds the whole model here. Tensor ranks divide each layer, and pipeline ranks divide the layers.",
    );
    evidence.means_if(
        state(Rule { model: |plan| plan.tensor * plan.pipeline * plan.data, ..RIGHT })
            || state(Rule { zero: |plan| plan.data * plan.tensor * plan.pipeline, ..RIGHT }),
        "Data ranks divide nothing but what ZeRO says, and ZeRO divides it among data ranks alone. A published calculator \
         divides by all devices, and so a plan seems to fit that does not.",
    );
    evidence.means_if(
        state(Rule {
            from: [1, 1, 1],
            ..RIGHT
        }),
        "Stage 1 divides the optimizer's 12 bytes alone: parameters and gradients stay whole.",
    );
    evidence.means_if(
        state(Rule {
            from: [1, 2, 3],
            ..RIGHT
        }),
        "The order is different: first the optimizer, then the gradients, then the parameters.",
    );
    evidence.means_if(
        state(Rule {
            from: [9, 9, 9],
            ..RIGHT
        }),
        "ZeRO changes nothing here. From which stage on are the optimizer's bytes divided?",
    );
    evidence.means_if(
        state(Rule {
            each: [2.0, 2.0, 12.0],
            ..RIGHT
        }),
        "These are the ZeRO paper's 16 bytes. This plan adds up gradients in f32: 4 bytes.",
    );
    evidence.means_if(
        kept(Rule { in_flight: |_| 1.0, ..RIGHT }),
        "One micro-batch is counted. When the first stage begins its first backward pass, how many forward passes has it run?",
    );
    evidence.means_if(
        kept(Rule { in_flight: |plan| plan.micro_batches, ..RIGHT }),
        "All micro-batches are counted: this is GPipe. 1F1B begins to go back when the first micro-batch is at the last stage.",
    );
    evidence.means_if(
        kept(Rule {
            in_flight: |plan| plan.pipeline,
            ..RIGHT
        }),
        "There cannot be more micro-batches in flight than there are.",
    );
    evidence.means_if(
        kept(Rule {
            layers: |plan| plan.layers,
            ..RIGHT
        }),
        "The first stage has only its own layers: the pipeline divides them.",
    );
    evidence.means_if(
        kept(Rule {
            layer: |plan| if plan.recompute { 2.0 } else { 34.0 },
            ..RIGHT
        }),
        "Tensor ranks divide the activations, too: 34 bytes together, not on each of them.",
    );
    evidence.means_if(
        kept(Rule {
            layer: |plan| 34.0 / plan.tensor,
            ..RIGHT
        }),
        "With recomputation a layer keeps its input alone: 2 bytes instead of 34.",
    );
    evidence.means("Parameters are divided by tensor and pipeline ranks, some of them once more by ZeRO. Activations: in flight x layers of a stage x bytes of a layer.");
    Ok(())
}
