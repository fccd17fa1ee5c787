//! The check of lab04-memory: one GPU, many, few, recomputation, micro-batches, a large model, and
//! smaller GPUs.

use exercise::{Job, Plan, plan};
use kit::check::{Evidence, is_near, run};
use kit::show::bytes_decimal;
use shardlab::Result;
use shardlab::plan::{BytesEach, zero_memory, zero_traffic};
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
        batch: 128,
        recompute: false,
        memory: 80_000_000_000,
    }
}

const SMALL: Job = job(1.3, [24, 2048, 2048], 1);
const MIDDLE: Job = job(7.5, [32, 4096, 2048], 64);
/// Stage 2 leaves room for few sequences.
const TIGHT: Job = Job { recompute: true, ..job(30.0, [48, 7168, 2048], 64) };
const LARGE: Job = Job { recompute: true, batch: 8, ..job(70.0, [80, 8192, 8192], 64) };

fn main() -> ExitCode {
    run(&[
        ("1.3 billion parameters on 1 GPU", |evidence| plans(evidence, &[SMALL])),
        ("7.5 billion on 1 GPU: nothing fits", |evidence| {
            plans(evidence, &[Job { ranks: 1, ..MIDDLE }])
        }),
        ("7.5 billion on 64 GPUs", |evidence| plans(evidence, &[MIDDLE])),
        ("7.5 billion on 2 GPUs: room for a sequence", |evidence| {
            plans(evidence, &[Job { ranks: 2, ..MIDDLE }])
        }),
        ("with recomputation", |evidence| {
            plans(evidence, &[SMALL, MIDDLE].map(|job| Job { recompute: true, ..job }))
        }),
        ("70 billion parameters, 8,192 tokens", |evidence| {
            plans(evidence, &[LARGE, Job { ranks: 16, ..LARGE }])
        }),
        ("30 billion on 64 GPUs: what a step sends", |evidence| {
            plans(evidence, &[7, 64].map(|batch| Job { batch, ..TIGHT }))
        }),
        ("GPUs of 40 GB", |evidence| {
            plans(evidence, &[SMALL, MIDDLE].map(|job| Job { memory: 40_000_000_000, ..job }))
        }),
    ])
}

/// A way to plan, right or wrong.
#[derive(Clone, Copy)]
struct Rule {
    /// Bytes per parameter of parameters, gradients and optimizer, and from which stage on each is
    /// sharded.
    bytes: [u64; 3],
    sharded_from: [usize; 3],
    /// Bytes of the activations of one sequence.
    activations: fn(&Job) -> u64,
    memory: fn(&Job) -> u64,
    stages: [usize; 4],
    /// Sequences that must fit at least.
    least: u64,
    /// Sequences of one micro-batch, if so many fit.
    sequences: fn(&Job, u64) -> u64,
    /// The number of micro-batches: from the sequences of a step and of a micro-batch.
    micro_batches: fn(u64, u64) -> u64,
    /// Transfers of all parameters or gradients in a step: from the stage and the number of
    /// micro-batches.
    transfers: fn(usize, u64) -> u64,
    /// Bytes that a rank sends for so many transfers.
    sent: fn(&Job, u64) -> u64,
    /// What the chosen plan has least of.
    cost: fn(&Plan) -> u64,
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
    sequences: |job, fit| fit.min(job.batch),
    micro_batches: u64::div_ceil,
    transfers: |stage, micro_batches| match stage {
        0 | 1 => 2,
        2 => micro_batches + 1,
        _ => 3 * micro_batches,
    },
    sent: |job, transfers| transfers * 2 * job.parameters * (job.ranks - 1) / job.ranks,
    cost: |plan| plan.sent,
};

fn whole_block(job: &Job) -> u64 {
    34 * job.sequence * job.width
}

fn recomputed(job: &Job) -> u64 {
    2 * job.blocks * job.sequence * job.width
}

