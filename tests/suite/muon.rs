//! Muon needs whole matrices: whoever owns them, and however tensor ranks cut them, its steps are
//! one rank's.

use super::trained::config;
use shardlab::comm::Comm;
use shardlab::data::{Batch, Sampler};
use shardlab::difference::same_bits;
use shardlab::model::Gpt;
use shardlab::optim::MuonConfig;
use shardlab::parallel::zero::{Offload, OffloadFolder, Stage, Wrap, Zero, ZeroConfig};
use shardlab::parallel::{Strategy, TensorParallel, unshard};
use shardlab::tensor::Precision;
use shardlab::train::{Config, MicroBatch, Observer, Setup, Training};

/// Gives all replicas the batches of one, so that the mean of their gradients is one rank's: of 2
/// and of 4 equal numbers it is exact.
struct OneRanksBatches;

impl Observer for OneRanksBatches {
    fn batch(&mut self, one: MicroBatch) -> Batch {
        let sampler = Sampler { rank: 0, ranks: 1, ..one.sampler };
        sampler.batch(one.text, one.step, one.number)
    }
}

/// Losses, norms and parameters after four steps.
type Trained = (Vec<f64>, Vec<f64>, Vec<f32>);

fn train(comm: &Comm, config: &Config, zero: ZeroConfig) -> anyhow::Result<Trained> {
    let corpus = shardlab::data::Corpus::embedded()?;
    let strategy = Strategy::data(comm.size(), zero.stage);
    let mut training = Setup::new(config, &strategy).zero(zero).begin(comm)?;
    let mut losses = Vec::new();
    let mut norms = Vec::new();
    for step in 0..4 {
        let taken = training.step_with(&corpus.train, step, &mut OneRanksBatches)?;
        losses.push(taken.loss);
        norms.push(taken.grad_norm);
    }
    let values = training.whole(|gpt| Ok(gpt.params.whole()?.clone()))?;
    Ok((losses, norms, values))
}

fn muon(ranks: usize, precision: Precision, edit: fn(&mut MuonConfig)) -> Config {
    let mut muon = MuonConfig::default();
    edit(&mut muon);
    config(ranks, |config| {
        (config.muon, config.clip, config.precision) = (Some(muon), 0.5, precision);
        config.schedule.lr = 1e-2;
    })
    .0
}

/// On 1, 2 or 4 ranks, in every stage, wherever state lies.
pub fn owners_take_one_ranks_steps(comm: &Comm, same_order: bool) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let files = Offload::Files(OffloadFolder::to(dir.path().to_path_buf()));
    for (precision, edit) in [
        (Precision::F32, (|_| ()) as fn(&mut MuonConfig)),
        (Precision::F32, |muon| muon.split_qkv = false),
        (Precision::Bf16, |_| ()),
    ] {
        let one = muon(1, precision, edit);
        let alone = train(&Comm::alone(), &one, one.zero(Stage::Ddp))?;
        let adamw = Config { muon: None, ..one.clone() };
        let adamw = train(&Comm::alone(), &adamw, adamw.zero(Stage::Ddp))?;
        assert!(alone.0[0] == adamw.0[0] && alone.0[3] != adamw.0[3], "it is another optimizer");
        let config = muon(comm.size(), precision, edit);
        let of = |stage| config.zero(stage);
        for (what, zero) in [
            ("stage 0", of(Stage::Ddp)),
            ("stage 1", of(Stage::One)),
            ("stage 1, small buckets", ZeroConfig { reduce_bucket: 1, ..of(Stage::One) }),
            (
                "stage 1 in files",
                ZeroConfig { offload: Some(files.clone()), ..of(Stage::One) },
            ),
            ("stage 2", of(Stage::Two)),
            (
                "stage 2, one bucket",
                ZeroConfig { reduce_bucket: usize::MAX, ..of(Stage::Two) },
            ),
            ("stage 3", of(Stage::Three)),
            ("stage 3, one unit", ZeroConfig { wrap: Wrap::Model, ..of(Stage::Three) }),
            (
                "stage 3, units of one",
                ZeroConfig { wrap: Wrap::Parameters, ..of(Stage::Three) },
            ),
            (
                "stage 3 on the host",
                ZeroConfig { offload: Some(Offload::Host), ..of(Stage::Three) },
            ),
        ] {
            let trained = train(comm, &config, zero)?;
            let equal = same_bits(&trained.0, &alone.0)
                && same_bits(&trained.1, &alone.1)
                && same_bits(&trained.2, &alone.2);
            assert!(equal || !same_order, "{what}: {:?} {:?}", trained.0, alone.0);
        }
    }
    Ok(())
}

