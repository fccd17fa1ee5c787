//! The entries: what a page's idea means for the job.

use super::super::likely;
use super::super::planner::Made;
use super::super::report::tokens;
use super::super::strategy::{
    Degrees, Offloaded, Overlap, RankGroup, Recompute, Strategy, TrainingJob, all_reduces,
    bandwidth, in_flight,
};
use super::job::{HOUR, HOURS_TO_A_FAILURE, Ledger, Line, line, per_parameter, years};
use kit::show::{bytes_decimal, percent, significant, thousands};
use shardlab::plan::tokens_that_hide;

/// A page's entry.
pub type Entry = fn(&Ledger) -> Vec<Line>;

/// Pages and their entries, in the order of the book's pages.
pub const ENTRIES: [(&str, Entry); 21] = [
    ("one-device", one_device),
    ("why", why),
    ("lab00", ranks),
    ("lab01", all_reduce),
    ("lab02", iteration),
    ("overlap", overlap),
    ("lab03", copies),
    ("large-batches", large_batches),
    ("memory", memory),
    ("lab04", zero),
    ("lab05", tensor),
    ("lab06", pipeline),
    ("lab07", mesh),
    ("lab08", bad_step),
    ("loss-scale", loss_scale),
    ("checkpoints", checkpoints),
    ("lab09", resumed),
    ("lab10", settings),
    ("generation", generation),
    ("life-cycle", life),
    ("lab11", decided),
];

fn one_device(l: &Ledger) -> Vec<Line> {
    let device = &l.job.cluster.device;
    let state = l.state();
    let room = device.room();
    let memory = bytes_decimal(device.memory);
    let work = format!("{} tokens", tokens(l.tokens));
    vec![
        line(
            "weights, gradients, Adam",
            per_parameter(l.job, l.state_bytes()),
            bytes_decimal(state),
        ),
        line(
            "room on a device",
            format!("{memory}, {:.0}% kept free", 100.0 * l.job.cluster.device.free),
            bytes_decimal(room),
        ),
        line("to hold them alone", "", format!("{} devices", (state / room).ceil())),
        line("one device would train", work, years(l.one_device_seconds())),
    ]
}

fn why(l: &Ledger) -> Vec<Line> {
    let n = l.job.devices as f64;
    let devices = thousands(l.job.devices as u64);
    let alone = l.one_device_seconds();
    let step = thousands(l.step_tokens() as u64);
    let each = thousands((l.step_tokens() / n) as u64);
    vec![
        line(
            format!("{devices} devices train"),
            format!("{} / {devices}, nothing lost", years(alone)),
            years(alone / n),
        ),
        line("tokens per device", format!("a step's {step} / {devices}"), each),
    ]
}

fn ranks(l: &Ledger) -> Vec<Line> {
    let node = l.job.cluster.network.ranks_per_node;
    let n = l.job.devices;
    let rank = 300.min(n - 1);
    vec![
        line(
            "nodes",
            format!("{} ranks, {node} on each", thousands(n as u64)),
            n.div_ceil(node).to_string(),
        ),
        line(
            format!("rank {rank}"),
            format!("{rank} = {} x {node} + {}", rank / node, rank % node),
            format!("node {}, local {}", rank / node, rank % node),
        ),
    ]
}

/// All ranks, for a collective.
fn everyone(l: &Ledger) -> RankGroup {
    RankGroup::of(&l.job.cluster.network, l.job.devices, l.job.devices, 1)
}

fn all_reduce(l: &Ledger) -> Vec<Line> {
    let each = l.job.bytes.gradient;
    let size = l.parameters() * each as f64;
    let n = l.job.devices as f64;
    let network = &l.job.cluster.network;
    let ring = all_reduces(network, everyone(l), size, 1.0, true);
    vec![
        line("all gradients", per_parameter(l.job, each), bytes_decimal(size)),
        line(
            "a rank sends",
            format!("2 ({n} - 1) / {n} of it"),
            bytes_decimal(2.0 * (n - 1.0) / n * size),
        ),
        line(
            "one ring of all ranks",
            format!("{}/s", bytes_decimal(bandwidth(network, everyone(l)))),
            l.screen.seconds(ring),
        ),
    ]
}

