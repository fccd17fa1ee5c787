//! The ledger: one job's figures in the order of the book's pages, from one device that is too
//! small to a plan that trains.
//!
//! Each line says what a page's idea means for the job. All figures are the planner's or the
//! library's, so the ledger can be asked about any job that the planner can be asked about.

use super::likely;
use super::report::{Found, tokens as in_words};
use kit::show::{Screen, bytes_decimal, percent, significant, thousands};
use planner::{
    Degrees, Made, Overlap, RankGroup, Recompute, Stage, Strategy, TrainingJob, bandwidth, gathers,
    tokens_that_hide,
};
use shardlab::error::BadInput;

const HOUR: f64 = 3600.0;
const DAY: f64 = 24.0 * HOUR;
/// Device hours from one unexpected interruption to the next: Llama 3's 54 days on 16,384 devices
/// had 419 (arXiv 2407.21783, section 3.3.4).
const HOURS_TO_A_FAILURE: f64 = 54.0 * 24.0 * 16_384.0 / 419.0;

/// A line of a page: what it is, how it comes about, and the figure.
type Line = (&'static str, [String; 3]);

fn line(
    page: &'static str,
    what: impl Into<String>,
    how: impl Into<String>,
    figure: impl Into<String>,
) -> Line {
    (page, [what.into(), how.into(), figure.into()])
}

/// The lines of a page, or all of them.
///
/// # Errors
/// If there is no such page.
pub fn ledger(
    screen: &Screen,
    found: &Found,
    name: &str,
    tokens: f64,
    page: Option<&str>,
) -> Result<String, BadInput> {
    let ledger = Ledger { screen, found, job: &found.job, tokens };
    let mut lines = ledger.of_replicas();
    lines.extend(ledger.of_axes());
    lines.extend(ledger.of_a_run());
    let mut pages: Vec<&str> = lines.iter().map(|(page, _)| *page).collect();
    pages.dedup();
    if let Some(page) = page.filter(|page| !pages.contains(page)) {
        return Err(BadInput::new(
            format!("the ledger has no entry {page:?}"),
            format!("choose one of {}, or give none for the whole ledger", pages.join(", ")),
        ));
    }
    let devices = thousands(found.job.devices as u64);
    let device = found.job.cluster.device.name;
    let mut text = format!("  The ledger: {name} on {devices} x {device}");
    for shown in pages.into_iter().filter(|shown| page.is_none_or(|page| page == *shown)) {
        text += &format!("\n\n  {}", screen.bold(shown));
        for (_, [what, how, figure]) in lines.iter().filter(|(page, _)| *page == shown) {
            text += format!("\n    {what:<25}  {how:<29}  {figure}").trim_end();
        }
    }
    Ok(text)
}

/// The job, as the lines ask about it.
struct Ledger<'a> {
    screen: &'a Screen,
    found: &'a Found,
    job: &'a TrainingJob,
    /// Tokens of the whole training.
    tokens: f64,
}

