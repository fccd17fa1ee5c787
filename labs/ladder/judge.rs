//! What the checks of all rungs share: the reader's program on real ranks, beside the program for
//! one rank.
//!
//! A check begins with [`Judge::alone`], [`Judge::parts`], [`Judge::gradients`] and
//! [`Judge::weights`]. The rung's own claims follow, and [`Judge::score`] comes last.
//!
//! Adam divides a gradient by its own size. So weights hardly tell a sum from a mean, and what the
//! optimizer got is compared, too.

use crate::clock::{Doing, Event};
pub use crate::passes::{Whole, whole_gradients};
use crate::picture::track;
use crate::rank::Update;
use crate::rungs::Program;
use crate::{Job, LAYERS, Returns, Run, Rung, Score, Trained, run};
use anyhow::{Context, Result};
use kit::check::Evidence;
use kit::show::thousands;
use shardlab::comm::CallKind;
use std::fmt::Display;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// The reader's program of a rung, and its runs.
pub struct Judge {
    name: &'static str,
    train: Program,
    runs: Mutex<Vec<(Job, Arc<Run>)>>,
}

/// How far a rung's numbers may be from those of one rank.
#[derive(Clone, Copy)]
struct Bounds {
    /// Of a loss, as a share.
    loss: f64,
    /// Of a gradient, as a share of its size and of the size of those beside it.
    gradient: f32,
    /// Of a weight, and of all weights on average.
    weight: f32,
    weights: f64,
}

const DIGITS: &str = "Only last digits differ: the same numbers, added in another order. One rank adds up the parts from 0 to the last.";

/// For where some weights are in the model, however they are rounded.
const SAME_PLACE: f32 = 0.03;

impl Judge {
    pub const fn new(name: &'static str, train: Program) -> Judge {
        Judge { name, train, runs: Mutex::new(Vec::new()) }
    }

