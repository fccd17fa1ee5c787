//! The check of lab04-memory: one GPU, many, few, recomputation, a large model, and smaller GPUs.

use exercise::{Job, Plan, plan};
use kit::check::{Evidence, is_near, run};
use kit::show::bytes_decimal;
use shardlab::Result;
use shardlab::plan::{BytesEach, zero_memory};
use std::process::ExitCode;

/// A model on GPUs of 80 GB.
const fn job(billions: f64, [blocks, width, sequence]: [u64; 3], ranks: u64) -> Job {
    let parameters = (billions * 1e9) as u64;
    Job {
        parameters,
        blocks,
        width,
        sequence,
        ranks,
        recompute: false,
        memory: 80_000_000_000,
    }
}

const SMALL: Job = job(1.3, [24, 2048, 2048], 1);
const MIDDLE: Job = job(7.5, [32, 4096, 2048], 64);
const LARGE: Job = Job {
    recompute: true,
    ..job(70.0, [80, 8192, 8192], 64)
};

fn main() -> ExitCode {
    run(&[
        ("1.3 billion parameters on 1 GPU", |evidence| {
            plans(evidence, &[SMALL])
        }),
        ("7.5 billion on 1 GPU: nothing fits", |evidence| {
            plans(evidence, &[Job { ranks: 1, ..MIDDLE }])
        }),
        ("7.5 billion on 64 GPUs", |evidence| {
            plans(evidence, &[MIDDLE])
        }),
        ("7.5 billion on 2 GPUs: room for a sequence", |evidence| {
            plans(evidence, &[Job { ranks: 2, ..MIDDLE }])
        }),
        ("with recomputation", |evidence| {
            plans(
                evidence,
                &[SMALL, MIDDLE].map(|job| Job {
                    recompute: true,
                    ..job
                }),
            )
        }),
        ("70 billion parameters, 8,192 tokens", |evidence| {
            plans(evidence, &[LARGE, Job { ranks: 16, ..LARGE }])
        }),
        ("GPUs of 40 GB", |evidence| {
            plans(
                evidence,
                &[SMALL, MIDDLE].map(|job| Job {
                    memory: 40_000_000_000,
                    ..job
                }),
            )
        }),
    ])
}

/// A way to plan, right or wrong.
#[derive(Clone, Copy)]
struct Rule {
    /// Bytes per parameter of parameters, gradients and optimizer, and from which stage on each is sharded.
    bytes: [u64; 3],
    sharded_from: [usize; 3],
    /// Bytes of the activations of one sequence.
    activations: fn(&Job) -> u64,
    memory: fn(&Job) -> u64,
    stages: [usize; 4],
    /// Sequences that must fit at least.
    least: u64,
}

const RIGHT: Rule = Rule {
    bytes: [2, 2, 12],
    sharded_from: [3, 2, 1],
    activations: |job| {
        if job.recompute {
            recomputed(job) + whole_block(job)
        } else {
            job.blocks * whole_block(job)
        }
    },
    memory: |job| job.memory,
    stages: [0, 1, 2, 3],
    least: 1,
};

fn whole_block(job: &Job) -> u64 {
    34 * job.sequence * job.width
}

fn recomputed(job: &Job) -> u64 {
    2 * job.blocks * job.sequence * job.width
}

impl Rule {
    fn plan(&self, job: &Job) -> Option<Plan> {
        self.stages.into_iter().find_map(|stage| {
            let held = |(bytes, from): (u64, usize)| {
                (bytes * job.parameters).div_ceil(if stage >= from { job.ranks } else { 1 })
            };
            let state = self
                .bytes
                .into_iter()
                .zip(self.sharded_from)
                .map(held)
                .sum();
            let sequences = (self.memory)(job).checked_sub(state)? / (self.activations)(job);
            (sequences >= self.least).then_some(Plan {
                stage,
                state,
                sequences,
            })
        })
    }
}

/// Whether two plans are the same, up to a byte here and there.
fn same(a: Option<Plan>, b: Option<Plan>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => {
            (a.stage, a.sequences) == (b.stage, b.sequences)
                && is_near(a.state as f64, b.state as f64)
        }
        (a, b) => a == b,
    }
}

