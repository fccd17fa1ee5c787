//! The check of ladder-gather: the same model, by slices. Then what a rank holds in each pass, by
//! its own allocator, and what it sends.

use exercise::train;
use kit::check::{Evidence, run};
use kit::show::thousands;
use ladder::judge::{Judge, collectives, whole_gradients};
use ladder::{Doing, Job, LAYERS, Run, passes};
use shardlab::Result;
use shardlab::allocator::Counting;
use shardlab::comm::CallKind;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static JUDGE: Judge = Judge::new("ladder-gather", train);

/// Bytes of all small things that a rank may allocate, and of some rows more than ours.
const SMALL: i64 = 24_000;

fn main() -> ExitCode {
    run(&[
        ("1 rank: the program that is given", |evidence| JUDGE.alone(evidence)),
        ("2 ranks: each runs whole layers on its own part", parts),
        ("2 ranks: each parameter is updated on one rank", |evidence| {
            JUDGE.gradients(evidence, 2)
        }),
        ("4 ranks: slices of the model of one rank", weights),
        ("4 ranks, forward: one whole layer or two", forward),
        ("4 ranks, backward: whole gradients of a layer or two", backward),
        ("4 ranks: the bytes that a rank sends", bytes),
    ])
}

/// The program for one rank, on as many parts.
fn on_one_rank(job: Job) -> Result<Run> {
    let one = Job { ranks: 1, tensor: 1, ..job };
    ladder::run(one, ladder::one_rank::train)
}

fn parts(evidence: &mut Evidence) -> Result<()> {
    let job = JUDGE.job(2)?;
    let whole = passes(&on_one_rank(job)?.ranks[0])[0];
    for (rank, trained) in JUDGE.run(job)?.ranks.iter().enumerate() {
        let first = passes(trained).into_iter().next();
        evidence.means_if(
            first.is_some_and(|pass| pass.layer == whole.layer && pass.flops < whole.flops),
            format!(
                "Rank {rank} runs layer 0 with its slice only: some of the layer's units. `rank.forward` allows that, and gives their summand \
                 of the output. The ranks share the batch here, so each of them needs whole layers: gather the other slices first."
            ),
        );
    }
    others(evidence, job)?;
    JUDGE.parts(evidence, 2)
}

/// Whether ranks hold the slices of others.
fn others(evidence: &mut Evidence, job: Job) -> Result<()> {
    let run = JUDGE.run(job)?;
    let one = on_one_rank(job)?;
    // The mean difference between what all ranks return and the slices of the ranks `by` after
    // them.
    let difference = |by: usize| {
        let mut sum = 0.0;
        let mut count = 0;
        for (rank, trained) in run.ranks.iter().enumerate() {
            for (got, whole) in trained.weights.iter().zip(&one.ranks[0].weights) {
                let len = whole.len() / job.ranks;
                let slice = &whole[(rank + by) % job.ranks * len..][..len];
                sum += got.iter().zip(slice).map(|(x, y)| (x - y).abs()).sum::<f32>();
                count += len;
            }
        }
        sum / count as f32
    };
    evidence.means_if(
        (1..job.ranks).any(|by| difference(by) < 1e-2),
        "These are the slices of other ranks. As long as a layer's units stay together, it computes the same in any order, so the loss shows \
         nothing. A checkpoint of these slices, end to end, is not the model: rank r has slice r.",
    );
    Ok(())
}

fn weights(evidence: &mut Evidence) -> Result<()> {
    let job = JUDGE.job(4)?;
    let run = JUDGE.run(job)?;
    let one = on_one_rank(job)?;
    others(evidence, job)?;
    evidence.means_if(
        run.ranks.iter().all(|rank| {
            let lens = rank.weights.iter().map(Vec::len);
            lens.eq(one.ranks[0].weights.iter().map(Vec::len))
        }),
        "Each rank returns whole layers, so it still holds the whole model between two steps: this is ladder-zero. Keep a slice of each \
         layer, and gather the layer when it is needed.",
    );
    JUDGE.weights(evidence, 4)
}

