//! The check of lab11-choose: each repaired plan beside all single changes of the team's own.

use exercise::plans;
use kit::check::{Evidence, Row, run};
use kit::show::{bytes_decimal, seconds};
use planner::{
    Cluster, Degrees, Device, MICRO_BATCHES, Offloaded, Plan, Recompute, Stage, Strategy,
    TrainingJob,
};
use planner::{fits, model, refusal, too_large};
use shardlab::Result;
use shardlab::error::BadInput;
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("team 1: 13 billion that do not fit", |evidence| team(evidence, 0)),
        ("team 2: 13 billion on slow links", |evidence| team(evidence, 1)),
        ("team 3: 175 billion on 1,024 devices", |evidence| team(evidence, 2)),
    ])
}

/// Model, devices, network, sequences per step (0: the usual batch), and the plan to repair.
const TEAMS: [(&str, usize, &str, usize, &str); 3] = [
    ("gpt3-13b", 32, "dgx-a100", 0, "dp=32,mb=4,zero=1"),
    ("llama-2-13b", 32, "cloud-100g", 0, "dp=32,mb=1,zero=3"),
    ("gpt3-175b", 1024, "dgx-a100", 1536, "dp=4,tp=8,pp=32,mb=4,zero=1,sp"),
];

fn mistake(what: &str) -> BadInput {
    BadInput::new(what.to_string(), "this is a mistake of the check")
}

/// The job of a team, and its plan.
fn given(which: usize) -> Result<(TrainingJob, Strategy)> {
    let (name, devices, network, batch, plan) = TEAMS[which];
    let cluster = Device::named("a100-80g").and_then(|device| Cluster::new(device, network));
    let cluster = cluster.ok_or_else(|| mistake("the library lacks this cluster"))?;
    let mut job = TrainingJob::new(model(name)?, cluster, devices);
    if batch > 0 {
        job.batch = batch;
    }
    Ok((job, plan.parse::<Strategy>()?))
}

/// What differs between two strategies.
fn changes(from: &Strategy, to: &Strategy) -> Vec<&'static str> {
    let degrees = [
        (from.data != to.data, "dp"),
        (from.tensor != to.tensor, "tp"),
        (from.pipeline != to.pipeline, "pp"),
    ];
    let mut changed: Vec<&str> = degrees.iter().filter(|d| d.0).map(|d| d.1).collect();
    // Ranks that move from one axis to another are one change.
    changed.pop();
    let settings = [
        (from.chunks != to.chunks, "chunks"),
        (from.sequences() != to.sequences(), "mb"),
        (from.zero != to.zero, "zero"),
        (from.replicas != to.replicas, "shard"),
        (from.recompute != to.recompute, "recompute"),
        (from.sequence != to.sequence, "sp"),
        (from.offload != to.offload, "offload"),
    ];
    changed.extend(settings.iter().filter(|s| s.0).map(|s| s.1));
    changed
}

/// All plans that fit and differ from `own` in one change.
fn repairs(job: &TrainingJob, own: &Strategy) -> Vec<Plan> {
    let mut all = Vec::new();
    let divisors = |n: usize| (1..=n).filter(move |d| n.is_multiple_of(*d));
    for tensor in divisors(job.devices) {
        for pipeline in divisors(job.devices / tensor) {
            let data = job.devices / tensor / pipeline;
            all.push(Strategy { data, tensor, pipeline, ..*own });
        }
    }
    for shard in divisors(own.data) {
        all.push(Strategy { replicas: own.data / shard, ..*own });
    }
    let chunks = (1..=job.model.layers).map(|chunks| Strategy { chunks, ..*own });
    let micro = MICRO_BATCHES.map(|sequences| Strategy { micro_batch: Some(sequences), ..*own });
    let zero = Stage::ALL.map(|zero| Strategy { zero, ..*own });
    let again = [
        Recompute::None,
        Recompute::Norms,
        Recompute::OneIn(4),
        Recompute::OneIn(2),
        Recompute::Mlp,
        Recompute::Full,
    ];
    let again = again.map(|recompute| Strategy { recompute, ..*own });
    let sequence = [Strategy { sequence: !own.sequence, ..*own }];
    all.extend(chunks.chain(micro).chain(zero).chain(again).chain(sequence));
    all.retain(|strategy| changes(own, strategy).len() == 1);
    all.retain(|strategy| refusal(job, strategy).is_none());
    let mut plans: Vec<Plan> = all.into_iter().map(|strategy| job.plan(strategy)).collect();
    plans.retain(|plan| fits(job, &plan.load));
    plans.sort_by(|a, b| a.time.total().total_cmp(&b.time.total()));
    plans
}

