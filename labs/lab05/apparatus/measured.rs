//! One rank and its tensor ranks, measured side by side.

use super::broken::{Break, Broken, same_seed};
use super::formulas;
use super::slices::{Slices, compare_slices};
use anyhow::Result;
use kit::parity::by_name;
use kit::show::{Screen, bar_to_scale, bytes_decimal, explained, rows_of};
use kit::{progress, report};
use shardlab::comm::{Comm, Reduce};
use shardlab::difference::{largest_difference, largest_relative_difference};
use shardlab::parallel::Strategy;
use shardlab::parallel::tensor::padded;
use shardlab::plan::{DropoutMasks, Shards};
use shardlab::tensor::Params;
use shardlab::train::{Config, Setup, Training};
use std::collections::HashMap;

/// How the model is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    OneRank,
    Tensor,
    /// With sequence parallelism.
    Sequence,
}

/// Results of one rank alone. Every rank has them, and compares its shards with them.
pub struct Reference {
    losses: Vec<f64>,
    begun: HashMap<String, Vec<f32>>,
    /// The first step's.
    gradients: HashMap<String, Vec<f32>>,
}

/// A short training of one way, as all of its ranks saw it.
pub struct Measured {
    pub way: Way,
    pub shards: Shards,
    /// The job's sequences per step, and whether activations are dropped.
    batch: usize,
    dropout: DropoutMasks,
    pub losses: Vec<f64>,
    /// Parameters on this rank.
    pub parameters: u64,
    /// Bytes on this rank that the forward pass has left.
    pub activations: u64,
    /// Collective calls in the forward and in the backward pass, without the loss's.
    pub calls: [usize; 2],
    /// Bytes that a rank sent in the first step, mean over ranks.
    pub sent: f64,
    /// Whether every parameter began as the slice of the whole's.
    pub begins_as_slices: bool,
    /// Whether ranks hold the same slices of a matrix, before the first step and after the last.
    pub slices: [Slices; 2],
    /// The largest difference of a gradient from the unsharded model's, relative to the largest of
    /// the parameter.
    pub gradients: f64,
    /// The largest relative difference of a step's loss.
    pub losses_apart: f64,
}

/// The largest difference of this rank's shards from the wholes, relative to the largest element of
/// each.
fn apart(params: &Params, flat: &[f32], wholes: &HashMap<String, Vec<f32>>) -> f64 {
    let mut worst = 0f64;
    for spec in params.specs() {
        let here = &flat[spec.range()];
        let whole = &wholes[&spec.whole.name];
        let top = whole.iter().fold(f32::MIN_POSITIVE, |top, x| top.max(x.abs()));
        spec.runs(0..here.len(), |run, at| {
            let expected = whole.get(at..at + run.len()).unwrap_or_default();
            worst = worst.max(largest_difference(&here[run], expected) / f64::from(top));
        });
    }
    worst
}

/// A training of `group`'s ranks; with a mistake, if there is one.
fn begin(
    config: &Config,
    strategy: &Strategy,
    group: &Comm,
    broken: Option<Break>,
) -> Result<Training> {
    let mut setup = Setup::new(config, strategy);
    if let Some(mistake) = broken {
        let last = config.shape.layers - 1;
        setup =
            setup.layers(move |tensor| Box::new(Broken { tensor: tensor.clone(), mistake, last }));
    }
    if broken == Some(Break::SameSeed) {
        setup = setup.values(same_seed(config.seed));
    }
    setup.begin(group)
}