/// For each layer, the most bytes that a rank held in such a pass, less what ours held.
fn beyond(doing: Doing) -> Result<Vec<i64>> {
    let held = |run: &Run, layer: usize| {
        let all = run.ranks.iter().flat_map(passes);
        let here = all.filter(|pass| (pass.doing, pass.layer) == (doing, layer));
        here.map(|pass| pass.held as i64).max().unwrap_or_default()
    };
    let rung = JUDGE.rung()?;
    let ours = ladder::run(rung.job, rung.ours)?;
    let run = JUDGE.run(rung.job)?;
    Ok((0..LAYERS).map(|layer| held(&run, layer) - held(&ours, layer)).collect())
}

/// Bytes of each layer.
fn layers() -> Result<Vec<i64>> {
    let one = on_one_rank(JUDGE.job(4)?)?;
    Ok(one.ranks[0].weights.iter().map(|layer| 4 * layer.len() as i64).collect())
}

/// Compares what ranks held with room for `more` layers besides what ours held.
fn compare(evidence: &mut Evidence, doing: Doing, more: i64) -> Result<Vec<i64>> {
    let room = more * layers()?.into_iter().max().unwrap_or_default() + SMALL;
    let beyond = beyond(doing)?;
    let name = if doing == Doing::Forward { "forward" } else { "backward" };
    for (layer, beyond) in beyond.iter().enumerate() {
        evidence.row(
            *beyond <= room,
            format!("layer {layer} {name}: bytes held more than our program"),
            format!("at most {}", thousands(room as u64)),
            thousands((*beyond).max(0) as u64),
        );
    }
    Ok(beyond)
}

fn forward(evidence: &mut Evidence) -> Result<()> {
    let beyond = compare(evidence, Doing::Forward, 1)?;
    let layers = layers()?;
    let run = JUDGE.run(JUDGE.job(4)?)?;
    let roomy = |weights: &[Vec<f32>]| {
        let mut pairs = weights.iter().zip(&layers);
        pairs.any(|(slice, layer)| 4 * slice.capacity() as i64 >= *layer)
    };
    let model: i64 = layers.iter().sum();
    evidence.means_if(
        run.ranks.iter().any(|rank| roomy(&rank.weights)),
        "A slice has a quarter of the layer's numbers, and its `Vec` still has the memory of all: `truncate` and `drain` shorten a `Vec` and \
         free nothing. Copy the slice with `to_vec`. In PyTorch a slice of a tensor is a view, and keeps the whole tensor's memory in the \
         same way.",
    );
    evidence.means_if(
        beyond[0] > model / 2,
        "The rank has the whole model when the first layer runs: all layers are gathered before. So it needs memory for all of it, and the \
         link is idle while it computes. Gather a layer when it is needed, or one layer early.",
    );
    evidence.means_if(
        beyond[0] < layers[0] + SMALL && beyond[LAYERS - 1] > model / 2,
        "No layer is freed after its forward pass: when the last one runs, the rank has the whole model. The backward pass gathers each \
         layer again. That second all-gather is the price of stage 3.",
    );
    evidence.means("In a forward pass the rank holds more whole layers than the one that runs and the next one.");
    Ok(())
}