/// What is to be said of one team's repaired plan.
#[derive(Default)]
struct Verdict {
    rows: Vec<Row>,
    means: String,
}

impl Verdict {
    fn row(&mut self, agrees: bool, at: &str, expected: impl Into<String>, got: impl Into<String>) {
        self.rows.push(Row {
            at: at.into(),
            expected: expected.into(),
            got: got.into(),
            agrees,
        });
    }

    fn agrees(&self) -> bool {
        self.rows.iter().all(|row| row.agrees)
    }

    fn means(self, text: impl Into<String>) -> Verdict {
        Verdict { means: text.into(), ..self }
    }
}

/// A team's plan. If it is not repaired, the evidence also says how far the teams after it are: the
/// three are independent, and a check ends with the first that is wrong.
fn team(evidence: &mut Evidence, which: usize) -> Result<()> {
    let own = verdict(evidence, which)?;
    for row in &own.rows {
        evidence.row(row.agrees, &row.at, &row.expected, &row.got);
    }
    if own.agrees() {
        return Ok(());
    }
    let mut means = own.means;
    for later in which + 1..TEAMS.len() {
        let other = verdict(evidence, later)?;
        let name = format!("Team {}", later + 1);
        if other.agrees() {
            means += &format!("\n{name}: repaired.");
            continue;
        }
        for row in other.rows.iter().filter(|row| !row.agrees) {
            let at = format!("team {}: {}", later + 1, row.at);
            evidence.row(false, at, &row.expected, &row.got);
        }
        means += &format!("\n{name}: {}", other.means);
    }
    evidence.means(means);
    Ok(())
}

fn verdict(evidence: &Evidence, which: usize) -> Result<Verdict> {
    let (job, own) = given(which)?;
    let text = plans()[which];
    let (name, devices, network, ..) = TEAMS[which];
    evidence.given(format!("{name} on {devices} x a100-80g, {network}: {text}"));
    let mut verdict = Verdict::default();
    let strategy = match text.parse::<Strategy>() {
        Ok(strategy) => strategy,
        Err(error) => {
            verdict.row(false, "your plan", "dp=…,tp=…,pp=…", text);
            return Ok(verdict.means(format!("{}: {}", error.what, error.help)));
        }
    };
    let refused = refusal(&job, &strategy);
    let divides = |yes: bool| if yes { "possible" } else { "refused" };
    verdict.row(
        refused.is_none(),
        "heads, layers, batch and devices",
        divides(true),
        divides(refused.is_none()),
    );
    if let Some(refusal) = refused {
        return Ok(verdict.means(format!("{}: {}.", refusal.what, refusal.help)));
    }
    let changed = changes(&own, &strategy);
    let found = match changed[..] {
        [] => "none".to_string(),
        [_] => "one".to_string(),
        _ => format!("{}: {}", changed.len(), changed.join(", ")),
    };
    let is_one = changed.len() == 1;
    verdict.row(is_one, "changes of the team's plan", "one", found);
    if changed.is_empty() {
        return Ok(verdict.means(
            "This is the plan that the team has. What limits it: memory, a group of ranks that waits, or the bubble? \
             `--plan` shows all three.",
        ));
    }
    if !is_one {
        return Ok(verdict.means(
            "More than one setting differs from the team's plan. A plan of the lab's table may be fast, and it does not say what was wrong \
             with this one: change what limits it, and nothing else.",
        ));
    }
    let yours = job.plan(strategy);
    let room = job.cluster.device.room();
    verdict.row(
        fits(&job, &yours.load),
        "bytes of a rank",
        format!("at most {}", bytes_decimal(room)),
        bytes_decimal(yours.load.total()),
    );
    if let Some(refusal) = too_large(&job, &yours.load) {
        let state = yours.load.state();
        if state > room {
            return Ok(verdict.means(format!(
                "{} take {} without any activations. No micro-batch is small enough to change that, and recomputation frees \
                 activations only. What divides the state?",
                on_the_device(&strategy),
                bytes_decimal(state)
            )));
        }
        let rest = yours.load.total() - state;
        return Ok(verdict.means(format!(
            "It does not fit: {}. {} take {}, and activations with their buffers {}. Which of the two did you make smaller, and \
             which is still too large?",
            refusal.what,
            on_the_device(&strategy),
            bytes_decimal(state),
            bytes_decimal(rest)
        )));
    }
    let all = repairs(&job, &own);
    let best = all.first().ok_or_else(|| mistake("no change helps"))?;
    let most = 1.05 * best.time.total();
    let got = yours.time.total();
    verdict.row(
        got <= most,
        "a step, as the planner predicts it",
        format!("at most {}", seconds(most)),
        seconds(got),
    );
    if verdict.agrees() {
        return Ok(verdict);
    }
    Ok(verdict.means(why(&job, &own, &yours, best)))
}

