//! The numbers of one training step.

use anyhow::Result;
use candle_core::Shape;
use clap::Parser;
use kit::TrainFlags;
use kit::number_format::exponent;
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::model::{Build, Layer, Pass, Plain, Role};
use shardlab::parallel::Strategy;
use shardlab::tensor::{self, Activation, Params, TensorOp, Whole};
use shardlab::train::{Config, Observer, Setup, Training};
use std::sync::{Arc, Mutex, PoisonError};

/// The exponents of numbers from f32's smallest to its largest.
pub const EXPONENTS: std::ops::Range<i32> = -149..128;

/// How many numbers there are with each exponent.
#[derive(Clone)]
pub struct Magnitudes {
    counts: Vec<u64>,
    /// Numbers that are 0 in f32.
    pub zeros: u64,
}

impl Default for Magnitudes {
    fn default() -> Magnitudes {
        Magnitudes { counts: vec![0; EXPONENTS.len()], zeros: 0 }
    }
}

impl Magnitudes {
    pub fn of(numbers: &[f32]) -> Magnitudes {
        let mut all = Magnitudes::default();
        all.add(numbers);
        all
    }

    fn add(&mut self, numbers: &[f32]) {
        for &x in numbers {
            match x {
                0.0 => self.zeros += 1,
                x => self.counts[(exponent(f64::from(x)) - EXPONENTS.start) as usize] += 1,
            }
        }
    }

    /// The numbers other than 0.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The numbers whose exponent is in a range.
    pub fn within(&self, exponents: std::ops::Range<i32>) -> u64 {
        let at = |exponent: i32| {
            (exponent.clamp(EXPONENTS.start, EXPONENTS.end) - EXPONENTS.start) as usize
        };
        self.counts[at(exponents.start)..at(exponents.end)].iter().sum()
    }
}

/// What was seen in a step.
pub struct Step {
    pub weights: Vec<f32>,
    /// By how much each weight moved.
    pub updates: Vec<f32>,
    pub weight_gradients: Magnitudes,
    /// What matrix products read.
    pub activations: Magnitudes,
    /// The gradients of what they wrote.
    pub activation_gradients: Magnitudes,
    /// The last block's last matrix, what it read, and the gradient of what it wrote.
    pub matrices: Vec<(&'static str, Matrix)>,
}

impl Step {
    /// The numbers of each kind, by name.
    pub fn all(&self) -> [(&'static str, Magnitudes); 5] {
        [
            ("weights", Magnitudes::of(&self.weights)),
            ("activations", self.activations.clone()),
            ("their gradients", self.activation_gradients.clone()),
            ("weight gradients", self.weight_gradients.clone()),
            ("updates", Magnitudes::of(&self.updates)),
        ]
    }
}

/// Numbers in rows.
#[derive(Clone, Default)]
pub struct Matrix {
    pub numbers: Vec<f32>,
    pub cols: usize,
}

#[derive(Parser)]
struct Lab03 {
    #[command(flatten)]
    train: TrainFlags,
}

/// lab03's run, on one rank.
pub fn config(corpus: &Corpus) -> Result<Config> {
    Ok(Lab03::parse_from(["lab03"]).train.resolve(1, Some(300), corpus)?)
}

/// Trains up to `step`, counted from 1, and looks at that step.
pub fn step(config: &Config, text: &[u32], step: usize) -> Result<Step> {
    let seen = Arc::new(Seen::default());
    let (last, _) = config.shape.block_named(config.shape.layers - 1, "out.weight");
    let layers = Probing { seen: seen.clone(), last: last.clone() };
    let setup = Setup::new(config, &Strategy::SINGLE).layers(move |_| Box::new(layers));
    let mut training = setup.begin(&Comm::alone())?;
    for earlier in 0..step - 1 {
        training.step(text, earlier)?;
    }
    seen.taken(); // of the steps before
    let mut gradients = Gradients::default();
    let before = values(&training)?;
    training.step_with(text, step - 1, &mut gradients)?;
    let after = values(&training)?;
    let Both {
        magnitudes: [activations, activation_gradients],
        last: [read, wrote],
    } = seen.taken();
    let out = training.zero.params().specs().iter().find(|spec| spec.name == last);
    let weight =
        out.map(|spec| Matrix { numbers: before[spec.range()].to_vec(), cols: spec.shape[1] });
    Ok(Step {
        matrices: vec![
            ("weights", weight.unwrap_or_default()),
            ("activations", read),
            ("their gradients", wrote),
        ],
        updates: before.iter().zip(after).map(|(before, after)| before - after).collect(),
        weights: before,
        weight_gradients: gradients.0,
        activations,
        activation_gradients,
    })
}

fn values(training: &Training) -> Result<Vec<f32>> {
    Ok(training.stages.chunks[0].params.whole()?.clone())
}

#[derive(Default)]
struct Gradients(Magnitudes);

impl Observer for Gradients {
    fn averaged(&mut self, training: &mut Training) -> Result<()> {
        self.0 = Magnitudes::of(&training.stages.chunks[0].params.whole_gradients()?);
        Ok(())
    }
}

/// Activations, and their gradients.
#[derive(Default)]
struct Both {
    magnitudes: [Magnitudes; 2],
    /// Those of the last layer's last matrix.
    last: [Matrix; 2],
}

/// The numbers that layers have seen.
#[derive(Default)]
struct Seen {
    both: Mutex<Both>,
}

impl Seen {
    fn add(&self, of: usize, numbers: &[f32], cols: usize, is_last: bool) {
        let mut both = self.both.lock().unwrap_or_else(PoisonError::into_inner);
        both.magnitudes[of].add(numbers);
        if is_last {
            both.last[of] = Matrix { numbers: numbers.to_vec(), cols };
        }
    }

    fn taken(&self) -> Both {
        std::mem::take(&mut *self.both.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Makes plain layers whose numbers are seen.
struct Probing {
    seen: Arc<Seen>,
    /// The name of the last layer's last matrix.
    last: String,
}

impl Build for Probing {
    fn linear(
        &self,
        params: &Arc<Params>,
        whole: Whole,
        role: Role,
    ) -> candle_core::Result<Box<dyn Layer>> {
        let is_last = whole.name == self.last;
        let layer = Plain.linear(params, whole, role)?;
        Ok(Box::new(Probed { layer, seen: self.seen.clone(), is_last }))
    }
}

struct Probed {
    layer: Box<dyn Layer>,
    seen: Arc<Seen>,
    is_last: bool,
}

impl Layer for Probed {
    fn forward(&self, x: &Activation, pass: &Pass) -> candle_core::Result<Activation> {
        let (_, cols) = tensor::rows(x.dims())?;
        self.seen.add(0, x.numbers(), cols, self.is_last);
        let y = self.layer.forward(x, pass)?;
        tensor::apply(&y, Probe { seen: self.seen.clone(), is_last: self.is_last })
    }
}

/// Passes everything on, and sees the gradient.
struct Probe {
    seen: Arc<Seen>,
    is_last: bool,
}

impl TensorOp for Probe {
    const NAME: &'static str = "probe";

    fn forward(&self, x: &[f32], dims: &[usize]) -> candle_core::Result<(Vec<f32>, Shape)> {
        Ok((x.to_vec(), dims.into()))
    }

    fn input_gradient(
        &self,
        _x: &[f32],
        dims: &[usize],
        dy: &[f32],
    ) -> candle_core::Result<Vec<f32>> {
        self.seen.add(1, dy, tensor::rows(dims)?.1, self.is_last);
        Ok(dy.to_vec())
    }
}
