//! ZeRO's stages side by side: what each rank holds and sends, and what that costs on a real
//! network.

use anyhow::Result;
pub use kit;
use kit::parity::{self, Replica, Trained};
use kit::show::{
    Fill, Holding, Holdings, Screen, Timeline, bar_to_scale, bytes_decimal, significant, table,
    thousands,
};
use kit::{Checks, ModelFlags, Steps, ZeroFlags, report};
use shardlab::comm::algorithms::{Algorithm, Collective, Task};
use shardlab::comm::{Comm, Link, Reduce};
use shardlab::data::Corpus;
use shardlab::difference::{largest_difference, largest_relative_difference, same_bits};
use shardlab::error::BadInput;
use shardlab::parallel::ZeroConfig;
use shardlab::parallel::partition::Flat;
use shardlab::parallel::zero::{MemoryUsage, Offload, Stage, Unit, Zero};
use shardlab::plan::{
    BytesEach, ComputedStep, Family, Kept, ModelShape, Network, simulate, zero_memory,
    zero_memory_offloaded, zero_step, zero_volumes,
};
use shardlab::tensor::Precision;
use shardlab::train::{Config, Preset, clip_scale};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The job that all stages do.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Parameters of the model: Ψ.
    pub numel: u64,
    pub ranks: usize,
    pub micro_steps: usize,
    pub precision: Precision,
    /// Where the optimizer's state, and in stage 3 parameters, are, if not in the rank's own
    /// memory.
    pub offloaded: Option<&'static str>,
}

impl Job {
    pub fn of(config: &Config, zero: &ZeroConfig) -> Job {
        let numel = config.shape.parameters();
        let precision = zero.precision;
        let offloaded = zero.offload.as_ref().map(|offload| match offload {
            Offload::Host => "on the host",
            Offload::Files(_) => "in files",
        });
        Job {
            numel,
            ranks: config.ranks,
            micro_steps: config.grad_accum,
            precision,
            offloaded,
        }
    }
}

/// Default to 12 blocks of width 64, so that one gathered block is about 1/12 of the model. Flags
/// override.
pub fn default_to_many_small_blocks(model: &mut ModelFlags, zero: &mut ZeroFlags) {
    if model.preset == Preset::Baby && model.init_from.is_none() {
        model.layers = model.layers.or(Some(12));
        model.embd = model.embd.or(Some(64));
        zero.prefetch_bucket = zero.prefetch_bucket.or(Some(1 << 16));
    }
}

/// A short training with one stage.
pub struct Measured {
    pub stage: Stage,
    /// The loss of each step, mean over ranks.
    pub losses: Vec<f64>,
    /// A hash of all parameters.
    pub hash: u64,
    /// The gradient norm by which each rank clipped in the first step.
    pub norms: Vec<f64>,
    /// Bytes that this rank holds after the last step.
    pub held: MemoryUsage,
    /// Bytes that a rank sent in the last step, mean over ranks.
    pub sent: f64,
    /// Bytes that a rank sends per step, by what the step reduced and gathered.
    pub formula: f64,
}

impl Measured {
    /// Looks at a training after its last step, which sent `sent` bytes. All ranks call it. `norm`
    /// is the first step's.
    pub fn look(
        comm: &Comm,
        stage: Stage,
        zero: &mut Zero,
        mut losses: Vec<f64>,
        norm: f64,
        sent: u64,
    ) -> Result<Measured> {
        let mut sent = [sent as f64];
        let mut norms = vec![0.0; comm.size()];
        comm.all_reduce(&mut losses, Reduce::Mean)?;
        comm.all_reduce(&mut sent, Reduce::Mean)?;
        comm.all_gather(&[norm], &mut norms)?;
        let hash = hash(zero)?;
        let held = zero.memory();
        let formula = zero.bytes_a_step();
        Ok(Measured { stage, losses, hash, norms, held, sent: sent[0], formula })
    }

