//! The check of lab04-zero-step. The parameters after each step must be those of an all-reduce and a whole update, bit by
//! bit. Then the check counts the bytes, and the numbers that a rank updates.

use exercise::step;
use kit::check::{Evidence, run};
use shardlab::comm::Reduce;
use shardlab::{Result, launch};
use std::process::ExitCode;

/// From the second step on there is momentum. It shows whether a slice moves from rank to rank between steps.
const STEPS: usize = 3;

fn main() -> ExitCode {
    run(&[
        ("1 rank: it updates everything", |evidence| {
            trains(evidence, 1, 6)
        }),
        ("2 ranks, 8 numbers: each rank updates half", |evidence| {
            trains(evidence, 2, 8)
        }),
        (
            "3 ranks, 10 numbers: slices that need padding",
            |evidence| trains(evidence, 3, 10),
        ),
        ("5 ranks, 3 numbers: some hold only padding", |evidence| {
            trains(evidence, 5, 3)
        }),
        (
            "4 ranks, 4,096 numbers: the bytes that a rank sends",
            |evidence| costs(evidence, 4, 4096),
        ),
    ])
}

/// The parameters before the first step. No two are equal.
fn begin(len: usize) -> Vec<f32> {
    (0..len).map(|i| 1.0 + (i as f32).sqrt()).collect()
}

/// The gradients of a rank's backward pass at a step. Their sums are rounded.
fn gradients(rank: usize, step: usize, len: usize) -> Vec<f32> {
    (0..len)
        .map(|i| 3.0 + ((11 * i + 7 * rank + 5 * step) as f32).sin())
        .collect()
}

/// Gradient descent with momentum. It holds momentum for as many numbers as it updates.
#[derive(Default)]
struct Optimizer {
    momentum: Vec<f32>,
    /// The arguments of the last step's calls.
    called: Vec<(Vec<f32>, Vec<f32>)>,
}

impl Optimizer {
    fn update(&mut self, parameters: &mut [f32], gradients: &[f32]) {
        self.called.push((parameters.to_vec(), gradients.to_vec()));
        self.momentum.resize(parameters.len(), 0.0);
        for ((p, m), g) in parameters.iter_mut().zip(&mut self.momentum).zip(gradients) {
            *m = 0.9 * *m + g;
            *p -= 0.01 * *m;
        }
    }
}

/// One rank after one step.
struct Step {
    parameters: Vec<f32>,
    called: Vec<(Vec<f32>, Vec<f32>)>,
    bytes: u64,
}

/// All steps of each rank, in rank order.
fn results(evidence: &Evidence, ranks: usize, len: usize) -> Result<Vec<Vec<Step>>> {
    launch::run(ranks, |comm| {
        let mut parameters = begin(len);
        let mut optimizer = Optimizer::default();
        let mut steps = Vec::new();
        for i in 0..STEPS {
            let before = comm.traffic();
            let mut update =
                |parameters: &mut [f32], gradients: &[f32]| optimizer.update(parameters, gradients);
            evidence.given(format!(
                "rank {} of {ranks}, and {len} parameters, at step {i}",
                comm.rank()
            ));
            step(
                &comm,
                &gradients(comm.rank(), i, len),
                &mut parameters,
                &mut update,
            )?;
            let called = std::mem::take(&mut optimizer.called);
            let bytes = (comm.traffic() - before).bytes;
            steps.push(Step {
                parameters: parameters.clone(),
                called,
                bytes,
            });
        }
        Ok(steps)
    })
}

/// The steps of data parallelism: each step's mean gradients, and the parameters after it.
fn expected(ranks: usize, len: usize) -> Result<Vec<(Vec<f32>, Vec<f32>)>> {
    let all = launch::run(ranks, |comm| {
        let mut parameters = begin(len);
        let mut optimizer = Optimizer::default();
        let mut steps = Vec::new();
        for i in 0..STEPS {
            let mut mean = gradients(comm.rank(), i, len);
            comm.all_reduce(&mut mean, Reduce::Mean)?;
            optimizer.update(&mut parameters, &mean);
            steps.push((mean, parameters.clone()));
        }
        Ok(steps)
    })?;
    Ok(all.into_iter().next().unwrap_or_default())
}

