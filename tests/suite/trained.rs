//! Small trainings, and what they leave: what the library's tests compare.

use half::bf16;
use shardlab::checkpoint::{Checkpoints, Job};
use shardlab::comm::{Comm, Reduce};
use shardlab::data::{Batch, Corpus};
use shardlab::mesh::Coordinates;
use shardlab::model::Gpt;
use shardlab::parallel::zero::Stage;
use shardlab::parallel::{Ddp, Strategy, Zero};
use shardlab::plan::{Experts, Family, Groups, Part, Scores, Selection};
use shardlab::tensor::{Params, Stored};
use shardlab::train::{AdamW, Config, Training, clip_scale, global_norm};
use std::collections::BTreeMap;
use std::path::Path;

/// Experts whose routers select as DeepSeek-V3's.
pub const SELECTING: Experts = Experts {
    count: 8,
    top_k: 2,
    ffn: 32,
    normalized: true,
    selection: Selection {
        scores: Scores::Sigmoid,
        groups: Some(Groups { count: 4, top_k: 2 }),
        bias: true,
        factor: 2.5,
        capacity: None,
    },
    shared: 1,
    dense_layers: 1,
};

/// A family, and its experts if it has such.
pub type Model = (Family, Option<Experts>);

/// What a training leaves: of each step its loss and its gradients' norm, and the weights after the
/// last.
pub struct Trained {
    pub losses: Vec<f64>,
    pub norms: Vec<f64>,
    pub values: Vec<f32>,
}

/// A mesh of these sizes, whose data ranks shard the state of a stage.
pub fn strategy(sizes: Coordinates, zero: Stage) -> Strategy {
    let Coordinates { data, pipeline, tensor } = sizes;
    Strategy { pipeline, tensor, ..Strategy::data(data, zero) }
}

/// A small model on the embedded text. `edit` changes the run's settings.
pub fn config(ranks: usize, edit: impl Fn(&mut Config)) -> (Config, Corpus) {
    let corpus = Corpus::embedded().unwrap();
    let mut config = Config { steps: 300, ..Config::small(ranks, &corpus) };
    (config.schedule.warmup, config.schedule.decay_steps) = (5, 300);
    edit(&mut config);
    (config, corpus)
}

/// A job's checkpoints in a folder: of these settings, on the embedded text.
pub fn checkpoints(comm: &Comm, config: &Config, dir: &Path, strategy: Strategy) -> Checkpoints {
    let settings = config.settings(&self::config(comm.size(), |_| ()).1.train);
    let job = Job {
        shape: config.shape,
        seed: config.seed,
        ranks: comm.size(),
        strategy: Some(strategy),
        settings,
    };
    Checkpoints::new(dir, 3, job, comm)
}

/// The most by which two losses differ that are the mean of so many tokens' losses, added in
/// different orders. A sum of k numbers is rounded in each of k additions, by half of f32's epsilon
/// times the sum so far, which is at most k times the largest number. The mean is this divided by
/// k. The largest loss is about that of a model that knows nothing: ln 65, the embedded text's
/// vocabulary.
pub fn loss_rounding(tokens: usize) -> f64 {
    tokens as f64 * f64::from(f32::EPSILON) / 2.0 * 65f64.ln()
}

/// Calls `each` with every element that this rank holds: its place in the buffers of `whole`, which
/// declares the whole model, and its value and moments.
fn each_element(
    zero: &mut Zero,
    whole: &Params,
    mut each: impl FnMut(usize, [f32; 3]),
) -> anyhow::Result<()> {
    zero.fragments(|fragment, elements, state| {
        let name = &fragment.spec.whole.name;
        let whole = whole.specs().iter().find(|spec| spec.name == *name);
        let whole = whole.expect("a parameter of the model").range();
        fragment.spec.runs(elements.clone(), |run, at| {
            for (element, at) in run.zip(whole.start + at..) {
                let i = element - elements.start;
                each(at, [state.values[i], state.exp_avg[i], state.exp_avg_sq[i]]);
            }
        });
    })
}

/// The state of a training, whole: what no mesh may change.
#[derive(Debug, PartialEq, Eq)]
pub struct WholeState {
    /// Steps that the optimizer has taken.
    pub steps: u64,
    /// By the names of the parameters: the bits of their values and of both moments.
    pub parameters: BTreeMap<String, [Vec<u32>; 3]>,
}

/// The state that all ranks hold together. Ranks that hold the same must hold the same bits.
/// `whole` declares the whole model.
pub fn whole_state(world: &Comm, zero: &mut Zero, whole: &Params) -> anyhow::Result<WholeState> {
    // On any rank. What no rank holds has no bits that are both.
    let mut least = [(); 3].map(|_| vec![u64::MAX; whole.numel()]);
    let mut most = [(); 3].map(|_| vec![0u64; whole.numel()]);
    each_element(zero, whole, |at, numbers| {
        for (kind, number) in numbers.into_iter().enumerate() {
            let bits = number.to_bits().into();
            (least[kind][at], most[kind][at]) = (bits, bits);
        }
    })?;
    for (least, most) in least.iter_mut().zip(&mut most) {
        world.all_reduce(least, Reduce::Min)?;
        world.all_reduce(most, Reduce::Max)?;
    }
    let mut parameters = BTreeMap::new();
    for spec in whole.specs() {
        let bits = [0, 1, 2].map(|kind| {
            let [least, most] = [&least, &most].map(|bits| &bits[kind][spec.range()]);
            assert!(least == most, "{}: ranks hold different state {kind}, or none", spec.name);
            most.iter().map(|&bits| bits as u32).collect()
        });
        parameters.insert(spec.name.clone(), bits);
    }
    let mut steps = [zero.steps()];
    world.all_reduce(&mut steps, Reduce::Max)?;
    assert_eq!(steps, [zero.steps()], "ranks have taken different steps");
    Ok(WholeState { steps: steps[0], parameters })
}

