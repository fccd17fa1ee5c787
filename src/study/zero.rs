//! ZeRO's stages side by side: memory per rank, traffic and time.

use crate::comm::{Comm, Reduce};
use crate::error::BadInput;
use crate::launch;
use crate::parallel::ZeroConfig;
use crate::parallel::partition::Flat;
use crate::parallel::zero::{Event, Held, Stage, What, Zero};
use crate::plan::{BytesEach, zero_memory, zero_memory_offloaded, zero_traffic};
use crate::show::{
    self, Activity, Holding, Holdings, Interval, Screen, Timeline, bytes_decimal, significant, table, thousands,
};
use crate::tensor::Precision;
use crate::train::{Checks, Config};
use anyhow::Result;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

/// A short training with one stage, as rank 0 saw it; fields that say so are means over all ranks.
pub struct Measured {
    pub stage: Stage,
    /// Each step's, mean over ranks.
    pub losses: Vec<f64>,
    /// A hash of all parameters.
    pub hash: u64,
    /// Bytes held after the last step.
    pub held: Held,
    /// Bytes that a rank sent in the last step, mean over ranks.
    pub sent: f64,
    /// Bytes that a rank sends per step, by the formula.
    pub formula: f64,
    /// The median time of a step.
    pub seconds: f64,
    pub events: Vec<Event>,
    pub units: Vec<String>,
    pub start: Instant,
    pub end: Instant,
}

impl Measured {
    /// To be called by all ranks, after the last step, which sent `sent` bytes, took the last of `times`, and had
    /// these `events`.
    pub fn look(
        comm: &Comm,
        stage: Stage,
        zero: &mut Zero,
        (losses, times): &(Vec<f64>, Vec<(Instant, Duration)>),
        sent: u64,
        events: Vec<Event>,
    ) -> Result<Measured> {
        let mut losses = losses.clone();
        comm.all_reduce(&mut losses, Reduce::Mean)?;
        let mut sent = [sent as f64];
        comm.all_reduce(&mut sent, Reduce::Mean)?;
        let mut seconds: Vec<f64> = times.iter().map(|(_, time)| time.as_secs_f64()).collect();
        seconds.sort_by(f64::total_cmp);
        let (start, time) = times.last().copied().unwrap_or((Instant::now(), Duration::ZERO));
        Ok(Measured {
            stage,
            losses,
            held: zero.held(),
            sent: sent[0],
            formula: zero.bytes_a_step(),
            seconds: seconds.get(seconds.len() / 2).copied().unwrap_or_default(),
            events,
            units: zero.units(),
            hash: hash(zero)?,
            start,
            end: start + time,
        })
    }

    /// Parameters, gradients and optimizer's state, in memory or in a file: what is held, and what the formula says.
    pub fn beside_formula(&self, numel: u64, ranks: usize, precision: Precision) -> [(&'static str, f64, f64); 3] {
        let plan =
            zero_memory(self.stage.number(), numel, ranks as u64, precision.bytes_each()).map(|bytes| bytes as f64);
        [
            ("parameters", (self.held.parameters + self.held.parameters_file) as f64, plan[0]),
            ("gradients", self.held.gradients as f64, plan[1]),
            ("optimizer", (self.held.optimizer + self.held.optimizer_file) as f64, plan[2]),
        ]
    }

    /// Whether memory and traffic are as the formulas say, within 1%.
    pub fn is_as_said(&self, numel: u64, ranks: usize, precision: Precision) -> bool {
        let held =
            self.beside_formula(numel, ranks, precision).iter().all(|(_, is, says)| (is / says - 1.0).abs() < 0.01);
        held && (self.sent - self.formula).abs() <= 0.01 * self.formula
    }
}

/// A hash of all parameters' names and bits, which no rank has to hold whole for it. All ranks call it.
fn hash(zero: &mut Zero) -> Result<u64> {
    let mut sum = 0u64;
    zero.each(|spec, values| {
        let mut hasher = DefaultHasher::new();
        (&spec.name, bytemuck::cast_slice::<f32, u8>(values)).hash(&mut hasher);
        // Stages have orders of their own.
        sum = sum.wrapping_add(hasher.finish());
    })?;
    Ok(sum)
}

/// `stage 2`, and what it is called.
pub fn title(stage: Stage) -> &'static str {
    match stage {
        Stage::Zero => "stage 0, DDP: everyone holds everything",
        Stage::One => "stage 1: the optimizer's state is divided",
        Stage::Two => "stage 2: gradients are, too",
        Stage::Three => "stage 3, FSDP: and the parameters",
    }
}

