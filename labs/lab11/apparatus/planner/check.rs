//! Whether a job can use a strategy. If not: every reason, and what to do.

use super::super::strategy::{Degrees, Load, Offloaded, Program, Recompute, Strategy, TrainingJob};
use shardlab::units::bytes_decimal;

/// The subject of a refusal. A search counts its refusals by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalKind {
    Devices,
    Heads,
    Layers,
    Batch,
    Schedule,
    Program,
    Useless,
    Memory,
}

impl RefusalKind {
    /// In a table of a search.
    pub fn words(self) -> &'static str {
        match self {
            RefusalKind::Devices => "with a different number of devices",
            RefusalKind::Heads => "where tp does not divide heads, MLP or sequence",
            RefusalKind::Layers => "with more stages than layers",
            RefusalKind::Batch => "where dp x mb does not divide the batch",
            RefusalKind::Schedule => "with too few micro-batches to interleave",
            RefusalKind::Program => "that the program does not have",
            RefusalKind::Useless => "that change nothing",
            RefusalKind::Memory => "that do not fit",
        }
    }
}

/// Why a job cannot use a strategy, and what to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub kind: RefusalKind,
    pub what: String,
    pub help: String,
}

/// The divisors of `n` that are closest to `near`.
fn divisors(n: usize, near: usize) -> String {
    let all = (1..=n).filter(|d| n.is_multiple_of(*d));
    let (below, above): (Vec<usize>, Vec<usize>) = all.partition(|&d| d < near);
    let closest: Vec<String> =
        below.last().into_iter().chain(above.first()).map(usize::to_string).collect();
    closest.join(" or ")
}

/// What a strategy must not do. A search asks thousands of times whether it is broken, and once for
/// the words.
struct Rule {
    kind: RefusalKind,
    broken: bool,
    /// What is wrong, and what to do.
    words: fn(&TrainingJob, &Strategy) -> (String, String),
}

