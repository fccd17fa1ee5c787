//! A training that N ranks have saved continues on M ranks, from a universal checkpoint.

use super::trained::{Model, WholeState, checkpoints, whole_state};
use shardlab::checkpoint::Checkpoints;
use shardlab::checkpoint::universal::{self, STATES, Universal};
use shardlab::comm::{Comm, Reduce};
use shardlab::data::{Corpus, Sampling};
use shardlab::mesh::Axis;
use shardlab::model::{Auxiliary, Gpt};
use shardlab::parallel::zero::Stage;
use shardlab::parallel::{Strategy, Zero};
use shardlab::train::{Config, Training};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// All numbers of ranks up to 6 divide it.
pub const SEQUENCES: usize = 60;

/// The settings of a training on `ranks` ranks that learns from the same 60 sequences per step,
/// whatever `ranks` is.
pub fn config(ranks: usize) -> (Config, Corpus) {
    super::trained::config(ranks, |config| {
        (config.batch, config.sampling) = (SEQUENCES / ranks, Sampling::Global);
        (config.dropout, config.clip) = (0.1, 0.5);
        (config.shape.layers, config.shape.block, config.shape.embd) = (1, 8, 16);
    })
}

/// One rank's training, whose first step is not taken: so the job has counted one step more than
/// the optimizer.
struct Counted<'a> {
    training: Training,
    comm: &'a Comm,
    text: &'a [u32],
    /// Steps so far, the first one included.
    steps: usize,
    /// Of the steps that were taken: the mean over all ranks.
    losses: Vec<f64>,
}

impl<'a> Counted<'a> {
    fn begin(
        comm: &'a Comm,
        config: &Config,
        corpus: &'a Corpus,
        stage: Stage,
    ) -> anyhow::Result<Counted<'a>> {
        let training = Training::new(config, &Strategy::data(comm.size(), stage), comm)?;
        Ok(Counted {
            training,
            comm,
            text: &corpus.train,
            steps: 0,
            losses: Vec::new(),
        })
    }

    fn until(&mut self, steps: usize) -> anyhow::Result<()> {
        for step in self.steps.max(1)..steps {
            let mut loss = [self.training.step(self.text, step)?.loss];
            self.comm.all_reduce(&mut loss, Reduce::Mean)?;
            self.losses.push(loss[0]);
        }
        self.steps = steps;
        Ok(())
    }

    fn save(&mut self, all: &Checkpoints) -> anyhow::Result<PathBuf> {
        all.save(self.steps, &mut self.training.zero, &self.steps)
    }
}

/// Trains two steps, of which the first is not taken, and saves: the optimizer has taken one step,
/// and the job two. Rank 0 converts the checkpoint to `to`. Then trains two more steps, and returns
/// their losses.
pub fn train_and_convert(
    comm: &Comm,
    stage: Stage,
    dir: &Path,
    to: &Path,
) -> anyhow::Result<Vec<f64>> {
    let (config, corpus) = config(comm.size());
    let mut training = Counted::begin(comm, &config, &corpus, stage)?;
    training.until(2)?;
    save_and_convert(comm, &config, dir, to, |all| training.save(all))?;
    training.until(4)?;
    Ok(training.losses[1..].to_vec())
}

fn save_and_convert(
    comm: &Comm,
    config: &Config,
    dir: &Path,
    to: &Path,
    save: impl FnOnce(&Checkpoints) -> anyhow::Result<PathBuf>,
) -> anyhow::Result<()> {
    let folder = save(&checkpoints(comm, config, dir, Strategy::SINGLE))?;
    if comm.rank() == 0 {
        universal::merge(&folder, to)?;
    }
    Ok(comm.barrier()?)
}

/// Continues from a universal checkpoint. The state that this number of ranks holds must be the
/// checkpoint's, bit for bit: it is saved and converted again. Returns the losses of the next two
/// steps.
pub fn continue_from(
    comm: &Comm,
    stage: Stage,
    from: &Path,
    dir: &Path,
) -> anyhow::Result<Vec<f64>> {
    let (config, corpus) = config(comm.size());
    let mut training = Counted::begin(comm, &config, &corpus, stage)?;
    let universal = Universal::open(from)?;
    training.steps = universal.restore(comm, &mut training.training.zero)?;
    assert_eq!(training.steps, universal.step);
    let again = dir.join("again");
    save_and_convert(comm, &config, dir, &again, |all| training.save(all))?;
    let again = Universal::open(&again)?;
    assert_eq!(again.parameters, universal.parameters, "{stage:?} on {} ranks", comm.size());
    assert_eq!(again.optimizer_steps, 1);
    training.until(4)?;
    Ok(training.losses)
}

/// Trains ranks that all hold the whole model, and saves after rank 1 has changed the last bit of
/// one number: of the weights, or of a moment. Returns the checkpoint.
pub fn save_drifted(comm: &Comm, kind: usize, dir: &Path) -> anyhow::Result<PathBuf> {
    let (config, corpus) = config(comm.size());
    let mut training = Counted::begin(comm, &config, &corpus, Stage::Ddp)?;
    training.until(2)?;
    let zero = &mut training.training.zero;
    let steps = zero.steps();
    zero.restore(steps, |fragment, _, state| {
        if comm.rank() == 1 && fragment.spec.name == "wpe.weight" {
            let kinds = [state.values, state.exp_avg, state.exp_avg_sq];
            let number = &mut kinds[kind][5];
            *number = f32::from_bits(number.to_bits() ^ 1);
        }
    })?;
    training.save(&checkpoints(comm, &config, dir, Strategy::SINGLE))
}