/// Trains in one way, on all ranks of `group`, or on each alone. Without a
/// `reference`, nothing is compared, and one is returned.
pub fn measure(
    group: &Comm,
    (way, multiple, broken): (Way, usize, Option<Break>),
    config: &Config,
    text: &[u32],
    reference: Option<&Reference>,
) -> Result<(Measured, Option<Reference>)> {
    let world = group.clone();
    // Gradients are compared on every rank, losses on rank 0.
    let steps = if way == Way::OneRank && group.rank() > 0 {
        1
    } else {
        config.steps
    };
    let group = if way == Way::OneRank {
        Comm::alone()
    } else {
        group.clone()
    };
    let ranks = group.size();
    let strategy = Strategy {
        tensor: ranks,
        sequence: way == Way::Sequence,
        vocabulary_multiple: multiple,
        ..Strategy::SINGLE
    };
    let mut training = begin(config, &strategy, &group, broken)?;
    let group = training.tensor.group().clone();
    let params = training.stages.chunks[0].params.clone();
    let rows = if ranks == 1 {
        config.shape.vocabulary
    } else {
        padded(config.shape.vocabulary, ranks, multiple)
    };
    let shards = Shards {
        shape: config.shape,
        tensor: ranks,
        pipeline: 1,
        sequence: way == Way::Sequence,
        rows,
    };
    let begun = params.values().clone();
    let slices_begun = compare_slices(&group, &params)?;
    let mut measured = Measured {
        way,
        shards,
        batch: config.batch,
        dropout: DropoutMasks::of(config.dropout),
        losses: Vec::new(),
        parameters: params.numel() as u64,
        activations: 0,
        calls: [0; 2],
        sent: 0.0,
        begins_as_slices: true,
        slices: [slices_begun, Slices::default()],
        gradients: 0.0,
        losses_apart: 0.0,
    };
    // The loss takes two all-reduces.
    let of_loss = if ranks == 1 { 0 } else { 2 };
    let mut gradients = Vec::new();
    let name = heading(way, ranks);
    for step in 0..steps {
        progress(&world, || format!("{name}: step {} of {steps}", step + 1));
        let micro_batches = training.draw(text, step, &mut ())?;
        let before = group.traffic();
        let ran = training.passes(&micro_batches)?;
        let passed = group.traffic();
        training.average()?;
        if step <= 1 {
            // After the forward pass. The first step also leaves buffers that are not the step's.
            measured.activations = ran.passes[0].bytes.max(0) as u64;
        }
        if step == 0 {
            let sent = (group.traffic() - before).bytes as f64;
            measured.sent = group.reduced(sent, Reduce::Mean)?;
            gradients = params.gradients().clone();
            // The forward pass once more, to count its calls.
            let alone = group.traffic();
            let (batch, pass) = &micro_batches[0];
            training.stages.chunks[0].loss(batch, pass)?;
            let forward = (group.traffic() - alone).calls as usize;
            let both = (passed - before).calls as usize;
            measured.calls = [forward.saturating_sub(of_loss), both.saturating_sub(forward)];
        }
        measured.losses.push(training.loss(&ran)?);
        training.update(step)?;
    }
    measured.slices[1] = compare_slices(&group, &params)?;
    let Some(reference) = reference else {
        let begun = by_name(&params, &begun);
        let gradients = by_name(&params, &gradients);
        let losses = measured.losses.clone();
        return Ok((measured, Some(Reference { losses, begun, gradients })));
    };
    // Only rank 0 has trained the reference beyond the first step.
    let losses = if group.rank() == 0 {
        &measured.losses[..]
    } else {
        &measured.losses[..1]
    };
    let mut worst = [
        apart(&params, &begun, &reference.begun),
        apart(&params, &gradients, &reference.gradients),
        largest_relative_difference(losses, &reference.losses),
    ];
    group.all_reduce(&mut worst, Reduce::Max)?;
    (measured.begins_as_slices, measured.gradients, measured.losses_apart) =
        (worst[0] == 0.0, worst[1], worst[2]);
    Ok((measured, None))
}

impl Measured {
    /// The expected parameters: each rank has a part of every layer.
    pub fn expected_parameters(&self) -> u64 {
        let all = 0..self.shards.shape.layers;
        self.shards.parameters(&[all])
    }

    /// The expected bytes of activations.
    pub fn expected_activations(&self) -> f64 {
        self.shards.activations(self.batch, self.dropout)
    }