/// What a stage divides among ranks.
pub fn divided(stage: Stage) -> &'static str {
    match stage {
        Stage::Zero => "nothing (stage 0, DDP)",
        Stage::One => "the optimizer's state (stage 1)",
        Stage::Two => "the optimizer's state and gradients (stage 2)",
        Stage::Three => "the optimizer's state, gradients and parameters (stage 3, FSDP)",
    }
}

/// The drawing of who holds what, for one stage.
pub fn drawing(screen: &Screen, measured: &Measured, numel: u64, ranks: usize, precision: Precision) -> String {
    let beside = measured.beside_formula(numel, ranks, precision);
    let rows = beside.iter().zip([Stage::Three, Stage::Two, Stage::One]).map(|(&(name, is, _), divided_from)| {
        let held = |rank| match measured.stage >= divided_from {
            true => show::Held::Part { index: rank, of: ranks },
            false => show::Held::Same,
        };
        Holding { name, ranks: (0..ranks).map(held).collect(), bytes: bytes_decimal(is) }
    });
    let (is, says) = beside.iter().fold((0.0, 0.0), |(is, says), row| (is + row.1, says + row.2));
    let mark = if (is / says - 1.0f64).abs() < 0.01 { screen.tick() } else { screen.cross() };
    let file = match measured.held.optimizer_file + measured.held.parameters_file {
        0 => String::new(),
        bytes => format!("; {} of it in files", bytes_decimal(bytes as f64)),
    };
    let note =
        format!("measured {}{}formula {} {mark}{file}", bytes_decimal(is), screen.separator(), bytes_decimal(says));
    Holdings { rows: rows.collect(), note }.render(screen)
}

