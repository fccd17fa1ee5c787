//! The default screen: the job, the rules, the ranking, the memory and the time of the best.

use super::likely;
use super::planner::RefusalKind;
use super::planner::{Accuracy, Decision, Described, LONGEST, Made, Plan, Search, decide, search};
use super::strategy::{
    Cluster, Degrees, Load, Offloaded, Recompute, Strategy, Time, TrainingJob, cell,
};
use kit::show::{Screen, bar_to_scale, bytes_decimal, percent, ranked, shares, table, thousands};

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

    pub fn best(&self) -> Option<&Plan> {
        self.search.plans.first()
    }
}

/// Why plans for a job cannot be ranked: nobody trains such sequences with the strategies that are
/// known here.
pub fn unranked(job: &TrainingJob) -> Option<String> {
    let length = job.model.block;
    (length > LONGEST).then(|| {
        format!(
            "Not ranked, and no days: with {} tokens per sequence, people divide attention as well (context parallelism), which \
             is not known here above {}. Such plans are several times faster than these.",
            thousands(length as u64),
            thousands(LONGEST as u64)
        )
    })
}

/// The job in three lines.
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
    let usual = Cluster::usual_network(&cluster.device.name);
    let network = &cluster.network;
    let other = if usual.is_some_and(|usual| usual != network.name) {
        format!("{dot}the network of {}, not its own", network.name)
    } else {
        String::new()
    };
    let devices = format!(
        "{} x {}{dot}{}{other}",
        thousands(job.devices as u64),
        cluster.device.name,
        network.about
    );
    let bytes = job.bytes.parameter + job.bytes.gradient + job.bytes.optimizer;
    let [batch, length, step] = [job.batch, job.model.block, job.batch * job.model.block]
        .map(|number| thousands(number as u64));
    let batch = format!("{batch} x {length} = {step} tokens{dot}{bytes} bytes per parameter");
    let program = job.program.words();
    [
        screen.row("model", &model),
        screen.row("devices", &devices),
        screen.row("batch", &format!("{batch}{dot}{program}")),
    ]
    .join("\n")
}

/// The keys of a model's file that nothing read, in one row.
pub fn not_read(screen: &Screen, model: &Described) -> Option<String> {
    let all = &model.not_understood;
    if all.is_empty() {
        return None;
    }
    let mut shown: Vec<String> = all.iter().take(SHOWN).cloned().collect();
    if all.len() > SHOWN {
        shown.push(format!("and {} more: --json has all", all.len() - SHOWN));
    }
    Some(screen.row("not read", &shown.join(screen.separator())))
}

/// Keys of a file that the screen shows.
const SHOWN: usize = 8;

/// The decision path, with its reasons, and where it ends.
pub fn rules(screen: &Screen, found: &Found) -> String {
    let decision = &found.decision;
    let mut lines = vec!["  The source's rules:".to_string()];
    for step in &decision.steps {
        let answer = match step.answer.strip_prefix("no") {
            Some(why) if !why.starts_with(char::is_alphabetic) => {
                format!("{}{why}", screen.bad("no"))
            }
            _ => step.answer.clone(),
        };
        lines.push(screen.wrap(&format!("{} {answer}", step.question), 4));
    }
    let plan = match &decision.plan {
        Some(plan) if unranked(&found.job).is_some() => {
            format!("one of these: {}", plan.strategy.words())
        }
        Some(plan) => {
            format!(
                "best of these: {}, probably {} per step",
                plan.strategy.words(),
                likely::seconds(Made::Benchmark, plan)
            )
        }
        None => screen.bad("no such plan fits"),
    };
    lines.push(screen.wrap(&format!("so: {}. {plan}", decision.advice), 4));
    if let Some(best) = found.best()
        && unranked(&found.job).is_none()
    {
        lines.push(screen.wrap(&disagreement(screen, found, best), 4));
    }
    lines.join("\n")
}