    /// # Errors
    /// If there is no such rung.
    pub fn rung(&self) -> Result<&'static Rung> {
        Rung::of(self.name).with_context(|| format!("no rung is named {}", self.name))
    }

    /// The rung's job on `ranks` ranks. A rank has as many parts of the batch as in the rung
    /// itself.
    ///
    /// # Errors
    /// If there is no such rung.
    pub fn job(&self, ranks: usize) -> Result<Job> {
        let job = self.rung()?.job;
        let tensor = job.tensor.min(ranks);
        let shared = job.parts * job.tensor == job.ranks;
        Ok(Job {
            ranks,
            tensor,
            parts: if shared { ranks / tensor } else { job.parts },
            steps: job.steps,
        })
    }

    /// The reader's program on a job. It runs once for each job.
    ///
    /// # Errors
    /// Those of the program.
    pub fn run(&self, job: Job) -> Result<Arc<Run>> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, run)) = runs.iter().find(|run| run.0 == job) {
            return Ok(run.clone());
        }
        let run = Arc::new(run(job, self.train)?);
        runs.push((job, run.clone()));
        Ok(run)
    }

    /// On how many ranks the optimizer has a parameter.
    fn copies(&self, job: Job) -> Result<usize> {
        let rung = self.rung()?;
        Ok(match rung.returns {
            Returns::Whole if rung.name != "ladder-zero" => job.ranks,
            Returns::Units => job.ranks / job.tensor,
            _ => 1,
        })
    }

    /// Tensor ranks add up summands, so they round in another order than one rank. Adam makes a
    /// step of full length of a gradient of any size: where a gradient is almost 0, rounding
    /// decides about the sign of a step. So a few weights may differ by two steps' length each
    /// time, while all weights together hardly differ. All other rungs add up in the order of one
    /// rank.
    fn bounds(&self) -> Result<Bounds> {
        Ok(match self.rung()?.returns {
            Returns::Units => Bounds { loss: 1e-4, gradient: 1e-2, weight: 0.02, weights: 1e-4 },
            _ => Bounds { loss: 0.0, gradient: 1e-5, weight: 0.0, weights: 0.0 },
        })
    }

    /// On one rank it is the program that is given.
    ///
    /// # Errors
    /// Those of the program.
    pub fn alone(&self, evidence: &mut Evidence) -> Result<()> {
        let job = self.job(1)?;
        self.look_at_parts(evidence, job)?;
        if evidence.agrees() {
            self.look_at_gradients(evidence, job)?;
        }
        if evidence.agrees() {
            self.look_at_weights(evidence, job)?;
        }
        Ok(())
    }

    /// Each part of each step's batch is computed once.
    ///
    /// # Errors
    /// Those of the program.
    pub fn parts(&self, evidence: &mut Evidence, ranks: usize) -> Result<()> {
        self.look_at_parts(evidence, self.job(ranks)?)
    }

    /// The optimizer gets the mean gradients.
    ///
    /// # Errors
    /// Those of the program.
    pub fn gradients(&self, evidence: &mut Evidence, ranks: usize) -> Result<()> {
        self.look_at_gradients(evidence, self.job(ranks)?)
    }

    /// The ranks have the model that one rank trains.
    ///
    /// # Errors
    /// Those of the program.
    pub fn weights(&self, evidence: &mut Evidence, ranks: usize) -> Result<()> {
        self.look_at_weights(evidence, self.job(ranks)?)
    }

    /// [`Judge::parts`] for any job.
    ///
    /// # Errors
    /// Those of the program.
    pub fn look_at_parts(&self, evidence: &mut Evidence, job: Job) -> Result<()> {
        let run = self.run(job)?;
        let one = on_one_rank(job)?;
        let all = (0..job.steps).flat_map(|step| (0..job.parts).map(move |part| (step, part)));
        let by = |step: usize, part: usize| -> Vec<usize> {
            let noted = |rank: usize| run.ranks[rank].losses.iter().map(move |loss| (rank, loss));
            let losses = (0..job.ranks).flat_map(noted);
            let here = losses.filter(|(_, loss)| (loss.0, loss.1) == (step, part));
            here.map(|(rank, _)| rank).collect()
        };
        let computed: Vec<(usize, Vec<usize>)> = all.map(|(s, p)| (p, by(s, p))).collect();
        for (i, (part, by)) in computed.iter().enumerate() {
            evidence.row(
                by.len() == job.tensor,
                format!("step {}, part {part}: computed by", i / job.parts),
                if job.tensor == 1 {
                    "one rank".into()
                } else {
                    format!("{} ranks", job.tensor)
                },
                match by[..] {
                    [] => "no rank".into(),
                    [rank] => format!("rank {rank}"),
                    _ => format!("ranks {}", listed(by)),
                },
            );
        }
        let mixed = mixed_parts(&run, &one)?;
        if !evidence.agrees() {
            if let Some(mixed) = mixed {
                evidence.means(mixed);
            }
            Judge::wrong_parts(evidence, job, &computed);
            return Ok(());
        }
        let loss = |losses: &[(usize, usize, f64)], part: usize| {
            losses.iter().find(|loss| (loss.0, loss.1) == (0, part)).map(|loss| loss.2)
        };
        let bound = self.bounds()?.loss;
        for (rank, trained) in run.ranks.iter().enumerate() {
            for &(_, part, got) in trained.losses.iter().filter(|loss| loss.0 == 0) {
                let expected = loss(&one.ranks[0].losses, part).unwrap_or(f64::NAN);
                let place = format!("rank {rank}, step 0: the loss of part {part}");
                let [right, seen] = [expected, got].map(|loss| match bound {
                    0.0 => loss.to_string(),
                    _ => kit::show::general(loss, 5),
                });
                evidence.row((got - expected).abs() <= bound * expected, place, right, seen);
            }
        }
        if let Some(mixed) = mixed.filter(|_| !evidence.agrees()) {
            evidence.means(mixed);
        }
        evidence.means_if(
            !evidence.agrees(),
            "The weights are still those with which everyone begins, so the forward pass differs: do input and loss belong to the \
             same step and part, and do all layers run, in order, each with its own weights?",
        );
        Ok(())
    }

    /// Explains parts that nobody or too many have computed.
    fn wrong_parts(evidence: &mut Evidence, job: Job, computed: &[(usize, Vec<usize>)]) {
        let (parts, ranks) = (job.parts, job.ranks);
        evidence.means_if(
            computed.iter().all(|(_, by)| by.is_empty()),
            "No rank computes a loss, so there is nothing to learn from: forward through all layers, then `rank.loss`.",
        );
        evidence.means_if(
            ranks > job.tensor && computed.iter().all(|(_, by)| by.len() == ranks),
            format!(
                "Every rank computes all parts of the batch, as one rank does. The model comes out right, and nothing is gained: {ranks} \
                 ranks take as long as one. Each rank needs a part of its own."
            ),
        );
        for only in 0..parts {
            evidence.means_if(
                parts > 1 && computed.iter().all(|(part, by)| by.is_empty() != (*part == only)),
                format!(
                    "All ranks train on part {only}, and nobody on the other parts. {ranks} ranks do the work of one: the loss falls, \
                     the ranks agree, and no log shows that most of the text is never read."
                ),
            );
        }
        evidence.means_if(
            computed[..parts].iter().all(|(_, by)| by.len() == job.tensor),
            format!("The first step is complete, and later ones are not: a run has `rank.steps()` steps, here {}.", job.steps),
        );
        evidence.means(
            "Each part of a step's batch belongs to one rank. What nobody computes is text that the model never reads, and what \
             is computed twice counts twice in the mean.",
        );
    }

    /// [`Judge::gradients`] for any job.
    ///
    /// # Errors
    /// Those of the program.
    pub fn look_at_gradients(&self, evidence: &mut Evidence, job: Job) -> Result<()> {
        let run = self.run(job)?;
        let orders = [Expected::new(job, false)?, Expected::new(job, true)?];
        let all = orders[0].steps[0].mean.len();
        let copies = self.copies(job)?;
        let numel = |updates: &[Update]| updates.iter().map(|u| u.weights.len()).sum::<usize>();
        let updated: usize = run.ranks.iter().map(|rank| numel(&rank.updates)).sum();
        let enough = evidence.row(
            updated == copies * all * job.steps,
            format!(
                "{}: parameters that they update in a step",
                counted(job.ranks, "rank", "ranks")
            ),
            thousands((copies * all) as u64),
            thousands((updated / job.steps) as u64),
        );
        if !enough {
            self.wrong_count(evidence, &run, &orders[0], updated / job.steps);
            return Ok(());
        }
        let bound = self.bounds()?.gradient;
        let mut first = None;
        for step in 0..job.steps {
            for (rank, trained) in run.ranks.iter().enumerate() {
                let share = numel(&trained.updates) / job.steps;
                for update in of_step(&trained.updates, step, share) {
                    let place = orders.iter().find_map(|of| {
                        let start = locate(&update.weights, &of.steps[step].weights, |x, y| {
                            (x - y).abs() <= SAME_PLACE
                        })?;
                        Some((of, start))
                    });
                    let Some((of, start)) = place else {
                        let at = format!("rank {rank}, step {step}: weights that it updates");
                        evidence.row(false, at, "those of some parameters", "others");
                        first = first.or(Some((rank, step, None)));
                        continue;
                    };
                    let mean = &of.steps[step].mean[start..start + update.weights.len()];
                    let same = near(&update.gradients, mean, bound);
                    let at = format!(
                        "rank {rank}, step {step}, {}: norm of its gradients",
                        of.layers(start..start + mean.len())
                    );
                    let [expected, got] = [norm(mean), norm(&update.gradients)].map(digits);
                    let others = if !same && got == expected {
                        ", in other places"
                    } else {
                        ""
                    };
                    evidence.row(same, at, expected, format!("{got}{others}"));
                    if !same && first.is_none() {
                        first = Some((rank, step, Some((of, start, update))));
                    }
                }
            }
            // What follows computes with wrong weights.
            if !evidence.agrees() {
                break;
            }
        }
        match first {
            Some((rank, step, Some((of, start, update)))) => {
                let seen = Seen::of(of, step, start, update, bound);
                self.wrong_gradients(evidence, &run, rank, step, seen);
            }
            Some((rank, step, None)) => evidence.means(format!(
                "In step {step}, rank {rank} updates numbers that are not the weights of that step. What has changed them before?"
            )),
            None => {}
        }
        Ok(())
    }

    /// Explains that too many or too few parameters are updated.
    fn wrong_count(&self, evidence: &mut Evidence, run: &Run, of: &Expected, updated: usize) {
        let all = of.steps[0].mean.len();
        evidence.means_if(
            updated == 0,
            "No rank calls `rank.update`: the model stays as it is. The loss of a step says nothing about that.",
        );
        evidence.means_if(
            self.copies(run.job).unwrap_or_default() == 1 && updated == run.job.ranks * all,
            "Every rank updates all parameters, so every rank needs the optimizer's state of all of them: that is plain data \
             parallelism, and it saves nothing.",
        );
        let left = |layer: usize| {
            let mut updates = run.ranks[0].updates.iter();
            let weights = &of.steps[0].weights;
            !updates.any(|update| {
                let start = locate(&update.weights, weights, |x, y| x == y);
                start.is_some_and(|start| {
                    let there = start..start + update.weights.len();
                    there.start <= of.starts[layer] && of.starts[layer] < there.end
                })
            })
        };
        let left: Vec<usize> = (0..LAYERS).filter(|&layer| left(layer)).collect();
        if self.copies(run.job).unwrap_or_default() == run.job.ranks
            && !left.is_empty()
            && left.len() < LAYERS
        {
            evidence.means(format!(
                "Rank 0 never updates {} {}. Such layers keep the random numbers with which they began, and the loss falls \
                 all the same.",
                if left.len() == 1 { "layer" } else { "layers" },
                listed(&left)
            ));
        }
        evidence.means(format!(
            "A step updates each of the model's {} parameters once on each rank that has its optimizer's state. Adam counts its steps, \
             so a second update in a step is not the same as a longer one.",
            thousands(all as u64)
        ));
    }

    fn wrong_gradients(
        &self,
        evidence: &mut Evidence,
        run: &Run,
        rank: usize,
        step: usize,
        seen: Seen,
    ) {
        let (ranks, parts) = (run.job.ranks, run.job.parts);
        let agree = run.ranks.iter().all(|other| other.weights == run.ranks[0].weights);
        let Seen { layer, kind } = seen;
        evidence.means(match kind {
            Kind::Zero => format!(
                "In step {step}, rank {rank} updates {layer} with zeros. Are the gradients averaged before the backward pass has \
                 computed them?"
            ),
            Kind::Part(part) if agree && ranks > 1 => format!(
                "Rank {rank} updates {layer} with the gradients of part {part} only, and all ranks end with the same weights: the ranks \
                 average weights, not gradients. Adam's step of a mean is not the mean of Adam's steps, and each rank's state knows \
                 its own part only. This is local SGD, and another training."
            ),
            Kind::Part(part) if self.copies(run.job).unwrap_or_default() == 1 && parts > ranks => format!(
                "Rank {rank} updates {layer} with the gradients of part {part} only. Those of the step's other parts are lost: a rank \
                 adds up the gradients of all parts before it updates."
            ),
            Kind::Part(part) if averaged(&run.ranks[rank], run.job) => format!(
                "Rank {rank} updates {layer} with the gradients of part {part} only, although the ranks did average. The mean is in the \
                 list that went into the all-reduce, and `wait` gives that list back. It is not in a list that you copied before."
            ),
            Kind::Part(part) => format!(
                "Rank {rank} updates {layer} with the gradients of part {part} only: nobody has averaged them. Each rank now trains \
                 a model of its own on its part of the text, and the checkpoint of rank 0 knows nothing of the others."
            ),
            Kind::Times => format!(
                "The gradients of {layer} are {parts} times the mean: a sum. Adam divides a gradient by its own size, so the loss hardly \
                 shows it. Clipping by the norm shows it, and so does SGD: with each additional {} its steps get longer.",
                if parts == ranks { "rank" } else { "part" }
            ),
            Kind::Share => format!(
                "The gradients of {layer} are {parts} times too small: your code divides the mean once more. Adam hides it, until the \
                 gradients get so small that its epsilon counts."
            ),
            Kind::ShareOf(part) => format!(
                "Rank {rank} updates {layer} with 1/{parts} of the gradients of part {part} only. Those of the other parts are lost: each part's \
                 gradients have overwritten those of the part before it. The mean is over all {parts} parts, so add them up first."
            ),
            Kind::Before => format!(
                "In step {step}, the gradients of {layer} still contain those of earlier steps: each step begins with zeros. Such sums \
                 grow, and point to where the model was, not to where it is."
            ),
            Kind::Elsewhere(other) => format!(
                "In step {step}, rank {rank} updates {layer} with the gradients of {other}. The lists are equally long, so nothing fails, and \
                 all ranks do the same. In which order are the layers in the list, and in which order do you take them out?{}",
                if self.name == "ladder-buckets" {
                    " Or is an older bucket still in the list?"
                } else {
                    ""
                }
            ),
            Kind::Digits => DIGITS.into(),
            Kind::Weights => format!(
                "All gradients up to step {} are right, and the weights after it are not: is each `Adam` made once, before the first step?",
                step - 1
            ),
            Kind::Other => format!(
                "In step {step}, rank {rank} updates {layer} with gradients that are not the mean over the {} of the batch. Is each rank's \
                 gradient complete when it goes in, and does it go in once?",
                counted(parts, "part", "parts")
            ),
        });
    }

    /// [`Judge::weights`] for any job.
    ///
    /// # Errors
    /// Those of the program.
    pub fn look_at_weights(&self, evidence: &mut Evidence, job: Job) -> Result<()> {
        let run = self.run(job)?;
        let one = on_one_rank(job)?;
        let rung = self.rung()?;
        let bounds = self.bounds()?;
        for (rank, trained) in run.ranks.iter().enumerate() {
            let expected = returned(rung, job, &one.ranks[0].weights, rank);
            let got = &trained.weights;
            evidence.same(
                format!("rank {rank}: layers that it returns"),
                expected.len(),
                got.len(),
            );
            let first = match rung.returns {
                Returns::Layers => rank * expected.len(),
                _ => 0,
            };
            for (i, (expected, got)) in expected.iter().zip(got).enumerate() {
                let place = format!("rank {rank}, layer {}", first + i);
                if expected.len() != got.len() {
                    let numbers = |len: usize| format!("{} numbers", thousands(len as u64));
                    evidence.row(false, place, numbers(expected.len()), numbers(got.len()));
                    continue;
                }
                let far = |x: f32, y: f32| (x - y).abs() > bounds.weight || (x - y).is_nan();
                let wrong = (0..got.len()).find(|&i| far(expected[i], got[i]));
                let i = wrong.unwrap_or_default();
                evidence.row(
                    wrong.is_none(),
                    format!("{place}: parameter {i}"),
                    format!("{:?}", expected[i]),
                    format!("{:?}", got[i]),
                );
            }
            if bounds.weights > 0.0 && evidence.agrees() {
                let pairs = || expected.iter().flatten().zip(got.iter().flatten());
                let squares = pairs().map(|(x, y)| f64::from(x - y).powi(2)).sum::<f64>();
                let mean = (squares / pairs().count() as f64).sqrt();
                evidence.row(
                    mean <= bounds.weights,
                    format!("rank {rank}: mean difference from one rank"),
                    format!("at most {}", bounds.weights),
                    digits(mean),
                );
            }
        }
        if evidence.agrees() {
            return Ok(());
        }
        // Whether every rank has what one rank has when it returns `model`.
        let all = |model: &[Vec<f32>]| {
            let mut ranks = run.ranks.iter().enumerate();
            ranks.all(|(rank, trained)| trained.weights == returned(rung, job, model, rank))
        };
        let of = Expected::new(job, false)?;
        let after = |step: usize| of.split(&of.steps[step].weights);
        evidence.means_if(
            run.ranks.iter().enumerate().all(|(rank, trained)| {
                let expected = returned(rung, job, &one.ranks[0].weights, rank);
                let lens = |weights: &[Vec<f32>]| weights.iter().map(Vec::len).collect::<Vec<_>>();
                lens(&trained.weights) == lens(&expected)
                    && rounded(&trained.weights.concat(), &expected.concat(), 1e-4)
            }),
            DIGITS,
        );
        evidence.means_if(
            run.ranks.iter().all(|rank| rank.weights.is_empty()),
            "The ranks return no layers. Return what the rank has of each layer after the last step.",
        );
        evidence.means_if(
            all(&after(0)),
            "These are the weights before the first step. Return those that `rank.update` has changed.",
        );
        evidence.means_if(
            (1..job.steps).any(|step| all(&after(step))),
            "These are the weights after an earlier step. What the last step computes is lost.",
        );
        let backward = |weights: &[Vec<f32>]| weights.iter().rev().cloned().collect::<Vec<_>>();
        evidence.means_if(
            run.ranks.iter().enumerate().all(|(rank, trained)| {
                backward(&trained.weights) == returned(rung, job, &one.ranks[0].weights, rank)
            }),
            "The layers come in the order of the backward pass: return layer 0 first. A checkpoint in this order loads wherever layers \
             are equally large, and computes nonsense.",
        );
        evidence.means_if(
            rung.returns != Returns::Whole && run.ranks.iter().any(|rank| rank.weights == one.ranks[0].weights),
            "A rank returns the whole model. In this rung it has only its own share of it, so it returns that.",
        );
        let lengths = |weights: &[Vec<f32>]| weights.iter().map(Vec::len).collect::<Vec<_>>();
        let right_lengths =
            |rank: usize| lengths(&returned(rung, job, &one.ranks[0].weights, rank));
        evidence.means_if(
            (0..job.ranks).any(|rank| lengths(&run.ranks[rank].weights) != right_lengths(rank)),
            "A rank returns one list for each layer that it has a part of, in order, with as many numbers as it has of that layer.",
        );
        evidence.means_if(
            rung.returns == Returns::Whole && run.ranks.iter().any(|rank| rank.weights != run.ranks[0].weights),
            "The ranks have different models. They begin with the same weights, so in some step their updates were not the same.",
        );
        evidence.means(
            "The model is not the one that one rank trains on the same batches. What is different in a later step than in the first?",
        );
        Ok(())
    }

    /// The score of the reader's program on the rung's job.
    ///
    /// # Errors
    /// Those of the program.
    pub fn scored(&self) -> Result<Score> {
        Ok(self.run(self.rung()?.job)?.score())
    }

    /// The score of our solution of a rung. Empty: that of the program for one rank.
    ///
    /// # Errors
    /// Those of the program.
    pub fn ours(&self, name: &str) -> Result<Score> {
        let Some(rung) = Rung::of(name) else {
            return Ok(self.rung()?.on_one_rank()?.score());
        };
        Ok(run(rung.job, rung.ours)?.score())
    }

    /// Compares the reader's time of a step with that of our solution of the rung before. Empty:
    /// with the program for one rank.
    ///
    /// # Errors
    /// Those of the program.
    pub fn less_time(&self, evidence: &mut Evidence, before: &str) -> Result<bool> {
        let yours = self.run(self.rung()?.job)?;
        let other = match Rung::of(before) {
            Some(rung) => run(rung.job, rung.ours)?,
            None => self.rung()?.on_one_rank()?,
        };
        let [got, most] = [&yours, &other].map(|run| run.score().micros());
        let whose = if before.is_empty() { "one rank" } else { before };
        let less = evidence.row(
            got < most,
            Score::FIGURES[Score::TIME],
            format!("less than {} ({whose})", thousands(most)),
            thousands(got),
        );
        if !less {
            evidence.draw(vec![track("yours", &yours), track(whose, &other)]);
        }
        Ok(less)
    }

    /// [`Judge::score`], with what to look at if the time, which the rung is about, could be less.
    ///
    /// # Errors
    /// Those of the program.
    pub fn score_of_time(&self, evidence: &mut Evidence, advice: impl Display) -> Result<()> {
        if self.scored()?.micros() > self.ours(self.name)?.micros() {
            evidence.advise(advice);
        }
        self.score(evidence)
    }

    /// Tells the reader's three scores, and ours.
    ///
    /// # Errors
    /// Those of the program.
    pub fn score(&self, evidence: &mut Evidence) -> Result<()> {
        let rung = self.rung()?;
        let [yours, ours] = [self.run(rung.job)?, Arc::new(run(rung.job, rung.ours)?)];
        evidence.draw(vec![track("yours", &yours), track("ours", &ours)]);
        let [got, ours] = [yours.score(), ours.score()];
        // An empty list more or less does not matter.
        let more = [ours.peak / 100, 0, 0];
        let pairs = got.figures().into_iter().zip(ours.figures());
        for (i, (got, ours)) in pairs.enumerate() {
            let as_good = (ours..=ours + more[i]).contains(&got);
            evidence.figure(Score::FIGURES[i], got, if as_good { got } else { ours });
        }
        Ok(())
    }
}