fn trains(evidence: &mut Evidence, ranks: usize, len: usize) -> Result<()> {
    let expected = expected(ranks, len)?;
    let results = results(evidence, ranks, len)?;
    let at = |step: usize| results.iter().map(move |steps| &steps[step]);
    // All steps before the first wrong one are right, on all ranks.
    let is_right = |&step: &usize| at(step).all(|rank| rank.parameters == expected[step].1);
    let wrong = (0..STEPS).find(|step| !is_right(step));
    let step = wrong.unwrap_or(STEPS - 1);
    let (mean, new) = &expected[step];
    for (rank, got) in at(step).enumerate() {
        let first = (0..len).find(|&i| got.parameters[i] != new[i]);
        let i = first.unwrap_or(0);
        let place = format!("rank {rank}, step {step}, number {i}");
        evidence.row(first.is_none(), place, new[i], got.parameters[i]);
    }
    if wrong.is_none() {
        return slices(evidence, ranks, len, &results);
    }

    let old = if step == 0 {
        begin(len)
    } else {
        expected[step - 1].1.clone()
    };
    let all = |sign: &dyn Fn(usize, &Step) -> bool| {
        at(step).enumerate().all(|(rank, got)| sign(rank, got))
    };
    let any = |sign: &dyn Fn(usize, &Step) -> bool| {
        at(step).enumerate().any(|(rank, got)| sign(rank, got))
    };
    evidence.means_if(
        all(&|_, got| got.called.is_empty()),
        "Your code never calls `update`, so no parameter is trained.",
    );
    evidence.means_if(
        any(&|_, got| got.called.len() > 1),
        "Your code calls `update` more than once per step, so the momentum of earlier steps counts twice.",
    );
    // The factor by which rank 0's first gradient is too large.
    let factor = results[0][step]
        .called
        .first()
        .and_then(|(_, g)| g.first())
        .map_or(1.0, |g| g / mean[0]);
    let n = ranks as f32;
    evidence.means_if(
        ranks > 1 && near(factor, n),
        format!(
            "`update` gets gradients that are {ranks} times too large: their sum over the ranks, not the mean. With a sum, \
             each additional rank makes the steps longer."
        ),
    );
    evidence.means_if(
        ranks > 1 && near(factor, 1.0 / n),
        format!("`update` gets gradients that are {ranks} times too small: your code divides the mean once more."),
    );
    let own = |rank: usize, got: &Step| {
        let own = gradients(rank, step, len);
        got.called
            .first()
            .and_then(|(_, g)| g.first())
            .is_none_or(|g| *g == 0.0 || own.contains(g))
    };
    evidence.means_if(
        ranks > 1 && all(&own),
        "Each rank has updated with its own gradients, without those of the other ranks. Every slice of the model would \
         learn from one rank's data alone.",
    );
    // The offsets of `update`'s arguments among all numbers. Padding has none.
    let offsets = |got: &Step| {
        let (parameters, gradients) = got.called.first()?;
        let offset = |of: &[f32], first: Option<&f32>| {
            of.iter().position(|x| first.is_some_and(|y| near(*x, *y)))
        };
        Some((
            offset(&old, parameters.first())?,
            offset(mean, gradients.first())?,
        ))
    };
    let apart = at(step)
        .enumerate()
        .find_map(|(rank, got)| Some((rank, offsets(got).filter(|(p, g)| p != g)?)));
    if let Some((rank, (parameter, gradient))) = apart {
        evidence.means(format!(
            "Rank {rank} has updated the wrong slice: the parameters from number {parameter} on, with the gradients from \
             number {gradient} on. Slice r of both belongs to rank r."
        ));
    }
    evidence.means_if(
        all(&|_, got| (0..len).all(|i| near(got.parameters[i], mean[i]))),
        "The parameters have become the mean gradients. Gather the slices of parameters that `update` has moved.",
    );
    let kept = |got: &Step, i: usize| got.parameters[i] == old[i];
    let some_kept = all(&|_, got| (0..len).all(|i| kept(got, i) || got.parameters[i] == new[i]));
    evidence.means_if(
        all(&|_, got| (0..len).all(|i| kept(got, i))),
        "All parameters are as before: the slices that `update` has moved do not reach `parameters`.",
    );
    let differ = at(step).any(|got| got.parameters != results[0][step].parameters);
    evidence.means_if(
        some_kept && differ,
        "Each rank holds new values in its own slice, and old values of the rest: the ranks have not gathered the slices.",
    );
    let whole = len / ranks * ranks;
    evidence.means_if(
        some_kept && all(&|_, got| (0..len).all(|i| kept(got, i) == (i >= whole))),
        format!(
            "The last {} of {len} parameters are never updated: {ranks} slices of {} leave them out. Make the slices long \
             enough for all parameters, with padding at the end.",
            len - whole,
            len / ranks
        ),
    );
    evidence.means_if(
        ranks == 1,
        "With one rank, its gradients are the mean, and its slice is the whole.",
    );
    evidence.means_if(
        differ,
        "The ranks hold different parameters: from this step on they train different models.",
    );
    evidence.means("All ranks hold the same parameters, but not those of a whole update with the mean gradients.");
    Ok(())
}

