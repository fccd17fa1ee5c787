//! The search's answer for tools.

use super::report::Found;
use crate::planner::{Described, Plan, Refusal};
use crate::strategy::Strategy;
use serde_json::{Value, json};

/// The job, the rules and the best `top` plans of all, as one JSON object.
pub fn json(found: &Found, model: &Described, top: usize, tokens: f64) -> String {
    let Found {
        job,
        search,
        decision,
        ..
    } = found;
    let refused: serde_json::Map<String, Value> = search
        .refused
        .iter()
        .map(|(kind, refused)| (kind.words().to_string(), why(refused)))
        .collect();
    let all = json!({
        "model": model.name,
        "not_understood": model.not_understood,
        "parameters": job.model.parameters() as f64,
        "devices": job.devices,
        "device": job.cluster.device.name,
        "network": job.cluster.network.name,
        "program": job.program,
        "batch": job.batch,
        "length": job.model.block,
        "tokens": tokens,
        "considered": search.considered,
        "fit": search.plans.len(),
        "refused": refused,
        "unfit": search.unfit.iter().map(|plan| json!({"plan": plan.strategy.to_string(), "memory": plan.load})).collect::<Vec<_>>(),
        "rules": {
            "path": decision.steps.iter().map(|step| json!([step.question, step.answer])).collect::<Vec<_>>(),
            "advice": decision.advice,
            "plan": decision.plan.as_ref().map(|plan| one(found, plan, tokens)),
        },
        "plans": search.plans.iter().take(top).map(|plan| one(found, plan, tokens)).collect::<Vec<_>>(),
    });
    format!("{all:#}")
}

/// How many strategies were refused for a reason, and one of them with an explanation.
fn why((count, strategy, refusal): &(usize, Strategy, Refusal)) -> Value {
    json!({ "count": count, "plan": strategy.to_string(), "what": refusal.what, "help": refusal.help })
}

/// One plan with its memory, its time and its cost.
fn one(found: &Found, plan: &Plan, tokens: f64) -> Value {
    let job = &found.job;
    json!({
        "plan": plan.strategy.to_string(),
        "strategy": plan.strategy,
        "memory": plan.load,
        "memory_total": plan.load.total(),
        "seconds": plan.time,
        "step": plan.time.total(),
        "expected_error": found.accuracy.expected(&plan.strategy),
        "traffic": job.traffic(&plan.strategy),
        "replica_traffic": job.replica_traffic(&plan.strategy),
        "cost": job.cost(plan.time.total(), tokens),
    })
}
