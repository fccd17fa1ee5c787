//! The planner's answer for tools.

use planner::{Accuracy, Made, Plan, TrainingJob};
use serde_json::{Value, json};

/// The job and its plans, as one JSON object.
pub fn json(name: &str, job: &TrainingJob, plans: &[Plan], tokens: f64) -> String {
    let device = &job.cluster.device;
    let plans: Vec<Value> = plans.iter().map(|plan| one(job, plan, tokens)).collect();
    let all = json!({
        "model": name,
        "parameters": job.model.parameters() as f64,
        "active_parameters": job.model.parameters() as f64,
        "devices": job.devices,
        "device": device.name,
        "usable_memory": device.room(),
        "network": job.cluster.network.name,
        "program": job.program,
        "batch": job.batch,
        "length": job.model.block,
        "tokens": tokens,
        "plans": plans,
    });
    format!("{all:#}")
}

/// One plan with its memory, its time as predicted and how much longer published runs took, and its
/// cost as predicted.
fn one(job: &TrainingJob, plan: &Plan, tokens: f64) -> Value {
    let expected = |made| Accuracy::known().expected(made, &plan.strategy);
    json!({
        "plan": plan.strategy.to_string(),
        "memory": plan.load,
        "memory_total": plan.load.total(),
        "seconds": plan.time,
        "step": plan.time.total(),
        "benchmarks": expected(Made::Benchmark),
        "trainings": expected(Made::Production),
        "traffic": job.traffic(&plan.strategy),
        "context_traffic": job.context_traffic(&plan.strategy),
        "cost": job.cost(plan.time.total(), tokens),
    })
}
