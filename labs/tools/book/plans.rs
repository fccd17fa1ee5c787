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
pub(crate) struct Case {
    pub job: TrainingJob,
    search: Search,
}

/// Devices of this name on the network of that name.
pub(crate) fn cluster(device: &str, network: &str) -> Result<Cluster> {
    let cluster = Device::named(device).and_then(|device| Cluster::new(device, network));
    cluster.with_context(|| format!("no {device} or no {network}"))
}

fn case(name: &str, devices: usize, device: &str, network: &str) -> Result<Case> {
    let job = TrainingJob::new(model(name)?, cluster(device, network)?, devices);
    Ok(Case { search: search(&job), job })
}

impl Case {
    /// The seconds of a step as lab11 expects them; of a plan like none that was published, the
    /// prediction with a question mark.
    pub fn probably(&self, plan: &Plan) -> String {
        match Accuracy::known().expected(Made::Benchmark, &plan.strategy) {
            Some(_) => likely::seconds(Made::Benchmark, plan),
            None => format!("{}?", seconds(plan.time.total())),
        }
    }

    /// The plan in cells of a table; its bytes in hundredths of a GB: state, activations, and
    /// gathered or recomputed layers; and the parts of its step, in thousandths of `longest`.
    fn row(&self, plan: &Plan, longest: f64) -> Value {
        let s = plan.strategy;
        let again = match s.recompute {
            Recompute::None => String::new(),
            recompute => cell(recompute),
        };
        let cost = self.job.cost(plan.time.total(), 1.0);
        let hundredths = bytes(plan).map(|bytes| (bytes / 1e7).round() as u64);
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
    pub fn shown(&self) -> Vec<&Plan> {
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
pub(crate) fn parts(plan: &Plan) -> [f64; 6] {
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

/// The bytes of a rank: the state, activations, and what layers need while they compute.
pub(crate) fn bytes(plan: &Plan) -> [f64; 3] {
    [plan.load.state(), plan.load.activations, plan.load.working]
}

/// The longest step of these plans.
pub(crate) fn longest(plans: &[&Plan]) -> f64 {
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

/// lab11's default: the job whose best plans are the first picture, and one of them another.
pub(crate) fn first() -> Result<Case> {
    case("llama-3-70b", 512, "h100-80g", "dgx-h100")
}

/// lab11's job, and its fastest plan of 8 tensor ranks and 64 data ranks: the figure that works one
/// plan out.
pub fn tensor_and_data() -> Result<(TrainingJob, Plan)> {
    let Case { job, search } = first()?;
    let plan = search.best(|s| s.tensor == 8 && s.data == 64);
    let plan = *plan.context("a plan of 8 tensor ranks and 64 data ranks fits")?;
    Ok((job, plan))
}