fn backward(evidence: &mut Evidence) -> Result<()> {
    let beyond = compare(evidence, Doing::Backward, 2)?;
    let model: i64 = layers()?.iter().sum();
    let job = JUDGE.job(4)?;
    let calls = collectives(&JUDGE.run(job)?.ranks[0]);
    let scattered = calls.iter().find(|call| call.kind == CallKind::ReduceScatter);
    // A rank that frees its inputs on the way has room for whole gradients, so the bytes that it
    // holds do not show them.
    let run = JUDGE.run(job)?;
    let whole: Vec<_> = run.ranks.iter().flat_map(whole_gradients).collect();
    let waiting = whole.iter().map(|whole| whole.waiting as i64).max();
    let waiting = waiting.unwrap_or_default();
    let held = whole.iter().map(|whole| whole.held as i64).max();
    let held = held.unwrap_or_default();
    let largest = layers()?.into_iter().max().unwrap_or_default();
    evidence.row(
        waiting <= largest,
        "backward: bytes of gradients of layers before, not scattered yet",
        format!("at most {}", thousands(largest as u64)),
        thousands(waiting as u64),
    );
    evidence.row(
        held <= 2 * largest,
        "backward: bytes of gradients of layers before, still whole",
        format!("at most {}", thousands(2 * largest as u64)),
        thousands(held as u64),
    );
    evidence.means_if(
        beyond[LAYERS - 1] > model / 2,
        "The rank has the whole model when the backward pass begins. Each layer is gathered just before its backward pass, or one layer \
         early.",
    );
    evidence.means_if(
        beyond[0].max(waiting) > model / 2 && scattered.is_none_or(|call| call.behind == 0),
        "All gradients are whole when the first layer runs backward, and are scattered after that: as many bytes as the model has, even \
         where freed inputs make room for them. The mean gradients of a layer are complete as soon as all ranks have run it backward. \
         Scatter them then, and free them.",
    );
    evidence.means_if(
        waiting > largest,
        "The gradients of a layer are still whole, and not on their way, two backward passes later. No other layer needs them: scatter \
         them before the layer after the next one runs.",
    );
    evidence.means_if(
        held > 2 * largest && held > waiting,
        "Each reduce-scatter begins in time, and the rank waits for it much later. Until then it holds the whole gradients. Wait for a \
         layer's while the next layers run, not after the loop.",
    );
    evidence.means_if(
        beyond[0] > model / 2,
        "When the first layer runs backward, all later layers are still whole: their weights, or their gradients. Free both as soon as \
         the layer's backward pass and its reduce-scatter are over.",
    );
    evidence.means("In a backward pass the rank holds more whole layers and gradients than those of this layer and the next one.");
    Ok(())
}

fn bytes(evidence: &mut Evidence) -> Result<()> {
    let job = JUDGE.job(4)?;
    let run = JUDGE.run(job)?;
    let layers = layers()?;
    let model: usize = layers.iter().sum::<i64>() as usize;
    // Between the two passes of the last layer nothing else runs, so it need not be freed.
    let last = layers[LAYERS - 1] as usize;
    let most = ((3 * model - last) * 3 / 4) as u64;
    for (rank, trained) in run.ranks.iter().enumerate() {
        evidence.row(
            trained.far <= most,
            format!("rank {rank}: bytes sent per step"),
            format!("at most {}", thousands(most)),
            thousands(trained.far),
        );
    }
    let calls = collectives(&run.ranks[0]);
    let gathers = calls.iter().filter(|call| call.kind == CallKind::AllGather);
    let gathered = gathers.map(|call| call.bytes).sum::<usize>() / job.steps;
    evidence.means_if(
        calls.iter().any(|call| call.kind == CallKind::AllReduce),
        "The gradients go through an all-reduce, of which a rank keeps a slice: 4(n-1)/n of the model in place of 3(n-1)/n.",
    );
    evidence.means_if(
        gathered > 2 * model,
        "Layers are gathered more than twice in a step. A layer is needed once forward and once backward.",
    );
    evidence.means_if(
        gathered == 2 * model,
        "The last layer is gathered twice in a row: it is freed after its forward pass, and the next pass of all is its backward pass. \
         Nothing else needs the room in between, so it can stay whole for that moment.",
    );
    evidence.means(
        "A step gathers each layer twice, but for the one that runs twice in a row, and scatters each layer's gradients once: (n-1)/n of \
         the layer each time.",
    );
    if evidence.agrees() {
        JUDGE.score(evidence)?;
    }
    Ok(())
}
