//! Runs whose figures were published: what the planner is compared with. They are in
//! `published.toml`, with their sources.

use crate::{
    Cluster, Degrees, Device, MICRO_BATCHES, Overlap, Program, Strategy, TrainingJob, layer_flops,
    model, refusal,
};
use serde::Deserialize;
use shapes::BytesEach;
use shapes::model::{Dense, Family, ModelShape};
use shapes::named::named;
use std::collections::BTreeMap;

/// A published figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Seconds of a step.
    Seconds,
    /// FLOPs per second and device in units of 1e12: of the model's matrices and its attention.
    Teraflops,
    /// The same, and those of a second forward pass.
    TeraflopsRecomputed,
    /// Tokens per second and device.
    Tokens,
}

impl Unit {
    /// In a table.
    pub fn words(self) -> &'static str {
        match self {
            Unit::Seconds => "s",
            Unit::Teraflops | Unit::TeraflopsRecomputed => "TFLOP/s",
            Unit::Tokens => "tokens/s",
        }
    }
}

/// The program of a source, in its time.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Software {
    /// Megatron-LM of 2021 and 2022 kept scores, and hid only tensor ranks' collectives.
    #[serde(rename = "megatron-2021")]
    Megatron2021,
    /// DeepSpeed's ZeRO-3 of 2021 reached 16 to 18 GB/s on every rank, whatever the number of
    /// nodes: its collectives used one card of each node. Gradients had 16 bits, and the data axis
    /// was hidden.
    #[serde(rename = "deepspeed-2021")]
    Deepspeed2021,
    Megatron,
    Pytorch,
    Deepspeed,
}

named! {
    /// What a published figure was made for, and how tables call such runs.
    #[derive(Deserialize, serde::Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Made by default Benchmark {
        /// To know the speed: short runs, tuned and on machines that were chosen for it.
        Benchmark = "benchmarks",
        /// By a training that was carried through: with its data, its logs, its slow days.
        Production = "trainings",
    }
}

/// Runs of one source on one kind of machine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// In tables.
    pub id: String,
    /// The first source from the same publication, if it is not this one.
    with: Option<String>,
    /// Its title, and where the figures are in it.
    pub title: String,
    /// What its figures were made for, if a run does not say otherwise.
    #[serde(default)]
    made: Made,
    software: Software,
    device: String,
    network: String,
    unit: Unit,
    /// Cards of a node and their GB/s, if they are not the network's.
    cards: Option<usize>,
    card: Option<f64>,
    /// Whether attention keeps no scores, if it is not usual for the software.
    flash: Option<bool>,
    dropout: Option<bool>,
    /// Bytes per parameter: 16 or 18.
    bytes: Option<u64>,
    /// Whether the planner chooses micro-batch and chunks, because the source does not state them.
    #[serde(default)]
    free: bool,
    runs: Vec<Row>,
}

/// One run, as the file has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    model: String,
    /// Tokens of a sequence, if they are not the model's.
    seq: Option<usize>,
    batch: usize,
    plan: String,
    figure: f64,
    made: Option<Made>,
    /// If not as its source.
    flash: Option<bool>,
    /// Why a search does not find these degrees among its fast plans.
    missed: Option<String>,
    /// Why the planner finds a plan too large that was run.
    too_large: Option<String>,
}

/// A model of a source, which has no name that `--model` knows.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    layers: usize,
    embd: usize,
    heads: usize,
    /// Of a Llama.
    kv_heads: Option<usize>,
    ffn: Option<usize>,
    gated: Option<bool>,
    /// Whether attention and MLP work side by side.
    parallel: Option<bool>,
    vocab: usize,
    seq: usize,
    /// Parameters as its source has them, in units of 1e9: a test compares them.
    #[cfg_attr(not(test), expect(dead_code))]
    billions: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    models: BTreeMap<String, Shape>,
    source: Vec<Source>,
}

/// One published run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its source's name in tables.
    pub source: String,
    /// The first source from the same publication: what they measured may err alike.
    pub publication: String,
    pub made: Made,
    pub name: String,
    pub job: TrainingJob,
    pub strategy: Strategy,
    /// Whether the planner chooses micro-batch and chunks.
    free: bool,
    unit: Unit,
    figure: f64,
    /// Why a search does not find these degrees among its fast plans.
    pub missed: Option<String>,
    /// Why the planner finds the plan too large, though it was run.
    #[cfg_attr(not(test), expect(dead_code))]
    too_large: Option<String>,
}

