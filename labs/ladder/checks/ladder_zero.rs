//! The check of ladder-zero: the same model, by slices of the optimizer. Then the bytes that a rank
//! sends, and those that it holds.

use exercise::train;
use kit::check::{Evidence, run};
use kit::show::thousands;
use ladder::judge::{Judge, collectives};
use ladder::{Job, Update, best};
use shardlab::Result;
use shardlab::allocator::Counting;
use shardlab::comm::CallKind;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static JUDGE: Judge = Judge::new("ladder-zero", train);

fn main() -> ExitCode {
    run(&[
        ("1 rank: the program that is given", alone),
        ("2 ranks: each computes its own part", |evidence| JUDGE.parts(evidence, 2)),
        ("2 ranks: each parameter is updated on one rank", gradients),
        ("4 ranks: the model of one rank, bit by bit", |evidence| {
            recognise(evidence, 4)?;
            JUDGE.weights(evidence, 4)
        }),
        ("4 ranks: no more bytes than an all-reduce sends", bytes),
        ("4 ranks: a slice of the optimizer's state", memory),
    ])
}

fn alone(evidence: &mut Evidence) -> Result<()> {
    recognise(evidence, 1)?;
    // Two steps: the first one does not need the state that the optimizer keeps.
    let job = Job { steps: 2, ..JUDGE.job(1)? };
    let run = JUDGE.run(job)?;
    let one = ladder::run(job, ladder::one_rank::train)?;
    let given = |update: &Update| {
        let mut right = one.ranks[0].updates.iter();
        right.any(|one| one.gradients == update.gradients)
    };
    evidence.means_if(
        run.ranks[0].updates.iter().all(given) && run.ranks[0].weights != one.ranks[0].weights,
        "The optimizer gets the right gradients in both of two steps, and the weights after the second are not Adam's: it does not know the \
         first any more. Its state is made once, before the first step. With a new state in each, every step is a first one, and moves \
         each parameter by the full length, however small its gradient.",
    );
    JUDGE.alone(evidence)
}

/// The model's layers on one rank: before the first step, their gradients in it, and after it.
fn one_step(parts: usize) -> Result<[Vec<Vec<f32>>; 3]> {
    let one = Job { ranks: 1, parts, tensor: 1, steps: 1 };
    let run = ladder::run(one, ladder::one_rank::train)?;
    let rank = &run.ranks[0];
    let before = rank.updates.iter().map(|update| update.weights.clone());
    let gradients = rank.updates.iter().map(|update| update.gradients.clone());
    Ok([before.collect(), gradients.collect(), rank.weights.clone()])
}

/// Of which layer some numbers are a slice, and of which slice.
fn slice_of(numbers: &[f32], layers: &[Vec<f32>], ranks: usize) -> Option<(usize, usize)> {
    let near = |x: f32, y: f32| (x - y).abs() <= 1e-9 + 1e-4 * y.abs();
    for (layer, whole) in layers.iter().enumerate() {
        let mut slices = whole.chunks_exact(whole.len() / ranks);
        let slice = slices.position(|slice| {
            slice.len() == numbers.len() && slice.iter().zip(numbers).all(|(x, y)| near(*y, *x))
        });
        if let Some(slice) = slice {
            return Some((layer, slice));
        }
    }
    None
}

fn gradients(evidence: &mut Evidence) -> Result<()> {
    let job = JUDGE.job(2)?;
    let run = JUDGE.run(job)?;
    let [before, means, _] = one_step(job.parts)?;
    for (rank, trained) in run.ranks.iter().enumerate() {
        // A rank's own gradients, whole, layer by layer.
        let mut own: Vec<_> = trained.gradients.iter().take(means.len()).cloned().collect();
        own.sort_by_key(|(layer, _)| *layer);
        let own: Vec<Vec<f32>> = own.into_iter().map(|(_, gradients)| gradients).collect();
        for update in trained.updates.iter().take(before.len()) {
            let weights = slice_of(&update.weights, &before, job.ranks);
            let Some((layer, slice)) = weights else {
                continue;
            };
            let from = slice_of(&update.gradients, &means, job.ranks);
            evidence.means_if(
                from.is_some_and(|(of, other)| of == layer && other != slice),
                format!(
                    "Rank {rank} updates slice {slice} of layer {layer} with the gradients of the other slice: each parameter follows \
                     another one's gradient. All lengths fit, so nothing fails but the training. A reduce-scatter leaves slice r on \
                     rank r."
                ),
            );
            evidence.means_if(
                from.is_none() && slice_of(&update.gradients, &own, job.ranks).is_some(),
                format!(
                    "Rank {rank} updates its slice of layer {layer} with only its own gradients. So slice r of the model learns from rank \
                     r's part of the text, and the ranks agree all the same. Combine all ranks' gradients of the slice."
                ),
            );
        }
    }
    recognise(evidence, 2)?;
    JUDGE.gradients(evidence, 2)
}

