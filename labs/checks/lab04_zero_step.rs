//! The check of lab04-zero-step: the parameters after each step are those of all-reduce and a whole update, to the bit; then
//! the bytes sent, and how many numbers a rank updates.

use exercise::step;
use shardlab::Result;
use shardlab::comm::Reduce;
use shardlab::launch;
use shardlab::workbook::check::{Evidence, run};
use std::process::ExitCode;

/// With momentum from the second on, so that a part that wanders from rank to rank shows.
const STEPS: usize = 3;

fn main() -> ExitCode {
    run(&[
        ("1 rank: it updates everything", |evidence| trains(evidence, 1, 6)),
        ("2 ranks, 8 numbers: half of them each", |evidence| trains(evidence, 2, 8)),
        ("3 ranks, 10 numbers: parts that need padding", |evidence| trains(evidence, 3, 10)),
        ("5 ranks, 3 numbers: some hold only padding", |evidence| trains(evidence, 5, 3)),
        ("4 ranks, 4,096 numbers: bytes, and who updates what", |evidence| costs(evidence, 4, 4096)),
    ])
}

/// Parameters before the first step: no two are equal.
fn begin(len: usize) -> Vec<f32> {
    (0..len).map(|i| 1.0 + (i as f32).sqrt()).collect()
}

/// What a rank's backward pass has computed at a step. Sums of these are rounded.
fn gradients(rank: usize, step: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| 3.0 + ((11 * i + 7 * rank + 5 * step) as f32).sin()).collect()
}