/// The program for one rank, on the same parts.
fn on_one_rank(job: Job) -> Result<Arc<Run>> {
    static ONE: Judge = Judge::new("", crate::one_rank::train);
    ONE.run(Job { ranks: 1, tensor: 1, ..job })
}

/// Says which rank takes input and loss of different parts in the first step, if one does.
fn mixed_parts(run: &Run, one: &Run) -> Result<Option<String>> {
    let job = run.job;
    if job.tensor > 1 {
        return Ok(None);
    }
    let alone = Job { ranks: 1, tensor: 1, steps: 1, ..job };
    for (rank, trained) in run.ranks.iter().enumerate() {
        for &(step, part, got) in &trained.losses {
            if step > 0 || one.ranks[0].losses.contains(&(step, part, got)) {
                continue;
            }
            let all = crate::run(alone, |rank| {
                for input in 0..rank.parts() {
                    let mut x = rank.input(0, input);
                    for layer in 0..rank.layers() {
                        x = rank.forward(layer, &rank.initial(layer), &x);
                    }
                    rank.loss(0, part, &x);
                }
                Ok(Vec::new())
            })?;
            let mut losses = all.ranks[0].losses.iter();
            return Ok(losses.position(|loss| loss.2 == got).map(|input| {
                format!("Rank {rank} takes the input of part {input} and the loss of part {part}.")
            }));
        }
    }
    Ok(None)
}

