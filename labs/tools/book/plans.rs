//! The cases of the explorer of plans: the best plans of some jobs on some clusters.
//!
//! The figure's script (`book/figures/plans.js`) shows them, and computes nothing.

use super::cases::json_of;
use anyhow::{Context, Result};
use itertools::iproduct;
use kit::show::{bytes_decimal, percent, seconds, thousands};
use labs::lab11::likely;
use planner::{
    Accuracy, Cluster, Degrees, Device, Made, Plan, Recompute, Search, TrainingJob, cell, decide,
    model, search,
};
use serde_json::{Value, json};

const MODELS: [&str; 7] = [
    "llama-3.2-1b",
    "llama-3-8b",
    "llama-2-13b",
    "llama-3-70b",
    "gpt3-175b",
    "mt-nlg-530b",
    "megatron-1t",
];
const DEVICES: [usize; 7] = [1, 8, 64, 256, 512, 1024, 4096];
const MEMORIES: [&str; 4] = ["a100-40g", "a100-80g", "h100-80g", "h200-141g"];
/// A network, and what the reader chooses.
const NETWORKS: [(&str, &str); 3] = [
    ("dgx-h100", "8 x 400 Gbit/s per node"),
    ("dgx-a100", "8 x 200 Gbit/s per node"),
    ("cloud-100g", "100 Gbit/s per node"),
];

/// The plans that a case shows: the best for each (dp, tp, pp).
const SHOWN: usize = 5;

/// One case: the job's search, and the rules' advice.
struct Case {
    job: TrainingJob,
    search: Search,
}

fn case(name: &str, devices: usize, device: &str, network: &str) -> Result<Case> {
    let cluster = Device::named(device).and_then(|device| Cluster::new(device, network));
    let job = TrainingJob::new(
        model(name)?,
        cluster.with_context(|| format!("no {device} or no {network}"))?,
        devices,
    );
    let search = search(&job);
    Ok(Case { job, search })
}

impl Case {
    /// The seconds of a step as lab11 expects them; of a plan like none that was published, the
    /// prediction with a question mark.
    fn probably(&self, plan: &Plan) -> String {
        match Accuracy::known().expected(Made::Benchmark, &plan.strategy) {
            Some(_) => likely::seconds(Made::Benchmark, plan),
            None => format!("{}?", seconds(plan.time.total())),
        }
    }

    /// The plan in cells of a table; its bytes in hundredths of a GB: state, activations, and
    /// gathered or recomputed layers; and the parts of its step, in thousandths of `longest`.
    fn row(&self, plan: &Plan, longest: f64) -> Value {
        let s = plan.strategy;
        let load = plan.load;
        let again = match s.recompute {
            Recompute::None => String::new(),
            recompute => cell(recompute),
        };
        let cost = self.job.cost(plan.time.total(), 1.0);
        let state = load.state();
        let hundredths =
            [state, load.activations, load.working].map(|bytes| (bytes / 1e7).round() as u64);
        let thousandths = parts(plan).map(|part| (1000.0 * part / longest).round() as u64);
        json!([
            s.words(),
            s.micro_batch,
            again,
            seconds(plan.time.total()),
            self.probably(plan),
            thousands(cost.tokens_per_second as u64),
            percent(cost.mfu),
            hundredths,
            thousandths,
        ])
    }

    /// The plans that the case shows.
    fn shown(&self) -> Vec<&Plan> {
        self.search.by_degrees().into_iter().take(SHOWN).collect()
    }

    fn json(&self) -> Value {
        let shown = self.shown();
        let longest = longest(&shown);
        let rows: Vec<Value> = shown.iter().map(|plan| self.row(plan, longest)).collect();
        let advice = decide(&self.job, &self.search).advice;
        let least = match (&self.search.least, rows.is_empty()) {
            (Some(least), true) => {
                let takes = bytes_decimal(least.load.total());
                let host = bytes_decimal(least.load.host);
                let of = bytes_decimal(self.job.cluster.device.host_memory);
                format!("{}: {takes}, with {host} of its host's {of}", least.strategy.words())
            }
            _ => String::new(),
        };
        json!([self.search.considered, self.search.plans.len(), advice, rows, least])
    }
}