fn iteration(l: &Ledger) -> Vec<Line> {
    let waits = TrainingJob { overlap: Overlap::None, ..l.job.clone() };
    let time = waits.time(&l.replicas(0));
    vec![
        line("a step computes", "if all fitted", l.screen.seconds(time.compute)),
        line("then it averages", "nothing hides it", l.screen.seconds(time.data)),
        line(
            "so a device waits",
            format!("{} of {}", l.screen.seconds(time.data), l.screen.seconds(time.total())),
            percent(time.data / time.total()),
        ),
    ]
}

fn overlap(l: &Ledger) -> Vec<Line> {
    let each = l.job.bytes.gradient as f64;
    let device = &l.job.cluster.device;
    let flops = device.peak * device.matmul;
    let link = bandwidth(&l.job.cluster.network, everyone(l));
    let hides = tokens_that_hide(each, l.job.devices, flops, link);
    let has = l.step_tokens() / l.job.devices as f64;
    let enough = if has >= hides { "enough" } else { "too few" };
    vec![
        line(
            "tokens that hide it",
            format!("{:.0} TFLOP/s, {}/s", flops / 1e12, bytes_decimal(link)),
            thousands(hides as u64),
        ),
        line("tokens per device", "of a step", format!("{}, {enough}", thousands(has as u64))),
    ]
}

fn copies(l: &Ledger) -> Vec<Line> {
    let load = l.job.load(&l.replicas(0));
    let n = thousands(l.job.devices as u64);
    let state = l.state();
    let largest = l.job.cluster.device.room() / l.state_bytes() as f64;
    vec![
        line(
            "DDP: each device holds",
            "all state, and activations",
            l.bytes_and_verdict(load.total()),
        ),
        line(
            "all devices hold",
            format!("the same state {n} times"),
            bytes_decimal(state * l.job.devices as f64),
        ),
        line(
            "DDP's largest model",
            format!("{} / {} bytes", bytes_decimal(l.job.cluster.device.room()), l.state_bytes()),
            tokens(largest),
        ),
    ]
}

fn large_batches(l: &Ledger) -> Vec<Line> {
    let step = l.step_tokens();
    let rows = [1.0, 8.0].map(|factor| {
        line(
            format!("batch on {} devices", thousands((factor * l.job.devices as f64) as u64)),
            format!("{} tokens", tokens(factor * step)),
            format!("{} steps", thousands((l.steps() / factor) as u64)),
        )
    });
    rows.into()
}

fn memory(l: &Ledger) -> Vec<Line> {
    let load = |recompute| {
        let strategy = Strategy { recompute, ..Strategy::SINGLE };
        l.job.load(&strategy).activations
    };
    let scores = TrainingJob { flash: false, ..l.job.clone() };
    let block = thousands(l.job.model.block as u64);
    let state = l.state();
    let one = format!("a sequence of {block} tokens");
    vec![
        line("state", per_parameter(l.job, l.state_bytes()), bytes_decimal(state)),
        line("activations", one, bytes_decimal(load(Recompute::None))),
        line(
            "with attention's scores",
            "without FlashAttention",
            bytes_decimal(scores.load(&Strategy::SINGLE).activations),
        ),
        line(
            "all layers recomputed",
            "a layer keeps its input",
            bytes_decimal(load(Recompute::Full)),
        ),
    ]
}

fn zero(l: &Ledger) -> Vec<Line> {
    let n = thousands(l.job.devices as u64);
    let mut lines = Vec::new();
    let each = l.job.bytes;
    for stage in 0..=3 {
        let load = l.job.load(&l.replicas(stage));
        let state = load.state();
        let how = match stage {
            0 => format!("{} bytes per parameter", l.state_bytes()),
            1 => format!("{} + {}/{n} bytes", each.parameter + each.gradient, each.optimizer),
            2 => format!("{} + {}/{n} bytes", each.parameter, each.gradient + each.optimizer),
            _ => format!("{}/{n} bytes", l.state_bytes()),
        };
        let name = if stage == 0 {
            "DDP".into()
        } else {
            format!("ZeRO-{stage}")
        };
        lines.push(line(format!("{name}: state"), how, l.bytes_and_verdict(state)));
    }
    let load = l.job.load(&l.replicas(3));
    lines.push(line(
        "ZeRO-3: in all",
        "with a sequence's activations",
        l.bytes_and_verdict(load.total()),
    ));
    lines
}

