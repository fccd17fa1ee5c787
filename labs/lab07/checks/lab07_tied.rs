//! The check of lab07-tied: two ranks and three against one, step by step, first without clipping
//! and then with it.

use exercise::{Stage, Weights, step};
use kit::check::{Evidence, is_near, run};
use shardlab::comm::Comm;
use shardlab::difference::largest_difference;
use shardlab::{Result, launch};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

const STEPS: usize = 12;
const TOKENS: usize = 6;
const WIDTH: usize = 4;
const POSITIONS: usize = 5;
/// The gradient's norm is larger than this in the first steps, so they are clipped.
const CLIP: f64 = 0.25;
/// Layers, of WIDTH x WIDTH weights each. On 2 ranks or more, a rank has one, and a pipeline of n
/// ranks n of them.
const LAYER: usize = WIDTH * WIDTH;

fn main() -> ExitCode {
    run(&[
        ("1 rank: the losses are right", |evidence| losses(evidence, 1, f64::INFINITY)),
        ("2 ranks: the losses of 1 rank", |evidence| losses(evidence, 2, f64::INFINITY)),
        ("1 rank: the norm of the gradient", |evidence| norms(evidence, 1)),
        ("2 ranks: the norm on both", |evidence| norms(evidence, 2)),
        ("1 rank, with clipping: the losses", |evidence| losses(evidence, 1, CLIP)),
        ("2 ranks, with clipping: the losses of 1 rank", |evidence| {
            losses(evidence, 2, CLIP)
        }),
        ("3 ranks, the middle one without a table", |evidence| {
            losses(evidence, 3, f64::INFINITY)
        }),
        ("3 ranks: the norm on all of them", |evidence| norms(evidence, 3)),
        ("4 ranks: what each of them sends", sent),
        ("2 ranks, over a link whose sends wait", first_calls),
    ])
}

/// One rank after one step.
struct Step {
    /// The mean over the positions, on the last rank.
    loss: f64,
    norm: f64,
    /// The gradients of the rank's own backward pass: table, layers.
    own: [Vec<f64>; 2],
    /// The arguments of each call of `update`: the gradients of table and layers, and the scale.
    updates: Vec<([Vec<f64>; 2], f64)>,
    /// Bytes that `step` has sent.
    sent: u64,
    /// The table, its gradient and its momentum when `step` has returned.
    table: Vec<f64>,
    gradient: Vec<f64>,
    momentum: Vec<f64>,
}

/// The squared norm of some numbers.
fn squares(numbers: &[f64]) -> f64 {
    numbers.iter().map(|x| x * x).sum()
}

/// `matrix`, which has rows of [`WIDTH`] numbers, times `x`.
fn times(matrix: &[f64], x: &[f64]) -> Vec<f64> {
    matrix
        .chunks_exact(WIDTH)
        .map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum())
        .collect()
}

/// `matrix` transposed, times `y`.
fn transposed_times(matrix: &[f64], y: &[f64]) -> Vec<f64> {
    (0..WIDTH)
        .map(|j| matrix.chunks_exact(WIDTH).zip(y).map(|(row, y)| row[j] * y).sum())
        .collect()
}

fn tanh(x: &[f64]) -> Vec<f64> {
    x.iter().map(|x| x.tanh()).collect()
}

/// The gradient before a tanh whose result was `y`.
fn before_tanh(dy: &[f64], y: &[f64]) -> Vec<f64> {
    dy.iter().zip(y).map(|(dy, y)| dy * (1.0 - y * y)).collect()
}

/// Adds the gradient of a matrix that was multiplied with `x`.
fn add_outer(gradient: &mut [f64], dy: &[f64], x: &[f64]) {
    for (row, dy) in gradient.chunks_exact_mut(WIDTH).zip(dy) {
        for (g, x) in row.iter_mut().zip(x) {
            *g += dy * x;
        }
    }
}

fn weights(seed: f64, len: usize) -> Weights {
    let values = (0..len).map(|i| 0.7 * (seed + 1.7 * i as f64).sin()).collect();
    Weights { values, gradient: vec![0.0; len] }
}

/// The rank's stage of a model with `layers` layers at the beginning. All copies of the table are
/// equal.
fn begin(comm: &Comm, layers: usize) -> Stage {
    let mut values = weights(2.0, layers * LAYER).values;
    if comm.size() > 1 {
        values = values[comm.rank() * LAYER..][..LAYER].to_vec();
    }
    let has_table = comm.rank() == 0 || comm.rank() + 1 == comm.size();
    let gradient = vec![0.0; values.len()];
    Stage {
        table: weights(1.0, if has_table { TOKENS * WIDTH } else { 0 }),
        layers: Weights { values, gradient },
    }
}

