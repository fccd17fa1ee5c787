//! Whether the optimizer gets the mean gradients.

use super::expected::Expected;
use super::numbers::{digits, listed, locate, near, norm};
use super::seen::{Kind, Seen};
use super::{DIGITS, Judge, collectives, whole_gradients};
use crate::log::Update;
use crate::{Job, LAYERS, Run, Trained};
use anyhow::Result;
use kit::check::Evidence;
use kit::show::{counted, thousands};
use shardlab::comm::CallKind;

/// For where some weights are in the model, however they are rounded.
const SAME_PLACE: f32 = 0.03;

impl Judge {
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
                "In step {step}, rank {rank} updates numbers that are not the weights of that step. What has changed them before?{}",
                if step == 0 { " Or do they lie apart in the layer?" } else { "" }
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
                 gradient complete when it goes in, and does it go in once?{}",
                counted(parts, "part", "parts"),
                if self.name == "ladder-zero" && step > 0 {
                    " Or does it come from weights that another rank has updated since?"
                } else {
                    ""
                }
            ),
        });
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
