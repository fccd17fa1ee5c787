//! Whether each part of each step's batch is computed once.

use super::numbers::listed;
use super::{Judge, on_one_rank};
use crate::{Job, Run};
use anyhow::Result;
use kit::check::Evidence;

impl Judge {
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
