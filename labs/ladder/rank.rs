//! What a rank computes. Everything that it computes or sends is noted, so that a run can be
//! scored.

use crate::clock::{Doing, Event, FAR, NEAR};
use crate::group::Group;
use crate::job::Job;
use crate::log::{Log, Update};
use crate::model;
use crate::text::{ROWS, Text};
use crate::{Adam, LAYERS};
use shardlab::comm::{Comm, Result};
use std::cell::RefCell;

/// One rank: all that a program of the ladder has.
pub struct Rank<'t> {
    job: Job,
    text: &'t Text,
    world: Comm,
    tensor: Comm,
    data: Comm,
    pub(crate) log: RefCell<Log>,
}

impl<'t> Rank<'t> {
    pub(crate) fn new(job: Job, text: &'t Text, world: Comm) -> Result<Rank<'t>> {
        let rank = world.rank();
        let tensor = world.split((rank / job.tensor) as u64, rank as i64)?;
        let data = world.split((rank % job.tensor) as u64, rank as i64)?;
        world.barrier()?;
        Ok(Rank {
            job,
            text,
            world,
            tensor: tensor.named("tensor"),
            data: data.named("data"),
            log: RefCell::new(Log::new()),
        })
    }

    /// All ranks of the job.
    pub fn world(&self) -> Group<'_> {
        Group::new(&self.world, &self.log, FAR)
    }

    /// The ranks of this rank's node, which have a fast link to each other. In most jobs of the
    /// ladder every rank has a node of its own.
    pub fn tensor(&self) -> Group<'_> {
        Group::new(&self.tensor, &self.log, NEAR)
    }

    /// The ranks with this rank's number on all other nodes.
    pub fn data(&self) -> Group<'_> {
        Group::new(&self.data, &self.log, FAR)
    }

    /// Layers of the model.
    pub fn layers(&self) -> usize {
        LAYERS
    }

    /// Parameters of a layer. The ladder's 2 and 4 ranks divide it without rest.
    pub fn numel(&self, layer: usize) -> usize {
        model::numel(layer, self.text.vocabulary())
    }

    /// Parameters of one of a layer's 64 units. A layer's parameters are its units, one after the
    /// other.
    pub fn unit(&self, layer: usize) -> usize {
        model::unit(layer, self.text.vocabulary())
    }

    /// Training steps.
    pub fn steps(&self) -> usize {
        self.job.steps
    }

    /// Into how many parts a step's batch is cut.
    pub fn parts(&self) -> usize {
        self.job.parts
    }

    /// Numbers in the activations of one part between any two layers.
    pub fn activations(&self) -> usize {
        ROWS / self.job.parts * model::WIDTH
    }

    /// A layer's parameters before the first step, the same on every rank.
    pub fn initial(&self, layer: usize) -> Vec<f32> {
        let weights = model::initial(layer, self.text.vocabulary());
        self.look();
        weights
    }

    /// The first layer's input: part `part` of the batch of step `step`.
    #[track_caller]
    pub fn input(&self, step: usize, part: usize) -> Vec<f32> {
        let parts = self.parts();
        assert!(
            part < parts,
            "a batch has parts 0 to {}, not {part}{}",
            parts - 1,
            if self.job.tensor > 1 {
                ". Ranks of a node share a part: `data().rank()`"
            } else {
                ""
            }
        );
        let x = self.text.input(step, part, parts);
        self.look();
        x
    }

    /// The output of a layer for the input `x`. With some of the layer's units as `weights`, it is
    /// their summand of the output.
    #[track_caller]
    pub fn forward(&self, layer: usize, weights: &[f32], x: &[f32]) -> Vec<f32> {
        self.ensure("forward", layer, weights, &[(x, "x", model::WIDTH)]);
        self.look();
        let y = model::forward(weights, self.outputs(layer), x);
        self.compute(Doing::Forward, layer, 2 * weights.len() * x.len() / model::WIDTH);
        y
    }

    /// The gradient of the part's mean loss with respect to the last layer's output `y`.
    #[track_caller]
    pub fn loss(&self, step: usize, part: usize, y: &[f32]) -> Vec<f32> {
        let targets = self.text.targets(step, part, self.parts());
        let expected = targets.len() * self.text.vocabulary();
        assert_eq!(
            y.len(),
            expected,
            "loss of part {part}: y must be the last layer's output, {expected} numbers"
        );
        let (loss, dy) = model::loss(y, &targets);
        self.note(|log| log.losses.push((step, part, loss)));
        dy
    }

    /// From the gradient of a layer's output: the gradients of its input `x`, and of its
    /// parameters. With some of the layer's units as `weights`, the first is their summand of it,
    /// and the second is complete.
    #[track_caller]
    pub fn backward(
        &self,
        layer: usize,
        weights: &[f32],
        x: &[f32],
        dy: &[f32],
    ) -> (Vec<f32>, Vec<f32>) {
        let outputs = self.outputs(layer);
        let rows = [(x, "x", model::WIDTH), (dy, "dy", outputs)];
        self.ensure("backward", layer, weights, &rows);
        self.look();
        let gradients = model::backward(weights, outputs, x, dy);
        self.note(|log| log.gradients.push((layer, gradients.1.clone())));
        self.compute(Doing::Backward, layer, 4 * weights.len() * x.len() / model::WIDTH);
        gradients
    }

    /// The optimizer's step for some parameters, by their mean gradients.
    #[track_caller]
    pub fn update(&self, adam: &mut Adam, weights: &mut [f32], gradients: &[f32]) {
        let lengths = [adam.numel(), weights.len(), gradients.len()];
        assert!(
            lengths.iter().all(|len| *len == lengths[0]),
            "update: the state is for {} parameters, and it got {} weights and {} gradients",
            lengths[0],
            lengths[1],
            lengths[2]
        );
        self.look();
        self.note(|log| {
            log.updates
                .push(Update { weights: weights.to_vec(), gradients: gradients.to_vec() });
        });
        adam.update(weights, gradients);
        // Adam computes about twenty operations per parameter.
        self.compute(Doing::Update, 0, 20 * weights.len());
    }

    /// Bytes that this rank has sent inside its node.
    pub(crate) fn sent_near(&self) -> u64 {
        self.tensor.traffic().bytes
    }

    fn outputs(&self, layer: usize) -> usize {
        model::outputs(layer, self.text.vocabulary())
    }

    fn note(&self, something: impl FnOnce(&mut Log)) {
        self.log.borrow_mut().note(something);
    }

    fn look(&self) {
        self.log.borrow_mut().held.look();
    }

    fn compute(&self, doing: Doing, layer: usize, flops: usize) {
        let mut log = self.log.borrow_mut();
        log.held.look();
        let held = log.held.now();
        log.tell(Event::Compute { doing, layer, flops, held });
    }

    /// Refuses weights that are no units of the layer, and rows of a wrong length.
    #[track_caller]
    fn ensure(&self, what: &str, layer: usize, weights: &[f32], rows: &[(&[f32], &str, usize)]) {
        assert!(layer < LAYERS, "{what}: the model has layers 0 to {}, not {layer}", LAYERS - 1);
        let unit = self.unit(layer);
        let given = weights.len();
        assert!(
            given > 0 && given.is_multiple_of(unit),
            "{what} of layer {layer}: it got {given} numbers as weights, and the layer has {} (or whole units, {unit} each)",
            self.numel(layer)
        );
        let count = rows[0].0.len() / rows[0].2;
        for (numbers, name, width) in rows {
            assert_eq!(
                numbers.len(),
                count.max(1) * width,
                "{what} of layer {layer}: {name} has rows of {width} numbers"
            );
        }
    }
}