impl Rule {
    fn plan(&self, job: &Job) -> Option<Plan> {
        let fitting = self.stages.into_iter().filter_map(|stage| {
            let held = |(bytes, from): (u64, usize)| {
                (bytes * job.parameters).div_ceil(if stage >= from { job.ranks } else { 1 })
            };
            let state = self.bytes.into_iter().zip(self.sharded_from).map(held).sum();
            let fit = (self.memory)(job).checked_sub(state)? / (self.activations)(job);
            let sequences = (self.sequences)(job, fit);
            if sequences < self.least {
                return None;
            }
            let micro_batches = (self.micro_batches)(job.batch, sequences.max(1));
            Some(Plan {
                stage,
                state,
                sequences,
                sent: (self.sent)(job, (self.transfers)(stage, micro_batches)),
            })
        });
        fitting.min_by_key(self.cost)
    }
}

/// Whether two plans are the same, up to a byte here and there.
fn same(a: Option<Plan>, b: Option<Plan>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => {
            let near = |a: u64, b: u64| is_near(a as f64, b as f64);
            (a.stage, a.sequences) == (b.stage, b.sequences)
                && near(a.state, b.state)
                && near(a.sent, b.sent)
        }
        (a, b) => a == b,
    }
}

fn plans(evidence: &mut Evidence, jobs: &[Job]) -> Result<()> {
    let mut found = Vec::new();
    for job in jobs {
        let memory = bytes_decimal(job.memory as f64);
        let which = format!("{} billion, {} x {memory}", job.parameters as f64 / 1e9, job.ranks);
        evidence.given(format!("{which}, and {job:?}"));
        let state =
            |stage| zero_memory(stage, job.parameters, job.ranks, BytesEach::MIXED).iter().sum();
        let expected = RIGHT.plan(job).map(|plan| {
            let micro_batches = job.batch.div_ceil(plan.sequences);
            Plan {
                state: state(plan.stage),
                sent: zero_traffic(plan.stage, job.parameters, job.ranks, 2, micro_batches) as u64,
                ..plan
            }
        });
        let got = plan(job);
        evidence.row(same(expected, got), which, said(expected), said(got));
        found.push(got);
    }

    let rule = |rule: Rule| jobs.iter().zip(&found).all(|(job, got)| same(rule.plan(job), *got));
    let wrong_state = |job: &Job, got: &Option<Plan>| {
        got.is_some_and(|got| {
            let right: u64 =
                zero_memory(got.stage, job.parameters, job.ranks, BytesEach::MIXED).iter().sum();
            !is_near(right as f64, got.state as f64)
        })
    };
    // Only where each state is that of its stage: otherwise the same stage may be chosen for
    // another reason.
    let states = !jobs.iter().zip(&found).any(|(job, got)| wrong_state(job, got));
    let transfers = |transfers: fn(usize, u64) -> u64| states && rule(Rule { transfers, ..RIGHT });
    let sent = |sent: fn(&Job, u64) -> u64| states && rule(Rule { sent, ..RIGHT });
    evidence.means_if(
        rule(Rule {
            cost: |plan| plan.stage as u64,
            ..RIGHT
        }),
        "This is the lowest stage that fits, and it does not send least. Stage 2 has little room here, so a step has many small \
         micro-batches, and each of them reduces all gradients. What would a step of stage 3 send, with the room that it has?",
    );
    evidence.means_if(
        transfers(|stage, _| if stage == 3 { 3 } else { 2 }),
        "These are the bytes of a step with one micro-batch. From stage 2 on, a rank has no room for whole gradients, so the ranks \
         reduce them in every micro-batch, and in stage 3 they also gather in every one.",
    );
    evidence.means_if(
        transfers(|stage, micro| if stage == 2 { 2 * micro } else if stage == 3 { 3 * micro } else { 2 }),
        if rule(Rule { sharded_from: [3, 3, 1], ..RIGHT }) {
            "Stage 2 gathers the parameters once per step, after the optimizer: only its gradients are sent in every micro-batch. \
             And it shards the gradients, so a sequence fits."
        } else {
            "Stage 2 gathers the parameters once per step, after the optimizer: only its gradients are sent in every micro-batch."
        },
    );
    evidence.means_if(
        transfers(|stage, micro| micro * if stage == 3 { 3 } else { 2 })
            || transfers(|stage, micro| match stage {
                0 | 1 => 2 * micro,
                2 => micro + 1,
                _ => 3 * micro,
            }),
        "Every micro-batch is counted as a whole step here. Stages 0 and 1 have room for whole gradients: they add them up on the \
         rank, and communicate once per step.",
    );
    evidence.means_if(
        transfers(|stage, micro| if stage == 3 { 2 * micro + 1 } else if stage == 2 { micro + 1 } else { 2 }),
        "Stage 3 keeps slices of the gradients. So the ranks reduce them in every micro-batch, and do not only gather.",
    );
    evidence.means_if(
        states && rule(Rule { micro_batches: |batch, sequences| batch / sequences, ..RIGHT }),
        "The number of micro-batches is rounded down here, so the sequences that are left over are never trained. They make one more \
         micro-batch, a smaller one.",
    );
    evidence.means_if(
        transfers(|stage, micro| if stage == 3 { 3 } else if stage == 2 { micro + 1 } else { 2 }),
        "Stage 3 is counted as if a step had one micro-batch. A rank drops the gathered parameters after each pass, so every \
         micro-batch gathers twice and reduces once.",
    );
    evidence.means_if(
        sent(|job, transfers| transfers * 2 * job.parameters),
        "A rank does not send its own slice to itself: each transfer is (n-1)/n of all numbers. On one GPU nothing is sent.",
    );
    evidence.means_if(
        sent(|job, transfers| transfers * job.parameters * (job.ranks - 1) / job.ranks),
        "These are numbers, and each is sent in 2 bytes.",
    );
    evidence.means_if(
        sent(|job, transfers| transfers * 4 * job.parameters * (job.ranks - 1) / job.ranks),
        "These are 4 bytes per number. In mixed precision, gradients and parameters have 2.",
    );
    evidence.means_if(
        sent(|_, _| 0) && jobs.iter().any(|job| job.ranks > 1),
        "Nothing is sent here: then the ranks would train as many different models.",
    );
    evidence.means_if(
        rule(Rule { sequences: |_, fit| fit, ..RIGHT }),
        "More sequences fit than a rank has in one step: a micro-batch has at most all of them.",
    );
    evidence.means_if(
        rule(Rule {
            sequences: |job, fit| {
                let fit = fit.min(job.batch).max(1);
                (1..=fit).rev().find(|k| job.batch.is_multiple_of(*k)).unwrap_or(1)
            },
            ..RIGHT
        }),
        "Here the micro-batches are all equally large. The last one may be smaller: take as many sequences as fit.",
    );
    let bytes = |bytes| rule(Rule { bytes, ..RIGHT });
    let sharded_from = |sharded_from| rule(Rule { sharded_from, ..RIGHT });
    let activations = |activations: fn(&Job) -> u64| rule(Rule { activations, ..RIGHT });
    evidence.means_if(
        bytes([2, 0, 0]),
        "These are only the parameters: enough to run the model, and not to train it. Gradients take 2 bytes each, and the \
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
    evidence.means_if(bytes([2, 0, 12]), "The gradients are missing: 2 bytes per parameter.");
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
        if rule(Rule { cost: |plan| plan.state, ..RIGHT }) {
            "The order of the stages is different: the optimizer first, then the gradients, then the parameters. Or is this the plan \
             that leaves most room? Of those that fit the one that sends least is asked for."
        } else {
            "The order of the stages is different: the optimizer first, then the gradients, then the parameters."
        },
    );
    evidence.means_if(
        rule(Rule { stages: [0, 1, 2, 2], ..RIGHT }),
        "Stage 2 is not the last one. Stage 3 shards the parameters as well.",
    );
    evidence.means_if(
        rule(Rule { sharded_from: [9; 3], ..RIGHT }),
        "Every stage holds all 16 bytes here. On n ranks a shard is 1/n of them.",
    );
    evidence.means_if(
        rule(Rule {
            cost: |plan| 3 - plan.stage as u64,
            ..RIGHT
        }) || rule(Rule {
            stages: [3, 2, 1, 0],
            ..RIGHT
        }),
        if jobs.iter().all(|job| job.ranks == 1) {
            "This is the highest stage that fits. On one GPU all of them send 0 B: take the lower one."
        } else {
            "This is the highest stage that fits. A lower one fits as well, and sends no more."
        },
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
        rule(Rule { memory: |_| 80_000_000_000, ..RIGHT }),
        "These GPUs have 40 GB: `job.memory`.",
    );
    let recomputing = jobs.iter().any(|job| job.recompute);
    evidence.means_if(
        recomputing
            && activations(|job| {
                if job.recompute {
                    36 * job.sequence * job.width
                } else {
                    (RIGHT.activations)(job)
                }
            }),
        "These are one block's input and its 34 bytes. One block at a time is computed again, but for that every block has kept \
         its input.",
    );
    evidence.means_if(
        recomputing
            && activations(|job| {
                if job.recompute {
                    36 * job.blocks * job.sequence * job.width
                } else {
                    (RIGHT.activations)(job)
                }
            }),
        "Here all blocks have their 34 bytes at once, and their inputs besides: more than without recomputation. A block's 34 bytes \
         are there only while its own backward pass runs.",
    );
    evidence.means_if(
        recomputing
            && activations(|job| {
                if job.recompute {
                    recomputed(job) + whole_block(job) - 2 * job.sequence * job.width
                } else {
                    (RIGHT.activations)(job)
                }
            }),
        "The block that is computed again is counted without its input. It is kept like that of every other block, beside the 34 bytes.",
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
    let more =
        |job: &Job| RIGHT.plan(job).map(|plan| Plan { sequences: plan.sequences + 1, ..plan });
    evidence.means_if(
        jobs.iter().zip(&found).all(|(job, got)| same(more(job), *got)),
        "One sequence too many: a part of a sequence does not fit. Round down.",
    );
    evidence.means_if(
        jobs.iter().zip(&found).any(|(job, got)| RIGHT.plan(job).is_none() && got.is_some()),
        "There is no room for one sequence with any stage, and a plan that does not fit ends in \"out of memory\".",
    );
    evidence.means_if(
        jobs.iter().zip(&found).any(|(job, got)| wrong_state(job, got)),
        "The state of this stage is wrong. Count parameters, gradients and optimizer one by one: bytes per parameter, and \
         divided by the ranks if this stage shards it.",
    );
    let room = |job: &Job, got: &Option<Plan>| match (RIGHT.plan(job), got) {
        (Some(right), Some(got)) => (right.stage, right.sequences) != (got.stage, got.sequences),
        (right, got) => right.is_some() != got.is_some(),
    };
    evidence.means_if(
        jobs.iter().zip(&found).any(|(job, got)| room(job, got)),
        "Memory minus state is the room for activations. How many sequences fit into it, stage by stage, and how many micro-batches \
         does a step have then?",
    );
    evidence.means(
        "The bytes that a rank sends are wrong. How often does a step of this stage reduce all gradients and gather all parameters, \
         with this number of micro-batches? The page says it for one, and then for m.",
    );
    Ok(())
}

fn said(plan: Option<Plan>) -> String {
    plan.map_or("nothing fits".into(), |Plan { stage, state, sequences, sent }| {
        format!(
            "stage {stage}, state {}, {sequences} sequence{}, sends {}",
            bytes_decimal(state as f64),
            if sequences == 1 { "" } else { "s" },
            bytes_decimal(sent as f64)
        )
    })
}
