//! The check of lab08-alone: all ranks end, hold the same weights, and take the same steps,
//! whichever rank has the bad batch.

use exercise::{Replica, step};
use kit::check::{Evidence, is_near, number, run};
use shardlab::{Result, launch};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

const STEPS: usize = 12;
/// The step with the bad batch, counted from 1.
const BAD: usize = 5;
/// Half of 6 squared: a loss can be equal to it, without rounding.
const BOUND: f64 = 18.0;
const WIDTH: usize = 3;

/// Far above the bound.
const HUGE: f64 = 1e6;

fn main() -> ExitCode {
    run(&[
        ("2 ranks, no bad batch: trains", |evidence| {
            let good = Case { loss: None, ..ON_0 };
            taken(evidence, &good)
        }),
        ("a bad batch on rank 1: the run ends", |evidence| ends(evidence, &ON_1)),
        ("after every step both ranks are equal", |evidence| equal(evidence, &ON_1)),
        ("no rank takes the step with the bad batch", |evidence| taken(evidence, &ON_1)),
        ("also with the bad batch on rank 0", |evidence| all(evidence, &ON_0)),
        ("4 ranks: one loss just above the bound", |evidence| {
            let loss = Some(25.0);
            let case = Case { ranks: 4, rank: 2, loss, ..ON_0 };
            all(evidence, &case)
        }),
        ("a loss that is NaN", |evidence| {
            let loss = Some(f64::NAN);
            let case = Case { ranks: 3, rank: 1, loss, ..ON_0 };
            all(evidence, &case)
        }),
        ("3 micro-batches per step, on rank 1", |evidence| {
            let case = Case { micro_batches: 3, ..ON_1 };
            all(evidence, &case)
        }),
        ("3 micro-batches per step, on rank 0", |evidence| {
            let case = Case { micro_batches: 3, bad: 2, loss: Some(25.0), ..ON_0 };
            all(evidence, &case)
        }),
        ("a loss that is the bound: every step is taken", |evidence| {
            let case = Case { loss: Some(BOUND), ..ON_0 };
            all(evidence, &case)
        }),
    ])
}

const ON_0: Case = Case {
    ranks: 2,
    rank: 0,
    loss: Some(HUGE),
    micro_batches: 1,
    bad: 0,
    everywhere: false,
};
const ON_1: Case = Case { rank: 1, ..ON_0 };

/// A run, and the loss of one rank's bad batch.
#[derive(Clone, Copy)]
struct Case {
    ranks: usize,
    rank: usize,
    loss: Option<f64>,
    /// Per step and rank.
    micro_batches: usize,
    /// The bad one's number in its step, from 0.
    bad: usize,
    /// All ranks have a bad one there, not only `rank`.
    everywhere: bool,
}

impl Case {
    /// Whether there is a batch whose step is not taken.
    fn is_bad(&self) -> bool {
        self.loss.is_some_and(|loss| loss.is_nan() || loss > BOUND)
    }

    /// The number of the bad micro-batch on its rank, from 1.
    fn bad_draw(&self) -> usize {
        (BAD - 1) * self.micro_batches + self.bad + 1
    }
}

/// A linear model with a quadratic loss. Its batch number `n` is one input and one target.
#[derive(Clone, Default)]
struct Linear {
    rank: usize,
    /// The number of its bad micro-batch, and its loss.
    bad: Option<(usize, f64)>,
    weights: [f64; WIDTH],
    /// Micro-batches so far.
    drawn: usize,
    updates: usize,
}

impl Linear {
    fn new(case: &Case, rank: usize) -> Linear {
        let weights = [0.3, -0.2, 0.5];
        Linear {
            rank,
            bad: case
                .loss
                .filter(|_| rank == case.rank || case.everywhere)
                .map(|loss| (case.bad_draw(), loss)),
            weights,
            ..Linear::default()
        }
    }
}

impl Replica for Linear {
    fn forward_backward(&mut self) -> (f64, Vec<f64>) {
        self.drawn += 1;
        let x: Vec<f64> = (0..WIDTH)
            .map(|i| (1.0 + (self.drawn * 7 + self.rank * 5 + i) as f64).sin())
            .collect();
        let target = x[0] - 2.0 * x[1] + 0.5 * x[2];
        let mut miss = x.iter().zip(&self.weights).map(|(x, w)| x * w).sum::<f64>() - target;
        if let Some((draw, loss)) = self.bad
            && self.drawn == draw
        {
            miss = (2.0 * loss).sqrt();
        }
        (miss * miss / 2.0, x.iter().map(|x| miss * x).collect())
    }