/// The seconds of a plan's step by what they are for: computing and the update, computing again,
/// tensor ranks, pipeline, bubble, and data ranks. Communication counts where nothing hides it.
fn parts(plan: &Plan) -> [f64; 6] {
    let time = plan.time;
    [
        time.compute + time.optimizer,
        time.recompute,
        time.tensor,
        time.pipeline,
        time.bubble,
        time.data,
    ]
}

/// The longest step of these plans.
fn longest(plans: &[&Plan]) -> f64 {
    plans.iter().map(|plan| plan.time.total()).fold(0.0, f64::max)
}

/// The cases in their order.
fn all_cases() -> Result<Vec<Case>> {
    iproduct!(MODELS, DEVICES, MEMORIES, NETWORKS)
        .map(|(name, devices, memory, (network, _))| case(name, devices, memory, network))
        .collect()
}

/// For each case, the parts of each shown plan's step in seconds, as the planner has them: the
/// figure's bars are compared with them.
pub(super) fn steps() -> Result<Vec<Value>> {
    let of = |case: &Case| json!(case.shown().into_iter().map(parts).collect::<Vec<_>>());
    Ok(all_cases()?.iter().map(of).collect())
}

/// All cases that a reader can choose, as JSON with one case per line:
///
/// - `models`, `devices`, `memories`, `networks`: the values of the controls; `room`: GB that a
///   plan may use, for each memory
/// - `cases`: for each model, then number of devices, memory and network: how many strategies were
///   tried, how many fit, the source's advice, the best plans, and if none fits the plan that needs
///   least
pub(super) fn cases() -> Result<String> {
    let cases = all_cases()?.iter().map(Case::json).collect();
    let room = |name: &str| {
        Device::named(name).map_or(0.0, |device| (device.room() / 1e7).round() / 100.0)
    };
    Ok(json_of([
        ("models", MODELS.map(Value::from).to_vec()),
        ("devices", DEVICES.map(Value::from).to_vec()),
        ("memories", MEMORIES.map(Value::from).to_vec()),
        ("room", MEMORIES.map(|name| json!(room(name))).to_vec()),
        ("networks", NETWORKS.map(|(_, words)| Value::from(words)).to_vec()),
        ("cases", cases),
    ]))
}

/// A plan in words, the seconds that its step probably takes, the parts of the step as shares of
/// the longest one, and the bytes of a rank as shares of what a plan may use: the state,
/// activations, and what layers need while they compute.
pub(crate) struct Bars {
    pub words: String,
    pub probably: String,
    pub step: [f64; 6],
    pub bytes: [f64; 3],
}

/// The first picture: the best plans of lab11's own job.
pub(crate) fn best_plans() -> Result<Vec<Bars>> {
    let case = case("llama-3-70b", 512, "h100-80g", "dgx-h100")?;
    let shown = case.shown();
    let longest = longest(&shown);
    let room = case.job.cluster.device.room();
    let bars = |plan: &&Plan| {
        let load = plan.load;
        let bytes = [load.state(), load.activations, load.working];
        Bars {
            words: plan.strategy.words(),
            probably: case.probably(plan),
            step: parts(plan).map(|part| part / longest),
            bytes: bytes.map(|bytes| bytes / room),
        }
    };
    Ok(shown.iter().map(bars).collect())
}

/// The job of lab11's default, and its fastest plan of 8 tensor ranks and 64 data ranks: the figure
/// that works one plan out.
pub fn tensor_and_data() -> Result<(TrainingJob, Plan)> {
    let Case { job, search } = case("llama-3-70b", 512, "h100-80g", "dgx-h100")?;
    let plan = search.best(|s| s.tensor == 8 && s.data == 64);
    let plan = *plan.context("a plan of 8 tensor ranks and 64 data ranks fits")?;
    Ok((job, plan))
}
