//! The default screen: the job, the rules, the ranking, the memory and the time of the best.

use super::likely;
use kit::show::{Screen, bar_to_scale, bytes_decimal, only_if, percent, ranked, shares, thousands};
use planner::{
    Accuracy, Decision, Degrees, Made, Offloaded, Plan, Search, Strategy, TrainingJob, cell,
    decide, search,
};

/// A searched job.
pub struct Found {
    pub job: TrainingJob,
    pub search: Search,
    pub decision: Decision,
}

impl Found {
    pub fn new(job: TrainingJob) -> Found {
        let search = search(&job);
        let decision = decide(&job, &search);
        Found { job, search, decision }
    }
}

/// The job in three lines, and one for layers that do not see all positions.
pub fn job(screen: &Screen, job: &TrainingJob, name: &str) -> String {
    let model = &job.model;
    let dot = screen.separator();
    let heads = if model.kv_heads() == model.heads {
        format!("{} heads", model.heads)
    } else {
        format!("{} heads, {} kv", model.heads, model.kv_heads())
    };
    let layers = model.layers;
    let wide = thousands(model.embd as u64);
    let parameters = tokens(model.parameters() as f64);
    let model = format!("{name}{dot}{parameters}{dot}{layers} layers{dot}{wide} wide{dot}{heads}");
    let cluster = &job.cluster;
    let device = &cluster.device;
    let network = &cluster.network;
    let other = only_if(
        device.network != network.name,
        format!("{dot}the network of {}, not its own", network.name),
    );
    let devices = format!(
        "{} x {}{dot}{}{other}",
        thousands(job.devices as u64),
        device.name,
        network.about
    );
    let bytes = job.bytes.parameter + job.bytes.gradient + job.bytes.optimizer;
    let [batch, length, step] = [job.batch, job.model.block, job.batch * job.model.block]
        .map(|number| thousands(number as u64));
    let batch = format!("{batch} x {length} = {step} tokens{dot}{bytes} bytes per parameter");
    let program = job.program.words();
    let [windowed, window] = job.model.dense().windows;
    let mut rows = vec![screen.row("model", &model)];
    if windowed > 0 {
        let window = thousands(window as u64);
        let seen = format!("{windowed} of {layers} layers see the last {window} tokens at most");
        rows.push(screen.row("windows", &seen));
    }
    rows.push(screen.row("devices", &devices));
    rows.push(screen.row("batch", &format!("{batch}{dot}{program}")));
    rows.join("\n")
}

/// The decision path, with its reasons, and where it ends.
pub fn rules(screen: &Screen, found: &Found) -> String {
    let decision = &found.decision;
    let mut lines = vec!["  The source's rules:".to_string()];
    for step in &decision.steps {
        let answer = match step.answer.strip_prefix("no:") {
            Some(why) => format!("{}:{why}", screen.bad("no")),
            None => step.answer.clone(),
        };
        lines.push(screen.wrap(&format!("{} {answer}", step.question), 4));
    }
    let plan = match &decision.plan {
        Some(plan) => format!(
            "best of these: {}, probably {} per step",
            plan.strategy.words(),
            likely::seconds(Made::Benchmark, plan)
        ),
        None => screen.bad("no such plan fits"),
    };
    lines.push(screen.wrap(&format!("so: {}. {plan}", decision.advice), 4));
    lines.join("\n")
}

/// The columns that say what a strategy is: dp, tp, pp, cp, mb, zero, again, sp.
fn cells(s: &Strategy, shared: bool) -> [String; 8] {
    let again = cell(s.recompute);
    let sequence = if s.sequence { "yes" } else { "-" };
    let fourth = if shared { s.context } else { s.chunks };
    let [dp, tp, pp, fourth, mb, zero] =
        [s.data, s.tensor, s.pipeline, fourth, s.sequences(), s.zero.number()]
            .map(|number| number.to_string());
    let zero = match (s.replicas, s.offload) {
        (1, Offloaded::None) => zero,
        (1, _) => format!("{zero} host"),
        (_, _) => format!("{zero}/{}", s.shard_ranks()),
    };
    [dp, tp, pp, fourth, mb, zero, again, sequence.into()]
}

/// The time of a step in one word, for a column.
fn step(screen: &Screen, seconds: f64) -> String {
    if (60.0..10_000.0).contains(&seconds) {
        format!("{seconds:.0} s")
    } else {
        screen.seconds(seconds)
    }
}