    fn update(&mut self, gradient: &[f64]) {
        self.updates += 1;
        for (w, g) in self.weights.iter_mut().zip(gradient) {
            *w -= 0.1 * g;
        }
    }
}

/// A rank after a step, and what `step` returned.
type Step = (Linear, bool);

/// All steps of each rank, as far as they came, and why the run failed if it did.
fn outcome(evidence: &Evidence, case: &Case) -> (Vec<Vec<Step>>, Option<String>) {
    let ended: Vec<Mutex<Vec<Step>>> = (0..case.ranks).map(|_| Mutex::default()).collect();
    let result = launch::run(case.ranks, |comm| {
        let mut replica = Linear::new(case, comm.rank());
        for number in 1..=STEPS {
            evidence.given(format!("step {number} of rank {} of {}", comm.rank(), case.ranks));
            let taken = step(&comm, &mut replica, case.micro_batches, BOUND)?;
            ended[comm.rank()]
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((replica.clone(), taken));
        }
        Ok(())
    });
    let ended = ended
        .into_iter()
        .map(|rank| rank.into_inner().unwrap_or_else(PoisonError::into_inner));
    (ended.collect(), result.err().map(|error| format!("{error:#}")))
}

/// One rank's weights after each step, if the ranks combine the gradients of the bad step like
/// this.
fn serial(case: &Case, bad: fn(&[Vec<f64>], &Case) -> Option<Vec<f64>>) -> Vec<[f64; WIDTH]> {
    let mut ranks: Vec<Linear> = (0..case.ranks).map(|rank| Linear::new(case, rank)).collect();
    let mut steps = Vec::new();
    for number in 1..=STEPS {
        let gradients: Vec<Vec<f64>> = ranks
            .iter_mut()
            .map(|rank| {
                let mut mean = vec![0.0; WIDTH];
                for _ in 0..case.micro_batches {
                    for (mean, g) in mean.iter_mut().zip(rank.forward_backward().1) {
                        *mean += g / case.micro_batches as f64;
                    }
                }
                mean
            })
            .collect();
        let combined = if number == BAD && case.is_bad() {
            bad(&gradients, case)
        } else {
            mean(&gradients, case)
        };
        if let Some(gradient) = combined {
            for rank in &mut ranks {
                rank.update(&gradient);
            }
        }
        steps.push(ranks[0].weights);
    }
    steps
}

fn none(_: &[Vec<f64>], _: &Case) -> Option<Vec<f64>> {
    None
}

fn mean(gradients: &[Vec<f64>], _: &Case) -> Option<Vec<f64>> {
    let sum = |i| gradients.iter().map(|gradient| gradient[i]).sum::<f64>();
    Some((0..WIDTH).map(|i| sum(i) / gradients.len() as f64).collect())
}

/// The mean in which the bad rank has zeros.
fn zeros(gradients: &[Vec<f64>], case: &Case) -> Option<Vec<f64>> {
    let mut gradients = gradients.to_vec();
    gradients[case.rank].fill(0.0);
    mean(&gradients, case)
}

/// The mean over the good ranks.
fn others(gradients: &[Vec<f64>], case: &Case) -> Option<Vec<f64>> {
    let mut gradients = gradients.to_vec();
    gradients.remove(case.rank);
    mean(&gradients, case)
}

fn same(a: &[f64; WIDTH], b: &[f64; WIDTH]) -> bool {
    a.iter().zip(b).all(|(a, b)| is_near(*a, *b) || a.is_nan() && b.is_nan())
}

