//! Whether a job can use a strategy. If not: why, and what to do.

use crate::{Degrees, Load, Offloaded, Program, Recompute, Stage, Strategy, TrainingJob};
use shapes::error::BadInput;
use shapes::strategy::ensure_context;
use shapes::units::bytes_decimal;

/// Why a job cannot use a strategy, and what to do.
fn because(what: impl Into<String>, help: impl Into<String>) -> Option<BadInput> {
    Some(BadInput::new(what, help))
}

/// The first reason against a strategy, with a help that no later reason refuses: it names the
/// nearest strategy that the job can use.
pub fn explained(job: &TrainingJob, s: &Strategy) -> Option<BadInput> {
    let BadInput { what, help } = refusal(job, s)?;
    let Some(near) = nearest(job, s) else {
        return because(what, help);
    };
    // Another batch may be all that a strategy of all devices needs.
    if s.ranks() == job.devices {
        let group = s.data * s.sequences() * if s.chunks > 1 { s.pipeline } else { 1 };
        let batch = job.batch.next_multiple_of(group);
        let larger = TrainingJob { batch, ..job.clone() };
        if refusal(&larger, s).is_none() {
            return because(what, format!("give --batch {batch}, or --plan {near}"));
        }
    }
    if near == (Strategy { data: near.data, ..*s }) {
        let devices = job.devices;
        return because(what, format!("dp={} uses all {devices} devices: {near}", near.data));
    }
    because(what, format!("{help}; the nearest that this job can use: {near}"))
}

/// The nearest strategy that the job can use: with other degrees, or else with fewer settings.
fn nearest(job: &TrainingJob, s: &Strategy) -> Option<Strategy> {
    let fewer = Strategy { chunks: 1, micro_batch: None, sequence: false, ..*s };
    let plain = Strategy { data: s.data, zero: Stage::One, ..Strategy::SINGLE };
    [*s, fewer, plain].iter().find_map(|settings| nearest_with(job, s, settings))
}

fn nearest_with(job: &TrainingJob, s: &Strategy, settings: &Strategy) -> Option<Strategy> {
    let ratio = |a: usize, b: usize| (a as f64 / b as f64).ln().abs();
    let mut best: Option<(f64, Strategy)> = None;
    for [tensor, pipeline, context] in degrees(job.devices, s.context > 1) {
        let data = job.devices / (tensor * pipeline * context);
        let far = ratio(tensor, s.tensor) + ratio(pipeline, s.pipeline);
        let far = far + ratio(context, s.context) + 0.01 * ratio(data, s.data);
        // Groups of data ranks keep their size.
        let shard = if settings.replicas > 1 {
            settings.shard_ranks()
        } else {
            data * context
        };
        let replicas = (data * context) / shard;
        let strategy = Strategy { data, tensor, pipeline, context, replicas, ..*settings };
        let nearer = best.is_none_or(|(least, _)| far < least);
        if nearer && replicas * shard == data * context && refusal(job, &strategy).is_none() {
            best = Some((far, strategy));
        }
    }
    best.map(|(_, strategy)| strategy)
}

/// All numbers of tensor ranks, stages and context ranks whose product divides `devices`.
fn degrees(devices: usize, shares: bool) -> Vec<[usize; 3]> {
    let mut all = Vec::new();
    for tensor in divisors(devices) {
        for pipeline in divisors(devices / tensor) {
            let most = if shares { devices / tensor / pipeline } else { 1 };
            all.extend(divisors(most).map(|context| [tensor, pipeline, context]));
        }
    }
    all
}

/// All numbers that divide `n`.
pub(crate) fn divisors(n: usize) -> impl Iterator<Item = usize> {
    (1..=n).filter(move |d| n.is_multiple_of(*d))
}

/// The first reason against a strategy, unless its memory is one.
pub fn refusal(job: &TrainingJob, s: &Strategy) -> Option<BadInput> {
    undivided(job, s)
        .or_else(|| batch(job, s))
        .or_else(|| program(job.program, s))
        .or_else(|| meaningless(s))
}