    /// Parameters, gradients and optimizer state, in memory or offloaded: measured bytes, and bytes
    /// by the formula.
    pub fn beside_formula(&self, job: &Job) -> [(&'static str, f64, f64); 3] {
        let plan = zero_memory(
            self.stage.number(),
            job.numel,
            job.ranks as u64,
            job.precision.bytes_each(),
        );
        [
            (
                "parameters",
                (self.held.parameters + self.held.parameters_offloaded) as f64,
                plan[0] as f64,
            ),
            ("gradients", self.held.gradients as f64, plan[1] as f64),
            (
                "optimizer",
                (self.held.optimizer + self.held.optimizer_offloaded) as f64,
                plan[2] as f64,
            ),
        ]
    }

    /// Bytes of parameters and optimizer state that are not in the rank's own memory.
    fn offloaded(&self) -> usize {
        self.held.parameters_offloaded + self.held.optimizer_offloaded
    }

    /// Bytes held, measured and by the formula.
    fn holds(&self, job: &Job) -> (f64, f64) {
        self.beside_formula(job)
            .iter()
            .fold((0.0, 0.0), |(measured, predicted), row| (measured + row.1, predicted + row.2))
    }

    fn matches_formula(&self, job: &Job) -> bool {
        self.beside_formula(job)
            .iter()
            .all(|&(_, measured, predicted)| agree(measured, predicted))
            && agree(self.sent, self.formula)
    }
}

/// Whether a measured value is within 1% of the formula.
fn agree(measured: f64, predicted: f64) -> bool {
    (measured - predicted).abs() <= 0.01 * predicted
}

/// A hash of all parameters' names and bits. No rank has to hold the whole model for it. All ranks
/// call it.
fn hash(zero: &mut Zero) -> Result<u64> {
    let mut sum = 0u64;
    zero.each(|spec, values| {
        let mut hasher = DefaultHasher::new();
        (&spec.name, bytemuck::cast_slice::<f32, u8>(values)).hash(&mut hasher);
        // Each stage has its own order of parameters.
        sum = sum.wrapping_add(hasher.finish());
    })?;
    Ok(sum)
}

/// A stage's number, and its name in other programs.
pub fn title(stage: Stage) -> &'static str {
    ["stage 0\nDDP", "stage 1\nZeRO-1", "stage 2\nZeRO-2", "stage 3\nZeRO-3, FSDP"][stage.number()]
}

/// The state that a stage shards among the ranks.
fn sharded(stage: Stage) -> &'static str {
    [
        "nothing (stage 0, DDP)",
        "the optimizer state (stage 1)",
        "the optimizer state and gradients (stage 2)",
        "the optimizer state, gradients and parameters (stage 3, FSDP)",
    ][stage.number()]
}

/// Rows of cells under a head with the stages' names; `columns` has each stage's cells.
fn by_stage(screen: &Screen, names: &[&str], stages: &[Stage], columns: &[Vec<String>]) -> String {
    let heads: Vec<&str> = std::iter::once("one rank")
        .chain(stages.iter().map(|&stage| title(stage)))
        .collect();
    let row = |(i, name): (usize, &&str)| {
        std::iter::once(name.to_string())
            .chain(columns.iter().map(|column| column[i].clone()))
            .collect()
    };
    let rows: Vec<Vec<String>> = names.iter().enumerate().map(row).collect();
    table(screen, &heads, &rows)
}