fn ends(evidence: &mut Evidence, case: &Case) -> Result<()> {
    let (ranks, error) = outcome(evidence, case);
    for (rank, steps) in ranks.iter().enumerate() {
        evidence.same(format!("rank {rank}: steps that ended"), STEPS, steps.len());
    }
    let Some(error) = error else { return Ok(()) };
    println!("{error}");
    evidence.row(false, "the run", "ends on all ranks", error.lines().next().unwrap_or_default());
    let alone =
        ranks[case.rank].len() == STEPS && ranks.iter().any(|steps| steps.len() + 1 == STEPS);
    evidence.means_if(
        alone,
        format!(
            "In step {BAD} rank {0} found its loss too high, and left the step before its all-reduce. The other rank was \
             waiting there. Rank {0} came to it one step later. From then on they average gradients of different steps: no \
             error shows it, because every call looks the same. In the last step the other rank waits for an all-reduce that \
             rank {0} never makes. No rank may decide by itself.",
            case.rank
        ),
    );
    evidence.means(
        "The ranks do not make the same calls. Each rank must enter the same collectives in the same order, whatever its own \
         loss is.",
    );
    Ok(())
}

fn equal(evidence: &mut Evidence, case: &Case) -> Result<()> {
    let (ranks, error) = outcome(evidence, case);
    if error.is_some() {
        return ends(evidence, case);
    }
    let differ = (0..STEPS)
        .find(|&i| ranks.iter().any(|steps| !same(&steps[i].0.weights, &ranks[0][i].0.weights)));
    for (rank, steps) in ranks.iter().enumerate() {
        let i = differ.unwrap_or(STEPS - 1);
        let first = ranks[0][differ.unwrap_or(STEPS - 1)].0.weights[0];
        let at = format!("after step {}: weight 0 of rank {rank}", i + 1);
        let got = steps[i].0.weights[0];
        evidence.row(differ.is_none(), at, number(first), number(got));
    }
    if evidence.agrees() {
        return Ok(());
    }
    let updates: Vec<usize> = ranks.iter().map(|steps| steps[STEPS - 1].0.updates).collect();
    evidence.means_if(
        updates.iter().any(|count| *count != updates[0]),
        format!(
            "All ranks make the same calls now, so the run ends. But in step {BAD} some ranks update their weights and some do \
             not. From then on the replicas are different models, and average gradients that do not belong together. The loss \
             still falls, so no log shows it. All ranks need one answer to the question whether the step is taken.",
        ),
    );
    evidence.means("The ranks update with different gradients. After the all-reduce all of them have the same one.");
    Ok(())
}