/// All rules but memory.
fn rules(job: &TrainingJob, s: &Strategy) -> [Rule; 20] {
    let model = &job.model;
    let rule = |kind, broken, words| Rule { kind, broken, words };
    let heads = model.heads.is_multiple_of(s.tensor);
    let stages = s.pipeline * s.chunks;
    // A stage without layers can only have the token table, or the head.
    let longest = model.layers.div_ceil(stages);
    let empty = longest == 1 && stages > model.layers + 2;
    let sequences = s.data * s.sequences();
    let divides = job.batch.is_multiple_of(sequences);
    let groups = s.micro_batches_of(job.batch).is_multiple_of(s.pipeline);
    let program = job.program;
    [
        rule(RefusalKind::Devices, s.ranks() != job.devices, devices),
        rule(RefusalKind::Heads, !heads, query_heads),
        rule(
            RefusalKind::Heads,
            heads && !model.kv_heads().is_multiple_of(s.tensor),
            kv_heads,
        ),
        rule(RefusalKind::Layers, s.pipeline == 1 && s.chunks > 1, |_, s| {
            let chunks = s.chunks;
            let what = format!(
                "{chunks} chunks on a pipeline of 1 rank follow each other on the same rank"
            );
            (what, "give pp=2 or more, or chunks=1".into())
        }),
        rule(RefusalKind::Layers, s.pipeline > 1 && empty, |job, s| {
            let layers = job.model.layers;
            let what = format!(
                "pp {} x {} chunks = {} stages for {layers} layers, a token table and a head",
                s.pipeline,
                s.chunks,
                s.pipeline * s.chunks
            );
            (what, format!("give pp x chunks = {} at most", layers + 2))
        }),
        rule(RefusalKind::Batch, !divides, |job, s| {
            let sequences = s.data * s.sequences();
            let what = format!(
                "dp {} x mb {} = {sequences} sequences do not divide a batch of {}",
                s.data,
                s.sequences(),
                job.batch
            );
            let help = format!("give --batch {}", job.batch.next_multiple_of(sequences));
            (what, help)
        }),
        rule(RefusalKind::Schedule, divides && s.chunks > 1 && !groups, |job, s| {
            let m = s.micro_batches_of(job.batch);
            let what = format!(
                "{m} micro-batches are no multiple of pp {}, and interleaved stages work in groups of it",
                s.pipeline
            );
            (what, "give chunks=1, or a batch with more sequences".into())
        }),
        rule(
            RefusalKind::Program,
            s.pipeline > 1 && s.zero.number() > program.most_zero_in_a_pipeline(),
            |job, s| {
                let program = job.program;
                let what =
                    format!("{} has no ZeRO-{} in a pipeline", program.words(), s.zero.number());
                let help = format!("give zero={} at most", program.most_zero_in_a_pipeline());
                (what, help)
            },
        ),
        rule(
            RefusalKind::Program,
            !program.recomputes_parts()
                && !matches!(s.recompute, Recompute::None | Recompute::Full),
            |job, s| {
                let what = format!("{} has no recompute={}", job.program.words(), s.recompute);
                (what, "give recompute=none or full, or another --program".into())
            },
        ),
        rule(RefusalKind::Program, s.replicas > 1 && program == Program::Shardlab, |_, _| {
            let what = "this library divides among all data ranks, or none".into();
            (what, "leave shard out, or give another --program".into())
        }),
        rule(RefusalKind::Useless, s.replicas > 1 && s.zero.number() == 0, |_, _| {
            let what = "groups of data ranks divide nothing without ZeRO".into();
            (what, "give zero=3, or leave shard out".into())
        }),
        rule(RefusalKind::Useless, s.sequence && s.tensor == 1, |_, _| {
            let what = "sp without tensor ranks".into();
            (what, "give tp=2 or more, or leave sp out".into())
        }),
        rule(
            RefusalKind::Useless,
            s.zero.number() > 0 && s.shard() == 1 && s.offload == Offloaded::None,
            |_, _| {
                let what = "ZeRO divides among data ranks, and a group of them has one".into();
                (what, "give zero=0, or dp=2 or more".into())
            },
        ),
        rule(
            RefusalKind::Useless,
            s.recompute == Recompute::Selective && job.flash,
            |_, _| {
                let what = "FlashAttention keeps no scores to recompute".into();
                (what, "give recompute=none, or recompute=norms".into())
            },
        ),
        rule(
            RefusalKind::Useless,
            s.offload == Offloaded::Parameters && s.zero.number() < 3,
            |_, _| {
                let what = "only ZeRO-3 can use a layer's parameters and let them go".into();
                (what, "give zero=3, or offload=optimizer".into())
            },
        ),
        rule(RefusalKind::Useless, s.nvme && s.offload == Offloaded::None, |_, _| {
            let what = "nothing is offloaded to NVMe".into();
            (what, "give offload=optimizer, or leave nvme out".into())
        }),
        rule(
            RefusalKind::Program,
            s.pipeline > 1 && (s.offload == Offloaded::Parameters || s.tiles > 1),
            |_, _| {
                let what =
                    "offloaded parameters and tiles are known without a pipeline only".into();
                (what, "give pp=1, or leave offload=parameters and tiles out".into())
            },
        ),
        rule(RefusalKind::Heads, !model.ffn().is_multiple_of(s.tensor), |job, s| {
            let ffn = job.model.ffn();
            let what = format!("tp {} does not divide the MLP's width of {ffn}", s.tensor);
            (what, format!("give tp={}", divisors(ffn, s.tensor)))
        }),
        rule(
            RefusalKind::Heads,
            s.sequence && !model.block.is_multiple_of(s.tensor),
            |job, s| {
                let block = job.model.block;
                let what =
                    format!("sp: tp {} does not divide sequences of {block} tokens", s.tensor);
                (what, "leave sp out, or give another --seq".into())
            },
        ),
        rule(RefusalKind::Useless, s.tiles > 1 && s.zero.number() < 3, |_, _| {
            let what = "tiles divide the layers that ZeRO-3 gathers".into();
            (what, "give zero=3, or leave tiles out".into())
        }),
    ]
}

fn devices(job: &TrainingJob, s: &Strategy) -> (String, String) {
    let what = format!(
        "dp {} x tp {} x pp {} = {} devices, not {}",
        s.data,
        s.tensor,
        s.pipeline,
        s.ranks(),
        job.devices
    );
    let rest = job.devices / (s.tensor * s.pipeline).max(1);
    let help = if s.tensor * s.pipeline * rest == job.devices && rest > 0 {
        format!("dp={rest} uses all {} devices", job.devices)
    } else {
        format!(
            "tp x pp must divide {}: {}",
            job.devices,
            divisors(job.devices, s.tensor * s.pipeline)
        )
    };
    (what, help)
}