/// What of a model's state is on the device.
fn on_the_device(strategy: &Strategy) -> &'static str {
    match strategy.offload {
        Offloaded::None => "Weights, gradients and optimizer",
        Offloaded::Optimizer => "Weights and gradients",
        Offloaded::Parameters => "Weights and gradients of the layers at work",
    }
}

/// How a change has moved the bubble's share.
fn bubble(job: &TrainingJob, own: &Strategy, yours: &Strategy) -> String {
    let parts = |s: &Strategy| [s.pipeline, s.micro_batches_of(job.batch) * s.chunks];
    let [before, after] = [parts(own), parts(yours)];
    // Shares are compared as products, without a division.
    let [less, same] = [
        after[0] * before[1] < before[0] * after[1],
        after[0] * before[1] == before[0] * after[1],
    ];
    let chunks = if yours.chunks > 1 {
        ", and each chunk counts as one more"
    } else {
        ""
    };
    let advice = match (less, same) {
        (true, _) => "It is smaller now. How much smaller can it get?",
        (_, true) if yours.recompute != own.recompute => {
            "It is the same, and every pass that a stage waits for takes longer now."
        }
        (_, true) => "It is the same. How many micro-batches does a replica have, and why so few?",
        _ => "It is larger now.",
    };
    format!(
        "The pipeline waits to be filled and emptied. Its share is about stages over micro-batches: {} over {} in the team's plan, \
         {} over {} in yours{chunks}. {advice}",
        before[0], before[1], after[0], after[1]
    )
}

/// The part of the step that costs most, beside the best change's, and a question about it.
fn why(job: &TrainingJob, own: &Strategy, yours: &Plan, best: &Plan) -> String {
    let parts = yours.time.parts().into_iter().zip(best.time.parts());
    let more = parts.map(|((part, yours), (_, best))| (part, yours - best));
    let (part, more) = more.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("compute", 0.0));
    let s = yours.strategy;
    let node = job.cluster.network.ranks_per_node;
    let advice = match part {
        "recompute" => {
            "Layers are computed again, up to a third more work, for memory that another change gets for less."
        }
        "tensor" if s.tensor > node => {
            "Tensor ranks leave their node, and sum up each layer over the network cards."
        }
        "tensor" => {
            "Tensor ranks wait for each other in every layer. Which change sends less than this one?"
        }
        "data" if s.zero == Stage::Three => {
            "Ranks still wait for parameters: ZeRO-3 gathers them for every micro-batch, over the one card of each node. Which links are \
             faster, and how many ranks do they connect?"
        }
        "data" => {
            "Ranks wait for gradients: ZeRO-2 reduces them after every micro-batch, over the one card of each node."
        }
        "bubble" => &bubble(job, own, &s),
        "pipeline" => "Messages between stages take long.",
        "compute" => {
            "Tensor ranks cut the products into thin ones, which are slower. Which change leaves them whole?"
        }
        _ => "The optimizer takes long.",
    };
    format!(
        "A step takes {} instead of {}. The largest part of the difference is {part}, {} more. {advice}",
        seconds(yours.time.total()),
        seconds(best.time.total()),
        seconds(more)
    )
}