/// Forward and backward passes of a step over all positions: x = table[token], x = tanh(L x) for
/// each layer L, and logits from x and the table. Returns the loss on the last rank.
fn passes(comm: &Comm, stage: &mut Stage, step: usize) -> Result<f64> {
    let rank = comm.rank();
    let first = rank == 0;
    let last = rank + 1 == comm.size();
    let Stage { table, layers } = stage;
    let n = POSITIONS as f64;
    table.gradient.fill(0.0);
    layers.gradient.fill(0.0);
    let mut loss = 0.0;
    for i in 0..POSITIONS {
        let token = (3 * step + 2 * i) % TOKENS;
        let target = (token * token + 1) % TOKENS;
        let row = token * WIDTH..(token + 1) * WIDTH;
        let mut x = vec![0.0; WIDTH];
        if first {
            x = table.values[row.clone()].to_vec();
        } else {
            comm.recv(&mut x, rank - 1)?;
        }
        // What went into each layer, and what came out of the last one.
        let mut kept = vec![x];
        for layer in layers.values.chunks_exact(LAYER) {
            let x = &kept[kept.len() - 1];
            kept.push(tanh(&times(layer, x)));
        }
        let y = kept[kept.len() - 1].clone();
        let mut dy = vec![0.0; WIDTH];
        if last {
            let logits = times(&table.values, &y);
            let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
            loss += (sum.ln() - logits[target]) / n;
            let hot = |token: usize| if token == target { 1.0 } else { 0.0 };
            let dlogits = logits
                .iter()
                .enumerate()
                .map(|(token, logit)| (logit.exp() / sum - hot(token)) / n);
            let dlogits: Vec<f64> = dlogits.collect();
            add_outer(&mut table.gradient, &dlogits, &y);
            dy = transposed_times(&table.values, &dlogits);
        } else {
            comm.send(&y, rank + 1)?;
            comm.recv(&mut dy, rank + 1)?;
        }
        for (l, layer) in layers.values.chunks_exact(LAYER).enumerate().rev() {
            let dz = before_tanh(&dy, &kept[l + 1]);
            add_outer(&mut layers.gradient[l * LAYER..][..LAYER], &dz, &kept[l]);
            dy = transposed_times(layer, &dz);
        }
        if first {
            for (g, dx) in table.gradient[row].iter_mut().zip(&dy) {
                *g += dx;
            }
        } else {
            comm.send(&dy, rank - 1)?;
        }
    }
    Ok(loss)
}

/// The function that ends a step.
type End = fn(&Comm, &mut Stage, f64, &mut dyn FnMut(&mut Stage, f64)) -> Result<f64>;

/// The right end of a step on one rank.
fn right(
    _: &Comm,
    stage: &mut Stage,
    clip: f64,
    update: &mut dyn FnMut(&mut Stage, f64),
) -> Result<f64> {
    let norm = (squares(&stage.table.gradient) + squares(&stage.layers.gradient)).sqrt();
    update(stage, (clip / norm).min(1.0));
    Ok(norm)
}

/// All steps of each rank, of a model with `layers` layers.
fn train(
    evidence: &Evidence,
    ranks: usize,
    layers: usize,
    clip: f64,
    end: End,
) -> Result<Vec<Vec<Step>>> {
    launch::run(ranks, |comm| {
        let mut stage = begin(&comm, layers);
        let mut momenta =
            [&stage.table, &stage.layers].map(|weights| vec![0.0; weights.values.len()]);
        let mut steps = Vec::new();
        for i in 0..STEPS {
            let loss = passes(&comm, &mut stage, i)?;
            let own = [stage.table.gradient.clone(), stage.layers.gradient.clone()];
            let mut updates = Vec::new();
            evidence
                .given(format!("rank {} of {ranks} at step {i}, with clip {clip}", comm.rank()));
            let mut update = |stage: &mut Stage, scale: f64| {
                updates
                    .push(([stage.table.gradient.clone(), stage.layers.gradient.clone()], scale));
                for (weights, momenta) in
                    [&mut stage.table, &mut stage.layers].into_iter().zip(&mut momenta)
                {
                    let Weights { values, gradient } = weights;
                    for ((value, momentum), g) in
                        values.iter_mut().zip(momenta.iter_mut()).zip(gradient)
                    {
                        *momentum = 0.9 * *momentum + scale * *g;
                        *value -= 0.1 * *momentum;
                    }
                }
            };
            let before = comm.total_traffic().bytes;
            let norm = end(&comm, &mut stage, clip, &mut update)?;
            let sent = comm.total_traffic().bytes - before;
            let table = stage.table.values.clone();
            let gradient = stage.table.gradient.clone();
            steps.push(Step {
                loss,
                norm,
                own,
                updates,
                sent,
                table,
                gradient,
                momentum: momenta[0].clone(),
            });
        }
        Ok(steps)
    })
}