fn tensor(l: &Ledger) -> Vec<Line> {
    let t = l.tensor_ranks();
    let strategy = Strategy {
        data: l.job.devices / t,
        tensor: t,
        sequence: t > 1,
        ..Strategy::SINGLE
    };
    let load = l.job.load(&strategy);
    let state = load.state();
    let [tensor, _, _] = l.job.traffic(&strategy);
    let time = l.job.time(&strategy);
    vec![
        line(
            format!("TP {t}: state"),
            format!("{} bytes / {t}", l.state_bytes()),
            l.bytes_and_verdict(state),
        ),
        line("activations", "a sequence, cut by positions", bytes_decimal(load.activations)),
        line("a rank sends in a step", "within its node", bytes_decimal(tensor.bytes)),
        line(
            "so a step waits",
            format!("{} of {}", l.screen.seconds(time.tensor), l.screen.seconds(time.total())),
            percent(time.tensor / time.total()),
        ),
    ]
}

fn pipeline(l: &Ledger) -> Vec<Line> {
    let strategy = l.three_axes();
    let p = strategy.pipeline;
    let m = strategy.micro_batches_of(l.job.batch);
    if p == 1 {
        return vec![line("no pipeline", "too few devices or layers", "")];
    }
    let load = l.job.load_of(&strategy, 0);
    let mut lines = Vec::new();
    for chunks in [1, 5] {
        let bubble = (p - 1) as f64 / (chunks * m) as f64;
        let what = if chunks == 1 {
            format!("PP {p}: bubble")
        } else {
            format!("{chunks} chunks: bubble")
        };
        let how = if chunks == 1 {
            format!("({p} - 1) / {m} micro-batches")
        } else {
            format!("({p} - 1) / ({chunks} x {m})")
        };
        lines.push(line(what, how, percent(bubble)));
    }
    lines.push(line(
        "first stage keeps",
        format!("{} sequences in flight", in_flight(&strategy, 0, m)),
        bytes_decimal(load.activations),
    ));
    lines
}

fn mesh(l: &Ledger) -> Vec<Line> {
    let strategy = l.three_axes();
    let load = l.job.load(&strategy);
    let traffic = l.job.traffic(&strategy);
    let mut lines =
        vec![line("a device holds", strategy.words(), l.bytes_and_verdict(load.total()))];
    for (axis, ranks, of) in [
        ("tensor", strategy.tensor, &traffic[0]),
        ("pipeline", strategy.pipeline, &traffic[1]),
        ("data", strategy.data, &traffic[2]),
    ] {
        let place = if of.between_nodes {
            "between nodes"
        } else {
            "within a node"
        };
        lines.push(line(
            format!("sent to {axis} ranks"),
            format!("{ranks} ranks, {place}"),
            bytes_decimal(of.bytes),
        ));
    }
    let time = l.job.time(&strategy);
    let computes = time.compute + time.recompute;
    lines.push(line(
        "a step, predicted",
        format!("{} of it computing", percent(computes / time.total())),
        l.screen.seconds(time.total()),
    ));
    lines
}

fn device_hours(l: &Ledger, time: f64) -> String {
    let all = time * l.job.devices as f64;
    if all < 0.1 * HOUR {
        return format!("{} of a device", l.screen.seconds(all));
    }
    format!("{} device hours", significant(all / HOUR, 3))
}

fn bad_step(l: &Ledger) -> Vec<Line> {
    let step = l.step_seconds();
    let back = 0.5 * HOUR;
    vec![
        line(
            "a skipped step",
            format!("{} on all devices", l.screen.seconds(step)),
            device_hours(l, step),
        ),
        line(
            "half an hour lost",
            format!("{} steps again", thousands((back / step) as u64)),
            device_hours(l, back),
        ),
    ]
}

fn loss_scale(l: &Ledger) -> Vec<Line> {
    let step = l.step_seconds();
    let skipped = 32 - 16 + 1; // one halving each, and one for the hysteresis
    vec![line(
        "fp16: search for a scale",
        format!("{skipped} steps, 2^32 to 2^16"),
        device_hours(l, f64::from(skipped) * step),
    )]
}