/// Whether the strategy's degrees divide devices, heads, MLP and layers.
pub fn undivided(job: &TrainingJob, s: &Strategy) -> Option<BadInput> {
    let model = &job.model;
    let Strategy { data, tensor, pipeline, context, chunks, .. } = *s;
    if s.ranks() != job.devices {
        let devices = job.devices;
        let ranks = s.ranks();
        let shared = if context > 1 {
            format!(" x cp {context}")
        } else {
            String::new()
        };
        let what = format!(
            "dp {data} x tp {tensor} x pp {pipeline}{shared} = {ranks} devices, not {devices}"
        );
        let axes = if context > 1 { "tp x pp x cp" } else { "tp x pp" };
        return because(what, format!("{axes} must divide {devices}"));
    }
    for (what, number) in [
        ("query heads: a rank computes whole heads", model.heads),
        ("key and value heads: a rank computes whole heads", model.kv_heads()),
        ("numbers of the MLP's width", model.ffn()),
    ] {
        if !number.is_multiple_of(tensor) {
            let what = format!("tp {tensor} does not divide {number} {what}");
            return because(what, format!("tp must divide {number}"));
        }
    }
    let comm = (s.exchange, s.slicing);
    if let Err(error) = ensure_context(model, (context, tensor), comm, false) {
        return because(error.what, error.help.replace("`block`", "--seq").replace('`', ""));
    }
    if pipeline == 1 && chunks > 1 {
        let what = format!("{chunks} chunks on a pipeline of 1 rank follow each other there");
        return because(what, "give pp=2 or more, or chunks=1");
    }
    // A stage without layers can only have the token table, or the head.
    let layers = model.layers;
    let stages = pipeline * chunks;
    if stages > layers + 2 {
        let what = format!(
            "pp {pipeline} x {chunks} chunks = {stages} stages for {layers} layers, a token table and a head"
        );
        return because(what, format!("give pp x chunks = {} at most", layers + 2));
    }
    None
}

/// Whether data ranks, tensor ranks and stages can share the sequences of a step.
fn batch(job: &TrainingJob, s: &Strategy) -> Option<BadInput> {
    let block = job.model.block;
    let here = block / s.context;
    if s.sequence && !here.is_multiple_of(s.tensor) {
        let what = format!("sp: tp {} does not divide sequences of {here} tokens", s.tensor);
        return because(what, "leave sp out, or give another --seq");
    }
    let sequences = s.data * s.sequences();
    if !job.batch.is_multiple_of(sequences) {
        let what = format!(
            "dp {} x mb {} = {sequences} sequences do not divide a batch of {}",
            s.data,
            s.sequences(),
            job.batch
        );
        let help = format!("give --batch {}", job.batch.next_multiple_of(sequences));
        return because(what, help);
    }
    let m = s.micro_batches_of(job.batch);
    if s.chunks > 1 && !m.is_multiple_of(s.pipeline) {
        let what = format!(
            "{m} micro-batches are no multiple of pp {}, and interleaved stages work in groups of it",
            s.pipeline
        );
        return because(what, "give chunks=1, or a batch with more sequences");
    }
    None
}

/// Whether the program has what the strategy asks for.
fn program(program: Program, s: &Strategy) -> Option<BadInput> {
    let name = program.words();
    let most = program.most_zero_in_a_pipeline();
    let zero = s.zero.number();
    if s.pipeline > 1 && zero > most {
        let what = format!("{name} has no ZeRO-{zero} in a pipeline");
        return because(what, format!("give zero={most} at most"));
    }
    let parts = !matches!(s.recompute, Recompute::None | Recompute::Full);
    if parts && !program.recomputes_parts() {
        let what = format!("{name} has no recompute={}", s.recompute);
        return because(what, "give recompute=none or full, or another --program");
    }
    None
}

/// What the planner's formulas know only together.
fn meaningless(s: &Strategy) -> Option<BadInput> {
    if s.replicas > 1 && s.zero.number() == 0 {
        let what = "groups of data ranks divide nothing without ZeRO";
        return because(what, "give zero=3, or leave shard out");
    }
    if s.offload == Offloaded::Parameters && (s.zero.number() < 3 || s.pipeline > 1) {
        let what = "only ZeRO-3 without a pipeline can offload parameters here";
        return because(what, "give zero=3 and pp=1, or offload=optimizer");
    }
    None
}

/// Whether a plan takes at most what a device and its host have.
pub fn fits(job: &TrainingJob, load: &Load) -> bool {
    let device = &job.cluster.device;
    load.total() <= device.room() && load.host <= device.host_memory
}

