//! One exchange, measured: what each of its ranks keeps and sends, and how far it is from one rank.

use super::{Break, OneRank, Packed, Probed, attending, break_pass, probe};
use anyhow::Result;
use kit::parity::{farthest, stored_gradients};
use kit::progress;
use kit::show::{Screen, bar_to_scale, bytes_decimal, explained, rows_of, thousands};
use shardlab::comm::{Comm, Reduce};
use shardlab::parallel::Strategy;
use shardlab::tensor::IGNORED;
use shardlab::train::{Config, Training};

/// A short training of one exchange, as its ranks saw it.
pub struct Measured {
    pub strategy: Strategy,
    /// The first step's loss over all ranks.
    pub loss: f64,
    /// The largest difference of a parameter's gradient from one rank's: norm by norm.
    pub gradients: f64,
    /// The parameter whose gradient that is, on rank 0.
    pub farthest: String,
    /// The norm of all gradients, as a part of one rank's.
    pub norm: f64,
    /// Bytes that a rank sends in the forward and in the backward pass of a step, mean over ranks.
    pub sent: [f64; 2],
    /// Bytes that the forward pass left on the rank with most.
    pub activations: f64,
    /// The most bytes that one layer's attention holds at once: [`attending()`].
    pub attending: f64,
    /// Targets that count, on each rank.
    pub tokens: Vec<u64>,
    pub probed: Probed,
}

/// Trains with one exchange, on all ranks of `world`.
pub fn measure(
    world: &Comm,
    strategy: &Strategy,
    config: &Config,
    (mut packed, broken): (Packed, Option<Break>),
    text: &[u32],
    one: &OneRank,
) -> Result<Measured> {
    packed.broken = broken.map(|broken| (broken, *strategy));
    let mut training = Training::new(config, strategy, world)?;
    training.stages.loss_scale = broken.map_or(1.0, |broken| broken.loss_scale(strategy));
    let group = training.context.group().clone();
    let params = training.stages.chunks[0].params.clone();
    let mut measured = Measured {
        strategy: *strategy,
        loss: 0.0,
        gradients: 0.0,
        farthest: String::new(),
        norm: 0.0,
        sent: [0.0; 2],
        activations: 0.0,
        attending: attending(&group, strategy, config, &packed, text)?,
        tokens: Vec::new(),
        probed: probe(&training, config, (&packed, broken), text)?,
    };
    // The first step also leaves buffers that are not the step's: the second counts activations.
    for step in 0..2 {
        progress(world, || format!("{}: step {}", strategy.exchange.name(), step + 1));
        let mut passes = training.draw(text, step, &mut packed)?;
        if let Some(broken) = broken {
            for (batch, pass) in &mut passes {
                *pass =
                    break_pass(broken, &training.context, strategy, batch, std::mem::take(pass));
            }
        }
        let before = group.traffic();
        let ran = training.passes(&passes)?;
        let sent = group.traffic() - before;
        training.average()?;
        if step == 0 {
            let counts = |&&target: &&u32| target != IGNORED;
            let targets = passes.iter().flat_map(|(batch, _)| &batch.targets);
            measured.tokens = world.gathered(&[targets.filter(counts).count() as u64])?;
            let found = stored_gradients(&params);
            (measured.gradients, measured.farthest) = farthest(&params, &found, &one.gradients);
            measured.norm = training.zero.norm()? / one.grad_norm;
            measured.loss = training.loss(&ran)?;
            // The forward pass once more, to count its bytes.
            let before = group.traffic();
            for (batch, pass) in &passes {
                training.stages.chunks[0].loss(batch, pass)?;
            }
            let forward = (group.traffic() - before).bytes as f64;
            let mut both = [forward, sent.bytes as f64 - forward];
            world.all_reduce(&mut both, Reduce::Mean)?;
            measured.sent = both;
        }
        measured.activations = ran.passes[0].bytes.max(0) as f64;
        training.update(step)?;
    }
    let mut most = [measured.gradients, measured.activations];
    world.all_reduce(&mut most, Reduce::Max)?;
    [measured.gradients, measured.activations] = most;
    Ok(measured)
}

/// The fewest and the most targets that a rank has.
fn targets(tokens: &[u64]) -> String {
    match (tokens.iter().min(), tokens.iter().max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (Some(all), _) => all.to_string(),
        _ => String::new(),
    }
}

/// A table: each exchange's figures of one rank, beside one rank alone.
pub fn compared(screen: &Screen, config: &Config, one: &OneRank, all: &[Measured]) -> String {
    let most = one.activations as f64;
    let activations = |bytes: f64| {
        format!("{} {}", bar_to_scale(screen, bytes, most, most, 6), bytes_decimal(bytes))
    };
    let mut columns = vec![vec![
        activations(most),
        bytes_decimal(one.attending),
        "-".to_string(),
        thousands(all.first().map_or(0, |one| one.tokens.iter().sum())),
    ]];
    columns.extend(all.iter().map(|measured| {
        vec![
            activations(measured.activations),
            bytes_decimal(measured.attending),
            bytes_decimal(measured.sent[0] + measured.sent[1]),
            targets(&measured.tokens),
        ]
    }));
    let names = ["keeps", "attending", "sends", "targets"];
    let mut heads = vec!["each rank", "1 rank"];
    heads.extend(all.iter().map(|measured| measured.strategy.exchange.name()));
    let words = format!(
        "Attending: one layer's most bytes. Of N numbers in {} blocks' keys, gather and ring send 2(c-1)/c N and twice that back, \
         Ulysses 4(c-1)/{} N twice.",
        config.shape.layers,
        screen.either("c²", "c^2")
    );
    explained(screen, &heads, rows_of(&names, &columns), &words)
}