/// The cost of each stage: bytes sent, beside the formula and in units of the model's size Ψ; time; and the last loss.
pub fn bill(screen: &Screen, all: &[Measured], numel: u64, precision: Precision) -> String {
    let psi = if screen.ascii { "model" } else { "Ψ" };
    let row = |measured: &Measured| {
        let says = &measured.formula;
        let mark = if (measured.sent - says).abs() <= 0.01 * says { screen.tick() } else { screen.cross() };
        vec![
            measured.stage.number().to_string(),
            bytes_decimal(measured.sent),
            format!("{} {mark}", bytes_decimal(*says)),
            format!("{} {psi}", significant(measured.sent / (numel as f64 * precision.bytes() as f64), 3)),
            bytes_decimal(measured.held.peak_buffers as f64),
            screen.seconds(measured.seconds),
            measured.losses.last().map_or(String::new(), |loss| format!("{loss:.6}")),
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let text = format!(
        "{psi} is one copy of the parameters. Stages 0 to 2 send 2(n-1)/n {psi} a rank, stage 3 half as much again, where it gathers \
         parameters twice. For a moment: what is gathered, and gradients on their way, at most."
    );
    let header = ["stage", "sent a step", "formula", "", "for a moment", "time a step", "last loss"];
    format!("{}\n{}", table(screen, &header, &rows), screen.wrap(&text, 2))
}

/// Stage 3's units in the last step, on rank 0.
pub fn timeline(screen: &Screen, measured: &Measured) -> String {
    let seconds = |at: Instant| at.saturating_duration_since(measured.start).as_secs_f64();
    let row = |(number, name): (usize, &String)| {
        let events = measured
            .events
            .iter()
            .filter(|event| event.unit == number && (measured.start..=measured.end).contains(&event.start));
        let intervals = events.filter_map(|event| {
            let activity = match event.what {
                What::Gather => Activity::GATHER,
                What::Forward => Activity::FORWARD,
                What::Backward => Activity::BACKWARD,
                What::ReduceScatter => Activity::REDUCE_SCATTER,
                What::Step | What::Wait => return None,
            };
            Some(Interval { activity, start: seconds(event.start), end: seconds(event.end) })
        });
        (name.clone(), intervals.collect())
    };
    // The releases of all units come at once, and are often too short for a glyph.
    let end = screen.seconds(seconds(measured.end));
    let step = match measured.events.iter().rfind(|event| event.what == What::Step) {
        Some(step) => (seconds(step.start), format!("step, until {end}")),
        None => (seconds(measured.end), end),
    };
    Timeline {
        title: "a step of stage 3 on rank 0, unit by unit".to_string(),
        rows: measured.units.iter().enumerate().map(row).collect(),
        marks: vec![(0.0, "0".to_string()), step],
        axis: "time",
    }
    .render(screen)
}

/// The table of ZeRO's paper: 7.5 billion parameters on 64 devices.
pub fn papers_table(screen: &Screen) -> String {
    const NUMEL: u64 = 7_500_000_000;
    let row = |stage: Stage| {
        let bytes = zero_memory(stage.number(), NUMEL, 64, BytesEach::MIXED);
        let sent = zero_traffic(stage.number(), NUMEL, 64, 2);
        let [parameters, gradients, optimizer] = bytes.map(|bytes| bytes_decimal(bytes as f64));
        let sum = bytes_decimal(bytes.iter().sum::<u64>() as f64);
        vec![stage.number().to_string(), parameters, gradients, optimizer, sum, bytes_decimal(sent)]
    };
    let rows: Vec<Vec<String>> = Stage::ALL.into_iter().map(row).collect();
    table(screen, &["stage", "parameters", "gradients", "optimizer", "a device", "sent a step"], &rows)
}

/// Which type is stored, and what a parameter takes.
pub fn holds(screen: &Screen, numel: u64, precision: Precision) -> String {
    let each = match precision {
        Precision::F32 => "4 bytes each, gradients 4, the optimizer 8",
        Precision::Bf16 => "2 bytes each, gradients 2, the optimizer 12 (with an f32 master)",
    };
    format!("{} parameters, stored in {}{}{each}", thousands(numel), precision.name(), screen.separator())
}

fn section(screen: &Screen, title: &str) {
    screen.say(format!("\n{}\n", screen.bold(title)));
}

/// Prints who holds what.
pub fn show_holdings(screen: &Screen, config: &Config, measured: &Measured, precision: Precision) {
    section(screen, &format!("Who holds what, {}", title(measured.stage)));
    screen.say(drawing(screen, measured, config.shape.parameters(), config.ranks, precision));
}

/// Prints what stages cost here, and what they would cost elsewhere.
pub fn show_costs(screen: &Screen, config: &Config, all: &[Measured], precision: Precision) {
    section(screen, &format!("What it costs: each of {} ranks, in the last of {} steps", config.ranks, config.steps));
    screen.say(bill(screen, all, config.shape.parameters(), precision));
    if let Some(bytes) = launch::resident_memory() {
        let ranks = if launch::is_mpi() { "one rank".to_string() } else { format!("{} ranks", config.ranks) };
        let text = format!(
            "Resident: {}, all of this process with {ranks}: activations and the text, too, and what was freed and is kept.",
            bytes_decimal(bytes as f64)
        );
        screen.say(screen.wrap(&text, 2));
    }
    if let Some(three) = all.iter().find(|measured| measured.stage == Stage::Three) {
        screen.say(format!("\n{}", timeline(screen, three)));
    }
    section(screen, "Elsewhere: 7.5 billion parameters in mixed precision on 64 devices");
    screen.say(papers_table(screen));
    screen
        .say(screen.wrap("GB are 10^9 bytes, as in ZeRO's paper. What DeepSpeed's estimates print as GB are GiB.", 2));
}

/// Compares each stage with the first that it must equal to the bit; or, if there is none, with the first of all.
pub fn compare(checks: &mut Checks, comm: &Comm, all: &[Measured], bound: f64, accumulates: bool, tiles: bool) {
    for (i, other) in all.iter().enumerate().skip(1) {
        // An MPI library adds in its own order, another one for each kind of collective.
        let may_differ =
            |first: &&Measured| !comm.adds_in_rank_order() || may_differ(first.stage, other.stage, accumulates, tiles);
        let equal = all[..i].iter().find(|first| !may_differ(first));
        let first = equal.unwrap_or(&all[0]);
        let apart = first.losses.iter().zip(&other.losses).fold(0f64, |most, (a, b)| most.max((a - b).abs()));
        let same = first.hash == other.hash && first.losses == other.losses;
        let result = match apart {
            _ if same => "bitwise equal".into(),
            0.0 => "equal losses".into(),
            _ => format!("losses within {apart:.0e}"),
        };
        let sound = same || (equal.is_none() && apart < bound);
        let what = format!("stage {} trains what stage {} trains", other.stage.number(), first.stage.number());
        checks.hold(sound, &what, &result, &format!("stage {} trained something else", other.stage.number()));
    }
}

/// Checks what ranks hold and send against the formulas, and against what a rank may hold, in MB.
pub fn check_memory(checks: &mut Checks, config: &Config, all: &[Measured], precision: Precision, limit: Option<f64>) {
    // Of a model that is too small for so many ranks, the formulas say too little: they leave padding out.
    if ensure_padding_is_little(config).is_ok() {
        let said = |measured: &&Measured| measured.is_as_said(config.shape.parameters(), config.ranks, precision);
        let said = all.iter().filter(said).count();
        let (sound, result) = (said == all.len(), format!("{said} of {}", all.len()));
        checks.hold(sound, "memory and bytes are as the formulas say, within 1%", &result, "a formula is off");
    }
    if let Some(limit) = limit {
        let most = all.iter().map(|t| t.held.parameters + t.held.gradients + t.held.optimizer).max().unwrap_or(0);
        let result = format!("{:.2} of {limit} MB", most as f64 / 1e6);
        checks.hold(most as f64 <= limit * 1e6, "every rank stays within its memory", &result, "a rank holds too much");
    }
}

/// Whether two stages add up in different orders, and so may differ in the last bits.
fn may_differ(a: Stage, b: Stage, accumulates: bool, tiles: bool) -> bool {
    // Stages 2 and 3 average in every micro-step, and then add up. Stage 3 alone has tiles.
    (accumulates && (a < Stage::Two) != (b < Stage::Two)) || (tiles && (a == Stage::Three) != (b == Stage::Three))
}

/// The stages that keep parameters, gradients and optimizer's state of a rank below `limit` bytes; an error if `wanted` does
/// not, or none does. What is offloaded to files does not count.
pub fn within(
    limit: Option<f64>,
    wanted: Option<Stage>,
    config: &Config,
    zero: &ZeroConfig,
) -> Result<Vec<Stage>, BadInput> {
    if let Some(bytes) = limit.filter(|bytes| !bytes.is_finite() || *bytes <= 0.0) {
        let what = format!("--memory-limit {} is out of range", bytes / 1e6);
        return Err(BadInput::new(what, "give megabytes, a finite number above 0"));
    }
    let (numel, ranks) = (config.shape.parameters(), config.ranks);
    let takes = |stage: Stage, ranks: usize| {
        let plan = if zero.offload.is_some() { zero_memory_offloaded } else { zero_memory };
        plan(stage.number(), numel, ranks as u64, zero.precision.bytes_each()).iter().sum::<u64>() as f64
    };
    let fits = |stage: &Stage| limit.is_none_or(|limit| takes(*stage, ranks) <= limit);
    let fitting: Vec<Stage> = Stage::ALL.into_iter().filter(fits).collect();
    let asked = wanted.unwrap_or(Stage::Three);
    if fits(&asked) && !fitting.is_empty() {
        return Ok(fitting);
    }
    let limit = limit.unwrap_or(f64::INFINITY);
    let what = format!(
        "--zero {} takes {} a rank, and --memory-limit is {}",
        asked.number(),
        bytes_decimal(takes(asked, ranks)),
        bytes_decimal(limit)
    );
    let help = match fitting.first() {
        Some(stage) => {
            let bytes = bytes_decimal(takes(*stage, ranks));
            format!("--zero {} takes {bytes} and fits", stage.number())
        }
        None => {
            let enough = (ranks..=1 << 20).find(|&ranks| takes(Stage::Three, ranks) <= limit);
            let would = enough.map_or(String::new(), |ranks| format!("; --zero 3 would on {ranks} ranks"));
            format!("no stage fits on {ranks} ranks{would}")
        }
    };
    Err(BadInput::new(what, help))
}

/// Refuses a model so small that padding, which the formulas leave out, could be more than 1% of a rank's share: an element of
/// every tensor.
pub fn ensure_padding_is_little(config: &Config) -> Result<(), BadInput> {
    let (shape, ranks) = (&config.shape, config.ranks);
    let (numel, tensors) = (shape.parameters(), shape.decayed().0 + shape.not_decayed().0);
    if (100 * tensors * ranks) as u64 <= numel {
        return Ok(());
    }
    let what = format!(
        "{numel} parameters in {tensors} tensors are too few for {ranks} ranks: padding could be more than 1%, and the formulas \
         leave it out"
    );
    Err(BadInput::new(what, "give fewer --ranks or a larger model; --zero trains this one with one stage"))
}

/// Prints what a checkpoint's reader gets back if all padding is booked on the last rank. Returns what the check found wrong.
pub fn padding_on_last(comm: &Comm, screen: &Screen) -> Vec<String> {
    let ranks = comm.size();
    if comm.rank() != 0 {
        return Vec::new();
    }
    let flat = Flat { numel: 2 * ranks + 1, ranks };
    section(screen, &format!("A group of {} elements in parts of {}", flat.numel, flat.part()));
    let all_on_last = |rank: usize| if rank + 1 == ranks { flat.padded() - flat.numel } else { 0 };
    let (table, back) = restored(screen, flat, all_on_last);
    screen.say(format!("{table}\n"));
    let mut checks = Checks::new(screen);
    let sound = back == (0..flat.numel).collect::<Vec<_>>();
    let result = format!("{} of {}", back.len(), flat.numel);
    checks.hold(sound, "parts less their padding are the parameters", &result, "padding was taken for parameters");
    checks.failed()
}

/// Splits a padded group among ranks, then joins it again without the padding that each rank booked, as a checkpoint's
/// reader does. Returns a table with a line per rank, and the joined elements.
pub fn restored(screen: &Screen, flat: Flat, booked: impl Fn(usize) -> usize) -> (String, Vec<usize>) {
    let mut back = Vec::new();
    let rows = (0..flat.ranks).map(|rank| {
        let (held, part, booked) = (flat.range(rank), flat.part(), booked(rank));
        let elements = held.clone().chain(std::iter::repeat_n(PADDING, flat.padding(rank)));
        back.extend(elements.take(part.saturating_sub(booked)));
        [rank, held.len(), flat.padding(rank), booked].map(|n| n.to_string()).to_vec()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    (table(screen, &["rank", "elements", "padding", "booked"], &rows), back)
}

/// Stands for an element that is none.
const PADDING: usize = usize::MAX;
