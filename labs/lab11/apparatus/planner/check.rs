//! Whether a job can use a strategy. If not: why, and what to do.

use super::super::strategy::{Degrees, Load, Offloaded, Program, Recompute, Strategy, TrainingJob};
use shardlab::parallel::ContextParallel;
use shardlab::units::bytes_decimal;

/// Why a job cannot use a strategy, and what to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub what: String,
    pub help: String,
}

fn because(what: impl Into<String>, help: impl Into<String>) -> Option<Refusal> {
    Some(Refusal { what: what.into(), help: help.into() })
}

/// The divisors of `n` that are closest to `near`.
fn divisors(n: usize, near: usize) -> String {
    let all = (1..=n).filter(|d| n.is_multiple_of(*d));
    let (below, above): (Vec<usize>, Vec<usize>) = all.partition(|&d| d < near);
    let closest: Vec<String> =
        below.last().into_iter().chain(above.first()).map(usize::to_string).collect();
    closest.join(" or ")
}

/// The first reason against a strategy, unless its memory is one.
pub fn refusal(job: &TrainingJob, s: &Strategy) -> Option<Refusal> {
    undivided(job, s)
        .or_else(|| batch(job, s))
        .or_else(|| program(job.program, s))
        .or_else(|| meaningless(s))
}

/// Whether the strategy's degrees divide devices, heads, MLP and layers.
pub fn undivided(job: &TrainingJob, s: &Strategy) -> Option<Refusal> {
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
        let replica = tensor * pipeline * context;
        if devices >= replica && devices.is_multiple_of(replica) {
            return because(what, format!("dp={} uses all {devices} devices", devices / replica));
        }
        let axes = if context > 1 { "tp x pp x cp" } else { "tp x pp" };
        let help = format!("{axes} must divide {devices}: {}", divisors(devices, replica));
        return because(what, help);
    }
    for (what, number) in [
        ("query heads: a rank computes whole heads", model.heads),
        ("key and value heads: a rank computes whole heads", model.kv_heads()),
        ("numbers of the MLP's width", model.ffn()),
    ] {
        if !number.is_multiple_of(tensor) {
            let what = format!("tp {tensor} does not divide {number} {what}");
            return because(what, format!("give tp={}", divisors(number, tensor)));
        }
    }
    let comm = (s.exchange, s.slicing);
    if let Err(error) = ContextParallel::check(model, (context, tensor), comm, false) {
        return because(error.what, error.help.replace('`', ""));
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
fn batch(job: &TrainingJob, s: &Strategy) -> Option<Refusal> {
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
fn program(program: Program, s: &Strategy) -> Option<Refusal> {
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
    if s.replicas > 1 && program == Program::Shardlab {
        let what = "this library divides among all data ranks, or none";
        return because(what, "leave shard out, or give another --program");
    }
    None
}

/// What the planner's formulas know only together.
fn meaningless(s: &Strategy) -> Option<Refusal> {
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
pub fn too_large(job: &TrainingJob, load: &Load) -> Option<Refusal> {
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
            ("dp=8,tp=3,pp=2", "tp 3 does not divide 64 query heads", "tp=2 or 4"),
            ("dp=4,tp=2,pp=2", "= 16 devices, not 48", "dp=12 uses all 48"),
            ("tp=5", "not 48", "tp x pp must divide 48: 4 or 6"),
            ("dp=2,tp=2,pp=12,chunks=5", "60 stages for 48 layers", "50 at most"),
            ("dp=48,chunks=2", "follow each other", "pp=2"),
            ("dp=48", "48 sequences do not divide a batch of 64", "--batch 96"),
            (
                "dp=4,tp=2,pp=6,chunks=2",
                "16 micro-batches are no multiple of pp 6",
                "chunks=1",
            ),
            (
                "dp=4,tp=2,pp=6,zero=3",
                "Megatron-LM has no ZeRO-3 in a pipeline",
                "zero=2 at most",
            ),
            ("dp=16,tp=1,pp=3,zero=1,offload=parameters", "only ZeRO-3", "zero=3"),
            ("dp=16,pp=3,shard=8", "divide nothing without ZeRO", "zero=3"),
        ] {
            let found = refusal(&job(), &plan.parse().unwrap()).unwrap();
            assert!(found.what.contains(what) && found.help.contains(help), "{plan}: {found:?}");
        }
        assert_eq!(refusal(&job(), &"dp=4,tp=2,pp=6,zero=1".parse().unwrap()), None);
        let shardlab = TrainingJob { program: Program::Shardlab, ..job() };
        let parts = refusal(&shardlab, &"dp=16,tp=1,pp=3,recompute=mlp".parse().unwrap());
        assert!(parts.unwrap().what.contains("has no recompute=mlp"));
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