fn same(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_near(*a, *b))
}

/// Explains why a run with ranks in the middle did not end.
fn calls_differ(evidence: &mut Evidence, error: &str) {
    println!("{error}");
    let first = error.lines().next().unwrap_or_default();
    evidence.row(false, "the run", "ends", first);
    evidence.means_if(
        !error.contains("waits in recv") && (error.contains("all_reduce (sum") || error.contains("broadcast (")),
        "A collective is for all ranks of its group, with the same length, and the ranks in the middle have no table. So they \
         would wait in it, or wait for those that are in it. Only the two ranks that hold the table have something to exchange.",
    );
    evidence.means(
        "With 2 ranks the step ended, with a rank in the middle it does not. Which two ranks hold the table, and which messages do \
         they exchange?",
    );
}

fn losses(evidence: &mut Evidence, ranks: usize, clip: f64) -> Result<()> {
    let layers = ranks.max(2);
    let one = train(evidence, 1, layers, clip, right)?;
    let yours = match train(evidence, ranks, layers, clip, step) {
        Err(error) if ranks > 2 => {
            calls_differ(evidence, &format!("{error:#}"));
            return Ok(());
        }
        yours => yours?,
    };
    let one = &one[0];
    let last = &yours[ranks - 1];
    let wrong = (0..STEPS).find(|&i| !is_near(one[i].loss, last[i].loss));
    for i in [wrong.unwrap_or(0), STEPS - 1] {
        evidence.near(format!("step {i}: loss"), one[i].loss, last[i].loss);
    }
    let apart = |step: usize| largest_difference(&last[step].table, &yours[0][step].table);
    let differ = (0..STEPS).find(|&i| apart(i) > 1e-12);
    for i in [differ.unwrap_or(0), STEPS - 1] {
        let most = apart(i);
        evidence.row(
            most <= 1e-12,
            format!("after step {i}: difference of the copies"),
            0,
            format!("{most:.1e}"),
        );
    }
    let momenta = |step: usize| largest_difference(&last[step].momentum, &yours[0][step].momentum);
    let most = momenta(STEPS - 1);
    evidence.row(
        most <= 1e-12,
        format!("after step {}: difference of the momenta", STEPS - 1),
        0,
        format!("{most:.1e}"),
    );
    if evidence.agrees() {
        return Ok(());
    }

    // The first step is the cause, everything later follows from it.
    let at: Vec<&Step> = yours.iter().map(|steps| &steps[0]).collect();
    evidence.means_if(
        at.iter().any(|rank| rank.updates.len() != 1),
        "`update` is the optimizer's step: call it once per step, with all gradients.",
    );
    let all = |sign: &dyn Fn(usize, &Step, &[Vec<f64>; 2]) -> bool| {
        at.iter()
            .enumerate()
            .all(|(rank, of)| of.updates.first().is_some_and(|(given, _)| sign(rank, of, given)))
    };
    evidence.means_if(
        !all(&|_, of, given| same(&of.own[1], &given[1])),
        "The gradients of `layers` have changed. Each rank has different layers, so the ranks have nothing to add up there. \
         Only the table is on both.",
    );
    let combined = |a: f64, b: f64| -> Vec<f64> {
        let parts = at[0].own[0].iter().zip(&at[ranks - 1].own[0]);
        parts.map(|(embedding, head)| a * embedding + b * head).collect()
    };
    // Of the ranks that hold the table.
    let given_is =
        |wrong: &[f64]| all(&|_, of, given| of.own[0].is_empty() || same(wrong, &given[0]));
    let own = all(&|_, of, given| same(&of.own[0], &given[0]));
    let sum = if ranks == 1 {
        combined(1.0, 0.0)
    } else {
        combined(1.0, 1.0)
    };
    evidence.means_if(
        given_is(&sum) && all(&|_, of, _| !is_near(one[0].updates[0].1, of.updates[0].1)),
        "The gradients are right, but `scale` is not: it follows from the norm of the whole model's gradient, and is at most 1.",
    );
    evidence.means_if(
        ranks == 1,
        "On 1 rank everything was right before: its gradient of the table goes through the embedding and the head already. \
         Your change has to leave this as it is.",
    );
    evidence.means_if(
        own && at
            .iter()
            .all(|rank| rank.own[0].is_empty() || same(&sum, &rank.gradient)),
        "The ranks add up the table's gradients, but after the optimizer's step. `update` has already used each rank's own \
         part, and the next backward pass begins with gradients of 0.",
    );
    evidence.means_if(
        wrong.is_none() && differ.is_none(),
        "The losses and the copies are right, and the optimizers are not: the momenta of the table differ. One rank's table is written \
         over the other's, whose optimizer has seen another gradient. A checkpoint keeps both, and a run that goes on from it \
         with the other copy trains a different model.",
    );
    evidence.means_if(
        own && differ.is_none(),
        "The ranks make their copies equal after the optimizer's step. Each copy was trained with its own part of the \
         gradient, so the table has not moved as far as on 1 rank, and each momentum knows one part only. Combine the \
         gradients before the step.",
    );
    evidence.means_if(
        own,
        "The first loss is right, so the copies of the table began equal. After one step they are two tables, and neither is that of \
         1 rank. What does `update` get for the table on the first rank, what on the last, and what on 1 rank?",
    );
    evidence.means_if(
        given_is(&combined(0.5, 0.5)),
        "The copies are equal, but `update` gets half of the table's gradient: a mean. Data ranks average, because each has \
         the gradient of different data. These two ranks have two parts of one gradient.",
    );
    let one_part = |part: &str, other: &str| {
        format!(
            "The copies are equal, but both are trained with the part of the gradient that comes through the {part}. The part \
             through the {other} is lost. A broadcast overwrites; what is needed has both parts."
        )
    };
    evidence.means_if(given_is(&combined(1.0, 0.0)), one_part("embedding", "head"));
    evidence.means_if(given_is(&combined(0.0, 1.0)), one_part("head", "embedding"));
    evidence.means_if(
        given_is(&combined(2.0, 2.0)),
        "`update` gets the table's gradient twice. Each of the two ranks has one part, and gets the other: add up once.",
    );
    evidence.means_if(
        given_is(&sum) && differ.is_some(),
        "Both ranks give `update` the right gradients, but not the same scale, or they change the table afterwards.",
    );
    evidence.means_if(
        differ.is_some(),
        "The copies are different after a step. They stay equal only if both ranks update with the same gradient and scale.",
    );
    evidence.means(
        "The copies are equal, but not the table of 1 rank: `update` gets a wrong gradient for it.",
    );
    Ok(())
}