/// The best plans, one for each (dp, tp, pp). Those that may be the fastest have a mark.
pub fn ranking(screen: &Screen, found: &Found, top: usize) -> String {
    let all = found.search.by_degrees();
    let shown = &all[..top.min(all.len())];
    // Where sequences are shared, the context ranks matter more than the chunks.
    let shared = shown.iter().any(|plan| plan.strategy.context > 1);
    let fourth = if shared { "cp" } else { "chunks" };
    let head = [
        "dp", "tp", "pp", fourth, "mb", "zero", "again", "sp", "memory", "step", "probably", "MFU",
    ];
    let node = found.job.cluster.network.ranks_per_node;
    let row = |plan: &Plan| {
        let seconds = plan.time.total();
        let cost = found.job.cost(seconds, 1.0);
        let mut row = cells(&plan.strategy, shared).to_vec();
        if found.job.leaves_node(plan.strategy.tensor) {
            row[1].push('!');
        }
        row.extend([bytes_decimal(plan.load.total()), step(screen, seconds)]);
        row.extend([likely::seconds(Made::Benchmark, plan), percent(cost.mfu)]);
        row
    };
    let words = format!(
        "The search: {} strategies, {} fit. {}, by probably's middle:",
        thousands(found.search.considered as u64),
        thousands(found.search.plans.len() as u64),
        if all.len() > top {
            format!("Best {top} of {}", all.len())
        } else {
            "The best of each (dp, tp, pp)".to_string()
        }
    );
    let probably = if shared {
        "? means that no published run of the list shares sequences"
    } else {
        likely::IN_SHORT
    };
    let may_win = |row: usize| Accuracy::known().may_win(shown[row], &all);
    let mut lines = vec![
        screen.wrap(&words, 2),
        ranked(screen, &head, shown.iter().map(|plan| row(plan)), may_win),
        screen.wrap(&format!("* may be fastest; {probably}"), 2),
    ];
    let leaves = |plan: &&Plan| found.job.leaves_node(plan.strategy.tensor);
    if shown.iter().any(leaves) {
        let words = format!(
            "! breaks a rule of the source: keep tensor ranks within a node, of {node} devices here"
        );
        lines.push(screen.wrap(&words, 2));
    }
    lines.join("\n")
}

/// The bytes of a rank: a bar for each kind, all to one scale.
pub fn memory(screen: &Screen, job: &TrainingJob, plan: &Plan) -> String {
    let room = job.cluster.device.room();
    let most = plan.load.total().max(room);
    // Besides the bar a line has its name and its bytes.
    let long = screen.width.saturating_sub(26).clamp(10, 40);
    let line = |(name, bytes): (&str, f64)| {
        format!(
            "  {name:11}  {}  {}",
            bar_to_scale(screen, bytes, room, most, long),
            bytes_decimal(bytes)
        )
    };
    let mut lines: Vec<String> = plan
        .load
        .parts()
        .into_iter()
        .filter(|part| part.1 > 0.01 * room) // A smaller one shows nothing.
        .map(line)
        .collect();
    lines.push(line(("in all", plan.load.total())));
    if plan.load.host > 0.0 {
        let host = bytes_decimal(job.cluster.device.host_memory);
        lines.push(format!("  on the host: {} of {host}", bytes_decimal(plan.load.host)));
    }
    let bar = if plan.load.total() > room {
        "bars end where they fit, at"
    } else {
        "a whole bar is"
    };
    let words = format!("The best plan's bytes per rank; {bar} {}:", usable(job));
    format!("{}\n{}", screen.wrap(&words, 2), lines.join("\n"))
}

/// The bytes that a plan may use, and why not all: `76.4 GB (84.9 GB, --free 10)`.
pub fn usable(job: &TrainingJob) -> String {
    let device = &job.cluster.device;
    let [room, memory] = [device.room(), device.memory].map(bytes_decimal);
    format!("{room} ({memory}, --free {:.0})", 100.0 * device.free)
}

/// The parts of a step's time.
pub fn time(screen: &Screen, plan: &Plan) -> String {
    let total = plan.time.total();
    let shown = plan.time.parts().into_iter().filter(|part| part.1 > 0.01 * total);
    let parts: Vec<(&str, f64)> = shown.collect();
    let words = format!(
        "{} predicted, {} probably: {}",
        step(screen, total),
        likely::seconds(Made::Benchmark, plan),
        shares(screen, &parts)
    );
    screen.row("time", &words)
}

/// The whole training, as long as published trainings make probable.
pub fn ending(screen: &Screen, job: &TrainingJob, plan: &Plan, all: f64) -> String {
    let cost = job.cost(plan.time.total(), all);
    let likely = |number: f64| likely::number(&plan.strategy, number);
    let words = format!(
        "{} tokens; trainings take {} a step: {} days, {} device hours",
        tokens(all),
        likely::seconds(Made::Production, plan),
        likely(cost.days),
        likely(cost.device_hours)
    );
    screen.row("train", &words)
}

/// `15.0 trillion`.
pub fn tokens(number: f64) -> String {
    let (unit, one) = match number {
        n if n >= 1e12 => ("trillion", 1e12),
        n if n >= 1e9 => ("billion", 1e9),
        _ => ("million", 1e6),
    };
    format!("{:.1} {unit}", number / one)
}
