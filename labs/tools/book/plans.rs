//! The cases of the explorer of plans: the best plans of some jobs on some clusters.
//!
//! The figure's script (`book/figures/plans.js`) shows them, and computes nothing.

use anyhow::{Context, Result};
use kit::show::{bytes_decimal, percent, seconds, thousands};
use lab11::likely;
use lab11::planner::{Accuracy, Made, Plan, Search, decide, model, search};
use lab11::strategy::{Cluster, Degrees, Device, Recompute, TrainingJob, cell};
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

    /// The plan in cells of a table, and its bytes in hundredths of a GB: state, activations, and
    /// gathered or recomputed layers.
    fn row(&self, plan: &Plan) -> Value {
        let s = plan.strategy;
        let load = plan.load;
        let again = match s.recompute {
            Recompute::None => String::new(),
            recompute => cell(recompute),
        };
        let cost = self.job.cost(plan.time.total(), 1.0);
        let state = load.state();
        let hundredths = [state, load.activations, load.working].map(|bytes| (bytes / 1e7).round());
        json!([
            s.words(),
            s.micro_batch,
            again,
            seconds(plan.time.total()),
            self.probably(plan),
            thousands(cost.tokens_per_second as u64),
            percent(cost.mfu),
            hundredths,
        ])
    }

    fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .search
            .by_degrees()
            .into_iter()
            .take(SHOWN)
            .map(|plan| self.row(plan))
            .collect();
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

/// All cases that a reader can choose, as JSON with one case per line:
///
/// - `models`, `devices`, `memories`, `networks`: the values of the controls; `room`: GB that a
///   plan may use, for each memory
/// - `cases`: for each model, then number of devices, memory and network: how many strategies were
///   tried, how many fit, the source's advice, the best plans, and if none fits the plan that needs
///   least
pub fn plans() -> Result<String> {
    let mut cases = Vec::new();
    for name in MODELS {
        for devices in DEVICES {
            for memory in MEMORIES {
                for (network, _) in NETWORKS {
                    cases.push(case(name, devices, memory, network)?.json());
                }
            }
        }
    }
    let room = |name: &str| {
        Device::named(name).map_or(0.0, |device| (device.room() / 1e7).round() / 100.0)
    };
    let fields = [
        ("models", MODELS.map(Value::from).to_vec()),
        ("devices", DEVICES.map(Value::from).to_vec()),
        ("memories", MEMORIES.map(Value::from).to_vec()),
        ("room", MEMORIES.map(|name| json!(room(name))).to_vec()),
        ("networks", NETWORKS.map(|(_, words)| Value::from(words)).to_vec()),
        ("cases", cases),
    ];
    let fields = fields.map(|(name, values)| {
        let values: Vec<String> = values.iter().map(Value::to_string).collect();
        format!("\"{name}\":[{}]", values.join(",\n"))
    });
    Ok(format!("{{{}}}", fields.join(",\n")))
}

/// A plan, and its bytes of a rank: the state, activations, and what layers need while they
/// compute.
type Bar = (String, [f64; 3]);

/// The first picture: the best plans of lab11's own job, and the bytes that each rank may use.
pub fn best_plans() -> Result<(Vec<Bar>, f64)> {
    let Case { job, search } = case("llama-3-70b", 512, "h100-80g", "dgx-h100")?;
    let load = |plan: &Plan| {
        let load = plan.load;
        (plan.strategy.words(), [load.state(), load.activations, load.working])
    };
    Ok((
        search.by_degrees().into_iter().take(SHOWN).map(load).collect(),
        job.cluster.device.room(),
    ))
}

/// The job of lab11's default, and its fastest plan of 8 tensor ranks and 64 data ranks: the figure
/// that works one plan out.
pub fn tensor_and_data() -> Result<(TrainingJob, Plan)> {
    let Case { job, search } = case("llama-3-70b", 512, "h100-80g", "dgx-h100")?;
    let plan = search.best(|s| s.tensor == 8 && s.data == 64);
    let plan = *plan.context("a plan of 8 tensor ranks and 64 data ranks fits")?;
    Ok((job, plan))
}
