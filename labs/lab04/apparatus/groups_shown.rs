//! Groups that shard, on the screen: a picture of the links, and one group of all ranks beside.

use super::grouped::Grouped;
use super::job::Job;
use super::lab::Lab;
use super::measured::agree;
use kit::report;
use kit::show::{Screen, bar_to_scale, bytes_decimal, only_if, rows_of, significant, table};
use shardlab::comm::Options;
use shardlab::plan::{BytesEach, zero_volumes};

/// The most ranks of a group, and groups, that the picture has room for.
const SHOWN: usize = 3;

/// The rows about groups, in a run's setup.
pub fn introduce_groups(lab: &Lab) {
    let Lab { run, strategy, .. } = lab;
    let (groups, shard) = (strategy.replicas, strategy.shard_ranks());
    let text = format!("{strategy}: {groups} groups of {shard}, each a node of its own");
    run.row("strategy", &text);
    if run.options.link.is_some() || run.options.nodes.is_some() {
        let Options { link, nodes, .. } = &run.options;
        let inside = link.map_or("memory".to_string(), |link| link.to_string());
        let between = nodes.map_or(inside.clone(), |nodes| nodes.link.to_string());
        run.row("links", &format!("in a node {inside}; between nodes {between}"));
    }
}

/// Prints the picture and the table.
pub fn show(lab: &Lab, all: &[Grouped; 2]) {
    let screen = &lab.run.screen;
    screen.say(format!("\n{}", picture(screen, &all[1], &lab.job)));
    screen.say(format!("\n{}", compared(lab, all)));
    let psi = psi(screen);
    let words = format!(
        "{psi}: parameters; n: ranks of a group; r: groups. sends: from each rank per step, {}{}{}",
        report::counted(),
        only_if(
            lab.config.grad_accum > 1,
            ". Groups average once, whatever micro-steps there are"
        ),
        if has_links(lab) {
            ". step: the median of the slowest rank's."
        } else {
            "."
        },
    );
    screen.say(screen.wrap(&words, 2));
}

fn has_links(lab: &Lab) -> bool {
    lab.run.options.link.is_some() || lab.run.options.nodes.is_some()
}

fn psi(screen: &Screen) -> &'static str {
    screen.either("Ψ", "P")
}

/// Bytes as multiples of the model's parameters, or of bytes for each where types differ.
fn in_numbers(job: &Job, bytes: f64) -> f64 {
    let BytesEach { parameter, gradient, .. } = job.bytes_each();
    let each = if parameter == gradient { parameter } else { 1 };
    bytes / (each * job.numel) as f64
}

/// Nodes as rows of ranks, with what a rank sends along each kind of link.
fn picture(screen: &Screen, grouped: &Grouped, job: &Job) -> String {
    let (groups, shard) = (grouped.strategy.replicas, grouped.strategy.shard_ranks());
    let columns = shard.min(SHOWN);
    let (along, across) = (screen.either("═", "="), screen.either("║", "|"));
    let legend = |sign: &str, where_: &str, bytes: f64| {
        let numbers = significant(in_numbers(job, bytes), 3);
        format!("     {sign} {where_}: {numbers} {}", psi(screen))
    };
    let wide = |text: String| format!("{text:<13}");
    let heads: String = (0..columns).map(|place| wide(format!("shard {place}"))).collect();
    let mut lines = vec![format!("           {}", heads.trim_end())];
    let more = if columns < shard { 4 } else { 0 };
    let shown = groups.min(SHOWN);
    for group in 0..shown {
        let mut ranks = String::new();
        for place in 0..columns {
            let rank = format!("rank {}", group * shard + place);
            let link = 13usize.saturating_sub(rank.len() + 2);
            ranks += &rank;
            if place + 1 < columns {
                ranks += &format!(" {} ", along.repeat(link));
            }
        }
        let rest = only_if(more > 0, " ...");
        let inside = only_if(group == 0, legend(along, "in a node", grouped.inside));
        lines.push(format!("  {:<9}{ranks}{rest}{inside}", format!("node {group}")));
        if group + 1 < shown {
            let links: String = (0..columns).map(|_| wide(format!("  {across}"))).collect();
            let room = 13 * (columns - 1) + 6 + more;
            let between = only_if(group == 0, legend(across, "between nodes", grouped.between));
            lines.push(format!("           {:<room$}{between}", links.trim_end()));
        }
    }
    if shown < groups {
        lines.push(format!("  and {} more nodes", groups - shown));
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

/// What a rank holds and sends, measured and by the formulas.
fn compared(lab: &Lab, all: &[Grouped; 2]) -> String {
    let screen = &lab.run.screen;
    let psi = psi(screen);
    let BytesEach { parameter, gradient, optimizer } = lab.job.bytes_each();
    let mixed = parameter != gradient;
    let wholes = [parameter, gradient, optimizer].map(|bytes| (bytes * lab.job.numel) as f64);
    let most = wholes.into_iter().fold(0.0, f64::max);
    let volumes = zero_volumes(lab.strategy.zero.number(), lab.job.micro_steps as u64);
    let of_group = if mixed {
        gradient * volumes.reduced + parameter * volumes.gathered
    } else {
        volumes.total()
    };
    let of_groups = if mixed { 2 * gradient } else { 2 };
    let verdict = |is: f64, says: f64| screen.verdict(agree(is, says));
    let column = |grouped: &Grouped| {
        let held = grouped.measured.beside_formula(&grouped.job(lab)).into_iter().zip(wholes);
        let cell = |((_, held, _), whole)| {
            format!("{} {}", bar_to_scale(screen, held, whole, most, 6), bytes_decimal(held))
        };
        let mut cells: Vec<String> = held.map(cell).collect();
        let [holds, says] = grouped.holds(lab);
        cells.push(format!("{} {}", bytes_decimal(holds), verdict(holds, says)));
        cells.push(bytes_decimal(says));
        let (is, says) = (grouped.inside, grouped.inside_formula);
        cells.push(format!("{} {}", bytes_decimal(is), verdict(is, says)));
        cells.push(format!("{} {psi}", significant(in_numbers(&lab.job, is), 3)));
        cells.push(format!("{of_group}(n-1)/n {psi}"));
        let (is, says) = (grouped.between, grouped.between_formula);
        if grouped.strategy.replicas == 1 {
            cells.extend(["", "", ""].map(String::from));
        } else {
            cells.push(format!("{} {}", bytes_decimal(is), verdict(is, says)));
            cells.push(format!("{} {psi}", significant(in_numbers(&lab.job, is), 3)));
            cells.push(format!("{of_groups}(r-1)/r {psi}/n"));
        }
        if has_links(lab) {
            cells.push(screen.seconds(grouped.seconds));
        }
        cells
    };
    let numbers = if mixed { "  in bytes" } else { "  in numbers" };
    let mut names = vec!["parameters", "gradients", "optimizer", "holds", "  formula"];
    names.extend(["sends its group", numbers, "  formula"]);
    names.extend(["sends others", numbers, "  formula"]);
    if has_links(lab) {
        names.push("step");
    }
    let (ranks, groups) = (lab.config.ranks, lab.strategy.replicas);
    let zero = lab.strategy.zero.number();
    let name = if zero == 3 {
        "HSDP".to_string()
    } else {
        format!("ZeRO-{zero}")
    };
    let heads = [
        "one rank".to_string(),
        format!("1 group of {ranks}\nZeRO-{zero}"),
        format!("{groups} groups of {}\n{name}", ranks / groups),
    ];
    let columns: Vec<Vec<String>> = all.iter().map(column).collect();
    table(screen, &heads, rows_of(&names, &columns))
}