fn norms(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    let layers = ranks.max(2);
    let one = train(evidence, 1, layers, f64::INFINITY, right)?;
    let yours = train(evidence, ranks, layers, f64::INFINITY, step)?;
    // Without clipping the parameters do not depend on the norm, so each step shows the same
    // mistake.
    for (rank, steps) in yours.iter().enumerate() {
        for i in [0, STEPS - 1] {
            evidence.near(format!("rank {rank}, step {i}: norm"), one[0][i].norm, steps[i].norm);
        }
    }
    if evidence.agrees() {
        return Ok(());
    }

    let at: Vec<&Step> = yours.iter().map(|steps| &steps[0]).collect();
    let is = |wrong: &dyn Fn(usize) -> f64| {
        at.iter().enumerate().all(|(rank, of)| is_near(wrong(rank), of.norm))
    };
    let table = squares(&one[0][0].own[0]);
    let layers = |rank: usize| squares(&at[rank].own[1]);
    let all_layers: f64 = (0..ranks).map(layers).sum();
    let parts: f64 = at.iter().map(|of| squares(&of.own[0])).sum();
    evidence.means_if(
        is(&|_| (2.0 * table + all_layers).sqrt()),
        "The norm counts the table twice: both ranks hold its whole gradient now, and the model has the table once. A norm that \
         is too large makes clipping too strong.",
    );
    evidence.means_if(
        is(&|_| (parts + all_layers).sqrt()),
        "The norm was computed before the two parts of the table's gradient were added up. The square of a sum is not the sum \
         of the squares, so add up first.",
    );
    evidence.means_if(
        is(&|_| all_layers.sqrt()),
        "The norm leaves the table out. One of the two ranks has to count it.",
    );
    evidence.means_if(
        is(&|rank| (if at[rank].own[0].is_empty() { 0.0 } else { table } + layers(rank)).sqrt())
            || is(&|rank| (if rank == 0 { table } else { 0.0 } + layers(rank)).sqrt()),
        "Each rank has only its own gradients in the norm. Then each rank clips by a different factor. All ranks need the norm of \
         the whole model.",
    );
    evidence.means_if(
        is(&|_| (table + all_layers) / ranks as f64) || is(&|_| table + all_layers),
        "The norm is the root of the sum of all squares, and the root is missing.",
    );
    evidence.means_if(
        is(&|_| ((table + all_layers) / ranks as f64).sqrt())
            || is(&|_| (table + all_layers / 2.0).sqrt()),
        "The ranks average their sums of squares, and the model's norm is the root of the sum.",
    );
    evidence.means_if(
        is(&|_| (table + layers(0)).sqrt() + layers(ranks - 1).sqrt())
            || is(&|_| (0..ranks).map(|rank| (table + layers(rank)).sqrt()).sum()),
        "The ranks add up norms. Add up squares, and take the root of the sum.",
    );
    evidence
        .means("The norm is the root of the sum of all squares: every layer's on every rank, and the table's once.");
    Ok(())
}

