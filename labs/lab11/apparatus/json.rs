//! The search's answer for tools.

use super::detail::cannot_use;
use super::planner::{Accuracy, Described, Made, Plan, Refusal, refusals, too_large};
use super::report::{Found, unranked};
use super::strategy::{Degrees, Strategy, TrainingJob};
use serde_json::{Value, json};
use shardlab::error::BadInput;

/// The job, the rules and the best `top` plans of all, as one JSON object.
pub fn json(found: &Found, model: &Described, top: usize, tokens: f64) -> String {
    let Found { job, search, decision, .. } = found;
    let refused: serde_json::Map<String, Value> = search
        .refused
        .iter()
        .map(|(kind, refused)| (kind.words().to_string(), why(refused)))
        .collect();
    let found = json!({
        "considered": search.considered,
        "fit": search.plans.len(),
        "refused": refused,
        "unfit": search.unfit.iter().map(|plan| json!({"plan": plan.strategy.to_string(), "memory": plan.load})).collect::<Vec<_>>(),
        "rules": {
            "path": decision.steps.iter().map(|step| json!([step.question, step.answer])).collect::<Vec<_>>(),
            "advice": decision.advice,
            "plan": decision.plan.as_ref().map(|plan| one(job, plan, tokens)),
        },
        "plans": search.plans.iter().take(top).map(|plan| one(job, plan, tokens)).collect::<Vec<_>>(),
    });
    joined(job, model, tokens, found)
}

/// The job and one plan for it, as one JSON object.
///
/// # Errors
/// If the job cannot use the plan. One that is too large says so in `too_large`.
pub fn plan_json(
    job: &TrainingJob,
    model: &Described,
    strategy: &Strategy,
    tokens: f64,
) -> Result<String, BadInput> {
    let against = refusals(job, strategy);
    if !against.is_empty() {
        return Err(cannot_use(strategy, &against));
    }
    let plan = job.plan(*strategy);
    let too_large = too_large(job, strategy, &plan.load);
    let found = json!({
        "too_large": too_large.map(|refusal| json!({ "what": refusal.what, "help": refusal.help })),
        "plans": [one(job, &plan, tokens)],
    });
    Ok(joined(job, model, tokens, found))
}

/// The job, and what was found for it.
fn joined(job: &TrainingJob, model: &Described, tokens: f64, found: Value) -> String {
    let device = &job.cluster.device;
    let mut all = json!({
        "model": model.name,
        "not_understood": model.not_understood,
        "parameters": job.model.parameters() as f64,
        "devices": job.devices,
        "device": device.name,
        "device_memory": device.memory,
        "usable_memory": device.room(),
        "network": job.cluster.network.name,
        "program": job.program,
        "batch": job.batch,
        "length": job.model.block,
        "tokens": tokens,
        "unranked": unranked(job),
    });
    if let (Value::Object(all), Value::Object(found)) = (&mut all, found) {
        all.extend(found);
    }
    format!("{all:#}")
}

/// All degrees of a strategy, those that divide nothing included.
fn degrees(strategy: &Strategy) -> Value {
    let Strategy { data, tensor, pipeline, chunks, replicas, nvme, tiles, .. } = strategy;
    json!({
        "dp": data,
        "tp": tensor,
        "pp": pipeline,
        "chunks": chunks,
        "micro_batch": strategy.sequences(),
        "zero": strategy.zero.number(),
        "replicas": replicas,
        "recompute": strategy.recompute.to_string(),
        "sequence": strategy.sequence,
        "offload": strategy.offload.to_string(),
        "nvme": nvme,
        "tiles": tiles,
    })
}

/// How many strategies were refused for a reason, and one of them with an explanation.
fn why((count, strategy, refusal): &(usize, Strategy, Refusal)) -> Value {
    json!({ "count": count, "plan": strategy.to_string(), "what": refusal.what, "help": refusal.help })
}

/// One plan with its memory, its time as predicted and how much longer published runs took, and its
/// cost as predicted.
fn one(job: &TrainingJob, plan: &Plan, tokens: f64) -> Value {
    let expected = |made| Accuracy::known().expected(made, &plan.strategy);
    let ranked = unranked(job).is_none();
    json!({
        "plan": plan.strategy.to_string(),
        "strategy": degrees(&plan.strategy),
        "memory": plan.load,
        "memory_total": plan.load.total(),
        "seconds": plan.time,
        "step": plan.time.total(),
        "benchmarks": expected(Made::Benchmark),
        "trainings": expected(Made::Production),
        "traffic": job.traffic(&plan.strategy),
        "replica_traffic": job.replica_traffic(&plan.strategy),
        "cost": ranked.then(|| job.cost(plan.time.total(), tokens)),
    })
}