    /// The expected bytes per step.
    pub fn expected_bytes(&self) -> f64 {
        formulas::sent(&self.shards, self.batch, formulas::copies(&self.shards.shape), [4, 4])
    }

    /// The activations of a block, in the letters of the papers: s·b·h numbers of 4 bytes each.
    fn formula(&self) -> &'static str {
        match (self.way, self.dropout) {
            (Way::OneRank, DropoutMasks::None) => "64 sbh",
            (Way::OneRank, DropoutMasks::Kept) => "72 sbh",
            (Way::Tensor, DropoutMasks::None) => "(16 + 48/t) sbh",
            (Way::Tensor, DropoutMasks::Kept) => "(24 + 48/t) sbh",
            (Way::Sequence, DropoutMasks::None) => "(8 + 56/t) sbh",
            (Way::Sequence, DropoutMasks::Kept) => "(8 + 64/t) sbh",
        }
    }
}

fn heading(way: Way, ranks: usize) -> String {
    match way {
        Way::OneRank => "1 rank".to_string(),
        Way::Tensor => format!("{ranks} ranks, TP"),
        Way::Sequence => format!("{ranks} ranks, TP + SP"),
    }
}

/// A table: each way's figures of one rank. All bars have one scale; one rank's is their whole.
pub fn compared(screen: &Screen, all: &[Measured]) -> String {
    let parameters = |measured: &Measured| 4.0 * measured.parameters as f64;
    let activations = |measured: &Measured| measured.activations as f64;
    let most = all
        .iter()
        .flat_map(|measured| [parameters(measured), activations(measured)])
        .fold(0.0, f64::max);
    let column = |measured: &Measured| {
        let held = |of: fn(&Measured) -> f64| {
            format!(
                "{} {}",
                bar_to_scale(screen, of(measured), of(&all[0]), most, 10),
                bytes_decimal(of(measured))
            )
        };
        let [forward, backward] = measured.calls;
        let each = |calls: usize| {
            // Two calls, or one all-reduce, are outside of the blocks: at the embedding and at the
            // head.
            let outside = if measured.way == Way::Sequence { 2 } else { 1 };
            calls.saturating_sub(outside) as f64 / measured.shards.shape.layers as f64
        };
        let calls = match measured.way {
            Way::OneRank => "none".to_string(),
            Way::Tensor => format!("{} + {} all-reduces", each(forward), each(backward)),
            Way::Sequence => format!("{} + {} gather/scatter", each(forward), each(backward)),
        };
        let losses = (measured.losses.first(), measured.losses.last());
        let loss = |loss: Option<&f64>| loss.map_or(String::new(), |loss| format!("{loss:.5}"));
        vec![
            held(parameters),
            held(activations),
            measured.formula().to_string(),
            calls,
            bytes_decimal(measured.sent),
            loss(losses.0),
            loss(losses.1),
        ]
    };
    let last = format!("loss, step {}", all[0].losses.len());
    let names = [
        "parameters",
        "activations",
        "  per block",
        &screen.bold("calls"), // the row of the takeaway
        "sends",
        "loss, step 1",
        &last,
    ];
    let mut columns: Vec<Vec<String>> = all.iter().map(column).collect();
    screen.least_is_best(&mut columns, 0, &all.iter().map(parameters).collect::<Vec<_>>());
    screen.least_is_best(&mut columns, 1, &all.iter().map(activations).collect::<Vec<_>>());
    let mut heads = vec!["each rank".to_string()];
    heads.extend(all.iter().map(|one| heading(one.way, one.shards.tensor)));
    let t = all.last().map_or(1, |measured| measured.shards.tensor);
    let words = format!(
        "TP: tensor parallelism. SP: sequence parallelism. t = {t} ranks share s = {} positions of b = {} sequences, h = {} \
         wide. calls: per block, forward + backward. sends: per step, {}.",
        all[0].shards.shape.block,
        all[0].batch,
        all[0].shards.shape.embd,
        report::counted()
    );
    explained(screen, &heads, rows_of(&names, &columns), &words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::data::Corpus;
    use shardlab::model::Gpt;
    use shardlab::plan::{Family, ModelShape};

    #[test]
    fn nan_and_missing_elements_are_differences() {
        let gpt = Gpt::new(&ModelShape {
            vocabulary: 5,
            block: 4,
            layers: 1,
            heads: 1,
            embd: 4,
            family: Family::Gpt,
            experts: None,
        })
        .unwrap();
        gpt.params.allocate(1);
        let flat = gpt.params.values().clone();
        let wholes = by_name(&gpt.params, &flat);
        assert_eq!(apart(&gpt.params, &flat, &wholes), 0.0);
        for i in 0..flat.len() {
            let mut nan = flat.clone();
            nan[i] = f32::NAN;
            assert!(apart(&gpt.params, &nan, &wholes).is_infinite(), "{i}");
            assert!(apart(&gpt.params, &flat, &by_name(&gpt.params, &nan)).is_infinite(), "{i}");
        }
        for name in wholes.keys() {
            let mut shorter = by_name(&gpt.params, &flat);
            shorter.get_mut(name).unwrap().pop();
            assert!(apart(&gpt.params, &flat, &shorter).is_infinite(), "{name}");
        }
    }

    /// What two ranks measure if all is right.
    fn right(way: Way) -> Measured {
        let shape = Config::small(1, &Corpus::embedded().unwrap()).shape;
        let tensor = if way == Way::OneRank { 1 } else { 2 };
        let sequence = way == Way::Sequence;
        let rows = padded(shape.vocabulary, tensor, 1);
        let shards = Shards { shape, tensor, pipeline: 1, sequence, rows };
        let mut measured = Measured {
            way,
            shards,
            batch: 2,
            dropout: DropoutMasks::None,
            losses: vec![4.0, 3.0],
            parameters: 0,
            activations: 0,
            calls: [0; 2],
            sent: 0.0,
            begins_as_slices: true,
            slices: [Slices::default(), Slices::default()],
            gradients: 0.0,
            losses_apart: 0.0,
        };
        measured.parameters = measured.expected_parameters();
        measured.calls = formulas::calls(&measured.shards);
        measured.activations = measured.expected_activations() as u64;
        measured.sent = measured.expected_bytes();
        measured
    }

    /// Each of these in one of two ways, and every check that is about it fails.
    #[test]
    fn checks_see_what_is_no_number_and_what_is_too_little() {
        let errors = |place: usize, change: fn(&mut Measured)| {
            let mut all = [Way::OneRank, Way::Tensor, Way::Sequence].map(right);
            change(&mut all[place]);
            let screen = Screen::plain();
            let mut checks = kit::Checks::new(&screen);
            super::super::check(&mut checks, &all, &[[true, true], [false, true]]);
            checks.failed()
        };
        assert_eq!(errors(1, |_| ()), Vec::<String>::new());
        for place in [1, 2] {
            for (errors, says) in [
                (errors(place, |ranks| ranks.losses[0] = f64::NAN), "the forward pass differs"),
                (errors(place, |ranks| ranks.gradients = f64::NAN), "gradients differ"),
                (errors(place, |ranks| ranks.losses_apart = f64::NAN), "a different model"),
                (errors(place, |ranks| ranks.sent = f64::NAN), "a rank sent other bytes"),
                (errors(place, |ranks| ranks.sent *= 0.9), "a rank sent other bytes"),
                (errors(place, |ranks| ranks.activations = 0), "keeps other activations"),
                (errors(place, |ranks| ranks.calls = [0; 2]), "number of collective calls"),
                (errors(place, |ranks| ranks.parameters = 0), "its share of the parameters"),
                (errors(place, |ranks| ranks.begins_as_slices = false), "different numbers"),
            ] {
                assert!(errors.len() == 1 && errors[0].contains(says), "{says}: {errors:?}");
            }
        }
    }
}