fn taken(evidence: &mut Evidence, case: &Case) -> Result<()> {
    let (ranks, error) = outcome(evidence, case);
    if error.is_some() {
        return ends(evidence, case);
    }
    let asked = serial(case, none);
    let wrong =
        (0..STEPS).find(|&i| ranks.iter().any(|steps| !same(&asked[i], &steps[i].0.weights)));
    let i = wrong.unwrap_or(BAD - 1);
    for (rank, steps) in ranks.iter().enumerate() {
        let at = format!("after step {}: weight 0 of rank {rank}", i + 1);
        let weight = steps[i].0.weights[0];
        evidence.row(same(&asked[i], &steps[i].0.weights), at, number(asked[i][0]), number(weight));
        let right = !case.is_bad();
        let got = steps[BAD - 1].1;
        evidence.same(format!("rank {rank}: step {BAD} is taken"), right, got);
        let left_out = usize::from(case.is_bad());
        let got = steps[STEPS - 1].0.updates;
        evidence.same(format!("rank {rank}: updates in {STEPS} steps"), STEPS - left_out, got);
        let drawn = BAD * case.micro_batches;
        let got = steps[BAD - 1].0.drawn;
        evidence.same(format!("rank {rank}: drawn after step {BAD}"), drawn, got);
    }
    if evidence.agrees() {
        return Ok(());
    }
    let drawn: Vec<usize> = ranks
        .iter()
        .map(|steps| steps[BAD - 1].0.drawn - (BAD - 1) * case.micro_batches)
        .collect();
    let fewer = drawn.iter().position(|&drawn| drawn < case.micro_batches);
    if let Some(rank) = fewer {
        let others = if drawn.iter().all(|&other| other == drawn[rank]) {
            "All ranks do so, so they agree, and learn from different data than a run without a bad batch"
        } else {
            "The other ranks draw all of theirs: from then on the ranks of one step learn from data of two"
        };
        evidence.means(format!(
            "Rank {rank} draws {} of {} micro-batches in step {BAD} and leaves it. So step {} learns from what belongs to step \
             {BAD}. {others}. A step that is not taken uses up its data.",
            drawn[rank],
            case.micro_batches,
            BAD + 1
        ));
    }
    let got = &ranks[0][BAD - 1].0.weights;
    let is =
        |bad: fn(&[Vec<f64>], &Case) -> Option<Vec<f64>>| same(&serial(case, bad)[BAD - 1], got);
    evidence.means_if(
        case.loss.is_none(),
        "Without a bad batch every step is taken, with the mean gradient of all ranks.",
    );
    evidence.means_if(
        !case.is_bad(),
        "This loss is equal to the bound, and not above it: the step is taken.",
    );
    evidence.means_if(
        case.loss.is_some_and(f64::is_nan) && is(mean),
        "The NaN was not noticed: no comparison with NaN is true. Ask whether the loss is within the bound, not whether it is \
         above it. Or was the NaN lost before? Rust's `f64::max` drops it: the larger of NaN and 3 is 3.",
    );
    let spared = |case: &Case| {
        outcome(evidence, case)
            .0
            .iter()
            .all(|steps| steps.get(BAD - 1).is_some_and(|step| !step.1))
    };
    let last = Case { bad: case.micro_batches - 1, loss: Some(HUGE), ..*case };
    let huge = Case { loss: Some(HUGE), ..*case };
    let several = case.micro_batches > 1 && is(mean);
    let spared_last = several && case.bad == 0 && spared(&last);
    let spared_huge = several && spared(&huge);
    let everywhere = Case { everywhere: true, ..huge };
    let only_all = is(mean) && !spared(&huge) && spared(&everywhere);
    let spared = [spared(&ON_0), spared(&ON_1)];
    evidence.means_if(
        spared_last,
        "Only the loss of the last micro-batch decides. A bad one before it is trained on.",
    );
    evidence.means_if(
        spared_huge,
        "This loss is above the bound, but the mean over the step's micro-batches is not: the good ones hide it. Compare each \
         micro-batch's loss.",
    );
    evidence.means_if(
        only_all && spared[0] == spared[1],
        "One rank's \"bad\" is outvoted here: if all ranks find their loss too high, the step is not taken. Its gradient goes into \
         the mean of all ranks, so any one must suffice.",
    );
    why_trained(evidence, case, is(mean), spared);
    evidence.means_if(
        is(zeros),
        format!(
            "The ranks take step {BAD} with zeros instead of the bad gradient. That keeps them together. But zeros count in a \
             mean: the step is too short, and the less data is bad, the less anyone notices. Here no rank takes the step.",
        ),
    );
    evidence.means_if(
        is(others),
        format!("The ranks take step {BAD} with the gradients of good ranks only. Here no rank takes a step that is bad anywhere."),
    );
    evidence.means_if(
        is(none) && ranks[0][BAD - 1].0.updates == BAD,
        "The ranks call `update` in a step that is not taken. Here a gradient of zeros changes nothing, but Adam would still \
         move the weights by its moments.",
    );
    evidence.means_if(
        is(none),
        "The weights are right. `step` must also return on every rank whether the step was taken: the run counts by it.",
    );
    evidence.means(
        "The weights are those of a run that leaves out the bad step, and takes all others.",
    );
    Ok(())
}

/// Explains why all ranks trained on the bad gradient. `spared`: whether a huge loss on rank 0, or
/// 1, is noticed.
fn why_trained(evidence: &mut Evidence, case: &Case, trained: bool, spared: [bool; 2]) {
    evidence.means_if(
        trained && spared == [true, true],
        "This loss is above the bound, but the mean over all ranks is not: the good ranks hide it. Compare each rank's own \
         loss, and combine the answers.",
    );
    let one = spared.iter().position(|spared| *spared);
    evidence.means_if(
        trained && one.is_some(),
        format!(
            "Only the loss of rank {} decides. A bad batch on rank {} is trained on.",
            one.unwrap_or(0),
            case.rank
        ),
    );
    evidence.means_if(
        trained,
        "All ranks train on the bad batch now. They agree, but the bound has no effect any more.",
    );
}

/// All of the above.
fn all(evidence: &mut Evidence, case: &Case) -> Result<()> {
    for part in [ends, equal, taken] {
        part(evidence, case)?;
        if !evidence.agrees() {
            break;
        }
    }
    Ok(())
}