fn query_heads(job: &TrainingJob, s: &Strategy) -> (String, String) {
    let what = format!(
        "tp {} does not divide {} heads: a rank computes whole heads",
        s.tensor, job.model.heads
    );
    (what, format!("give tp={}", divisors(job.model.heads, s.tensor)))
}

fn kv_heads(job: &TrainingJob, s: &Strategy) -> (String, String) {
    let heads = job.model.kv_heads();
    let what = format!("tp {} does not divide {heads} key and value heads", s.tensor);
    let help = format!(
        "give tp={}; Megatron-LM would copy heads to several ranks",
        divisors(heads, s.tensor)
    );
    (what, help)
}

/// Every reason against `strategy` but memory.
pub fn refusals(job: &TrainingJob, strategy: &Strategy) -> Vec<Refusal> {
    let broken = rules(job, strategy).into_iter().filter(|rule| rule.broken);
    let refusal = |rule: Rule| {
        let (what, help) = (rule.words)(job, strategy);
        Refusal { kind: rule.kind, what, help }
    };
    broken.map(refusal).collect()
}

/// The kind of the first of [`refusals`].
pub fn refused(job: &TrainingJob, strategy: &Strategy) -> Option<RefusalKind> {
    let broken = rules(job, strategy).into_iter().find(|rule| rule.broken);
    broken.map(|rule| rule.kind)
}

/// Whether a plan takes at most what a device, its host and its disks have.
pub fn fits(job: &TrainingJob, load: &Load) -> bool {
    let device = &job.cluster.device;
    load.total() <= device.room() && load.host <= device.host_memory && load.disk <= device.disk
}

/// The refusal of a plan that takes more than a device, its host or its disks have.
pub fn too_large(job: &TrainingJob, strategy: &Strategy, load: &Load) -> Option<Refusal> {
    if fits(job, load) {
        return None;
    }
    let device = &job.cluster.device;
    let refusal = |what, help: String| Some(Refusal { kind: RefusalKind::Memory, what, help });
    let room = device.room();
    if load.total() > room {
        let what = format!(
            "a rank takes {} of {} ({} is left free)",
            bytes_decimal(load.total()),
            bytes_decimal(room),
            bytes_decimal(device.memory - room)
        );
        return refusal(what, smaller(strategy, load, room));
    }
    let (away, has, place) = if load.host > device.host_memory {
        (load.host, device.host_memory, "its host's memory")
    } else {
        (load.disk, device.disk, "its host's disks")
    };
    let what = format!("a rank keeps {} in {} of {place}", bytes_decimal(away), bytes_decimal(has));
    let help = if strategy.nvme || device.disk == 0.0 {
        "give more devices"
    } else {
        "give more devices, or nvme"
    };
    refusal(what, help.into())
}