/// What a rank returns if all ranks together have `model`.
fn returned(rung: &Rung, job: Job, model: &[Vec<f32>], rank: usize) -> Vec<Vec<f32>> {
    let slices = |part: usize, parts: usize| {
        let slice = |layer: &Vec<f32>| {
            let len = layer.len() / parts;
            layer[part * len..(part + 1) * len].to_vec()
        };
        model.iter().map(slice).collect()
    };
    match rung.returns {
        Returns::Whole => model.to_vec(),
        Returns::Slices => slices(rank, job.ranks),
        Returns::Layers => {
            let each = model.len() / job.ranks;
            model[rank * each..(rank + 1) * each].to_vec()
        }
        Returns::Rounds => model.iter().skip(rank).step_by(job.ranks).cloned().collect(),
        Returns::Units => slices(rank % job.tensor, job.tensor),
    }
}

/// A step of the program for one rank: all layers' numbers in one list.
struct Step {
    /// Before the step.
    weights: Vec<f32>,
    /// The mean gradients over all parts.
    mean: Vec<f32>,
    /// Each part's gradients.
    parts: Vec<Vec<f32>>,
}

/// What one rank computes, with its layers from the first to the last, or from the last to the
/// first.
struct Expected {
    /// Where each layer begins.
    starts: Vec<usize>,
    lens: Vec<usize>,
    steps: Vec<Step>,
}

