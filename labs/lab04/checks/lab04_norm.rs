//! The check of lab04-norm: one rank, several ranks, padding, replicated parameters, large
//! gradients, and a NaN on one rank.

use exercise::{Gradients, global_norm};
use kit::check::{Evidence, is_near, number, run};
use shardlab::train::global_norm as global_norm_of;
use shardlab::{Result, launch};
use std::process::ExitCode;

/// Numbers in a rank's shard.
const SHARD: usize = 4;

/// A model's gradients on its ranks.
#[derive(Clone, Copy)]
struct Job {
    ranks: usize,
    /// Padding after the last gradient, of all ranks together. It can be longer than a shard.
    padding: usize,
    /// The numbers in the padding.
    left_over: f32,
    replicated: usize,
    scale: f32,
    /// This rank's first gradient is this number.
    broken: Option<(usize, f32)>,
}

const JOB: Job = Job {
    ranks: 4,
    padding: 0,
    left_over: 90.0,
    replicated: 0,
    scale: 1.0,
    broken: None,
};

fn main() -> ExitCode {
    run(&[
        ("1 rank: the root of the sum of all squares", |evidence| {
            norm(evidence, Job { ranks: 1, ..JOB })
        }),
        ("4 ranks: the norm of all shards", |evidence| norm(evidence, JOB)),
        ("3 ranks: padding is no gradient", |evidence| {
            norm(evidence, Job { ranks: 3, padding: 5, ..JOB })
        }),
        ("4 ranks: replicated parameters count once", |evidence| {
            norm(evidence, Job { replicated: 3, ..JOB })
        }),
        ("NaN in the padding is no NaN in a gradient", |evidence| {
            norm(evidence, Job { ranks: 3, padding: 5, left_over: f32::NAN, ..JOB })
        }),
        ("gradients of 1e20: their squares are 1e40", |evidence| {
            norm(evidence, Job { replicated: 3, scale: 1e20, ..JOB })
        }),
        ("NaN on rank 2 of 4: every rank skips the step", |evidence| {
            skips(evidence, f32::NAN)
        }),
        ("infinity on rank 2 of 4: every rank skips it, too", |evidence| {
            skips(evidence, f32::NEG_INFINITY)
        }),
    ])
}

impl Job {
    /// The shard of a rank with its padding, and the length of the padding.
    fn shard(&self, rank: usize) -> (Vec<f32>, usize) {
        let padding = ((rank + 1) * SHARD)
            .saturating_sub(self.ranks * SHARD - self.padding)
            .min(SHARD);
        let gradient = |i: usize| {
            self.scale * (1.5 + (rank * SHARD + i) as f32) * if i % 2 == 0 { 1.0 } else { -1.0 }
        };
        let mut shard: Vec<f32> = (0..SHARD).map(gradient).collect();
        shard[SHARD - padding..].fill(self.left_over);
        if let Some((_, number)) = self.broken.filter(|broken| broken.0 == rank) {
            shard[0] = number;
        }
        (shard, padding)
    }

    fn replicated(&self) -> Vec<f32> {
        (0..self.replicated).map(|i| self.scale * (20.0 + i as f32)).collect()
    }

    /// Every rank's answer.
    fn answers(&self, evidence: &Evidence) -> Result<Vec<Option<f64>>> {
        launch::run(self.ranks, |comm| {
            let (shard, padding) = self.shard(comm.rank());
            let replicated = self.replicated();
            let numbers = format!("a shard of {SHARD} numbers, {padding} of them padding");
            evidence.given(format!(
                "rank {} of {}, {numbers}, {} replicated",
                comm.rank(),
                self.ranks,
                self.replicated
            ));
            Ok(global_norm(
                &comm,
                &Gradients { shard: &shard, padding, replicated: &replicated },
            )?)
        })
    }
}

fn squares(numbers: &[f32]) -> f64 {
    numbers.iter().map(|&g| f64::from(g).powi(2)).sum()
}