/// Asserts that each parameter's gradient of the only step that `training` has taken is that of
/// `expected`, norm by norm. `norm` is the step's, and `world` has all ranks.
///
/// After a step no rank has gradients, and with shards none ever has all. But Adam's first moment
/// is now (1 - beta1) times the clipped gradient, and each rank has its fragments of it, by name.
pub fn gradients_are_one_ranks(
    world: &Comm,
    training: &mut Training,
    norm: f64,
    expected: &Params,
    bound: f64,
) -> anyhow::Result<()> {
    let Config { adamw, clip, .. } = &training.config;
    let factor = (1.0 - adamw.beta1) * f64::from(clip_scale(norm, *clip)?);
    let gradients = expected.gradients();
    // Of each element the largest difference on any rank that holds it.
    let mut apart = vec![-1f64; gradients.len()];
    each_element(&mut training.zero, expected, |at, [_, exp_avg, _]| {
        let difference = (f64::from(exp_avg) / factor - f64::from(gradients[at])).abs();
        apart[at] = if difference.is_nan() { f64::INFINITY } else { difference };
    })?;
    world.all_reduce(&mut apart, Reduce::Max)?;
    // Loads, in place of a gradient, leave no moment.
    for spec in expected.specs().iter().filter(|spec| spec.whole.part != Part::SelectionBias) {
        let apart = &apart[spec.range()];
        let held = apart.iter().all(|&apart| apart >= 0.0);
        assert!(held, "{}: ranks hold a part of {} only", training.strategy, spec.name);
        let apart = apart.iter().map(|apart| apart * apart).sum::<f64>().sqrt();
        let norm = global_norm(&gradients[spec.range()]);
        let what = format!("{}: the gradient of {}", training.strategy, spec.name);
        assert!(apart <= bound * norm, "{what} is off by {:.1e} of its norm", apart / norm);
    }
    Ok(())
}

/// Data parallelism written out with [`Ddp`]: ranks begin with weights of their own, which rank 0's
/// replace, and average what each has learned from one micro-batch.
pub fn train_by_hand(
    comm: &Comm,
    config: &Config,
    text: &[u32],
    steps: usize,
) -> anyhow::Result<Trained> {
    let gpt = Gpt::new(&config.shape)?;
    gpt.params.allocate(config.seed_of(comm.rank()));
    let ddp = Ddp::new(&gpt.params, comm)?;
    let mut adamw = AdamW::new(config.adamw, &gpt.params);
    let mut trained = Trained { losses: Vec::new(), norms: Vec::new(), values: Vec::new() };
    for step in 0..steps {
        let batch = config.sampler(comm.rank()).batch(text, step, 0);
        gpt.params.zero_gradients();
        let loss = gpt.loss(&batch, &config.pass(step, &batch.sequences))?;
        loss.backward()?;
        ddp.finish()?;
        let norm = global_norm(&gpt.params.gradients());
        adamw.step(&gpt.params, config.schedule.at(step), clip_scale(norm, config.clip)?)?;
        trained.losses.push(f64::from(loss.to_scalar::<f32>()?));
        trained.norms.push(norm);
    }
    trained.values = gpt.params.values().clone();
    Ok(trained)
}

/// Trains one rank on all ranks' and micro-steps' sequences as one large batch: the same
/// mathematics, with sums in a different order.
pub fn train_large_batch(config: &Config, text: &[u32], steps: usize) -> anyhow::Result<Trained> {
    let one = Config { ranks: 1, grad_accum: 1, ..config.clone() };
    let mut training = Training::new(&one, &Strategy::SINGLE, &Comm::alone())?;
    let mut losses = Vec::new();
    let mut norms = Vec::new();
    for step in 0..steps {
        let of_rank = |rank| {
            (0..config.grad_accum).map(move |micro| config.sampler(rank).batch(text, step, micro))
        };
        let all: Vec<Batch> = (0..config.ranks).flat_map(of_rank).collect();
        let whole = training.with_passes(step, vec![Batch::concat(&all)])?;
        let ran = training.passes(&whole)?;
        training.average()?;
        losses.push(training.loss(&ran)?);
        norms.push(training.update(step)?);
    }
    let params = &training.stages.chunks[0].params;
    let values = match params.whole() {
        Ok(values) => values.clone(),
        Err(_) => bf16::widened(params.stored_values::<bf16>().to_vec()),
    };
    Ok(Trained { losses, norms, values })
}