/// The numbers that the busiest rank updates in a step.
fn updated(found: &[Vec<Step>]) -> u64 {
    let numbers = |step: &Step| {
        step.called
            .iter()
            .map(|(parameters, _)| parameters.len() as u64)
            .sum()
    };
    found.iter().flatten().map(numbers).max().unwrap_or(0)
}

/// The parameters are right on all ranks. Did each rank update its slice alone? A slice may have padding, as DeepSpeed's,
/// which is a multiple of 2.
fn slices(evidence: &mut Evidence, ranks: usize, len: usize, found: &[Vec<Step>]) -> Result<()> {
    let most = 2 * len.div_ceil(2 * ranks) as u64;
    let got = updated(found);
    let all = format!("numbers of {len} that a rank updates, at most");
    evidence.row(got <= most, all, most, got);
    if evidence.agrees() {
        return Ok(());
    }
    // If n does not divide the length, a reduce-scatter and an all-gather send padding. An all-reduce does not.
    let padded = results(evidence, 3, 10)?[0][0].bytes == 2 * 2 * 4 * size_of::<f32>() as u64;
    evidence.means_if(
        padded,
        "The parameters are right, but the ranks gather gradients, and then every rank updates everything. So every rank \
         holds the optimizer states of all parameters. Update first, then gather the parameters: the bytes are the same.",
    );
    evidence.means(
        "The parameters are right, but this is an all-reduce and a whole update: every rank holds the optimizer states of \
         all parameters. The step belongs between the two halves of the all-reduce.",
    );
    Ok(())
}

fn costs(evidence: &mut Evidence, ranks: usize, len: usize) -> Result<()> {
    trains(evidence, ranks, len)?;
    if !evidence.agrees() {
        return Ok(());
    }
    let found = results(evidence, ranks, len)?;
    let bytes = found
        .iter()
        .flatten()
        .map(|step| step.bytes)
        .max()
        .unwrap_or(0);
    let part = (len / ranks) as u64;
    let best = 2 * (ranks as u64 - 1) * part * size_of::<f32>() as u64;
    evidence.row(
        bytes == best,
        "bytes sent per rank, 2(n-1)/n of all",
        best,
        bytes,
    );
    evidence.means_if(
        bytes > best,
        "The parameters are right, but ranks send more than they have to. A rank needs only its own slice of the mean \
         gradients. An all-reduce before the all-gather brings all of them.",
    );
    evidence
        .means("The parameters are right, but you did not use a reduce-scatter and an all-gather.");
    evidence.figure("bytes per rank and step", bytes, best);
    evidence.figure("numbers updated per rank", updated(&found), part);
    Ok(())
}

fn near(x: f32, y: f32) -> bool {
    (x - y).abs() <= 1e-5 * y.abs()
}