/// The file. It is compiled in, and a test reads all of it: nothing that a reader does can make it
/// wrong.
fn file() -> File {
    toml::from_str(include_str!("published.toml")).expect("published.toml is tested")
}

/// All sources, in the order of the file.
pub fn sources() -> Vec<Source> {
    file().source
}

/// All runs that the planner is compared with.
pub fn runs() -> Vec<Run> {
    let File { models, source } = file();
    let mut all = Vec::new();
    for source in &source {
        for row in &source.runs {
            all.push(Run::of(&models, source, row));
        }
    }
    all
}

impl Shape {
    fn shape(&self) -> ModelShape {
        let gpt = ModelShape::gpt2(self.layers, self.embd, self.heads, self.vocab, self.seq);
        let Some(ffn) = self.ffn else {
            return gpt;
        };
        let kv_heads = self.kv_heads.unwrap_or(self.heads);
        let dense = Dense {
            gated: self.gated.unwrap_or(true),
            parallel: self.parallel.unwrap_or(false),
            ..Dense::llama(kv_heads, self.embd / self.heads, ffn)
        };
        ModelShape { family: Family::Dense(dense), ..gpt }
    }
}

/// The best micro-batch and chunks for a strategy of which a paper states the rest.
fn best_within(job: &TrainingJob, strategy: &Strategy) -> Strategy {
    let sizes = |chunks| {
        MICRO_BATCHES.map(|sequences| Strategy {
            chunks,
            micro_batch: Some(sequences),
            ..*strategy
        })
    };
    let all = strategy.chunks_for(job.model.layers).flat_map(sizes);
    let all: Vec<Strategy> = all.filter(|s| refusal(job, s).is_none()).collect();
    // A run that was made did fit, even if its memory is not understood here.
    let fits = |s: &&Strategy| job.load(s).total() < job.cluster.device.memory;
    let fastest =
        |a: &&Strategy, b: &&Strategy| job.time(a).total().total_cmp(&job.time(b).total());
    let single = all.iter().filter(|s| s.sequences() == 1);
    all.iter()
        .filter(fits)
        .min_by(fastest)
        .or(single.min_by(fastest))
        .copied()
        .unwrap_or(*strategy)
}

impl Run {
    fn of(models: &BTreeMap<String, Shape>, source: &Source, row: &Row) -> Run {
        let described = models.get(&row.model).map(Shape::shape);
        let mut shape = described
            .unwrap_or_else(|| model(&row.model).expect("published.toml names its models"));
        shape.block = row.seq.unwrap_or(shape.block);
        let strategy: Strategy = row.plan.parse().expect("published.toml has plans");
        let device = Device::named(&source.device).expect("published.toml has devices");
        let mut cluster =
            Cluster::new(device, &source.network).expect("published.toml has networks");
        let network = &mut cluster.network;
        if let Some(cards) = source.cards {
            network.cards = cards;
            network.rings = cards;
        }
        if let Some(gigabytes) = source.card {
            network.between.bandwidth = 1e9 * gigabytes;
        }
        let mut job = TrainingJob {
            batch: row.batch,
            ..TrainingJob::new(shape, cluster, strategy.ranks())
        };
        match source.software {
            Software::Megatron2021 => {
                job.flash = false;
                job.overlap = Overlap::Tensor;
                job.rings = true;
            }
            Software::Deepspeed2021 => {
                job.flash = false;
                job.bytes = BytesEach::MIXED;
                job.cluster.network.rings = 1;
                job.rings = true;
                job.program = Program::Deepspeed;
            }
            Software::Megatron => job.dropout = false,
            Software::Pytorch => {
                job.dropout = false;
                job.program = Program::Pytorch;
            }
            Software::Deepspeed => {
                job.dropout = false;
                job.program = Program::Deepspeed;
            }
        }
        job.flash = row.flash.or(source.flash).unwrap_or(job.flash);
        job.dropout = source.dropout.unwrap_or(job.dropout);
        if source.bytes == Some(16) {
            job.bytes = BytesEach::MIXED;
        }
        Run {
            source: source.id.clone(),
            publication: source.with.as_ref().unwrap_or(&source.id).clone(),
            made: row.made.unwrap_or(source.made),
            name: row.model.clone(),
            job,
            strategy,
            free: source.free,
            unit: source.unit,
            figure: row.figure,
            missed: row.missed.clone(),
            too_large: row.too_large.clone(),
        }
    }