/// What makes the largest part of a load smaller, of all that the strategy does not do yet. If the
/// state alone has no room, smaller activations are no help, and its largest part counts.
fn smaller(s: &Strategy, load: &Load, room: f64) -> String {
    let shared = s.data > 1;
    let layers = s.pipeline == 1 && shared;
    let again = !matches!(s.recompute, Recompute::Full);
    let alone = s.ranks() == 1 && s.offload < Offloaded::Parameters;
    let to_host = match s.zero.number() {
        3 => "offload=parameters",
        _ => "zero=3 with offload=parameters",
    };
    let parts = [
        (
            load.weights,
            "weights",
            [
                (layers && s.zero.number() < 3, "zero=3"),
                (s.zero.number() == 3 && s.replicas > 1, "larger groups"),
                (shared, "more tp or pp"),
                (alone, to_host),
            ],
        ),
        (
            load.gradients,
            "gradients",
            [
                (layers && s.zero.number() < 2, "zero=2"),
                (s.zero.number() >= 2 && s.replicas > 1, "larger groups"),
                (shared, "more tp or pp"),
                (alone, to_host),
            ],
        ),
        (
            load.optimizer,
            "the optimizer",
            [
                (shared && s.zero.number() == 0, "zero=1"),
                (s.zero.number() > 0 && s.replicas > 1, "larger groups"),
                (s.offload == Offloaded::None, "offload=optimizer"),
                (false, ""),
            ],
        ),
        (
            load.activations,
            "activations",
            [
                (s.sequences() > 1, "a smaller mb"),
                (s.tensor > 1 && !s.sequence, "sp"),
                (again, "recompute=full"),
                (shared, "more tp"),
            ],
        ),
        (
            load.working,
            "gathered and recomputed layers, or copies of logits",
            [
                (s.sequences() > 1, "a smaller mb"),
                (s.zero.number() == 3, "more tiles"),
                (shared, "more tp"),
                (false, ""),
            ],
        ),
    ];
    let state = load.weights + load.gradients + load.optimizer;
    let largest = load.weights.max(load.gradients).max(load.optimizer);
    let beside_state = load.activations.max(load.working) > largest && state > room;
    let counted = if beside_state { 3 } else { parts.len() }; // the state's three come first
    let most = parts.into_iter().take(counted);
    let Some((_, name, ways)) = most.max_by(|a, b| a.0.total_cmp(&b.0)) else {
        return String::new();
    };
    let ways: Vec<&str> =
        ways.into_iter().filter_map(|(helps, way)| helps.then_some(way)).collect();
    let most = if beside_state {
        let state = bytes_decimal(state);
        format!("without activations it takes {state}, and most are {name}")
    } else {
        format!("most are {name}")
    };
    match ways.is_empty() {
        true => format!("{most}: give more devices"),
        false => format!("{most}: {}", ways.join(", or ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apparatus::strategy::{Cluster, Device};
    use shardlab::plan::{Dense, Family, ModelShape};

    fn job() -> TrainingJob {
        let cluster = Cluster::new(Device::named("a100-80g").unwrap(), "dgx-a100").unwrap();
        TrainingJob {
            batch: 64,
            flash: false,
            ..TrainingJob::new(ModelShape::gpt2(48, 6144, 64, 51_200, 2048), cluster, 48)
        }
    }

    #[track_caller]
    fn refused(plan: &str, kind: RefusalKind, what: &str, help: &str) {
        let all = refusals(&job(), &plan.parse().unwrap());
        let found = all
            .iter()
            .find(|refusal| refusal.kind == kind)
            .unwrap_or_else(|| panic!("{plan}: {all:?}"));
        assert!(found.what.contains(what) && found.help.contains(help), "{found:?}");
    }

    /// Smaller activations are no help where the state alone does not fit, although they are the
    /// largest part.
    #[test]
    fn the_part_that_has_to_shrink_is_named() {
        let help = |weights: f64, gradients: f64| {
            let load = Load { weights, gradients, activations: 60e9, ..Load::default() };
            let plan = "dp=48,mb=4,zero=1".parse().unwrap();
            too_large(&job(), &plan, &load).unwrap().help
        };
        assert_eq!(
            help(30e9, 50e9),
            "without activations it takes 80.0 GB, and most are gradients: zero=2, or more tp or pp"
        );
        let help = help(10e9, 20e9);
        assert!(help.starts_with("most are activations: a smaller mb"), "{help}");
    }

    #[test]
    fn each_mistake_is_explained() {
        refused(
            "dp=8,tp=3,pp=2",
            RefusalKind::Heads,
            "tp 3 does not divide 64 heads",
            "tp=2 or 4",
        );
        refused(
            "dp=4,tp=2,pp=2",
            RefusalKind::Devices,
            "= 16 devices, not 48",
            "dp=12 uses all 48",
        );
        refused("tp=5", RefusalKind::Devices, "not 48", "tp x pp must divide 48: 4 or 6");
        refused(
            "dp=2,tp=2,pp=12,chunks=5",
            RefusalKind::Layers,
            "60 stages for 48 layers",
            "50 at most",
        );
        refused("dp=48,chunks=2", RefusalKind::Layers, "follow each other", "pp=2");
        refused(
            "dp=48",
            RefusalKind::Batch,
            "48 sequences do not divide a batch of 64",
            "--batch 96",
        );
        refused(
            "dp=4,tp=2,pp=6,chunks=2",
            RefusalKind::Schedule,
            "16 micro-batches are no multiple of pp 6",
            "chunks=1",
        );
        refused(
            "dp=4,tp=2,pp=6,zero=3",
            RefusalKind::Program,
            "Megatron-LM has no ZeRO-3 in a pipeline",
            "zero=2 at most",
        );
        refused("dp=48,sp", RefusalKind::Useless, "without tensor ranks", "tp=2");
        refused("tp=8,pp=6,zero=1", RefusalKind::Useless, "has one", "zero=0");
        refused("dp=48,zero=1,offload=parameters", RefusalKind::Useless, "only ZeRO-3", "zero=3");
        refused(
            "dp=48,zero=3,shard=1",
            RefusalKind::Useless,
            "a group of them has one",
            "zero=0",
        );
        let pytorch = TrainingJob { program: Program::Pytorch, ..job() };
        let pipeline = refusals(&pytorch, &"dp=8,pp=6,zero=3,offload=parameters".parse().unwrap());
        assert!(pipeline[0].what.contains("without a pipeline only"));
        refused(
            "dp=8,tp=6,nvme",
            RefusalKind::Useless,
            "nothing is offloaded",
            "offload=optimizer",
        );
        assert_eq!(refusals(&job(), &"dp=4,tp=2,pp=6,zero=1".parse().unwrap()), []);
    }

    /// Ranks that share heads share the MLP and, with sp, sequences.
    #[test]
    fn tensor_ranks_divide_all_that_they_share() {
        let mut job = job();
        job.model.block = 2047;
        let of = |job: &TrainingJob, plan: &str| refusals(job, &plan.parse().unwrap());
        assert_eq!(of(&job, "dp=8,tp=2,pp=3"), []);
        let odd = of(&job, "dp=8,tp=2,pp=3,sp");
        assert!(odd[0].what.contains("sequences of 2047 tokens"), "{odd:?}");
        job.model.family = Family::Dense(Dense::llama(64, 96, 1001));
        let odd = of(&job, "dp=8,tp=2,pp=3");
        assert!(odd[0].what.contains("the MLP's width of 1001"), "{odd:?}");
    }

    #[test]
    fn what_does_not_fit_says_what_takes_most() {
        let job = job();
        let of = |plan: &str| {
            let strategy = plan.parse().unwrap();
            too_large(&job, &strategy, &job.load(&strategy))
        };
        let whole = of("dp=48,mb=1").unwrap();
        assert!(whole.what.contains("of 76.4 GB") && whole.help.contains("zero=1"), "{whole:?}");
        assert!(
            of("dp=48,zero=3,mb=1").unwrap().help.contains("recompute"),
            "{:?}",
            of("dp=48,zero=3")
        );
        assert_eq!(of("dp=4,tp=2,pp=6,zero=1,recompute=full"), None);
    }

    /// Every strategy that a search would try on a small device, and some that it would not.
    #[test]
    fn help_never_advises_what_is_on() {
        let mut job = job();
        job.cluster.device.memory = 1e9;
        let mut asked = 0;
        for plan in ["dp=48", "dp=6,tp=8", "dp=2,tp=4,pp=6", "tp=8,pp=6"] {
            for more in ["", ",zero=1", ",zero=2", ",zero=3", ",zero=3,shard=2"] {
                for again in ["", ",recompute=full", ",recompute=norms"] {
                    for rest in ["", ",mb=4", ",sp", ",offload=optimizer", ",tiles=4"] {
                        let Ok(s) = format!("{plan}{more}{again}{rest}").parse::<Strategy>() else {
                            continue;
                        };
                        for part in 0..5 {
                            let mut bytes = [1.0; 5];
                            bytes[part] = 1e12;
                            let [weights, gradients, optimizer, activations, working] = bytes;
                            let load = Load {
                                weights,
                                gradients,
                                optimizer,
                                activations,
                                working,
                                ..Load::default()
                            };
                            let help = too_large(&job, &s, &load).unwrap().help;
                            let (_, ways) = help.split_once(": ").unwrap();
                            asked += 1;
                            for (on, way) in [
                                (s.zero.number() >= 3, "zero=3"),
                                (s.zero.number() >= 2, "zero=2"),
                                (s.zero.number() >= 1, "zero=1"),
                                (s.sequence || s.tensor == 1, "sp"),
                                (s.recompute == Recompute::Full, "recompute"),
                                (s.sequences() == 1, "mb"),
                                (s.offload >= Offloaded::Optimizer, "offload=optimizer"),
                                (s.data == 1, "more tp"),
                            ] {
                                assert!(!(on && ways.contains(way)), "{s}: {help}");
                            }
                        }
                    }
                }
            }
        }
        assert!(asked > 1000, "{asked}");
    }
}
