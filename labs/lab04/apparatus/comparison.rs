//! The comparison of stages, as it is on the screen.

use super::holdings::drawing;
use super::job::Job;
use super::measured::{Measured, agree};
use super::owners::owned;
use super::polaris::on_polaris;
use super::stages::by_stage;
use kit::report;
use kit::show::{Screen, bar_to_scale, bytes_decimal, significant};
use shardlab::parallel::zero::Stage;
use shardlab::plan::{BytesEach, zero_volumes};

/// The comparison of stages: bytes that one rank holds and sends, measured, and the formulas. All
/// bars have one scale, and show what a rank holds of the whole.
pub fn compared(screen: &Screen, all: &[Measured], job: &Job) -> String {
    let psi = if screen.ascii { "P" } else { "Ψ" };
    let mark = |measured, predicted| screen.verdict(agree(measured, predicted));
    let BytesEach { parameter, gradient, .. } = job.bytes_each();
    let mixed = parameter != gradient;
    let wholes = job.holds(Stage::Ddp, job.muons).map(|bytes| bytes as f64);
    let each = [parameter as f64, gradient as f64, job.optimizer_mean()];
    let most = wholes.into_iter().fold(0.0, f64::max);
    let column = |measured: &Measured| {
        let stage = measured.stage.number();
        let held = measured.beside_formula(job).into_iter().zip(wholes);
        let cell = |((_, held, _), whole)| {
            format!("{} {}", bar_to_scale(screen, held, whole, most, 6), bytes_decimal(held))
        };
        let mut cells: Vec<String> = held.map(cell).collect();
        let (holds, predicted) = measured.holds(job);
        cells.push(format!("{} {}", bytes_decimal(holds), mark(holds, predicted)));
        let whole = [3, 2, 1].into_iter().zip(each).filter(|&(from, _)| stage < from);
        let whole: f64 = whole.map(|(_, bytes)| bytes).sum();
        let terms = [(whole, ""), (each.iter().sum::<f64>() - whole, "/n")];
        let terms = terms.into_iter().filter(|&(bytes, _)| bytes > 0.0);
        // Tenths, where Muon's state is smaller than AdamW's.
        let term =
            |(bytes, per): (f64, &str)| format!("{} {psi}{per}", (bytes * 10.0).round() / 10.0);
        let terms: Vec<String> = terms.map(term).collect();
        cells.push(terms.join(" + "));
        cells.extend(job.offloaded.map(|_| bytes_decimal(measured.offloaded() as f64)));
        cells.push(bytes_decimal(measured.held.peak_buffers as f64));
        cells.push(bytes_decimal(measured.in_all(job)));
        let volumes = zero_volumes(stage, job.micro_steps as u64);
        // In numbers, or where they have several sizes in bytes per parameter.
        let unit = if mixed { 1 } else { parameter };
        let numbers = measured.sent / (job.numel * unit) as f64;
        let formula = match stage {
            _ if !mixed => volumes.total(),
            0 => gradient * volumes.total(),
            _ => gradient * volumes.reduced + parameter * volumes.gathered,
        };
        let sent_as_said = mark(measured.sent, measured.formula);
        cells.push(format!("{} {sent_as_said}", bytes_decimal(measured.sent)));
        cells.push(format!("{} {psi}", significant(numbers, 3)));
        cells.push(format!("{formula}(n-1)/n {psi}"));
        cells
    };
    let place = job.offloaded.map(|place| format!("  {place}"));
    let mut names = vec!["parameters", "gradients", "optimizer", "holds", "  formula"];
    names.extend(place.as_deref());
    let unit = if mixed { "  in bytes" } else { "  in numbers" };
    names.extend(["peak temp", "in all", "sends", unit, "  formula"]);
    let stages: Vec<Stage> = all.iter().map(|measured| measured.stage).collect();
    let mut columns: Vec<Vec<String>> = all.iter().map(column).collect();
    // What a stage saves, and what it costs.
    let saves: Vec<f64> = all.iter().map(|measured| measured.in_all(job)).collect();
    let costs: Vec<f64> = all.iter().map(|measured| measured.sent).collect();
    let takeaway = [("in all", saves), ("sends", costs)];
    let bold = takeaway.each_ref().map(|(name, _)| screen.bold(name));
    for ((name, values), bold) in takeaway.iter().zip(&bold) {
        let Some(row) = names.iter().position(|one| one == name) else {
            continue;
        };
        screen.least_is_best(&mut columns, row, values);
        names[row] = bold.as_str();
    }
    by_stage(screen, &names, &stages, &columns)
}

/// The words below [`compared`].
pub fn legend(screen: &Screen, job: &Job) -> String {
    let psi = if screen.ascii { "P" } else { "Ψ" };
    let BytesEach { parameter, gradient, .. } = job.bytes_each();
    let (two, three) = if parameter == gradient {
        (format!("(M+1)(n-1)/n {psi}"), format!("3M(n-1)/n {psi}"))
    } else {
        let three = gradient + 2 * parameter;
        (
            format!("({gradient}M+{parameter})(n-1)/n {psi}"),
            format!("{three}M(n-1)/n {psi}"),
        )
    };
    let sends = match job.micro_steps {
        1 => "; stage 3 gathers twice and reduces once.".to_string(),
        m => format!(
            ". A step has M = {m} micro-steps. Stages 0 and 1 reduce the gradients once per step. Stages 2 and 3 reduce \
             them in every micro-step: {two} in stage 2. Stage 3 also gathers the parameters twice in every \
             micro-step: {three}."
        ),
    };
    screen.wrap(
        &format!(
            "{psi}: parameters; n: ranks; peak temp: gathered parameters, gradients in flight. sends: per step, {}{sends}",
            report::counted()
        ),
        2,
    )
}

/// Prints the comparison of stages: pictures, if wanted, the table, and for several stages the
/// prediction.
pub fn show(screen: &Screen, all: &[Measured], job: &Job, pictures: bool) {
    for measured in all.iter().filter(|_| pictures) {
        screen.say(format!("\n{}", drawing(screen, measured, job)));
    }
    screen.say(format!("\n{}\n{}", compared(screen, all, job), legend(screen, job)));
    if job.muons > 0 {
        screen.say(format!("\n{}", owned(screen, all, job)));
    } else if all.len() > 1 {
        screen.say(format!("\n{}", on_polaris(screen)));
    }
}