impl Expected {
    fn new(job: Job, backward: bool) -> Result<Expected> {
        let run = on_one_rank(job)?;
        let one = &run.ranks[0];
        let mut layers: Vec<usize> = (0..LAYERS).collect();
        if backward {
            layers.reverse();
        }
        let lens: Vec<usize> = one.weights.iter().map(Vec::len).collect();
        let mut starts = vec![0; LAYERS];
        let mut end = 0;
        for &layer in &layers {
            starts[layer] = end;
            end += lens[layer];
        }
        let step = |step: usize| {
            let update = |layer: usize| &one.updates[step * LAYERS + layer];
            let gradient = |part: usize, layer: usize| {
                let of_part = (step * job.parts + part) * LAYERS;
                &one.gradients[of_part + LAYERS - 1 - layer].1
            };
            let flat =
                |of: &dyn Fn(usize) -> Vec<f32>| layers.iter().flat_map(|&l| of(l)).collect();
            Step {
                weights: flat(&|layer| update(layer).weights.clone()),
                mean: flat(&|layer| update(layer).gradients.clone()),
                parts: (0..job.parts)
                    .map(|part| flat(&|layer| gradient(part, layer).clone()))
                    .collect(),
            }
        };
        Ok(Expected { steps: (0..job.steps).map(step).collect(), starts, lens })
    }