/// The refusal of a plan that takes more than a device or its host has.
pub fn too_large(job: &TrainingJob, load: &Load) -> Option<BadInput> {
    if fits(job, load) {
        return None;
    }
    let device = &job.cluster.device;
    let room = device.room();
    if load.total() <= room {
        let has = bytes_decimal(device.host_memory);
        let what =
            format!("a rank keeps {} in {has} of its host's memory", bytes_decimal(load.host));
        return because(what, "give more devices");
    }
    let what = format!(
        "a rank takes {} of {} ({} is left free)",
        bytes_decimal(load.total()),
        bytes_decimal(room),
        bytes_decimal(device.memory - room)
    );
    // Smaller activations are no help where the state alone has no room.
    let state = load.state();
    let parts = load.parts();
    let counted = if state > room { &parts[..3] } else { &parts[..] };
    let largest = counted.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let largest = largest.map_or("", |part| part.0);
    if state > room {
        let help = format!(
            "without activations it takes {}; the largest part: {largest}",
            bytes_decimal(state)
        );
        return because(what, help);
    }
    because(what, format!("the largest part: {largest}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cluster, Device};
    use shapes::model::{Dense, Family, ModelShape};
    use std::collections::BTreeSet;

    fn job() -> TrainingJob {
        let cluster = Cluster::new(Device::named("a100-80g").unwrap(), "dgx-a100").unwrap();
        TrainingJob {
            batch: 64,
            flash: false,
            ..TrainingJob::new(ModelShape::gpt2(48, 6144, 64, 51_200, 2048), cluster, 48)
        }
    }

    /// Smaller activations are no help where the state alone does not fit, although they are the
    /// largest part.
    #[test]
    fn the_part_that_has_to_shrink_is_named() {
        let help = |weights: f64, gradients: f64| {
            let load = Load { weights, gradients, activations: 60e9, ..Load::default() };
            too_large(&job(), &load).unwrap().help
        };
        assert_eq!(
            help(30e9, 50e9),
            "without activations it takes 80.0 GB; the largest part: gradients"
        );
        assert_eq!(help(10e9, 20e9), "the largest part: activations");
        let job = job();
        let of = |plan: &str| too_large(&job, &job.load(&plan.parse().unwrap()));
        assert!(of("dp=48,mb=1").unwrap().what.contains("of 76.4 GB"));
        assert_eq!(of("dp=4,tp=2,pp=6,zero=1,recompute=full"), None);
    }

    #[test]
    fn each_mistake_is_explained() {
        for (plan, what, help) in [
            (
                "dp=8,tp=3,pp=2",
                "tp 3 does not divide 64 query heads",
                "tp must divide 64; the nearest that this job can use: dp=4,tp=4,pp=3",
            ),
            (
                "dp=4,tp=2,pp=3",
                "= 24 devices, not 48",
                "dp=8 uses all 48 devices: dp=8,tp=2,pp=3",
            ),
            // 12 data ranks would not divide the batch.
            ("dp=4,tp=2,pp=2", "= 16 devices, not 48", "can use: dp=8,tp=2,pp=3"),
            ("tp=5", "not 48", "tp x pp must divide 48; the nearest that this job can use: "),
            (
                "dp=2,tp=2,pp=12,chunks=5",
                "60 stages for 48 layers",
                "50 at most; the nearest ",
            ),
            ("dp=48,chunks=2", "follow each other", "pp=2 or more, or chunks=1; the nearest "),
            (
                "dp=48",
                "48 sequences do not divide a batch of 64",
                "give --batch 96, or --plan dp=16,pp=3",
            ),
            (
                "dp=4,tp=2,pp=6,chunks=2",
                "16 micro-batches are no multiple of pp 6",
                "give --batch 72, or --plan dp=4,tp=2,pp=6",
            ),
            (
                "dp=4,tp=2,pp=6,zero=3",
                "Megatron-LM has no ZeRO-3 in a pipeline",
                "zero=2 at most",
            ),
            ("dp=16,tp=1,pp=3,zero=1,offload=parameters", "only ZeRO-3", "zero=3"),
            ("dp=16,pp=3,shard=8", "divide nothing without ZeRO", "zero=3"),
        ] {
            let found = explained(&job(), &plan.parse().unwrap()).unwrap();
            assert!(found.what.contains(what) && found.help.contains(help), "{plan}: {found:?}");
        }
        assert_eq!(refusal(&job(), &"dp=4,tp=2,pp=6,zero=1".parse().unwrap()), None);
        let shardlab = TrainingJob { program: Program::Shardlab, ..job() };
        let parts = refusal(&shardlab, &"dp=16,tp=1,pp=3,recompute=mlp".parse().unwrap());
        assert!(parts.unwrap().what.contains("has no recompute=mlp"));
    }

    /// What a help proposes, no check refuses: heads, key heads, layers, devices, batch and the
    /// length of sequences are asked together.
    #[test]
    fn what_a_help_proposes_is_possible() {
        let plans = [
            "tp=16",
            "tp=10",
            "tp=7,pp=3",
            "dp=3",
            "dp=5,tp=2,pp=2",
            "pp=60",
            "pp=7,chunks=3",
            "tp=16,sp",
            "dp=8,mb=3",
            "cp=3,tp=4",
            "dp=2,cp=6,cp-comm=ulysses",
            "dp=64,chunks=2",
            "dp=16,zero=3,shard=4,tp=3",
            "tp=12,pp=2,zero=1,offload=optimizer",
            "pp=4,zero=3,offload=parameters",
            "tp=4,pp=2,recompute=mlp,zero=2",
            "dp=4,zero=3,shard=2",
        ];
        let mut proposed = BTreeSet::new();
        for [heads, kv_heads, head, layers, block, devices, batch] in [
            [40, 8, 128, 48, 8192, 64, 512], // Qwen 2.5 14B
            [56, 8, 128, 60, 4096, 64, 256],
            [64, 64, 96, 48, 2048, 48, 64],
            [12, 4, 64, 12, 2047, 6, 8],
            [25, 25, 64, 48, 1024, 40, 7], // GPT-2 XL's heads
            [7, 1, 64, 3, 512, 97, 97],
            [128, 8, 128, 126, 131_072, 1024, 16],
            [9, 3, 64, 30, 2048, 1, 1],
        ] {
            let mut job = TrainingJob { batch, ..job() };
            job.devices = devices;
            let family = Family::Dense(Dense::llama(kv_heads, head, 8 * head * heads / 4));
            job.model = ModelShape {
                family,
                ..ModelShape::gpt2(layers, head * heads, heads, 32_000, block)
            };
            for program in [Program::Megatron, Program::Shardlab, Program::Pytorch] {
                let job = TrainingJob { program, ..job.clone() };
                for plan in plans {
                    let Ok(strategy) = plan.parse::<Strategy>() else {
                        continue;
                    };
                    let Some(found) = explained(&job, &strategy) else {
                        continue;
                    };
                    let mut larger = job.clone();
                    if let Some((_, number)) = found.help.split_once("give --batch ") {
                        larger.batch = number.split(',').next().unwrap().parse().unwrap();
                        assert_eq!(refusal(&larger, &strategy), None, "{plan}: {found:?}");
                    }
                    let near = found.help.rsplit_once([' ']).unwrap().1;
                    let near: Strategy =
                        near.parse().unwrap_or_else(|_| panic!("{plan}: {found:?}"));
                    assert_eq!(refusal(&job, &near), None, "{plan} on {devices}: {found:?}");
                    proposed.insert(plan);
                }
            }
        }
        assert_eq!(proposed, BTreeSet::from(plans));
    }

    /// The help of one check was what the next one refused: 16 tensor ranks divide neither the
    /// heads nor the key heads, and 10 not the devices.
    #[test]
    fn qwens_heads_on_64_devices() {
        let mut job = TrainingJob { batch: 512, devices: 64, ..job() };
        let family = Family::Dense(Dense::llama(8, 128, 13_824));
        job.model = ModelShape { family, ..ModelShape::gpt2(48, 5120, 40, 152_064, 8192) };
        for plan in ["tp=16", "tp=10", "dp=4,tp=16"] {
            let found = explained(&job, &plan.parse().unwrap()).unwrap();
            assert!(found.help.ends_with(": dp=8,tp=8"), "{plan}: {found:?}");
        }
    }

    /// Ranks that share heads share the MLP and, with sp, sequences.
    #[test]
    fn tensor_ranks_divide_all_that_they_share() {
        let mut job = job();
        job.model.block = 2047;
        let of = |job: &TrainingJob, plan: &str| refusal(job, &plan.parse().unwrap());
        assert_eq!(of(&job, "dp=8,tp=2,pp=3"), None);
        let odd = of(&job, "dp=8,tp=2,pp=3,sp").unwrap();
        assert!(odd.what.contains("sequences of 2047 tokens"), "{odd:?}");
        job.model.family = Family::Dense(Dense::llama(64, 96, 1001));
        let odd = of(&job, "dp=8,tp=2,pp=3").unwrap();
        assert!(odd.what.contains("1001 numbers of the MLP's width"), "{odd:?}");
    }
}