/// Saves after rank 1 has counted one step more. Returns the checkpoint.
pub fn save_of_other_steps(comm: &Comm, dir: &Path) -> anyhow::Result<PathBuf> {
    let (config, corpus) = config(comm.size());
    let mut training = Counted::begin(comm, &config, &corpus, Stage::One)?;
    training.training.zero.restore(comm.rank() as u64, |_, _, _| ())?;
    training.save(&checkpoints(comm, &config, dir, Strategy::SINGLE))
}

/// What a training on a mesh has saved, and how it went on.
pub struct Saved {
    /// The folder of the universal checkpoint.
    pub universal: PathBuf,
    /// What the ranks held.
    pub state: WholeState,
    /// The losses of the next two steps, mean over data ranks.
    pub losses: Vec<f64>,
}

/// The settings of a training on a mesh: of two micro-batches with 24 sequences in a step, unless
/// the strategy has other numbers.
pub fn mesh_config(strategy: &Strategy, model: Model) -> (Config, Corpus) {
    super::trained::config(strategy.data, |config| {
        config.grad_accum = strategy.micro_batches.unwrap_or(2);
        config.batch = strategy.micro_batch.unwrap_or(24 / config.grad_accum / strategy.data);
        (config.clip, config.sampling) = (0.5, Sampling::Global);
        (config.shape.family, config.shape.experts) = model;
        (config.shape.layers, config.shape.heads, config.shape.block) = (4, 4, 8);
        // Counted over all ranks, a load is any mesh's.
        config.auxiliary = Auxiliary { coefficient: 1.0, over_ranks: true, ..Auxiliary::default() };
    })
}

/// [`train_and_convert`] and [`continue_from`] on any mesh. Without `from` it begins, and trains
/// two steps. With it, ranks must hold what those held that saved, bit for bit: values, moments,
/// the number of steps. Saves to `dir`, and converts.
pub fn on_a_mesh(
    world: &Comm,
    model: Model,
    strategy: &str,
    from: Option<&Saved>,
    dir: &Path,
) -> anyhow::Result<Saved> {
    let strategy: Strategy = strategy.parse()?;
    let (config, corpus) = mesh_config(&strategy, model);
    let mut part = Training::new(&config, &strategy, world)?;
    let train = |part: &mut Training, steps: Range<usize>| -> anyhow::Result<Vec<f64>> {
        steps.map(|step| Ok(part.step(&corpus.train, step)?.loss)).collect()
    };
    match from {
        None => train(&mut part, 0..2).map(drop)?,
        Some(from) => {
            let zero = &mut part.zero;
            zero.restore(0, |_, _, state| {
                for numbers in [state.values, state.exp_avg, state.exp_avg_sq] {
                    numbers.fill(7.0);
                }
            })?;
            let step: usize = Universal::open(&from.universal)?.restore(world, zero)?;
            assert_eq!(step, 2);
            padding_is_zeros(zero)?;
        }
    }
    let whole = Gpt::new(&config.shape)?.params;
    let state = whole_state(world, &mut part.zero, &whole)?;
    if let Some(from) = from {
        assert_eq!(state.steps, from.state.steps, "{strategy}");
        for (name, bits) in &from.state.parameters {
            for (found, (expected, kind)) in
                state.parameters[name].iter().zip(bits.iter().zip(STATES))
            {
                assert!(found == expected, "{strategy}: {kind} of {name}");
            }
        }
    }
    // Passes and evaluations use these.
    let values = part.whole(|gpt| Ok(gpt.params.values().clone()))?;
    for spec in whole.specs() {
        let values = values[spec.range()].iter().map(|value| value.to_bits());
        assert!(
            values.eq(state.parameters[&spec.name][0].iter().copied()),
            "{strategy}: {}",
            spec.name
        );
    }
    let universal = dir.join("universal");
    save_and_convert(world, &config, dir, &universal, |all| all.save(2, &mut part.zero, &2usize))?;
    if world.rank() == 0 {
        let files = Universal::open(&universal)?;
        assert_eq!(files.optimizer_steps, state.steps);
        assert!(files.parameters.keys().eq(state.parameters.keys()), "{strategy}");
        for (name, bits) in &state.parameters {
            let states = files
                .read(name)?
                .map(|numbers| numbers.into_iter().map(f32::to_bits).collect::<Vec<_>>());
            assert!(states == *bits, "{strategy}: the files of {name}");
        }
    }
    let mut losses = train(&mut part, 2..4)?;
    part.mesh.group(Axis::Data).all_reduce(&mut losses, Reduce::Mean)?;
    Ok(Saved { universal, state, losses })
}

/// What is in no checkpoint, such as the padding of a vocabulary, is not what was there before.
fn padding_is_zeros(zero: &mut Zero) -> anyhow::Result<()> {
    let steps = zero.steps();
    zero.restore(steps, |fragment, elements, state| {
        let mut padding = vec![true; elements.len()];
        fragment.spec.runs(elements.clone(), |run, _| {
            padding[run.start - elements.start..run.end - elements.start].fill(false);
        });
        for numbers in [state.values, state.exp_avg, state.exp_avg_sq] {
            let mut both = numbers.iter().zip(&padding);
            let left = both.find(|(number, padding)| **padding && **number != 0.0);
            assert_eq!(left, None, "{}", fragment.spec.name);
        }
    })
}