    /// A list of all layers' numbers, layer by layer.
    fn split(&self, flat: &[f32]) -> Vec<Vec<f32>> {
        let layer = |layer: usize| flat[self.starts[layer]..][..self.lens[layer]].to_vec();
        (0..LAYERS).map(layer).collect()
    }

    /// The layers of which a range has parameters: `layer 3`, or `layers 6 and 7`.
    fn layers(&self, range: Range<usize>) -> String {
        let inside = |layer: &usize| {
            let start = self.starts[*layer];
            start < range.end && range.start < start + self.lens[*layer]
        };
        let layers: Vec<usize> = (0..LAYERS).filter(inside).collect();
        match layers[..] {
            [layer] => format!("layer {layer}"),
            [first, second] => format!("layers {first} and {second}"),
            [first, .., last] => format!("layers {first} to {last}"),
            [] => "no layer".into(),
        }
    }
}

/// Whose gradients the optimizer got in place of the mean.
enum Kind {
    Zero,
    /// Those of one part.
    Part(usize),
    /// As many times the mean as the batch has parts, or such a share of it.
    Times,
    Share,
    /// A single part's, divided as if they were the sum of all.
    ShareOf(usize),
    /// Also those of earlier steps.
    Before,
    /// Those of other layers.
    Elsewhere(String),
    /// The mean, but for rounding.
    Digits,
    /// The weights before the update are wrong already.
    Weights,
    Other,
}