/// The comparison of stages: bytes that one rank holds and sends, measured, and the formulas. All
/// bars have one scale, and show what a rank holds of the whole.
pub fn compared(screen: &Screen, all: &[Measured], job: &Job) -> String {
    let psi = if screen.ascii { "P" } else { "Ψ" };
    let mark = |measured, predicted| {
        if agree(measured, predicted) {
            screen.tick()
        } else {
            screen.cross()
        }
    };
    let BytesEach { parameter, gradient, optimizer } = job.precision.bytes_each();
    let wholes = [parameter, gradient, optimizer].map(|bytes| (bytes * job.numel) as f64);
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
        let whole = [(3, parameter), (2, gradient), (1, optimizer)];
        let whole: u64 = whole
            .into_iter()
            .filter(|&(from, _)| stage < from)
            .map(|(_, bytes)| bytes)
            .sum();
        let terms = [(whole, ""), (parameter + gradient + optimizer - whole, "/n")];
        let terms = terms.into_iter().filter(|&(bytes, _)| bytes > 0);
        cells.push(
            terms
                .map(|(bytes, per)| format!("{bytes} {psi}{per}"))
                .collect::<Vec<_>>()
                .join(" + "),
        );
        let offloaded = measured.offloaded() as f64;
        cells.extend(job.offloaded.map(|_| bytes_decimal(offloaded)));
        let temporary = measured.held.peak_buffers as f64;
        cells.extend([bytes_decimal(temporary), bytes_decimal(holds - offloaded + temporary)]);
        let numbers = measured.sent / (job.numel * job.precision.bytes() as u64) as f64;
        let (reduced, gathered) = zero_volumes(stage, job.micro_steps as u64);
        cells.push(format!(
            "{} {}",
            bytes_decimal(measured.sent),
            mark(measured.sent, measured.formula)
        ));
        cells.push(format!("{} {psi}", significant(numbers, 3)));
        cells.push(format!("{}(n-1)/n {psi}", reduced + gathered));
        cells
    };
    let place = job.offloaded.map(|place| format!("  {place}"));
    let mut names = vec!["parameters", "gradients", "optimizer", "holds", "  formula"];
    names.extend(place.as_deref());
    names.extend(["peak temp", "in all", "sends", "  in numbers", "  formula"]);
    let stages: Vec<Stage> = all.iter().map(|measured| measured.stage).collect();
    let mut columns: Vec<Vec<String>> = all.iter().map(column).collect();
    // What a stage saves, and what it costs.
    let in_all = |measured: &Measured| {
        let temporary = measured.held.peak_buffers as f64;
        measured.holds(job).0 - measured.offloaded() as f64 + temporary
    };
    let saves: Vec<f64> = all.iter().map(in_all).collect();
    let costs: Vec<f64> = all.iter().map(|measured| measured.sent).collect();
    let takeaway = [("in all", saves), ("sends", costs)];
    let bold = takeaway.each_ref().map(|(name, _)| screen.bold(name));
    for ((name, values), bold) in takeaway.iter().zip(&bold) {
        let Some(row) = names.iter().position(|one| one == name) else {
            continue;
        };
        let mut cells: Vec<String> = columns.iter().map(|column| column[row].clone()).collect();
        screen.least_is_best(values, &mut cells);
        for (column, cell) in columns.iter_mut().zip(cells) {
            column[row] = cell;
        }
        names[row] = bold.as_str();
    }
    by_stage(screen, &names, &stages, &columns)
}