fn plans(evidence: &mut Evidence, jobs: &[Job]) -> Result<()> {
    let mut found = Vec::new();
    for job in jobs {
        let memory = bytes_decimal(job.memory as f64);
        let which = format!(
            "{} billion, {} x {memory}",
            job.parameters as f64 / 1e9,
            job.ranks
        );
        evidence.given(format!("{which}, and {job:?}"));
        let state = |stage| {
            zero_memory(stage, job.parameters, job.ranks, BytesEach::MIXED)
                .iter()
                .sum()
        };
        let expected = RIGHT.plan(job).map(|plan| Plan {
            state: state(plan.stage),
            ..plan
        });
        let got = plan(job);
        evidence.row(same(expected, got), which, said(expected), said(got));
        found.push(got);
    }

    let rule = |rule: Rule| {
        jobs.iter()
            .zip(&found)
            .all(|(job, got)| same(rule.plan(job), *got))
    };
    let bytes = |bytes| rule(Rule { bytes, ..RIGHT });
    let sharded_from = |sharded_from| {
        rule(Rule {
            sharded_from,
            ..RIGHT
        })
    };
    let activations = |activations: fn(&Job) -> u64| {
        rule(Rule {
            activations,
            ..RIGHT
        })
    };
    evidence.means_if(
        bytes([2, 0, 0]),
        "These are the parameters alone: enough to run the model, and not to train it. Gradients take 2 bytes each, and the \
         optimizer 12.",
    );
    evidence.means_if(
        bytes([2, 2, 8]),
        "The master copy is missing: the optimizer keeps two moments and an f32 copy of each parameter, 12 bytes together.",
    );
    evidence.means_if(
        bytes([2, 2, 0]),
        "The optimizer is missing, and with 12 bytes per parameter it is the largest part.",
    );
    evidence.means_if(
        bytes([2, 0, 12]),
        "The gradients are missing: 2 bytes per parameter.",
    );
    evidence.means_if(
        bytes([4, 4, 8]),
        "This is training in f32. The sum is 16 bytes as well, but more of them are parameters and gradients, which stage 1 \
         does not shard.",
    );
    evidence.means_if(
        sharded_from([1, 1, 1]),
        "Stage 1 shards only the optimizer's 12 bytes. Every rank still holds all parameters and all gradients.",
    );
    evidence.means_if(
        sharded_from([1, 2, 3]) || sharded_from([3, 1, 2]),
        "The order of the stages is different: the optimizer first, then the gradients, then the parameters.",
    );
    evidence.means_if(
        rule(Rule {
            stages: [0, 1, 2, 2],
            ..RIGHT
        }),
        "Stage 2 is not the last one. Stage 3 shards the parameters as well.",
    );
    evidence.means_if(
        rule(Rule {
            sharded_from: [9; 3],
            ..RIGHT
        }),
        "Every stage holds all 16 bytes here. On n ranks a shard is 1/n of them.",
    );
    evidence.means_if(
        rule(Rule {
            stages: [3, 2, 1, 0],
            ..RIGHT
        }),
        "This is the highest stage that fits. It sends the most: choose the lowest.",
    );
    evidence.means_if(
        rule(Rule { least: 0, ..RIGHT }),
        "The state fits with this stage, but no sequence does. A rank that can hold the model and cannot compute is of no use.",
    );
    evidence.means_if(
        rule(Rule { memory: |job| job.memory * job.ranks, ..RIGHT }),
        "The ranks' devices are no common pool: everything that a rank holds must fit on its own device.",
    );
    evidence.means_if(
        rule(Rule {
            memory: |_| 80_000_000_000,
            ..RIGHT
        }),
        "These GPUs have 40 GB: `job.memory`.",
    );
    evidence.means_if(
        activations(|job| (RIGHT.activations)(job) / job.ranks),
        "ZeRO does not shard activations. Each rank computes its own micro-batch, and holds all activations of it.",
    );
    evidence.means_if(
        activations(|job| job.blocks * whole_block(job)),
        "With recomputation a block keeps 2 bytes per token and unit of width, and not 34.",
    );
    evidence.means_if(
        activations(whole_block),
        "These are the activations of one block. The backward pass needs those of all blocks.",
    );
    evidence.means_if(
        activations(recomputed),
        "Blocks keep their inputs, and that is all in the forward pass. But the backward pass computes one block again at a \
         time, and then this block has all its 34 bytes.",
    );
    evidence.means_if(
        activations(|job| RIGHT.plan(job).map_or(1, |_| 2 * (RIGHT.activations)(job))),
        "The 34 are bytes already, and not numbers of 2 bytes.",
    );
    let more = |job: &Job| {
        RIGHT.plan(job).map(|plan| Plan {
            sequences: plan.sequences + 1,
            ..plan
        })
    };
    evidence.means_if(
        jobs.iter()
            .zip(&found)
            .all(|(job, got)| same(more(job), *got)),
        "One sequence too many: a part of a sequence does not fit. Round down.",
    );
    evidence.means_if(
        jobs.iter().zip(&found).any(|(job, got)| RIGHT.plan(job).is_none() && got.is_some()),
        "There is no room for one sequence with any stage, and a plan that does not fit ends in \"out of memory\".",
    );
    let state = |job: &Job, got: &Option<Plan>| {
        let stages = Rule {
            stages: [got.map_or(0, |plan| plan.stage); 4],
            least: 0,
            ..RIGHT
        };
        got.zip(stages.plan(job))
            .is_some_and(|(got, right)| !is_near(right.state as f64, got.state as f64))
    };
    evidence.means_if(
        jobs.iter().zip(&found).any(|(job, got)| state(job, got)),
        "The state of this stage is wrong. Count parameters, gradients and optimizer one by one: bytes per parameter, and \
         divided by the ranks if this stage shards it.",
    );
    evidence
        .means("Memory minus state is the room for activations. How many sequences fit into it?");
    Ok(())
}

fn said(plan: Option<Plan>) -> String {
    plan.map_or(
        "nothing fits".into(),
        |Plan {
             stage,
             state,
             sequences,
         }| {
            format!(
                "stage {stage}, state {}, {sequences} sequences",
                bytes_decimal(state as f64)
            )
        },
    )
}