    /// The strategy that is compared: with the planner's best micro-batch and chunks, where the
    /// source does not state them.
    pub fn planned(&self) -> Strategy {
        if self.free {
            best_within(&self.job, &self.strategy)
        } else {
            self.strategy
        }
    }

    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// The planner's figure, in the source's unit, and the source's.
    pub fn compared(&self) -> (f64, f64) {
        let job = &self.job;
        let seconds = job.time(&self.planned()).total();
        let model = &job.model;
        let tokens = (job.batch * model.block) as f64;
        let devices = job.devices as f64;
        let again = match self.unit {
            Unit::TeraflopsRecomputed => model.layers as f64 * layer_flops(model) as f64,
            _ => 0.0,
        };
        let flops = (model.matmul_flops_per_token() as f64 + again) * tokens;
        let planned = match self.unit {
            Unit::Seconds => seconds,
            Unit::Tokens => tokens / seconds / devices,
            Unit::Teraflops | Unit::TeraflopsRecomputed => flops / seconds / devices / 1e12,
        };
        (planned, self.figure)
    }

    /// The predicted step over the published one, minus 1: negative where the planner is too fast.
    pub fn error(&self) -> f64 {
        let (planned, published) = self.compared();
        match self.unit {
            Unit::Seconds => planned / published - 1.0,
            _ => published / planned - 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plan;
    use crate::accuracy::Accuracy;
    use crate::check::too_large;
    use crate::search::search;
    use std::thread;

    /// `with` names a source of the file that is of no other publication itself.
    #[test]
    fn publications_are_named_by_their_first_source() {
        let all = sources();
        for with in all.iter().filter_map(|source| source.with.as_ref()) {
            let first = all.iter().find(|source| &source.id == with);
            assert!(first.is_some_and(|first| first.with.is_none()), "{with}");
        }
    }

    #[test]
    fn parameters_are_the_published_ones() {
        for (name, described) in file().models {
            let is = described.shape().parameters() as f64 / 1e9;
            if let Some(billions) = described.billions {
                assert!((is - billions).abs() < 0.06, "{name}: {is} is not {billions}");
            }
        }
    }

    /// A plan that ran is not too large for its device, or the file says why it is here. Where a
    /// source does not state micro-batches and chunks, it is the plan as the file has it.
    #[test]
    fn what_was_run_fits() {
        let mut wrong = Vec::new();
        for run in runs() {
            let plan = run.strategy;
            let of = format!("{} {} on {}", run.source, run.name, run.job.devices);
            match (too_large(&run.job, &run.job.load(&plan)), run.too_large) {
                (Some(refusal), None) => wrong.push(format!("{of}: {}", refusal.what)),
                (None, Some(reason)) => {
                    wrong.push(format!("{of} fits, and need not say: {reason}"))
                }
                _ => {}
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// The published degrees are among the plans that are at most a tenth slower than a search's
    /// best, or the file says why not.
    #[test]
    fn a_search_finds_what_was_run() {
        let runs = runs();
        let (runs, cores) = (&runs, thread::available_parallelism().map_or(1, usize::from));
        let wrong: Vec<String> = thread::scope(|scope| {
            // Its part of the runs, on each core.
            let part = |first| {
                scope.spawn(move || {
                    let part = runs.iter().skip(first).step_by(cores);
                    part.flat_map(not_found).collect::<Vec<_>>()
                })
            };
            let parts: Vec<_> = (0..cores).map(part).collect();
            parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
        });
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// What is wrong with a run and the search for its job.
    fn not_found(run: &Run) -> Vec<String> {
        let mut wrong = Vec::new();
        let found = search(&run.job);
        let s = run.strategy;
        let same = |plan: &Strategy| {
            (plan.data, plan.tensor, plan.pipeline) == (s.data, s.tensor, s.pipeline)
        };
        let accuracy = Accuracy::known();
        let likely = |plan: &Plan| accuracy.likely(plan);
        let best = found.plans.first().map_or(f64::NAN, likely);
        let slower = found.best(same).map_or(f64::INFINITY, |plan| likely(plan) / best - 1.0);
        let of = format!("{} {} on {}: {s}", run.source, run.name, run.job.devices);
        if let Some(refused) = refusal(&run.job, &run.planned()) {
            wrong.push(format!("{of} is refused: {refused:?}"));
        }
        match &run.missed {
            None if slower > 0.1 => wrong.push(format!(
                "{of} is {slower:.2} slower than {:?}",
                found.plans.first().map(|plan| plan.strategy.to_string())
            )),
            Some(reason) if slower <= 0.1 => {
                wrong.push(format!("{of} is found, and need not say: {reason}"));
            }
            _ => {}
        }
        wrong
    }
}