/// A wrong update: of which layers, and by what.
struct Seen {
    layer: String,
    kind: Kind,
}

impl Seen {
    /// An update in a step, whose weights begin at `start`.
    fn of(of: &Expected, step: usize, start: usize, update: &Update, bound: f32) -> Seen {
        let got = &update.gradients;
        let range = start..start + got.len();
        let Step { mean, parts, .. } = &of.steps[step];
        let is = |of: &dyn Fn(usize) -> f32| {
            near(got, &range.clone().map(of).collect::<Vec<_>>(), bound)
        };
        let n = parts.len() as f32;
        let before =
            |first: usize| is(&|i| of.steps[first..=step].iter().map(|step| step.mean[i]).sum());
        let kind = if got.iter().all(|g| *g == 0.0) {
            Kind::Zero
        } else if let Some(part) = (0..parts.len()).find(|&part| is(&|i| parts[part][i])) {
            Kind::Part(part)
        } else if is(&|i| n * mean[i]) {
            Kind::Times
        } else if is(&|i| mean[i] / n) {
            Kind::Share
        } else if let Some(part) = (0..parts.len()).find(|&part| is(&|i| parts[part][i] / n)) {
            Kind::ShareOf(part)
        } else if (0..step).any(before) {
            Kind::Before
        } else {
            let size = norm(got) / (got.len() as f64).sqrt();
            let same = |x: f32, y: f32| (x - y).abs() <= bound * (y.abs() + size as f32);
            let found = |list: &[f32]| locate(got, list, same);
            let other = found(mean).or_else(|| parts.iter().find_map(|part| found(part)));
            match other {
                Some(start) => Kind::Elsewhere(of.layers(start..start + got.len())),
                None if rounded(got, &mean[range.clone()], 1e-4) => Kind::Digits,
                // Every state of Adam makes the same first step, an old one and a new one.
                None if step > 1
                    && !rounded(&update.weights, &of.steps[step].weights[range.clone()], 1e-3) =>
                {
                    Kind::Weights
                }
                None => Kind::Other,
            }
        };
        Seen { layer: of.layers(range), kind }
    }
}