fn norm(evidence: &mut Evidence, job: Job) -> Result<()> {
    let answers = job.answers(evidence)?;
    let shards: Vec<(Vec<f32>, usize)> = (0..job.ranks).map(|rank| job.shard(rank)).collect();
    let each: Vec<f64> = shards
        .iter()
        .map(|(shard, padding)| squares(&shard[..SHARD - padding]))
        .collect();
    let padded: f64 = shards.iter().map(|(shard, _)| squares(shard)).sum();
    let all = each.iter().sum::<f64>();
    let most = each.iter().copied().fold(0.0, f64::max);
    let once = squares(&job.replicated());
    let n = job.ranks as f64;
    let gradients = shards.iter().flat_map(|(shard, padding)| &shard[..SHARD - padding]).copied();
    let expected = global_norm_of(&gradients.chain(job.replicated()).collect::<Vec<_>>());
    for (rank, answer) in answers.iter().enumerate() {
        match answer {
            Some(norm) => evidence.near(format!("rank {rank}: norm"), expected, *norm),
            None => evidence.row(false, format!("rank {rank}: norm"), number(expected), "None"),
        };
    }

    let is = |wrong: &dyn Fn(usize) -> f64| {
        (0..job.ranks).all(|rank| answers[rank].is_some_and(|norm| is_near(wrong(rank), norm)))
    };
    let roots: f64 = each.iter().map(|sum| (sum + once).sqrt()).sum();
    let apart: f64 = each.iter().map(|sum| sum.sqrt()).sum();
    let padding_counts = is(&|_| (padded + once).sqrt())
        || (job.left_over.is_nan() && answers.iter().any(Option::is_none));
    evidence.means_if(is(&|_| all + once), "This is the sum of the squares: the norm is its root.");
    evidence.means_if(
        is(&|rank| (each[rank] + once).sqrt()),
        "Each rank has its own shard's norm. It is shorter than the norm of all gradients, so each rank clips too \
         little, and by a different factor. This is what `lab04 --break local-norm` does. The loss still falls.",
    );
    evidence.means_if(
        is(&|_| roots) || is(&|_| apart) || is(&|_| apart + once.sqrt()),
        "The root was taken before the sum. Norms do not add up: 3 and 4 make 5. Squares do: 9 and 16 make 25.",
    );
    evidence.means_if(
        is(&|_| roots / n) || is(&|_| apart / n) || is(&|_| apart / n + once.sqrt()),
        "This is the average of the ranks' norms. A shard is a part of one gradient, not one sample of several: nothing is \
         averaged here.",
    );
    evidence.means_if(
        is(&|_| (all / n + once).sqrt()),
        format!(
            "The squares were averaged over {} ranks. Each shard holds different gradients, so add them up.",
            job.ranks
        ),
    );
    evidence.means_if(
        is(&|_| (most + once).sqrt()),
        "Only the longest shard counts here: the norm wants the sum of all.",
    );
    let often = |times: f64| {
        is(&|_| (all + times * once).sqrt()) || is(&|_| (padded + times * once).sqrt())
    };
    evidence.means_if(
        job.replicated > 0 && (often(n) || often(n + 1.0)),
        "The replicated parameters count more than once: every rank brings their squares to the sum. The norm is too long, \
         and clipping shortens more than you asked for.",
    );
    evidence.means_if(
        job.replicated > 0 && often(0.0),
        "The replicated parameters are missing. They are in no shard, but they are part of the model.",
    );
    evidence.means_if(
        padding_counts,
        "The padding was counted. It belongs to no parameter, and its numbers are left over from earlier work.",
    );
    evidence.means_if(
        job.scale > 1.0,
        "The largest f32 is 3.4e38. These squares are larger, so they are infinite in f32: square and add up in f64.",
    );
    evidence.means_if(
        answers.iter().any(|answer| *answer != answers[0]),
        "The ranks have different norms. Each clips by a different factor.",
    );
    evidence
        .means("The norm is the root of the sum of all squares: of each shard, and of the replicated parameters once.");
    Ok(())
}

fn skips(evidence: &mut Evidence, number: f32) -> Result<()> {
    let answers = Job { replicated: 3, broken: Some((2, number)), ..JOB }.answers(evidence)?;
    for (rank, answer) in answers.iter().enumerate() {
        evidence.row(answer.is_none(), format!("rank {rank}"), "None", format!("{answer:?}"));
    }
    evidence.means_if(
        answers.iter().any(Option::is_none),
        "Some ranks skip the step and the other ranks take it. From now on they hold different models. The decision must \
         follow from the sum, which is the same on every rank.",
    );
    evidence.means_if(
        answers.iter().flatten().all(|norm| norm.is_finite()),
        "The number that is not finite got lost, and the step is taken with it. `max` of NaN and a number is the number.",
    );
    evidence.means(
        "The norm is not finite, and it is handed on as if it were a norm. Clipping divides by it, and every parameter \
         becomes NaN or stays as it was.",
    );
    Ok(())
}
