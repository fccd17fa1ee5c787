//! Whether a job can use a strategy. If not: every reason, and what to do.

use crate::strategy::{Device, Load, Offloaded, Recompute, Strategy, TrainingJob};
use shardlab::units::bytes_decimal;

/// The subject of a refusal. A search counts its refusals by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalKind {
    Devices,
    Heads,
    Layers,
    Batch,
    Schedule,
    Zero,
    Useless,
    Memory,
}

impl RefusalKind {
    /// In a table of a search.
    pub fn words(self) -> &'static str {
        match self {
            RefusalKind::Devices => "with a different number of devices",
            RefusalKind::Heads => "where tp does not divide the heads",
            RefusalKind::Layers => "where pp x chunks does not divide the layers",
            RefusalKind::Batch => "where dp x mb does not divide the batch",
            RefusalKind::Schedule => "with too few micro-batches to interleave",
            RefusalKind::Zero => "with ZeRO-2 or 3 in a pipeline",
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
    let closest: Vec<String> = below
        .last()
        .into_iter()
        .chain(above.first())
        .map(usize::to_string)
        .collect();
    closest.join(" or ")
}

/// Every reason against `strategy` but memory.
pub fn refusals(job: &TrainingJob, strategy: &Strategy) -> Vec<Refusal> {
    let s = strategy;
    let model = &job.model;
    let mut all = Vec::new();
    let mut refuse = |kind, what: String, help: String| all.push(Refusal { kind, what, help });
    if s.devices() != job.devices {
        let what = format!(
            "dp {} x tp {} x pp {} = {} devices, not {}",
            s.data,
            s.tensor,
            s.pipeline,
            s.devices(),
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
        refuse(RefusalKind::Devices, what, help);
    }
    if !model.heads.is_multiple_of(s.tensor) {
        let help = format!("give tp={}", divisors(model.heads, s.tensor));
        refuse(
            RefusalKind::Heads,
            format!(
                "tp {} does not divide {} heads: a rank computes whole heads",
                s.tensor, model.heads
            ),
            help,
        );
    } else if !model.kv_heads().is_multiple_of(s.tensor) {
        let what = format!(
            "tp {} does not divide {} key and value heads",
            s.tensor,
            model.kv_heads()
        );
        let help = format!(
            "give tp={}; Megatron-LM would copy heads to several ranks",
            divisors(model.kv_heads(), s.tensor)
        );
        refuse(RefusalKind::Heads, what, help);
    }
    if s.pipeline == 1 && s.chunks > 1 {
        let what = format!(
            "{} chunks on a pipeline of 1 rank follow each other on the same rank",
            s.chunks
        );
        refuse(
            RefusalKind::Layers,
            what,
            "give pp=2 or more, or chunks=1".into(),
        );
    } else if !model.layers.is_multiple_of(s.pipeline * s.chunks) {
        let what = format!(
            "pp {} x {} chunks = {} stages cannot share {} layers evenly",
            s.pipeline,
            s.chunks,
            s.pipeline * s.chunks,
            model.layers
        );
        refuse(
            RefusalKind::Layers,
            what,
            format!(
                "give pp x chunks = {}",
                divisors(model.layers, s.pipeline * s.chunks)
            ),
        );
    }
    let m = s.micro_batches(job.batch);
    let sequences = s.data * s.micro_batch;
    if !job.batch.is_multiple_of(sequences) {
        let what = format!(
            "dp {} x mb {} = {sequences} sequences do not divide a batch of {}",
            s.data, s.micro_batch, job.batch
        );
        let help = format!("give --batch {}", job.batch.next_multiple_of(sequences));
        refuse(RefusalKind::Batch, what, help);
    } else if s.chunks > 1 && !m.is_multiple_of(s.pipeline) {
        let what = format!(
            "{m} micro-batches are no multiple of pp {}, and interleaved stages work in groups of it",
            s.pipeline
        );
        refuse(
            RefusalKind::Schedule,
            what,
            "give chunks=1, or a batch with more sequences".into(),
        );
    }
    if s.zero >= 2 && s.pipeline > 1 {
        let what = format!(
            "ZeRO-{} would reduce gradients after every micro-batch of the pipeline",
            s.zero
        );
        refuse(
            RefusalKind::Zero,
            what,
            "give zero=1: DeepSpeed's pipeline refuses ZeRO-2 and 3 as well".into(),
        );
    }
    let useless = [
        (
            s.sequence && s.tensor == 1,
            "sp without tensor ranks",
            "give tp=2 or more, or leave sp out",
        ),
        (
            s.zero > 0 && s.data == 1 && s.offload == Offloaded::None,
            "ZeRO divides among data ranks, and there is one",
            "give zero=0, or dp=2 or more",
        ),
        (
            s.recompute == Recompute::Selective && job.flash,
            "FlashAttention keeps no scores to recompute",
            "give recompute=none",
        ),
        (
            s.offload == Offloaded::Parameters && s.zero < 3,
            "only ZeRO-3 can use a layer's parameters and let them go",
            "give zero=3, or offload=optimizer",
        ),
        (
            s.tiles > 1 && s.zero < 3,
            "tiles divide the layers that ZeRO-3 gathers",
            "give zero=3, or leave tiles out",
        ),
    ];
    for (_, what, help) in useless.into_iter().filter(|useless| useless.0) {
        refuse(RefusalKind::Useless, what.into(), help.into());
    }
    all
}

/// The refusal of a plan that takes more than a device or its host has.
pub fn too_large(job: &TrainingJob, load: &Load) -> Option<Refusal> {
    let Device {
        memory,
        host_memory,
        ..
    } = job.cluster.device;
    let room = job.cluster.device.room();
    let refusal = |what, help: String| {
        Some(Refusal {
            kind: RefusalKind::Memory,
            what,
            help,
        })
    };
    if load.total() > room {
        let what = format!(
            "a rank takes {} of {}",
            bytes_decimal(load.total()),
            bytes_decimal(room)
        );
        let parts = [
            (load.weights, "weights: more tp or pp, or zero=3"),
            (load.gradients, "gradients: more tp or pp, or zero=2"),
            (
                load.optimizer,
                "the optimizer: zero=1, or offload=optimizer",
            ),
            (
                load.activations,
                "activations: a smaller mb, sp, or recompute=full",
            ),
            (
                load.working,
                "gathered and recomputed layers: more tp, or tiles=2",
            ),
        ];
        let most = parts
            .into_iter()
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map_or("", |most| most.1);
        return refusal(
            format!("{what} ({} is left free)", bytes_decimal(memory - room)),
            format!("most are {most}"),
        );
    }
    if load.host > host_memory {
        let what = format!(
            "a rank keeps {} in its host's {}",
            bytes_decimal(load.host),
            bytes_decimal(host_memory)
        );
        return refusal(
            what,
            "more devices, or NVMe instead of the host's memory".into(),
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::Cluster;
    use shardlab::plan::ModelShape;

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
        assert!(
            found.what.contains(what) && found.help.contains(help),
            "{found:?}"
        );
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
        refused(
            "tp=5",
            RefusalKind::Devices,
            "not 48",
            "tp x pp must divide 48: 4 or 6",
        );
        refused(
            "dp=2,tp=2,pp=12,chunks=3",
            RefusalKind::Layers,
            "36 stages cannot share 48 layers",
            "24 or 48",
        );
        refused(
            "dp=48,chunks=2",
            RefusalKind::Layers,
            "follow each other",
            "pp=2",
        );
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
            RefusalKind::Zero,
            "after every micro-batch",
            "zero=1",
        );
        refused(
            "dp=48,sp",
            RefusalKind::Useless,
            "without tensor ranks",
            "tp=2",
        );
        refused(
            "tp=8,pp=6,zero=1",
            RefusalKind::Useless,
            "there is one",
            "zero=0",
        );
        refused(
            "dp=48,zero=1,offload=parameters",
            RefusalKind::Useless,
            "only ZeRO-3",
            "zero=3",
        );
        assert_eq!(
            refusals(&job(), &"dp=4,tp=2,pp=6,zero=1".parse().unwrap()),
            []
        );
    }

    #[test]
    fn what_does_not_fit_says_what_takes_most() {
        let job = job();
        let of = |plan: &str| too_large(&job, &job.load(&plan.parse().unwrap()));
        let whole = of("dp=48,mb=1").unwrap();
        assert!(
            whole.what.contains("of 72.0 GB") && whole.help.contains("zero=1"),
            "{whole:?}"
        );
        assert!(
            of("dp=48,zero=3,mb=1").unwrap().help.contains("recompute"),
            "{:?}",
            of("dp=48,zero=3")
        );
        assert_eq!(of("dp=4,tp=2,pp=6,zero=1,recompute=full"), None);
    }
}