/// The words below [`compared`].
pub fn legend(screen: &Screen, job: &Job) -> String {
    let psi = if screen.ascii { "P" } else { "Ψ" };
    let sends = match job.micro_steps {
        1 => "; stage 3 gathers twice and reduces once.".to_string(),
        m => format!(
            ". A step has M = {m} micro-steps. Stages 0 and 1 reduce the gradients once per step. Stages 2 and 3 reduce \
             them in every micro-step: (M+1)(n-1)/n {psi} in stage 2. Stage 3 also gathers the parameters twice in every \
             micro-step: 3M(n-1)/n {psi}."
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

/// The picture of which rank holds what, for one stage.
pub fn drawing(screen: &Screen, measured: &Measured, job: &Job) -> String {
    let mut rows = Vec::new();
    // The stage from which on ranks share these.
    for ((name, bytes, _), from) in measured.beside_formula(job).into_iter().zip([3, 2, 1]) {
        let fill = |index| {
            if measured.stage.number() >= from {
                let of = job.ranks;
                Fill::Slice { index, of }
            } else {
                Fill::Same
            }
        };
        rows.push(Holding { name, ranks: (0..job.ranks).map(fill).collect(), bytes });
    }
    let note = job.offloaded.map_or(String::new(), |place| {
        let bytes = bytes_decimal(measured.offloaded() as f64);
        format!("{bytes} of it {place}")
    });
    let heading = screen.bold(title(measured.stage).replace('\n', screen.separator()));
    format!("  {heading}\n{}", Holdings { rows, note }.render(screen))
}

/// GPT-3's model of 2.7 billion parameters (Brown et al., arXiv 2005.14165, table 2.1). One of its
/// GPUs cannot train it with plain data parallelism.
const REAL: ModelShape = ModelShape {
    vocabulary: 50_257,
    block: 2048,
    layers: 32,
    heads: 32,
    embd: 2560,
    family: Family::Gpt,
};
const GPUS: usize = 64;
/// 40% of an A100's bf16 peak of 312 TFLOP/s (NVIDIA's data sheet, 2020).
const GPU_SPEED: f64 = 0.4 * 312e12;
/// Sequences of a rank: with 4 the largest batch that stages 1 to 3 have room for.
const SEQUENCES: [usize; 2] = [1, 4];

/// Bytes of an A100 that a training may use. PyTorch reports 39.4 GiB for a card of "40 GB"; the
/// runtime's own buffers and fragmentation take a tenth.
const ROOM: f64 = 0.9 * 39.4 * (1u64 << 30) as f64;

/// The bytes of one of its ranks: weights, gradients, optimizer, and all that a pass over so many
/// sequences keeps.
fn polaris_bytes(stage: Stage, sequences: usize) -> f64 {
    let held = zero_memory(stage.number(), REAL.parameters(), GPUS as u64, BytesEach::MIXED);
    let state = held.iter().sum::<u64>() as f64;
    let model = ModelShape { family: Family::Gpt2, ..REAL };
    let tokens = (sequences * model.block) as f64;
    let width = model.embd as f64;
    let blocks = model.layers as f64 * Kept::of(&model, 2.0, true, true).on_a_rank(1, 1);
    // Before the blocks a mask of dropout, after them a norm and the head's input, and logits in
    // f32.
    let ends = width + 2.0 * 2.0 * width + 4.0 * model.vocabulary as f64;
    // ZeRO-3 has two layers gathered, and the gradients of one.
    let gathered = match stage.number() {
        3 => 3.0 * 2.0 * model.largest_layer() as f64,
        _ => 0.0,
    };
    state + tokens * (blocks + ends) + gathered
}

/// The stages on a real network, predicted: what a rank holds, and how long a step takes.
pub fn on_polaris(screen: &Screen) -> String {
    let Some(network) = Network::named("polaris") else {
        return String::new();
    };
    let numel = REAL.parameters();
    let column = |stage: Stage| {
        let mut cells = Vec::new();
        for sequences in SEQUENCES {
            let needs = polaris_bytes(stage, sequences);
            cells.push(screen.fits(needs <= ROOM, bytes_decimal(needs)));
            let block = numel / REAL.layers as u64;
            let seconds = |collective, numel| ring(collective, numel, GPUS, 2, &network);
            let step =
                zero_step(stage.number(), &REAL, sequences * REAL.block, GPU_SPEED, block, seconds);
            let waiting = 100.0 * step.waiting() / step.seconds();
            cells.push(format!("{} ({waiting:.0}%)", screen.seconds(step.seconds())));
        }
        cells
    };
    let names = ["needs, 2k", "step, 2k", "needs, 8k", "step, 8k"];
    let title = format!(
        "Predicted: {:.2} billion parameters in bf16 on {GPUS} A100 of 40 GB (Polaris)",
        numel as f64 / 1e9
    );
    let columns: Vec<Vec<String>> = Stage::ALL.into_iter().map(column).collect();
    let words = format!(
        "needs: with the activations of 2k or 8k tokens; {:.0} GB fit. step: its time, and how much of it a GPU waits. \
         Stages 1, 2: nothing hides the gather.",
        ROOM / 1e9
    );
    let table = by_stage(screen, &names, &Stage::ALL, &columns);
    format!("{}\n{table}\n{}", screen.title(&title, 2), screen.wrap(&words, 2))
}

/// Seconds of a collective over `numel` elements of `bytes` bytes, along a ring.
fn ring(collective: Collective, numel: u64, ranks: usize, bytes: usize, network: &Network) -> f64 {
    let len = if collective == Collective::AllReduce {
        numel
    } else {
        numel.div_ceil(ranks as u64)
    };
    let task = Task::new(collective, Algorithm::Ring, ranks, len as usize, bytes, 0)
        .expect("a ring takes any length");
    simulate(&task, bytes, network)
}

/// FLOPs per second of a rank, and its link, where a timeline is computed and nothing else is
/// known.
const SPEED: f64 = 50e9;
const LINK: Link = Link { latency: 100e-6, bandwidth: 100e6 };

/// One computed step of a stage, unit by unit, as text.
pub fn timeline(screen: &Screen, config: &Config, zero: &ZeroConfig, link: Option<Link>) -> String {
    let (timeline, words) =
        computed_step(screen, &config.shape, config.batch, config.ranks, zero, link);
    format!("{}\n\n{}", timeline.render(screen), screen.wrap(&words, 2))
}

/// One computed step of a stage, unit by unit, and what to say about it. Stage 3 is drawn with its
/// prefetch and, on the same scale, without.
pub fn computed_step(
    screen: &Screen,
    shape: &ModelShape,
    batch: usize,
    ranks: usize,
    zero: &ZeroConfig,
    link: Option<Link>,
) -> (Timeline<'static>, String) {
    let link = link.unwrap_or(LINK);
    let stage = zero.stage.number();
    let bytes = zero.precision.bytes();
    let network = Network::uniform(link);
    let seconds = |collective, numel| ring(collective, numel, ranks, bytes, &network);
    let tokens = batch * shape.block;
    let with = |prefetch: usize| zero_step(stage, shape, tokens, SPEED, prefetch as u64, seconds);
    let in_words = |step: &ComputedStep| {
        format!(
            "{}, {} of it waiting",
            screen.seconds(step.seconds()),
            screen.seconds(step.waiting())
        )
    };
    let step = with(zero.prefetch_bucket);
    let mut text = in_words(&step);
    let mut ends = vec![step.seconds()];
    let mut rows = vec![("computes".to_string(), step.processor), ("link".to_string(), step.link)];
    // The token table is too small to be seen.
    rows.extend(
        step.units
            .into_iter()
            .enumerate()
            .skip(1)
            .map(|(i, row)| (format!("blocks.{}", i - 1), row)),
    );
    if stage == 3 && zero.prefetch_bucket > 0 {
        let without = with(0);
        text = format!("with prefetch {text}; without prefetch {}", in_words(&without));
        ends.push(without.seconds());
        rows[0].0 = "prefetch".to_string();
        rows.extend([
            ("no prefetch".to_string(), without.processor),
            ("link".to_string(), without.link),
        ]);
    }
    let marks = std::iter::once(0.0).chain(ends).map(|end| (end, screen.seconds(end))).collect();
    let title = format!(
        "one step of stage {stage} on each of {} ranks, computed for {} GFLOP/s and a link of {}, {}/s",
        ranks,
        SPEED / 1e9,
        screen.seconds(link.latency),
        bytes_decimal(link.bandwidth)
    );
    let tied = match stage {
        3 => {
            " Not drawn: the token table, which is small. It is gathered at the start, and again between the passes, because \
             the output head uses it."
        }
        _ => "",
    };
    (
        Timeline { title, rows, marks, axis: "time" },
        format!("A step takes {text}.{tied}"),
    )
}

/// The stored type, and the bytes per parameter.
fn stores(screen: &Screen, job: &Job) -> String {
    let BytesEach { parameter, gradient, optimizer } = job.precision.bytes_each();
    let psi = if screen.ascii { "P" } else { "Ψ" };
    let master = if job.precision == Precision::Bf16 {
        ", with an f32 master copy"
    } else {
        ""
    };
    format!(
        "{}: {parameter} bytes per parameter, {gradient} per gradient, {optimizer} for AdamW{master}: {} {psi} in all",
        job.precision.name(),
        parameter + gradient + optimizer
    )
}

/// Prints the setup of a training with one stage on a `corpus`, or without one of a comparison of
/// `stages`.
pub fn introduce(
    screen: &Screen,
    corpus: Option<&Corpus>,
    config: &Config,
    job: &Job,
    stages: &[Stage],
) {
    if let Some(corpus) = corpus {
        report::data(screen, corpus);
        report::run(screen, config);
        screen.say(screen.row("stores", &stores(screen, job)));
        return screen.say(screen.row("sharded", sharded(stages[0])));
    }
    let dot = screen.separator();
    let shape = &config.shape;
    let numel = thousands(job.numel);
    let model = format!("{} blocks{dot}{} wide{dot}{numel} parameters", shape.layers, shape.embd);
    let steps = thousands(config.steps as u64);
    let tokens = thousands(config.tokens_per_step() as u64);
    let accum = if job.micro_steps > 1 {
        format!(" in {} micro-steps", job.micro_steps)
    } else {
        String::new()
    };
    report::ranks(screen, config.ranks);
    screen.say(screen.row("model", &model));
    screen.say(screen.row("steps", &format!("{steps}{dot}{tokens} tokens per step{accum}")));
    screen.say(screen.row("stores", &stores(screen, job)));
    for stage in Stage::ALL.into_iter().filter(|stage| !stages.contains(stage)) {
        screen.say(
            screen.row("", &format!("stage {} does not fit into --memory-limit", stage.number())),
        );
    }
}

/// Shows on a terminal which stage trains, and how long all of them will take. `step` steps of this
/// stage are done.
pub fn progress(comm: &Comm, steps: &mut Steps, (stages, stage): (&[Stage], Stage), step: usize) {
    let each = steps.all / stages.len();
    let before = stages.iter().take_while(|&&one| one != stage).count();
    steps.show(comm, before * each + step, || {
        let (number, of) = (stage.number(), stages.len());
        format!("training {} of {of}, with stage {number}: step {step} of {each}", before + 1)
    });
}

/// Prints the comparison of stages: pictures, if wanted, the table, and for several stages the
/// prediction.
pub fn show(screen: &Screen, all: &[Measured], job: &Job, pictures: bool) {
    for measured in all.iter().filter(|_| pictures) {
        screen.say(format!("\n{}", drawing(screen, measured, job)));
    }
    screen.say(format!("\n{}\n{}", compared(screen, all, job), legend(screen, job)));
    if all.len() > 1 {
        screen.say(format!("\n{}", on_polaris(screen)));
    }
}

/// What stage 3 keeps whole from a step's beginning to its end, in the words of DeepSpeed's log.
pub fn persistent(units: &[Unit]) -> String {
    let persistent = units.iter().filter(|unit| unit.persistent);
    let (numel, params) = persistent
        .fold((0, 0), |(numel, params), unit| (numel + unit.numel, params + unit.specs.len()));
    format!("Parameter Offload: Total persistent parameters: {numel} in {params} params")
}

/// Trains the small model for three steps on all ranks, sharded, and on one rank that takes their
/// batches in turn. Returns whether both trained the same model.
pub fn same_as_one_rank(
    comm: &Comm,
    screen: &Screen,
    config: &Config,
    text: &[u32],
    zero: &ZeroConfig,
) -> Result<bool> {
    const STEPS: usize = 3;
    let config = config.parity_check();
    let precision = zero.precision;
    let replica = Replica::zero(&config, text, comm, zero.clone())?;
    let ours = parity::parallel(comm, replica, STEPS)?;
    let serial = || {
        let one = Replica::alone(&config, text, precision)?;
        parity::serial(one, comm.size(), STEPS)
    };
    let bound = precision.loss_bound();
    let Trained { losses, values, .. } = &ours;
    let same = parity::compare(comm, comm, screen, bound, losses, Some(values), serial)?;
    if comm.rank() == 0 {
        report::legend(screen);
    }
    Ok(same)
}

/// Compares each stage with the first that it must equal to the bit; or, if there is none, with the
/// first of all.
pub fn compare(
    checks: &mut Checks,
    comm: &Comm,
    all: &[Measured],
    bound: f64,
    accumulates: bool,
    tiles: bool,
) {
    for (i, other) in all.iter().enumerate().skip(1) {
        // An MPI library adds in its own order, which differs between collectives.
        let may_differ = |first: &&Measured| {
            !comm.adds_in_rank_order() || may_differ(first.stage, other.stage, accumulates, tiles)
        };
        let equal = all[..i].iter().find(|first| !may_differ(first));
        let first = equal.unwrap_or(&all[0]);
        let apart = largest_difference(&first.losses, &other.losses);
        let same = first.hash == other.hash && same_bits(&first.losses, &other.losses);
        let result = match apart {
            _ if same => "bitwise equal".into(),
            0.0 => "equal losses, different parameters".into(),
            _ => format!("losses differ by {apart:.0e}"),
        };
        let sound = same || (equal.is_none() && apart < bound);
        let what = format!(
            "stage {} trains what stage {} trains",
            other.stage.number(),
            first.stage.number()
        );
        checks.check(
            sound,
            &what,
            &result,
            &format!("stage {} trained something else", other.stage.number()),
        );
    }
}

/// Checks that every rank clips by the norm of all gradients, which every rank of stage 0 has.
pub fn check_norms(checks: &mut Checks, screen: &Screen, all: &[Measured], clip: f64) {
    let expected = all[0].norms[0];
    let norms = || all.iter().flat_map(|measured| measured.norms.iter().copied());
    // Stages may add up in different orders.
    let of_all_ranks = vec![expected; all[0].norms.len()];
    let sound = all
        .iter()
        .all(|measured| largest_relative_difference(&measured.norms, &of_all_ranks) < 0.01);
    let result = if sound {
        format!("{expected:.4}")
    } else {
        let least = norms().fold(f64::INFINITY, f64::min);
        let most = norms().fold(0.0, f64::max);
        format!("expected {expected:.4}, found {least:.4} to {most:.4}")
    };
    checks.check(
        sound,
        "every rank clips by the same norm",
        &result,
        "ranks clipped by different norms",
    );
    if sound {
        return;
    }
    let cell =
        |norm: &f64| format!("{norm:.4}, x {:.3}", clip_scale(*norm, clip).unwrap_or(f32::NAN));
    let row = |rank: usize| {
        std::iter::once(rank.to_string())
            .chain(all.iter().map(|measured| cell(&measured.norms[rank])))
            .collect()
    };
    let heads = all.iter().map(|measured| format!("stage {}", measured.stage.number()));
    let heads: Vec<String> = std::iter::once("rank".to_string()).chain(heads).collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let rows: Vec<Vec<String>> = (0..all[0].norms.len()).map(row).collect();
    let words = format!(
        "Norm in the first step, and the factor by which the rank scales its gradients. Expected on every rank: {}.",
        cell(&expected)
    );
    screen.say(format!("\n{}\n{}\n", table(screen, &heads, &rows), screen.wrap(&words, 2)));
}

/// Checks what ranks hold and send against the formulas, and against what a rank may hold, in MB.
pub fn check_memory(
    checks: &mut Checks,
    config: &Config,
    all: &[Measured],
    job: &Job,
    limit: Option<f64>,
) {
    // The formulas leave padding out, and padding counts if the model is too small for so many
    // ranks.
    if ensure_padding_is_little(config).is_ok() {
        let matching = all.iter().filter(|measured| measured.matches_formula(job));
        checks.check_all(
            matching.count(),
            all.len(),
            "memory and bytes are within 1% of the formulas",
            "a formula is off",
        );
    }
    if let Some(limit) = limit {
        let most = all
            .iter()
            .map(|t| t.held.parameters + t.held.gradients + t.held.optimizer)
            .max()
            .unwrap_or(0);
        let result = format!("{:.2} of {limit} MB", most as f64 / 1e6);
        checks.check(
            most as f64 <= limit * 1e6,
            "every rank stays within its memory",
            &result,
            "a rank holds too much",
        );
    }
}

/// Whether two stages add up in different orders, and so may differ in the last bits.
fn may_differ(a: Stage, b: Stage, accumulates: bool, tiles: bool) -> bool {
    // Stages 2 and 3 average in every micro-step, and then add up. Stage 3 alone has tiles.
    (accumulates && (a < Stage::Two) != (b < Stage::Two))
        || (tiles && (a == Stage::Three) != (b == Stage::Three))
}

/// The stages in which one rank holds at most `limit` bytes of parameters, gradients and optimizer
/// state; an error if `wanted` does not fit, or none does. Offloaded bytes do not count.
pub fn within(
    limit: Option<f64>,
    wanted: Option<Stage>,
    config: &Config,
    zero: &ZeroConfig,
) -> Result<Vec<Stage>, BadInput> {
    let numel = config.shape.parameters();
    let ranks = config.ranks;
    let takes = |stage: Stage, ranks: usize| {
        let plan = if zero.offload.is_some() {
            zero_memory_offloaded
        } else {
            zero_memory
        };
        plan(stage.number(), numel, ranks as u64, zero.precision.bytes_each())
            .iter()
            .sum::<u64>() as f64
    };
    let fits = |stage: &Stage| limit.is_none_or(|limit| takes(*stage, ranks) <= limit);
    let fitting: Vec<Stage> = Stage::ALL.into_iter().filter(fits).collect();
    let asked = wanted.unwrap_or(Stage::Three);
    if fits(&asked) && !fitting.is_empty() {
        return Ok(fitting);
    }
    let limit = limit.unwrap_or(f64::INFINITY);
    let what = format!(
        "--zero {} takes {} per rank, and --memory-limit is {}",
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
            let would =
                enough.map_or(String::new(), |ranks| format!("; --zero 3 would on {ranks} ranks"));
            format!("no stage fits on {ranks} ranks{would}")
        }
    };
    Err(BadInput::new(what, help))
}

/// Refuses a model so small that padding could be more than 1% of a rank's share. Padding is at
/// most one element per tensor and rank, and the formulas leave it out.
pub fn ensure_padding_is_little(config: &Config) -> Result<(), BadInput> {
    let shape = &config.shape;
    let ranks = config.ranks;
    let numel = shape.parameters();
    let tensors = shape.decayed().0 + shape.not_decayed().0;
    if (100 * tensors * ranks) as u64 <= numel {
        return Ok(());
    }
    let what = format!(
        "{numel} parameters in {tensors} tensors are too few for {ranks} ranks: padding could be more than 1%, and the \
         formulas leave it out"
    );
    Err(BadInput::new(
        what,
        "give fewer --ranks or a larger model; --zero trains this one with one stage",
    ))
}

/// Prints what a checkpoint's reader gets back if all padding is recorded on the last rank. Returns
/// what the check found wrong.
pub fn padding_on_last(comm: &Comm, screen: &Screen) -> Vec<String> {
    let ranks = comm.size();
    if comm.rank() != 0 {
        return Vec::new();
    }
    let flat = Flat { numel: 2 * ranks + 1, ranks };
    let title = format!(
        "A group of {} elements, {} on each rank with padding",
        flat.numel,
        flat.shard_numel()
    );
    let all_on_last = |rank: usize| {
        if rank + 1 == ranks {
            flat.padded() - flat.numel
        } else {
            0
        }
    };
    let (table, back) = restored(screen, flat, all_on_last);
    screen.say(format!("\n{}\n\n{table}\n", screen.bold(title)));
    let mut checks = Checks::new(screen);
    let sound = back == (0..flat.numel).collect::<Vec<_>>();
    let result = format!("expected {} elements, found {}", flat.numel, back.len());
    checks.check(
        sound,
        "the reader gets the parameters back",
        &result,
        "padding was taken for parameters",
    );
    checks.failed()
}

/// Splits a padded group among ranks, then joins it again without the padding that each rank
/// recorded, as a checkpoint's reader does. Returns a table with a line per rank, and the joined
/// elements.
pub fn restored(
    screen: &Screen,
    flat: Flat,
    recorded: impl Fn(usize) -> usize,
) -> (String, Vec<usize>) {
    /// Stands for an element that is padding.
    const PADDING: usize = usize::MAX;
    let mut back = Vec::new();
    let rows = (0..flat.ranks).map(|rank| {
        let held = flat.range(rank);
        let part = flat.shard_numel();
        let recorded = recorded(rank);
        let elements = held.clone().chain(std::iter::repeat_n(PADDING, flat.padding(rank)));
        back.extend(elements.take(part.saturating_sub(recorded)));
        [rank, held.len(), flat.padding(rank), recorded].map(|n| n.to_string()).to_vec()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    (table(screen, &["rank", "elements", "padding", "recorded"], &rows), back)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::difference::damaged;

    fn measured(losses: Vec<f64>, norms: Vec<f64>, hash: u64) -> Measured {
        let stage = Stage::One;
        let held = MemoryUsage::default();
        Measured { stage, losses, hash, norms, held, sent: 0.0, formula: 0.0 }
    }

    fn failures(check: impl FnOnce(&mut Checks, &Screen)) -> usize {
        let screen = Screen::plain();
        let mut checks = Checks::new(&screen);
        check(&mut checks, &screen);
        checks.failed().len()
    }

    #[test]
    fn a_stage_without_a_loss_or_a_norm_is_not_the_same_as_a_good_one() {
        let losses = [3.0, 2.0];
        let norms = [0.5, 0.5, 0.5];
        // Micro-steps: stages 1 and 2 may add in different orders, so that losses decide.
        let compared = |first: Measured, mut other: Measured, accumulates: bool| {
            other.stage = Stage::Two;
            let all = [first, other];
            failures(|checks, _| compare(checks, &Comm::alone(), &all, 1e-5, accumulates, false))
        };
        let with = |losses: &[f64]| measured(losses.to_vec(), norms.to_vec(), 7);
        assert_eq!(compared(with(&losses), with(&losses), false), 0);
        assert_eq!(
            compared(with(&losses), measured(vec![3.0, 2.000001], norms.to_vec(), 8), true),
            0
        );
        for accumulates in [false, true] {
            for bad in damaged(&losses) {
                assert_eq!(compared(with(&losses), with(&bad), accumulates), 1, "{bad:?}");
                assert_eq!(compared(with(&bad), with(&losses), accumulates), 1, "{bad:?}");
                assert_eq!(
                    compared(with(&bad), with(&bad), accumulates),
                    usize::from(bad.len() != 1),
                    "{bad:?}"
                );
            }
        }
        let checked = |bad: &[f64]| {
            let all = [with(&losses), measured(losses.to_vec(), bad.to_vec(), 7)];
            failures(|checks, screen| check_norms(checks, screen, &all, 1.0))
        };
        assert_eq!(checked(&norms), 0);
        // A table of the norms needs as many as there are ranks.
        for bad in damaged(&norms).into_iter().filter(|bad| bad.len() == norms.len()) {
            assert_eq!(checked(&bad), 1, "{bad:?}");
        }
    }
}