/// Whether the search's best plan is the rule's. If not: what the rule forbids, and where its plan
/// loses time.
fn disagreement(screen: &Screen, found: &Found, best: &Plan) -> String {
    let decision = &found.decision;
    let words = best.strategy.words();
    let forbids = decision.forbids(best);
    let Some(plan) = decision.plan else {
        return format!("The search's best is {words}: {forbids}.");
    };
    let accuracy = Accuracy::known();
    let slower = accuracy.likely(&plan) / accuracy.likely(best) - 1.0;
    if plan.strategy.words() == words {
        return "The search finds nothing faster.".to_string();
    }
    if accuracy.may_win(&plan, &[best, &plan]) {
        return format!("The search's best, {words}, may be no faster: too close to tell.");
    }
    if slower < 0.01 {
        return "The search finds nothing faster by more than 1%.".to_string();
    }
    let reason = |&(part, seconds): &(&str, f64)| {
        let more = screen.seconds(seconds);
        match part {
            "recompute" => {
                let kept = Strategy { recompute: Recompute::None, ..plan.strategy };
                let takes = found.job.load(&kept).total();
                let room = found.job.cluster.device.room();
                let else_takes = format!("; without, it takes {}", bytes_decimal(takes));
                format!(
                    "computes layers again for {more}{}",
                    if takes > room { &else_takes } else { "" }
                )
            }
            "compute" => {
                format!("takes {more} more for its own products, which are thinner or uneven")
            }
            "tensor" => format!("waits {more} more for tensor ranks"),
            "pipeline" => format!("takes {more} more for messages between stages"),
            "bubble" => format!("waits {more} more in its pipeline's bubble"),
            "data" => format!("waits {more} more for data ranks"),
            _ => format!("takes {more} more for the optimizer"),
        }
    };
    let reasons: Vec<String> = decision.differs(best).iter().take(2).map(reason).collect();
    let why = if reasons.is_empty() {
        "predictions for such plans are too fast by more".to_string()
    } else {
        format!("it {}", reasons.join(", and "))
    };
    format!(
        "The search's best is {words}: {forbids}. The rule's plan probably takes {} longer: {why}.",
        percent(slower)
    )
}

