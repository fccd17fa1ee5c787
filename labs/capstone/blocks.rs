//! Life 1's model: the library's GPT in stages of one layer each. The parameters of a block come
//! from outside, for one pass. Those of the two ends are whole on every rank.

use anyhow::Result;
use shardlab::data::Batch;
use shardlab::model::{Gpt, Input, Pass, Plain};
use shardlab::optim::Fragment;
use shardlab::plan::ModelShape;
use shardlab::tensor::{Activation, Numbers, Spec, Storage, Tape};
use std::ops::Range;
use std::sync::Arc;

/// Parameters end to end: as ranks cut them into slices, and save them.
pub struct Line(pub Vec<Arc<Spec>>);

impl Line {
    pub fn numel(&self) -> usize {
        self.0.iter().map(|spec| spec.numel()).sum()
    }

    /// Each parameter, and where it is in the line.
    fn places(&self) -> impl Iterator<Item = (&Arc<Spec>, Range<usize>)> {
        let mut end = 0;
        self.0.iter().map(move |spec| {
            let start = end;
            end += spec.numel();
            (spec, start..end)
        })
    }

    /// Where a parameter is, if it is in this line.
    fn find(&self, name: &str) -> Option<Range<usize>> {
        let found = self.places().find(|(spec, _)| spec.name == name);
        found.map(|(_, place)| place)
    }

    /// The numbers with which a run begins.
    pub fn initial(&self, seed: u64) -> Vec<f32> {
        let mut values = vec![0.0; self.numel()];
        for (spec, place) in self.places() {
            spec.initial(seed, 0..spec.numel(), &mut values[place]);
        }
        values
    }

    /// The pieces of parameters that are in a slice of the line.
    pub fn pieces(&self, slice: Range<usize>) -> Vec<(Arc<Spec>, Range<usize>, usize)> {
        let piece = |(spec, place): (&Arc<Spec>, Range<usize>)| {
            let from = place.start.max(slice.start);
            let to = place.end.min(slice.end);
            (from < to).then(|| (spec.clone(), from - place.start..to - place.start, 0))
        };
        self.places().filter_map(piece).collect()
    }
}

/// The layers of a GPT. They have no parameters between two passes.
pub struct Layers {
    stages: Vec<Gpt>,
    pub blocks: Vec<Line>,
    /// Token table, positions and last norm.
    pub ends: Line,
}

impl Layers {
    pub fn new(shape: &ModelShape) -> Result<Layers> {
        let stage = |layer| Ok(Gpt::stage(shape, layer..layer + 1, &Plain)?);
        // It declares the same parameters, each once.
        let whole = Gpt::new(shape)?;
        let mut others = whole.params.specs().to_vec();
        let mut blocks = Vec::new();
        for layer in 0..shape.layers {
            let name = format!("{}.", shape.block_name(layer));
            let is_mine = |spec: &Arc<Spec>| spec.name.starts_with(&name);
            let (block, rest) = others.into_iter().partition(is_mine);
            blocks.push(Line(block));
            others = rest;
        }
        Ok(Layers {
            stages: (0..shape.layers).map(stage).collect::<Result<_>>()?,
            blocks,
            ends: Line(others),
        })
    }

    /// The blocks, then the ends.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.blocks.iter().chain([&self.ends])
    }

    /// Where a parameter of the ends is.
    fn end(&self, name: &str) -> Range<usize> {
        self.ends.find(name).unwrap_or_default()
    }

    /// What the optimizer of a rank updates: its slices of the blocks, and the ends.
    pub fn fragments(&self, slice: impl Fn(&Line) -> Range<usize>) -> Vec<Fragment> {
        let blocks = self.blocks.iter().flat_map(|block| block.pieces(slice(block)));
        Fragment::end_to_end(blocks.chain(self.ends.pieces(0..self.ends.numel())))
    }
}

/// Both passes of one micro-batch, block by block.
pub struct Passes<'a> {
    pub layers: &'a Layers,
    pub batch: &'a Batch,
    /// The factor of the loss in the backward pass.
    pub scale: f64,
    /// The values of the ends.
    pub ends: &'a [f32],
    /// Their gradients add up here.
    pub ends_gradients: &'a mut [f32],
    /// The input of each block, but for the first one's, and its output, with the tape between
    /// them.
    pub kept: Vec<(Option<Activation>, Activation)>,
    /// The gradient that arrives from behind.
    pub dy: Option<Vec<f32>>,
    pub loss: f64,
}

impl Passes<'_> {
    /// Runs a block forward: the first one with the embedding, the last one with the head.
    pub fn run_forward(&mut self, block: usize, parameters: &[f32]) -> Result<()> {
        // A tape begins here, so that its gradient is known.
        let before = self.kept.last();
        let start = |(_, y): &(_, Activation)| y.detached().started(&Tape::default());
        let x = before.map(start).transpose()?;
        let input = match &x {
            None => Input::Tokens { ids: &self.batch.inputs, length: self.batch.length },
            Some(x) => Input::Hidden(x),
        };
        self.hold(block, parameters);
        let stage = &self.layers.stages[block];
        let y = stage.forward(input, &self.batch.targets, &Pass::training(None))?;
        stage.params.set_values(Storage::Unallocated);
        if block + 1 == self.layers.stages.len() {
            self.loss = f64::from(y.scalar()?);
            self.dy = Some(vec![self.scale as f32]);
        }
        self.kept.push((x, y));
        Ok(())
    }

    /// Runs a block backward. Returns the gradients of its parameters.
    pub fn run_backward(&mut self, block: usize, parameters: &[f32]) -> Result<Vec<f32>> {
        let (Some((x, y)), Some(dy)) = (self.kept.pop(), self.dy.take()) else {
            anyhow::bail!("block {block} runs backward before all blocks have run forward")
        };
        self.hold(block, parameters);
        let params = &self.layers.stages[block].params;
        params.set_gradients(Storage::Local(Numbers::F32(vec![0.0; params.numel()])));
        let mut gradients = y.backward(dy, None)?;
        self.dy = x.map(|x| gradients.of(&x)).transpose()?;
        params.set_values(Storage::Unallocated);

        let mut mine = vec![0.0; parameters.len()];
        for spec in params.specs() {
            let here = &params.gradients()[spec.range()];
            let sum = match self.layers.blocks[block].find(&spec.name) {
                Some(place) => &mut mine[place],
                None => &mut self.ends_gradients[self.layers.end(&spec.name)],
            };
            sum.iter_mut().zip(here).for_each(|(sum, g)| *sum += g);
        }
        params.set_gradients(Storage::Unallocated);
        Ok(mine)
    }

    /// Gives a stage its parameters, for one pass.
    fn hold(&self, block: usize, parameters: &[f32]) {
        let line = &self.layers.blocks[block];
        assert_eq!(parameters.len(), line.numel(), "a block gets other parameters than it has");
        let params = &self.layers.stages[block].params;
        let mut values = vec![0.0; params.numel()];
        for spec in params.specs() {
            values[spec.range()].copy_from_slice(match line.find(&spec.name) {
                Some(place) => &parameters[place],
                None => &self.ends[self.layers.end(&spec.name)],
            });
        }
        params.set_values(Storage::Local(Numbers::F32(values)));
    }
}