/// What the ranks hold after a single step shows what they do wrong in each.
fn recognise(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    let job = Job { steps: 1, ..JUDGE.job(ranks)? };
    let run = JUDGE.run(job)?;
    let [before, _, after] = one_step(job.parts)?;
    // Whether rank r has in slice s of each layer what `slice(r, layer, s)` says.
    let all = |slice: &dyn Fn(usize, usize, usize) -> Vec<f32>| {
        let right = |rank: usize, layer: usize, weights: &[f32]| {
            let slices = weights.chunks_exact((weights.len() / ranks).max(1));
            slices.enumerate().all(|(s, numbers)| numbers == slice(rank, layer, s))
        };
        run.ranks.iter().enumerate().all(|(rank, trained)| {
            let mut layers = trained.weights.iter().enumerate();
            trained.weights.len() == before.len()
                && layers.all(|(layer, weights)| right(rank, layer, weights))
        })
    };
    let of = |layers: &[Vec<f32>], layer: usize, slice: usize| {
        let len = layers[layer].len() / ranks;
        layers[layer][slice * len..(slice + 1) * len].to_vec()
    };
    evidence.means_if(
        all(&|_, layer, slice| of(&before, layer, slice)),
        "Each rank updates a slice, and all ranks end with the weights of the beginning: the slices that are gathered are old ones. \
         The model never learns, however many steps it makes.",
    );
    evidence.means_if(
        ranks > 1
            && (0..ranks).any(|by| {
            all(&|rank, layer, slice| {
                let new = slice == (rank + by) % ranks;
                of(if new { &after } else { &before }, layer, slice)
            })
        }),
        "Each rank has new weights in its own slice and old ones in all others: nobody gathers them. The ranks now train different \
         models, and most of each stays as it was.",
    );
    evidence.means_if(
        (1..ranks).any(|by| all(&|_, layer, slice| of(&after, layer, (slice + by) % ranks))),
        "After a step all slices are updated, and are in other slices' places: an all-gather puts what rank r brings into place r. So \
         rank r must hold and update slice r.",
    );
    Ok(())
}

fn bytes(evidence: &mut Evidence) -> Result<()> {
    let job = JUDGE.job(4)?;
    let run = JUDGE.run(job)?;
    let most = best(JUDGE.rung()?)?.sent;
    for (rank, trained) in run.ranks.iter().enumerate() {
        evidence.row(
            trained.far <= most,
            format!("rank {rank}: bytes sent per step"),
            format!("at most {}", thousands(most)),
            thousands(trained.far),
        );
    }
    let calls = collectives(&run.ranks[0]);
    evidence.means_if(
        calls.iter().any(|call| call.kind == CallKind::AllReduce),
        "The gradients go through an all-reduce, of which a rank uses one slice, and then the parameters are gathered as well: half as \
         many bytes again as plain data parallelism sends. What a rank throws away need not come: it needs the mean of its slice.",
    );
    evidence.means("In a step a rank's slices of gradients come to it once, and its new parameters go to the others once.");
    Ok(())
}

/// A rank may put all gradients into one list, as in ladder-flat. Three quarters of Adam's state
/// must be gone.
fn memory(evidence: &mut Evidence) -> Result<()> {
    let model: usize = one_step(4)?[0].iter().map(Vec::len).sum();
    let saved = (2 * 4 * model * 3 / 4) as u64;
    let most = JUDGE.ours("ladder-flat")?.peak - saved + 16_384;
    let got = JUDGE.scored()?.peak;
    let room = evidence.row(
        got <= most,
        "peak bytes per rank",
        format!("at most {}", thousands(most)),
        thousands(got),
    );
    if room {
        return JUDGE.score(evidence);
    }
    evidence.means(format!(
        "Adam's state of the other ranks' slices takes {} bytes. ladder-flat without it holds no more than {}. What else does your rank \
         hold: a second copy of the weights, or of all gradients? What ZeRO saves, a forgotten copy takes again.",
        thousands(saved),
        thousands(most)
    ));
    Ok(())
}