/// Gradient descent with momentum, which it holds for as many numbers as it updates.
#[derive(Default)]
struct Optimizer {
    momentum: Vec<f32>,
    /// What the last step was called with.
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

/// All ranks' steps, of each rank in order.
fn results(evidence: &Evidence, ranks: usize, len: usize) -> Result<Vec<Vec<Step>>> {
    launch::run(ranks, |comm| {
        let (mut parameters, mut optimizer) = (begin(len), Optimizer::default());
        let mut steps = Vec::new();
        for i in 0..STEPS {
            let before = comm.traffic();
            let mut update = |parameters: &mut [f32], gradients: &[f32]| optimizer.update(parameters, gradients);
            evidence.given(format!("rank {} of {ranks}, and {len} parameters, at step {i}", comm.rank()));
            step(&comm, &gradients(comm.rank(), i, len), &mut parameters, &mut update)?;
            let (called, bytes) = (std::mem::take(&mut optimizer.called), (comm.traffic() - before).bytes);
            steps.push(Step { parameters: parameters.clone(), called, bytes });
        }
        Ok(steps)
    })
}

/// What data parallelism does: each step's mean gradients and the parameters after it.
fn expected(ranks: usize, len: usize) -> Result<Vec<(Vec<f32>, Vec<f32>)>> {
    let all = launch::run(ranks, |comm| {
        let (mut parameters, mut optimizer) = (begin(len), Optimizer::default());
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
    let (expected, results) = (expected(ranks, len)?, results(evidence, ranks, len)?);
    let at = |step: usize| results.iter().map(move |steps| &steps[step]);
    // Everything before the first step that goes wrong is right, on all ranks.
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
        return Ok(());
    }

    let old = if step == 0 { begin(len) } else { expected[step - 1].1.clone() };
    let all = |sign: &dyn Fn(usize, &Step) -> bool| at(step).enumerate().all(|(rank, got)| sign(rank, got));
    let any = |sign: &dyn Fn(usize, &Step) -> bool| at(step).enumerate().any(|(rank, got)| sign(rank, got));
    evidence.means_if(all(&|_, got| got.called.is_empty()), "`update` was never called: no parameter is trained.");
    evidence.means_if(
        any(&|_, got| got.called.len() > 1),
        "`update` was called more than once in a step: the momentum of earlier steps then counts twice.",
    );
    // By how much rank 0's first gradient is too large.
    let factor = results[0][step].called.first().and_then(|(_, g)| g.first()).map_or(1.0, |g| g / mean[0]);
    let n = ranks as f32;
    evidence.means_if(
        ranks > 1 && near(factor, n),
        format!(
            "`update` was given gradients that are {ranks} times too large: their sum over the ranks, where the mean is \
             asked for. With it every rank more makes the steps longer."
        ),
    );
    evidence.means_if(
        ranks > 1 && near(factor, 1.0 / n),
        format!("`update` was given gradients that are {ranks} times too small: the mean is divided once more."),
    );
    let own = |rank: usize, got: &Step| {
        let own = gradients(rank, step, len);
        got.called.first().and_then(|(_, g)| g.first()).is_none_or(|g| *g == 0.0 || own.contains(g))
    };
    evidence.means_if(
        ranks > 1 && all(&own),
        "Each rank has updated with its own gradients: the others' are not in them. Every part of the model would learn \
         from one rank's data alone.",
    );
    // Where what `update` was given stands among all numbers; padding stands nowhere.
    let places = |got: &Step| {
        let (parameters, gradients) = got.called.first()?;
        let place = |of: &[f32], first: Option<&f32>| of.iter().position(|x| first.is_some_and(|y| near(*x, *y)));
        Some((place(&old, parameters.first())?, place(mean, gradients.first())?))
    };
    let apart = at(step).enumerate().find_map(|(rank, got)| Some((rank, places(got).filter(|(p, g)| p != g)?)));
    if let Some((rank, (parameter, gradient))) = apart {
        evidence.means(format!(
            "Rank {rank} has updated the wrong part: the parameters from number {parameter} on, by the gradients from \
             number {gradient} on. Part r of both is rank r's."
        ));
    }
    evidence.means_if(
        all(&|_, got| (0..len).all(|i| near(got.parameters[i], mean[i]))),
        "The parameters have become the mean gradients: what is gathered is the part that `update` has moved.",
    );
    let kept = |got: &Step, i: usize| got.parameters[i] == old[i];
    let some_kept = all(&|_, got| (0..len).all(|i| kept(got, i) || got.parameters[i] == new[i]));
    evidence.means_if(
        all(&|_, got| (0..len).all(|i| kept(got, i))),
        "All parameters are as they were: what is gathered, and ends in `parameters`, is not what `update` has moved.",
    );
    let differ = at(step).any(|got| got.parameters != results[0][step].parameters);
    evidence.means_if(
        some_kept && differ,
        "The ranks hold new values of different parameters, and old ones of the rest: nobody has told the others its part.",
    );
    let whole = len / ranks * ranks;
    evidence.means_if(
        some_kept && all(&|_, got| (0..len).all(|i| kept(got, i) == (i >= whole))),
        format!(
            "The last {} of {len} parameters are never updated: {ranks} parts of {} leave them out. Parts must be long \
             enough for all, with padding at the end.",
            len - whole,
            len / ranks
        ),
    );
    evidence.means_if(ranks == 1, "With one rank the gradients are the mean, and its part is everything.");
    evidence.means_if(differ, "The ranks hold different parameters: from this step on they are different models.");
    evidence.means("All ranks hold the same parameters, but others than after a whole update with the mean gradients.");
    Ok(())
}

fn costs(evidence: &mut Evidence, ranks: usize, len: usize) -> Result<()> {
    trains(evidence, ranks, len)?;
    if !evidence.agrees() {
        return Ok(());
    }
    let found = results(evidence, ranks, len)?;
    let most = |of: &dyn Fn(&Step) -> u64| found.iter().map(|steps| of(&steps[0])).max().unwrap_or(0);
    let updated = most(&|step| step.called.iter().map(|(parameters, _)| parameters.len() as u64).sum());
    let bytes = most(&|step| step.bytes);
    let part = (len / ranks) as u64;
    let best = 2 * (ranks as u64 - 1) * part * size_of::<f32>() as u64;
    evidence.row(updated == part, "numbers a rank updates, 1/n of all", part, updated);
    evidence.row(bytes == best, "bytes a rank sends, 2(n-1)/n of all", best, bytes);
    // Where the ranks do not divide the numbers, a reduce-scatter and an all-gather send padding; an all-reduce does not.
    let padded = results(evidence, 3, 10)?[0][0].bytes == 2 * 2 * 4 * size_of::<f32>() as u64;
    evidence.means_if(
        updated > part && padded,
        "The parameters are right, but what is gathered are gradients, and every rank updates everything: it holds the \
         optimizer's numbers for all parameters. Update first, and gather parameters: as many bytes.",
    );
    evidence.means_if(
        updated > part,
        "The parameters are right, but this is an all-reduce and a whole update: every rank holds the optimizer's numbers \
         for all parameters. The step belongs between the all-reduce's two halves.",
    );
    evidence.means_if(
        bytes > best,
        "The parameters are right, but more travels than has to: of the mean gradients a rank needs its own part alone. \
         An all-reduce before the all-gather brings it all of them.",
    );
    evidence.means("The parameters are right, but not by a reduce-scatter and an all-gather.");
    evidence.figure("bytes a rank and step", bytes, best);
    evidence.figure("numbers a rank updates", updated, part);
    Ok(())
}

fn near(x: f32, y: f32) -> bool {
    (x - y).abs() <= 1e-5 * y.abs()
}
