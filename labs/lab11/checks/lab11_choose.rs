//! The check of lab11-choose: each strategy beside the best that the search finds.

use exercise::strategies;
use kit::check::{Evidence, run};
use kit::show::seconds;
use lab11::planner::{Plan, model, refusals, search, too_large};
use lab11::strategy::{Cluster, Device, Recompute, Strategy, Time, TrainingJob};
use shardlab::Result;
use shardlab::error::BadInput;
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("team 1: 8 billion parameters on one node", |evidence| {
            team(evidence, 0)
        }),
        ("team 2: 70 billion on slow links", |evidence| {
            team(evidence, 1)
        }),
        ("team 3: 175 billion on 1,024 devices", |evidence| {
            team(evidence, 2)
        }),
    ])
}

/// Model, devices, network, and sequences per step.
const TEAMS: [(&str, usize, &str, usize); 3] = [
    ("llama-3-8b", 8, "dgx-a100", 64),
    ("llama-2-70b", 64, "cloud-100g", 1024),
    ("gpt3-175b", 1024, "dgx-a100", 1536),
];

fn team(evidence: &mut Evidence, which: usize) -> Result<()> {
    let (name, devices, network, batch) = TEAMS[which];
    let text = strategies()[which];
    evidence.given(format!("{name} on {devices} x a100-80g, {network}: {text}"));
    let cluster = Device::named("a100-80g").and_then(|device| Cluster::new(device, network));
    let cluster = cluster.ok_or_else(|| {
        BadInput::new(
            "the library lacks this cluster",
            "this is a mistake of the check",
        )
    })?;
    let job = TrainingJob {
        batch,
        ..TrainingJob::new(model(name)?, cluster, devices)
    };
    let strategy = match text.parse::<Strategy>() {
        Ok(strategy) => strategy,
        Err(error) => {
            evidence.row(false, "your strategy", "dp=…,tp=…,pp=…", text);
            evidence.means(format!("{}: {}", error.what, error.help));
            return Ok(());
        }
    };
    let refusals = refusals(&job, &strategy);
    evidence.row(
        refusals.is_empty(),
        "heads, layers, batch and devices",
        "divided",
        if refusals.is_empty() {
            "divided"
        } else {
            "not divided"
        },
    );
    if let Some(refusal) = refusals.first() {
        evidence.means(format!("{}: {}.", refusal.what, refusal.help));
        return Ok(());
    }
    let load = job.load(&strategy);
    let time = job.time(&strategy);
    if let Some(refusal) = too_large(&job, &strategy, &load) {
        evidence.row(false, "memory", "fits", "does not fit");
        evidence.means(format!(
            "It does not fit: {}; {}.",
            refusal.what, refusal.help
        ));
        return Ok(());
    }
    let found = search(&job);
    let Some(best) = found.plans.first() else {
        return Ok(());
    };
    let least = best.time.total();
    let got = time.total();
    let most = format!("at most {} per step", seconds(1.05 * least));
    if !evidence.row(
        got <= 1.05 * least,
        format!("team {}", which + 1),
        most,
        seconds(got),
    ) {
        evidence.means(why(
            &job,
            &Plan {
                strategy,
                load,
                time,
            },
            best,
        ));
    }
    Ok(())
}

/// The part of the step that costs most, beside the best plan's, and what would help.
fn why(job: &TrainingJob, yours: &Plan, best: &Plan) -> String {
    let parts = Time::PARTS
        .into_iter()
        .zip(yours.time.parts())
        .zip(best.time.parts());
    let parts = parts.map(|((name, yours), best)| (name, yours - best));
    let (part, more) = parts
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap_or(("compute", 0.0));
    let s = yours.strategy;
    let node = job.cluster.network.ranks_per_node;
    let advice = match part {
        "recompute" if s.recompute != Recompute::None => {
            "Every layer is computed again, a third more work. Which ranks could share the activations instead?"
        }
        "tensor" if s.tensor > node => {
            "Tensor ranks leave their node, and sum up each layer over the network cards. Keep them within a node."
        }
        "tensor" => {
            "Ranks wait for tensor parallelism. Fewer tensor ranks, and more of a kind that sends less?"
        }
        "data" if s.zero == 3 => {
            "Ranks wait for parameters: ZeRO-3 gathers them for every micro-batch, over links that are slow for this."
        }
        "data" => {
            "Ranks wait for the averaging of gradients. With more tensor or pipeline ranks each rank has fewer of them."
        }
        "bubble" => {
            "The pipeline waits to be filled and emptied: more micro-batches, more chunks, or fewer stages."
        }
        "pipeline" => "Messages between stages take long: fewer chunks or fewer stages.",
        "compute" => {
            "Computing itself takes longer: thin products, or a last stage that has the head besides its layers."
        }
        _ => "The optimizer takes long: let ZeRO-1 divide it.",
    };
    format!(
        "A step takes {} instead of {}. The largest part of the difference is {part}, {} more. {advice}",
        seconds(yours.time.total()),
        seconds(best.time.total()),
        seconds(more)
    )
}