/// Tensor ranks with their slices of one rank's gradients take their slices of its step.
pub fn tensor_ranks_take_one_ranks_step(comm: &Comm) -> anyhow::Result<()> {
    let (config, _) = config(1, |_| ());
    let muon = Some(MuonConfig::default());
    let zero = ZeroConfig { muon, ..config.zero(Stage::One) };
    let gradient = |k: usize| ((k % 89) as f32 - 44.0) * 1e-3;
    let stepped = |gpt: &Gpt, tensor: Option<&TensorParallel>| {
        let mut zero = Zero::init(&gpt.params, &Comm::alone(), zero.clone(), 3)?;
        if let Some(tensor) = tensor {
            zero = zero.with_tensor(tensor)?;
        }
        for _ in 0..3 {
            zero.begin()?;
            let mut gradients = gpt.params.gradients();
            for spec in gpt.params.specs() {
                let here = &mut gradients[spec.range()];
                spec.runs(0..here.len(), |run, at| {
                    for (i, k) in run.zip(at..) {
                        here[i] = gradient(k);
                    }
                });
            }
            drop(gradients);
            zero.update(1e-2, 0.5)?;
        }
        zero.leave()
    };
    let alone = Gpt::new(&config.shape)?;
    stepped(&alone, None)?;
    let tensor = TensorParallel::new(comm.clone());
    let part = Gpt::build(&config.shape, &tensor)?;
    stepped(&part, Some(&tensor))?;
    let whole = Gpt::new(&config.shape)?;
    whole.params.allocate(0);
    unshard(&[comm], None, &part.params, &whole.params)?;
    for spec in whole.params.specs() {
        let [one, cut] = [&alone, &whole].map(|gpt| gpt.params.values()[spec.range()].to_vec());
        assert!(same_bits(&one, &cut), "{}", spec.name);
    }
    Ok(())
}

/// Owners hold no more than the fullest of them, and no second moment of a matrix.
pub fn owners_hold_whole_matrices(comm: &Comm) -> anyhow::Result<()> {
    let config = muon(comm.size(), Precision::F32, |_| ());
    for stage in [Stage::One, Stage::Two, Stage::Three] {
        let strategy = Strategy::data(comm.size(), stage);
        let mut training = Training::new(&config, &strategy, comm)?;
        let mut counts = [0, 0];
        training.zero.fragments(|fragment, elements, state| {
            if fragment.spec.is_hidden_matrix() {
                assert_eq!(elements, 0..fragment.spec.numel(), "{}", fragment.spec.name);
                assert_eq!((state.exp_avg.len(), state.exp_avg_sq.len()), (elements.len(), 0));
                counts[0] += elements.len();
            } else {
                assert_eq!(state.exp_avg_sq.len(), elements.len());
                counts[1] += elements.len();
            }
        })?;
        let all = comm.gathered(&counts.map(|count| count as u64))?;
        let sum: u64 = all.iter().sum();
        assert_eq!(sum, config.shape.parameters(), "every element has one owner");
        let held = training.zero.memory();
        let most = 4 * counts[0] + 8 * (counts[1] + 2 * comm.size() * 4);
        assert!(held.optimizer >= 4 * counts[0] + 8 * counts[1], "{held:?}");
        assert!(held.optimizer <= most + 8 * 64, "{stage:?}: {} of {most}", held.optimizer);
    }
    Ok(())
}