impl Ledger<'_> {
    fn parameters(&self) -> f64 {
        self.job.model.parameters() as f64
    }

    /// `70.6 billion x 18 bytes`, and the product.
    fn times(&self, bytes: u64) -> (String, String) {
        let how = format!("{} x {bytes} bytes", in_words(self.parameters()));
        (how, bytes_decimal(self.parameters() * bytes as f64))
    }

    fn step_tokens(&self) -> f64 {
        (self.job.batch * self.job.model.block) as f64
    }

    /// All devices as replicas.
    fn replicas(&self, zero: usize) -> Strategy {
        Strategy::data(self.job.devices, Stage::ALL[zero])
    }

    /// As many tensor ranks as a node has devices, as far as heads and devices divide.
    fn tensor_ranks(&self) -> usize {
        let divides = |t: &usize| {
            self.job.devices.is_multiple_of(*t) && self.job.model.kv_heads().is_multiple_of(*t)
        };
        let node = self.job.cluster.network.ranks_per_node;
        (1..=node).rev().find(divides).unwrap_or(1)
    }

    /// Tensor ranks within a node, four stages or two where devices and layers allow it, and ZeRO-1
    /// between the replicas.
    fn three_axes(&self) -> Strategy {
        let tensor = self.tensor_ranks();
        let rest = self.job.devices / tensor;
        let divides = |p: &usize| rest.is_multiple_of(*p) && self.job.model.layers >= *p;
        let pipeline = [4, 2].into_iter().find(divides).unwrap_or(1);
        Strategy {
            data: rest / pipeline,
            tensor,
            pipeline,
            zero: Stage::One,
            sequence: tensor > 1,
            ..Strategy::SINGLE
        }
    }

    /// So many bytes, and whether they are too many for a device.
    fn judged(&self, bytes: f64) -> String {
        let fits = bytes <= self.job.cluster.device.room();
        let verdict = if fits { "fits" } else { "too large" };
        format!("{}, {verdict}", bytes_decimal(bytes))
    }

    /// Up to DDP: one device, and devices that hold the same.
    fn of_replicas(&self) -> Vec<Line> {
        let job = self.job;
        let device = &job.cluster.device;
        let network = &job.cluster.network;
        let n = job.devices;
        let devices = thousands(n as u64);
        let step = self.step_tokens();
        let steps = self.tokens / step;

        // One device that trains alone, as if it had room for everything.
        let alone = TrainingJob { devices: 1, ..job.clone() };
        let alone = steps * alone.time(&Strategy::SINGLE).total();
        let long = |seconds: f64| match seconds / DAY {
            days if days >= 365.25 => format!("{} years", significant(days / 365.25, 3)),
            days => format!("{} days", significant(days, 3)),
        };
        let each = job.bytes.parameter + job.bytes.gradient + job.bytes.optimizer;
        let (how, state) = self.times(each);
        let all_tokens = format!("{} tokens", in_words(self.tokens));
        let shared = format!("{} / {devices}, nothing lost", long(alone));

        let node = network.ranks_per_node;
        let rank = 300.min(n - 1);
        let place = format!("{rank} = {} x {node} + {}", rank / node, rank % node);
        let is_at = format!("node {}, local {}", rank / node, rank % node);

        let everyone = RankGroup::of(network, n, n, 1);
        let link = bandwidth(network, everyone);
        let gradient = job.bytes.gradient;
        let gradients = self.parameters() * gradient as f64;
        let ring = 2.0 * gathers(network, everyone, gradients, 1.0, false);
        let ring_of = format!("{} at {}/s", bytes_decimal(gradients), bytes_decimal(link));
        let waits = TrainingJob { overlap: Overlap::None, ..job.clone() };
        let waits = waits.time(&self.replicas(0));
        let computes = format!("after {} of computing", self.screen.seconds(waits.compute));
        let flops = device.peak * device.matmul;
        let hides = tokens_that_hide(gradient as f64, n, flops, link);
        let speeds = format!("{:.0} TFLOP/s, {}/s", flops / 1e12, bytes_decimal(link));
        let ddp = self.judged(job.load(&self.replicas(0)).total());
        let larger = format!("batch on {} devices", thousands(8 * n as u64));
        let fewer = format!("{} steps", thousands((steps / 8.0) as u64));
        vec![
            line("one-device", "weights, gradients, Adam", how, state),
            line("one-device", "one device would train", all_tokens, long(alone)),
            line("why", format!("{devices} devices train"), shared, long(alone / n as f64)),
            line("lab00", format!("rank {rank}"), place, is_at),
            line("lab01", "one ring of all ranks", ring_of, self.screen.seconds(ring)),
            line("lab02", "ranks average", computes, self.screen.seconds(waits.data)),
            line("overlap", "tokens that hide it", speeds, thousands(hides as u64)),
            line("lab03", "DDP: each device holds", "all state, and activations", ddp),
            line("large-batches", larger, format!("{} tokens", in_words(8.0 * step)), fewer),
        ]
    }

    /// From the bytes of one device to three axes.
    fn of_axes(&self) -> Vec<Line> {
        let job = self.job;
        let activations = |recompute| {
            let strategy = Strategy { recompute, ..Strategy::SINGLE };
            bytes_decimal(job.load(&strategy).activations)
        };
        let sequence = format!("a sequence of {} tokens", thousands(job.model.block as u64));
        let kept = activations(Recompute::None);
        let inputs = activations(Recompute::Full);
        let mut lines = vec![
            line("memory", "activations", sequence, kept),
            line("memory", "all layers recomputed", "a layer keeps its input", inputs),
        ];

        let bytes = job.bytes;
        let state = bytes.parameter + bytes.gradient + bytes.optimizer;
        let n = thousands(job.devices as u64);
        let divided = [0, bytes.optimizer, bytes.optimizer + bytes.gradient, state];
        for (stage, divided) in divided.into_iter().enumerate() {
            let how = format!("{} + {divided}/{n} bytes", state - divided);
            let replicas = self.replicas(stage);
            let what = format!("{}: state", replicas.words());
            let held = job.load(&replicas).state();
            lines.push(line("lab04", what, how, self.judged(held)));
        }

        let t = self.tensor_ranks();
        let tensor = Strategy {
            data: job.devices / t,
            tensor: t,
            sequence: t > 1,
            ..Strategy::SINGLE
        };
        let held = job.load(&tensor).state();
        let [sent, ..] = job.traffic(&tensor);
        let time = job.time(&tensor);
        let sends = format!("a rank sends {}", bytes_decimal(sent.bytes));
        let waits = percent(time.tensor / time.total());
        let how = format!("{state} bytes / {t}");
        lines.push(line("lab05", format!("TP {t}: state"), how, self.judged(held)));
        lines.push(line("lab05", "a step waits", sends, waits));

        let axes = self.three_axes();
        let p = axes.pipeline;
        let m = axes.micro_batches_of(job.batch);
        for chunks in [1, 5] {
            let what = format!("PP {p}, chunks={chunks}: bubble");
            let how = format!("({p} - 1) / ({chunks} x {m})");
            let share = (p - 1) as f64 / (chunks * m) as f64;
            lines.push(line("lab06", what, how, percent(share)));
        }
        let held = job.load(&axes).total();
        lines.push(line("lab07", "a device holds", axes.words(), self.judged(held)));
        for of in job.traffic(&axes) {
            let place = if of.between_nodes {
                "between nodes"
            } else {
                "within a node"
            };
            let what = format!("along the {} axis", of.axis);
            lines.push(line("lab07", what, place, bytes_decimal(of.bytes)));
        }
        lines
    }

    /// Of a run that lasts, and what comes after it.
    fn of_a_run(&self) -> Vec<Line> {
        let job = self.job;
        let device = &job.cluster.device;
        let best = self.found.search.plans.first();
        let axes = self.three_axes();
        let step = best.map_or_else(|| job.time(&axes), |plan| plan.time).total();
        let device_hours = |seconds: f64| match seconds * job.devices as f64 / HOUR {
            hours if hours >= 0.1 => format!("{} device hours", significant(hours, 3)),
            hours => format!("{} of a device", self.screen.seconds(hours * HOUR)),
        };
        let skipped = format!("{} on all devices", self.screen.seconds(step));
        let back = 0.5 * HOUR;
        let again = format!("{} steps again", thousands((back / step) as u64));
        let halvings = 32 - 16 + 1; // one refused step each, and one for the hysteresis
        let scale = format!("{halvings} steps, 2^32 to 2^16");
        let searched = device_hours(f64::from(halvings) * step);

        let (how, checkpoint) = self.times(job.bytes.parameter + job.bytes.optimizer);
        let to_a_failure = HOURS_TO_A_FAILURE * HOUR / job.devices as f64;
        let failures = format!("of {} device hours", thousands(HOURS_TO_A_FAILURE as u64));
        let failures_are = format!("{:.0} hours", to_a_failure / HOUR);
        let save = 60.0;
        let between = format!("{:.0} minutes", (2.0 * save * to_a_failure).sqrt() / 60.0);
        let files = format!("{} files", thousands(3 * job.model.named().len() as u64));

        let data = axes.data;
        let m = axes.micro_batches_of(job.batch);
        let settings = format!("1 x {m} x {data} replicas");
        let t = self.tensor_ranks();
        let weights = self.parameters() * job.bytes.parameter as f64;
        let token = self.screen.seconds(weights / (t as f64 * device.bandwidth));
        let reads = format!("{t} devices of {}/s", bytes_decimal(device.bandwidth));
        let cache = job.model.cached(job.model.block) * job.bytes.parameter;
        let cached = format!("{} tokens", thousands(job.model.block as u64));
        let flops = job.model.training_flops_per_token() as f64 * self.tokens;
        let flops = format!("{flops:.1e} FLOPs");
        let mut lines = vec![
            line("lab08", "a skipped step", skipped, device_hours(step)),
            line("lab08", "half an hour lost", again, device_hours(back)),
            line("loss-scale", "fp16: search for a scale", scale, searched),
            line("checkpoints", "a checkpoint", how, checkpoint),
            line("checkpoints", "between failures", failures, failures_are),
            line("checkpoints", "save every", "Young's rule, a minute a save", between),
            line("lab09", "universal", "fp32, two moments of each", files),
            line("lab10", "train_batch_size", settings, (m * data).to_string()),
            line("generation", "a token of one text", reads, token),
            line("generation", "a text's cache", cached, bytes_decimal(cache as f64)),
            line("life-cycle", "training takes", "6 x parameters x tokens", flops),
        ];
        let Some(best) = best else {
            lines.push(line("lab11", "no strategy fits", "", ""));
            return lines;
        };
        let held = self.judged(best.load.total());
        let steps = format!("steps of {}", likely::seconds(Made::Production, best));
        let days = likely::number(&best.strategy, job.cost(step, self.tokens).days);
        lines.push(line("lab11", "a device holds", best.strategy.words(), held));
        lines.push(line("lab11", "the training", steps, format!("{days} days")));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::model;
    use planner::{Cluster, Device, TrainingJob};

    fn found(name: &str, devices: usize) -> Found {
        let device = Device::named("h100-80g").unwrap();
        let cluster = Cluster::new(device, "dgx-h100").unwrap();
        Found::new(TrainingJob::new(model(name).unwrap(), cluster, devices))
    }

    /// Whether a page's line begins and ends so.
    fn has(text: &str, page: &str, what: &str, figure: &str) -> bool {
        let entry = text.lines().skip_while(|line| line.trim() != page);
        let mut entry = entry.skip(1).take_while(|line| !line.is_empty());
        entry.any(|line| {
            line.trim_start().starts_with(what) && line.ends_with(&format!("  {figure}"))
        })
    }

    #[test]
    fn the_ledger_of_70_billion_parameters_is_what_one_computes_by_hand() {
        let found = found("llama-3-70b", 512);
        let tokens = 20.0 * 70_553_706_496.0;
        let text = ledger(&Screen::plain(), &found, "llama-3-70b", tokens, None).unwrap();
        for (page, what, by_hand) in [
            ("one-device", "weights", "1.27 TB"), // 18 x 70.55
            ("lab00", "rank 300", "node 37, local 4"),
            ("lab03", "DDP: each device", "1.46 TB, too large"),
            ("lab04", "ZeRO-1 512: state", "425 GB, too large"), // (6 + 12/512) x 70.55
            ("lab04", "ZeRO-3 512: state", "2.48 GB, fits"),
            ("lab06", "PP 4, chunks=1: bubble", "9.4%"), // 3/32
            ("lab10", "train_batch_size", "512"),
            ("checkpoints", "a checkpoint", "988 GB"),
            ("checkpoints", "between failures", "99 hours"), // 3.095 h x 16,384 / 512
            ("lab09", "universal", "2,169 files"),           // 3 x (80 x 9 + 3)
            ("life-cycle", "training takes", "6.0e23 FLOPs"),
        ] {
            assert!(has(&text, page, what, by_hand), "{page}: {what} {by_hand}: {text}");
        }
    }

    #[test]
    fn every_job_has_a_ledger_that_fits_the_screen() {
        for (name, devices) in
            [("llama-3-70b", 512), ("gpt2", 1), ("megatron-1t", 3072), ("llama-2-7b", 6)]
        {
            let text = ledger(&Screen::plain(), &found(name, devices), name, 1e12, None).unwrap();
            for line in text.lines() {
                let wide = line.chars().count() > 80;
                let wrong = line.contains("NaN") || line.contains("inf");
                assert!(!wide && !wrong, "{name} on {devices}: {line}");
            }
        }
    }

    #[test]
    fn a_page_without_an_entry_is_refused() {
        let error =
            ledger(&Screen::plain(), &found("gpt2", 1), "gpt2", 1e9, Some("lab12")).unwrap_err();
        assert!(error.what.contains("lab12") && error.help.contains("one-device"), "{error}");
    }
}