/// The columns that say what a strategy is: dp, tp, pp, chunks, mb, zero, again, sp.
fn cells(s: &Strategy) -> [String; 8] {
    let again = cell(s.recompute);
    let sequence = if s.sequence { "yes" } else { "-" };
    let [dp, tp, pp, chunks, mb, zero] =
        [s.data, s.tensor, s.pipeline, s.chunks, s.sequences(), s.zero.number()]
            .map(|number| number.to_string());
    let zero = match (s.replicas, s.offload) {
        (1, Offloaded::None) => zero,
        (1, _) if s.nvme => format!("{zero} NVMe"),
        (1, _) => format!("{zero} host"),
        (_, _) => format!("{zero}/{}", s.shard()),
    };
    [dp, tp, pp, chunks, mb, zero, again, sequence.into()]
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
    let head = [
        "dp", "tp", "pp", "chunks", "mb", "zero", "again", "sp", "memory", "step", "probably",
        "MFU",
    ];
    let node = found.job.cluster.network.ranks_per_node;
    let row = |plan: &Plan| {
        let seconds = plan.time.total();
        let cost = found.job.cost(seconds, 1.0);
        let mut row = cells(&plan.strategy).to_vec();
        if found.job.leaves_node(plan.strategy.tensor) {
            row[1].push('!');
        }
        row.extend([bytes_decimal(plan.load.total()), step(screen, seconds)]);
        row.extend([likely::seconds(Made::Benchmark, plan), percent(cost.mfu)]);
        row
    };
    let all = found.search.by_degrees();
    let shown = &all[..top.min(all.len())];
    let rows: Vec<Vec<String>> = shown.iter().map(|plan| row(plan)).collect();
    if let Some(why) = unranked(&found.job) {
        let words =
            format!("The search: some plans that fit, by the step that is predicted. {why}");
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row[..10].to_vec()).collect();
        return format!("{}\n{}", screen.wrap(&words, 2), table(screen, &head[..10], &rows));
    }
    let words = format!(
        "The search: {} strategies, {} fit. {}; * may be the fastest:",
        thousands(found.search.considered as u64),
        thousands(found.search.plans.len() as u64),
        if all.len() > top {
            format!("Best {top} of {}", all.len())
        } else {
            "The best of each (dp, tp, pp)".to_string()
        }
    );
    let may_win = |row: usize| Accuracy::known().may_win(shown[row], &all);
    let mut lines = vec![
        screen.wrap(&words, 2),
        ranked(screen, &head, &rows, may_win),
        screen.wrap(&format!("probably: {}", likely::IN_SHORT), 2),
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

/// How many strategies were refused.
pub fn refused(screen: &Screen, found: &Found) -> String {
    let mut large = 0;
    let mut others = 0;
    for (kind, (count, ..)) in &found.search.refused {
        *if *kind == RefusalKind::Memory {
            &mut large
        } else {
            &mut others
        } += *count as u64;
    }
    let words = format!(
        "{} {}{}{} cannot work: --refused says why",
        thousands(large),
        screen.bad("do not fit"),
        screen.separator(),
        thousands(others)
    );
    screen.row("refused", &words)
}

/// One refused strategy of each kind with its reason, and the degrees at which nothing fits.
pub fn refusals(screen: &Screen, found: &Found, top: usize) -> String {
    let mut lines = vec!["  Refused strategies, and one of each kind:".to_string()];
    for (kind, (count, strategy, refusal)) in &found.search.refused {
        lines.push(screen.wrap(&format!("{} {}", thousands(*count as u64), kind.words()), 4));
        lines.push(
            screen.wrap(&format!("{}: {}; {}", strategy.words(), refusal.what, refusal.help), 8),
        );
    }
    let mut unfit: Vec<&Plan> = found.search.unfit.iter().collect();
    unfit.sort_by(|a, b| a.load.total().total_cmp(&b.load.total()));
    if unfit.is_empty() {
        return lines.join("\n");
    }
    let row = |plan: &&Plan| {
        let [dp, tp, pp, .., again, sp] = cells(&plan.strategy);
        let (most, bytes) = parts(&plan.load)
            .into_iter()
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap_or_default();
        let most = format!("{most} {}", bytes_decimal(bytes));
        vec![
            dp,
            tp,
            pp,
            plan.strategy.zero.number().to_string(),
            again,
            sp,
            bytes_decimal(plan.load.total()),
            most,
        ]
    };
    let rows: Vec<Vec<String>> = unfit.iter().take(top).map(row).collect();
    let shown = if unfit.len() > top {
        format!(" ({top} of {})", unfit.len())
    } else {
        String::new()
    };
    let room = bytes_decimal(found.job.cluster.device.room());
    let words = format!(
        "Degrees at which nothing fits into {room}, each with the plan that needs least{shown}:"
    );
    lines.extend([String::new(), screen.wrap(&words, 2)]);
    lines.push(table(
        screen,
        &["dp", "tp", "pp", "zero", "again", "sp", "memory", "most of it"],
        &rows,
    ));
    lines.join("\n")
}

/// The parts of a load, by name.
fn parts(load: &Load) -> [(&'static str, f64); 6] {
    let Load {
        weights,
        gradients,
        optimizer,
        activations,
        messages,
        working,
        ..
    } = *load;
    let named = [("weights", weights), ("gradients", gradients), ("optimizer", optimizer)];
    [
        named[0],
        named[1],
        named[2],
        ("activations", activations),
        ("messages", messages),
        ("working", working),
    ]
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
    let mut lines: Vec<String> = parts(&plan.load)
        .into_iter()
        .filter(|part| part.1 > 0.01 * room) // A smaller one shows nothing.
        .map(line)
        .collect();
    lines.push(line(("in all", plan.load.total())));
    if plan.load.host > 0.0 {
        let host = bytes_decimal(job.cluster.device.host_memory);
        lines.push(format!("  on the host: {} of {host}", bytes_decimal(plan.load.host)));
    }
    if plan.load.disk > 0.0 {
        let disk = bytes_decimal(job.cluster.device.disk);
        lines.push(format!("  on its disks: {} of {disk}", bytes_decimal(plan.load.disk)));
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
pub fn time(screen: &Screen, job: &TrainingJob, plan: &Plan) -> String {
    let probably = match unranked(job) {
        None => format!(", {} probably", likely::seconds(Made::Benchmark, plan)),
        Some(_) => String::new(),
    };
    let parts: Vec<(&str, f64)> = Time::PARTS
        .into_iter()
        .zip(plan.time.parts())
        .filter(|part| part.1 > 0.01 * plan.time.total())
        .collect();
    screen.row(
        "time",
        &format!(
            "{} predicted{probably}: {}",
            step(screen, plan.time.total()),
            shares(screen, &parts)
        ),
    )
}

/// The whole training, as long as published trainings make probable; or why there are no days.
pub fn ending(screen: &Screen, job: &TrainingJob, plan: &Plan, all: f64) -> String {
    if let Some(why) = unranked(job) {
        return screen.row("train", &why);
    }
    let cost = job.cost(plan.time.total(), all);
    let likely = |number: f64| likely::number(&plan.strategy, number);
    let dollars = if cost.dollars > 0.0 {
        format!(", ${}", likely(cost.dollars))
    } else {
        String::new()
    };
    let words = format!(
        "{} tokens; trainings take {} a step: {} days, {} device hours{dollars}",
        tokens(all),
        likely::seconds(Made::Production, plan),
        likely(cost.days),
        likely(cost.device_hours)
    );
    screen.row("train", &words)
}

/// The part of a step that its ranks wait for longest, or compute once more: `data 31%`.
fn waits(time: &Time) -> String {
    let parts = Time::PARTS.into_iter().zip(time.parts());
    let waiting = parts.filter(|(name, _)| !["compute", "optimizer"].contains(name));
    let most = waiting.max_by(|a, b| a.1.total_cmp(&b.1));
    let most = most.filter(|(_, seconds)| *seconds >= 0.01 * time.total());
    most.map_or("nothing".to_string(), |(name, seconds)| {
        let name = if name == "recompute" { "again" } else { name };
        format!("{name} {:.0}%", 100.0 * seconds / time.total())
    })
}

/// The best plan on slower and faster networks, what it waits for, and what today's best would wait
/// for there: between nodes, or within the only one.
pub fn sensitivity(screen: &Screen, found: &Found) -> String {
    let job = &found.job;
    if let Some(why) = unranked(job) {
        return screen.wrap(&why, 2);
    }
    let Some(today) = found.best() else {
        return screen.wrap("No strategy fits, on any links.", 2);
    };
    if job.devices == 1 {
        return screen.wrap("One device has no links.", 2);
    }
    let one_node = job.devices <= job.cluster.network.ranks_per_node;
    let row = |factor: f64| {
        let mut job = job.clone();
        let network = &mut job.cluster.network;
        let link = if one_node {
            &mut network.within
        } else {
            &mut network.between
        };
        link.bandwidth *= factor;
        let searched = search(&job);
        let best = searched.plans.first()?;
        let there = job.plan(today.strategy);
        Some(vec![
            format!("x {factor}"),
            best.strategy.words(),
            likely::seconds(Made::Benchmark, best),
            waits(&best.time),
            format!("{}, {}", likely::seconds(Made::Benchmark, &there), waits(&there.time)),
        ])
    };
    let rows: Vec<Vec<String>> = [0.1, 0.5, 2.0].into_iter().filter_map(row).collect();
    let links = if one_node { "within the node" } else { "between nodes" };
    let head = ["speed", "best plan", "probably", "loses to", "today's best"];
    let words = format!("If the links {links} were slower or faster:");
    format!("{}\n{}", screen.wrap(&words, 2), table(screen, &head, &rows))
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