/// Bytes, with ranks that have nothing to do with the table.
fn sent(evidence: &mut Evidence) -> Result<()> {
    const RANKS: usize = 4;
    let yours = train(evidence, RANKS, RANKS, f64::INFINITY, step)?;
    let table = (TOKENS * WIDTH * size_of::<f64>()) as u64;
    // What the norm's number may cost: a few bytes for each rank.
    let small = (4 * RANKS * size_of::<f64>()) as u64;
    let mut middles = Vec::new();
    for (rank, steps) in yours.iter().enumerate() {
        let asked = if rank == 0 || rank + 1 == RANKS { table } else { 0 };
        let got = steps[0].sent;
        let middle = asked == 0;
        evidence.row(
            got <= asked + small,
            format!("rank {rank}: bytes sent at the end of a step"),
            if middle {
                format!("at most {small}")
            } else {
                format!("at most {}", asked + small)
            },
            got,
        );
        if middle && got > small {
            middles.push(format!("rank {rank}"));
        }
    }
    evidence.means_if(
        !middles.is_empty(),
        format!(
            "The table is sent through ranks that have no part of it: {}. A table of 128,256 tokens has a gigabyte and more of \
             gradients: send them between the two ranks that hold it.",
            middles.join(" and ")
        ),
    );
    evidence.means("The two ranks send more than the table's gradient once. Each of them lacks one part, which the other has.");
    Ok(())
}

/// Whether one rank of two sends its table's gradient before it receives the other's. The other
/// rank is played: it only receives, so it gets something only from a rank that sends first.
fn sends_first(evidence: &Evidence, asked: usize) -> bool {
    let received = AtomicBool::new(false);
    // A rank that receives first waits for one that does not send: the library ends this at once,
    // with an error.
    let _ended = launch::run(2, |comm| {
        if comm.rank() == asked {
            let mut stage = begin(&comm, 2);
            evidence.given(format!("rank {asked} of 2, and rank {} receives first", 1 - asked));
            step(&comm, &mut stage, f64::INFINITY, &mut |_, _| {})?;
        } else {
            let mut part = vec![0.0; TOKENS * WIDTH];
            comm.recv(&mut part, asked)?;
            received.store(true, Ordering::Relaxed);
        }
        Ok(())
    });
    received.load(Ordering::Relaxed)
}

/// Between threads two sends that face each other do no harm.
fn first_calls(evidence: &mut Evidence) -> Result<()> {
    let both = [0, 1].iter().all(|&rank| sends_first(evidence, rank));
    evidence.row(
        !both,
        "ranks 0 and 1 begin with",
        "a send and a receive",
        if both { "two sends" } else { "a send and a receive" },
    );
    evidence.means(
        "All results are right. But both ranks send first, and receive then. Between threads a send does not wait, so no run here has \
         seen it. Between GPUs a large one waits until it is received: each waits in its send for the other to receive, as in \
         lab06-deadlock. Let one of the two receive first, or use a collective of a group of the two.",
    );
    Ok(())
}