/// The updates of a step, if a rank updates `share` parameters in each.
fn of_step(updates: &[Update], step: usize, share: usize) -> impl Iterator<Item = &Update> {
    let mut before = 0;
    updates.iter().filter(move |update| {
        let here = before / share.max(1) == step;
        before += update.weights.len();
        here
    })
}

/// Where `list` begins in `whole`.
fn locate(list: &[f32], whole: &[f32], same: impl Fn(f32, f32) -> bool) -> Option<usize> {
    if list.is_empty() {
        return None;
    }
    let mut windows = whole.windows(list.len());
    windows.position(|window| list.iter().zip(window).all(|(x, y)| same(*x, *y)))
}

fn near(got: &[f32], expected: &[f32], bound: f32) -> bool {
    let size = (norm(expected) / (expected.len().max(1) as f64).sqrt()) as f32;
    let mut pairs = got.iter().zip(expected);
    got.len() == expected.len() && pairs.all(|(x, y)| (x - y).abs() <= bound * (y.abs() + size))
}

/// Whether two lists differ by no more than such a share of their length.
fn rounded(got: &[f32], expected: &[f32], share: f64) -> bool {
    let pairs = got.iter().zip(expected);
    let differences: Vec<f32> = pairs.map(|(x, y)| x - y).collect();
    got.len() == expected.len() && norm(&differences) <= share * norm(expected)
}

fn norm(numbers: &[f32]) -> f64 {
    let squares = numbers.iter().map(|x| f64::from(*x).powi(2));
    squares.sum::<f64>().sqrt()
}

fn digits(x: f64) -> String {
    kit::show::general(x, 4)
}

/// `0, 1 and 2`
fn listed(numbers: &[impl Display]) -> String {
    match numbers {
        [] => String::new(),
        [number] => number.to_string(),
        [numbers @ .., last] => {
            let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            format!("{} and {last}", numbers.join(", "))
        }
    }
}

fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Whether all gradients that a rank has computed went through an all-reduce, each once and after
/// its backward pass.
fn averaged(trained: &Trained, job: Job) -> bool {
    let calls = collectives(trained).into_iter();
    let bytes: usize = calls
        .filter(|call| call.kind == CallKind::AllReduce)
        .map(|call| call.bytes)
        .sum();
    let gradients = trained.gradients.iter().map(|(_, gradient)| gradient.len());
    let all: usize = size_of::<f32>() * gradients.sum::<usize>();
    let waiting = whole_gradients(trained).last().map(|whole| whole.waiting);
    job.ranks > 1 && bytes == all && waiting == Some(0)
}

/// A collective of a rank's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collective {
    pub kind: CallKind,
    /// Of the whole vector.
    pub bytes: usize,
    /// Passes and updates that the rank computes before it waits for the result.
    pub beside: usize,
    /// Backward passes that still follow in the same step.
    pub behind: usize,
}

/// Whether a rank first waits, after the passes of its first step, for the collective that it has
/// started last.
pub fn waits_for_the_last_first(trained: &Trained) -> bool {
    let mut started = Vec::new();
    for event in &trained.events {
        match event {
            Event::Start { number, .. } => started.push(*number),
            Event::Wait { number } => return started.len() > 1 && started.last() == Some(number),
            _ => {}
        }
    }
    false
}

/// All collectives of a rank, in order.
pub fn collectives(trained: &Trained) -> Vec<Collective> {
    let events = &trained.events;
    let computes = |event: &&Event| matches!(event, Event::Compute { .. });
    let collective = |(i, event): (usize, &Event)| {
        let Event::Start { number, kind, bytes, .. } = event else {
            return None;
        };
        let later = &events[i..];
        let waits = |event: &Event| matches!(event, Event::Wait { number: n } if n == number);
        let until = later.iter().position(waits).unwrap_or(later.len());
        let passes = later.iter().filter_map(|event| match event {
            Event::Compute { doing, .. } => Some(*doing),
            _ => None,
        });
        let in_step = passes.take_while(|doing| *doing != Doing::Forward);
        Some(Collective {
            kind: *kind,
            bytes: *bytes,
            beside: later[..until].iter().filter(computes).count(),
            behind: in_step.filter(|doing| *doing == Doing::Backward).count(),
        })
    };
    events.iter().enumerate().filter_map(collective).collect()
}