fn checkpoints(l: &Ledger) -> Vec<Line> {
    let each = l.job.bytes.parameter + l.job.bytes.optimizer;
    let size = l.parameters() * each as f64;
    let devices = l.job.devices as f64;
    let part = size / devices;
    let mean = HOURS_TO_A_FAILURE * HOUR / devices;
    let save = part / l.job.cluster.device.disk_write;
    let between = (2.0 * save * mean).sqrt();
    vec![
        line("a checkpoint", per_parameter(l.job, each), bytes_decimal(size)),
        line(
            "a save, waited for",
            format!("{} on each device's disk", bytes_decimal(part)),
            l.screen.seconds(save),
        ),
        line(
            "between failures",
            format!("{} device hours", thousands(HOURS_TO_A_FAILURE as u64)),
            format!("{:.0} hours", mean / HOUR),
        ),
        line("save every", "Young's rule", format!("{:.0} minutes", between / 60.0)),
    ]
}

fn resumed(l: &Ledger) -> Vec<Line> {
    let named = l.job.model.named().len();
    let each = l.job.bytes.optimizer;
    let size = l.parameters() * each as f64;
    let half = l.job.devices / 2;
    vec![
        line(
            "saved by ZeRO",
            format!("{} ranks, a slice each", thousands(l.job.devices as u64)),
            bytes_decimal(size / l.job.devices as f64),
        ),
        line(
            "universal",
            "fp32, two moments of each",
            format!("{} files", thousands(3 * named as u64)),
        ),
        line(
            format!("on {} ranks", thousands(half as u64)),
            "each reads",
            bytes_decimal(size / half.max(1) as f64),
        ),
    ]
}

fn settings(l: &Ledger) -> Vec<Line> {
    let strategy = l.three_axes();
    let m = strategy.micro_batches_of(l.job.batch);
    let data = strategy.data;
    let micro_batch = strategy.sequences();
    vec![
        line(
            "train_batch_size",
            format!("{micro_batch} x {m} x {data} replicas"),
            (micro_batch * m * data).to_string(),
        ),
        line(
            "accumulation steps",
            format!("{} / ({micro_batch} x {data})", l.job.batch),
            m.to_string(),
        ),
    ]
}

fn generation(l: &Ledger) -> Vec<Line> {
    let device = &l.job.cluster.device;
    let each = l.job.bytes.parameter;
    let weights = l.parameters() * each as f64;
    let t = l.tensor_ranks();
    let cached = (l.job.model.cached_per_token() * each) as f64 * l.job.model.block as f64;
    let ridge = device.peak / device.bandwidth;
    vec![
        line("weights", per_parameter(l.job, each), bytes_decimal(weights)),
        line(
            "a token of one text",
            format!("{t} devices of {}/s", bytes_decimal(device.bandwidth)),
            l.screen.seconds(weights / (t as f64 * device.bandwidth)),
        ),
        line(
            "texts to reach the ridge",
            format!("{:.0} FLOPs per byte", ridge),
            format!("{:.0}", ridge * each as f64 / 2.0),
        ),
        line(
            "a text's cache",
            format!("{} tokens", thousands(l.job.model.block as u64)),
            bytes_decimal(cached),
        ),
    ]
}

fn life(l: &Ledger) -> Vec<Line> {
    let flops = l.job.model.training_flops_per_token() as f64 * l.tokens;
    vec![
        line("training takes", "6 x parameters x tokens", format!("{flops:.1e} FLOPs")),
        line("tokens generated, as much", "3 x the training's tokens", tokens(3.0 * l.tokens)),
    ]
}

fn decided(l: &Ledger) -> Vec<Line> {
    let Some(best) = l.found.best() else {
        return vec![line("no strategy fits", "--refused says why", "")];
    };
    let strategy = &best.strategy;
    let cost = l.job.cost(best.time.total(), l.tokens);
    let number = |value| likely::number(strategy, value);
    let offloaded = if strategy.offload == Offloaded::None {
        ""
    } else {
        ", and the host"
    };
    vec![
        line(
            "a device holds",
            format!("{}{offloaded}", strategy.words()),
            l.bytes_and_verdict(best.load.total()),
        ),
        line(
            "a training's step takes",
            format!("{} predicted", l.screen.seconds(best.time.total())),
            likely::seconds(Made::Production, best),
        ),
        line(
            "the training",
            format!("{} tokens", tokens(l.tokens)),
            format!("{} days", number(cost.days)),
        ),
        line(
            "it costs",
            format!("{} $ per device and hour", l.job.cluster.device.price),
            format!("{} $", number(cost.dollars)),
        ),
    ]
}
