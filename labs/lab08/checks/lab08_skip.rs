//! The check of lab08-skip: which steps train, which sequences every rank reads for them, and what the counters say.

use exercise::{Counters, Run, Trainer, iteration};
use kit::check::{Evidence, run};
use shardlab::Result;
use shardlab::data::Batch;
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("without a range, every step trains", |evidence| {
            steps(evidence, &[])
        }),
        ("2 4: steps 1, 5, 6 and 7 train", |evidence| {
            steps(evidence, &[2, 4])
        }),
        ("2 4 and 6 6: steps 1, 5 and 7 train", |evidence| {
            steps(evidence, &[2, 4, 6, 6])
        }),
        ("without a range, every sequence is read once", |evidence| {
            sequences(evidence, &[], STEPS)
        }),
        ("2 4 and 6 6: each step has its own sequences", |evidence| {
            sequences(evidence, &[2, 4, 6, 6], STEPS)
        }),
        ("a skipped step reads nothing", reads),
        ("the counters, and the learning rate", counters),
        (
            "resumed after step 2 on 3 ranks, with smaller steps",
            |evidence| sequences(evidence, &[2, 4, 6, 6], 2),
        ),
    ])
}

const STEPS: usize = 7;

/// The ranks of a run, and what each does in one step.
#[derive(Clone, Copy)]
struct Job {
    ranks: usize,
    accumulation: usize,
    batch: usize,
}

/// No two steps or ranks have equally many sequences before and behind a restart.
const BEFORE: Job = Job {
    ranks: 2,
    accumulation: 2,
    batch: 3,
};
const BEHIND: Job = Job {
    ranks: 3,
    accumulation: 1,
    batch: 2,
};

impl Job {
    /// Sequences of one step, over all ranks.
    fn samples(self) -> usize {
        self.ranks * self.accumulation * self.batch
    }
}

/// One step of one rank: what it read, what it trained on and where in the schedule, and the counters afterwards. A micro-batch is
/// its first sequence's number.
struct Step {
    read: Vec<usize>,
    trained: Vec<(Vec<usize>, usize)>,
    counters: Counters,
}

/// A rank that only records.
#[derive(Default)]
struct Recorder {
    read: Vec<usize>,
    trained: Vec<(Vec<usize>, usize)>,
}

impl Trainer for Recorder {
    fn read(&mut self, first: usize) -> Batch {
        self.read.push(first);
        Batch {
            inputs: vec![first as u32],
            targets: vec![first as u32 + 1],
            length: 1,
            sequences: [first as u64].into(),
            starts: vec![first],
        }
    }

    fn train(&mut self, batches: &[Batch], schedule: usize) {
        let firsts = batches.iter().flat_map(|batch| batch.starts.clone());
        self.trained.push((firsts.collect(), schedule));
    }
}

/// The first seven steps of every rank. After `stop` steps the run goes on with other ranks.
fn record(evidence: &Evidence, skip: &[usize], stop: usize) -> Vec<Vec<Step>> {
    let mut counters = Counters::default();
    let mut all: Vec<Vec<Step>> = Vec::new();
    for (job, of_job) in [(BEFORE, 1..=stop), (BEHIND, stop + 1..=STEPS)] {
        let begin = counters;
        for rank in 0..job.ranks {
            counters = begin;
            let run = Run {
                skip,
                rank,
                ranks: job.ranks,
                accumulation: job.accumulation,
                batch: job.batch,
            };
            if all.len() == rank {
                all.push(Vec::new());
            }
            for step in of_job.clone() {
                evidence.given(format!(
                    "step {step}, to skip {skip:?}, rank {rank} of {}, {} micro-batches of {}",
                    job.ranks, job.accumulation, job.batch
                ));
                let mut recorder = Recorder::default();
                iteration(&run, &mut counters, &mut recorder);
                all[rank].push(Step {
                    read: recorder.read,
                    trained: recorder.trained,
                    counters,
                });
            }
        }
    }
    all
}

fn is_skipped(skip: &[usize], step: usize) -> bool {
    skip.chunks(2)
        .any(|ends| (ends[0]..=ends[1]).contains(&step))
}

fn listed(steps: &[usize]) -> String {
    steps
        .iter()
        .map(usize::to_string)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Which steps train.
fn steps(evidence: &mut Evidence, skip: &[usize]) -> Result<()> {
    let yours = &record(evidence, skip, STEPS)[1];
    let of =
        |sign: &dyn Fn(usize) -> bool| (1..=STEPS).filter(|&step| sign(step)).collect::<Vec<_>>();
    let asked = of(&|step| !is_skipped(skip, step));
    let got = of(&|step| !yours[step - 1].trained.is_empty());
    evidence.row(
        asked == got,
        "the calls that train",
        listed(&asked),
        listed(&got),
    );
    let counted = yours
        .iter()
        .zip(1..)
        .find(|(step, call)| step.counters.global_steps != *call);
    let (call, global_steps) =
        counted.map_or((1, 1), |(step, call)| (call, step.counters.global_steps));
    evidence.row(
        counted.is_none(),
        format!("after call {call}: global_steps"),
        call,
        global_steps,
    );
    let twice = yours.iter().position(|step| step.trained.len() > 1);
    let most = yours
        .iter()
        .map(|step| step.trained.len())
        .max()
        .unwrap_or(0);
    evidence.row(twice.is_none(), "trainings in one call", "at most 1", most);
    if evidence.agrees() {
        return Ok(());
    }
    evidence.means_if(
        most == BEFORE.accumulation,
        "A step trains several times, with one micro-batch each. Give `train` all its micro-batches at once: they are one step \
         of the optimizer.",
    );
    evidence.means_if(
        twice.is_some(),
        "A call runs one step: it trains once, or not at all.",
    );
    evidence.means_if(
        yours.iter().any(|step| step.counters.global_steps == 0) || yours[1].counters.global_steps == 1,
        "`global_steps` does not advance in a skipped step. So the run never leaves the range: it finds the same number again.",
    );
    evidence.means_if(
        counted.is_some(),
        "One call is one step, so `global_steps` advances by 1, whether the step is taken or skipped.",
    );
    evidence.means_if(
        got.len() == STEPS,
        "Every step trains, also those in a range.",
    );
    let ends = |sign: fn(usize, usize, usize) -> bool| {
        of(&|step| !skip.chunks(2).any(|ends| sign(ends[0], ends[1], step))) == got
    };
    evidence.means_if(
        ends(|first, last, step| first < step && step <= last + 1),
        "Each range begins one step too late. `global_steps` counts the steps that are over: the next step is one more.",
    );
    evidence.means_if(
        ends(|first, last, step| first <= step && step < last),
        "The last step of each range trains. Both ends belong to a range, so 6 6 is one step.",
    );
    evidence.means_if(
        ends(|first, last, step| first < step && step <= last)
            || ends(|first, last, step| first < step && step < last),
        "The first step of each range trains. Both ends belong to a range, so 6 6 is one step.",
    );
    evidence.means_if(
        skip.len() > 2 && of(&|step| !(skip[0]..=skip[skip.len() - 1]).contains(&step)) == got,
        "Steps between two ranges are skipped, too. The numbers are pairs: 2 4 and 6 6, so step 5 trains.",
    );
    evidence.means_if(
        skip.len() > 2 && of(&|step| !(skip[0]..=skip[1]).contains(&step)) == got,
        "Only the first range is skipped. Each further pair of numbers is one more range.",
    );
    evidence.means_if(
        !skip.is_empty() && of(&|step| !skip.contains(&step)) == got,
        "These numbers are not single steps. They are pairs, the first and the last step of a range.",
    );
    evidence.means("Compare the number of the step with each pair: first and last step of a range, both included.");
    Ok(())
}

/// The sequences that every rank trains on, in every step that trains.
fn sequences(evidence: &mut Evidence, skip: &[usize], stop: usize) -> Result<()> {
    let yours = record(evidence, skip, stop);
    // What each rank's call would give, if `of(job, steps before, rank, micro-batch)` were the number of the first sequence.
    type Place<'a> = &'a dyn Fn(Job, usize, usize, usize) -> usize;
    let is = |of: Place| {
        (1..=STEPS)
            .filter(|&step| !is_skipped(skip, step))
            .all(|step| {
                let job = if step <= stop { BEFORE } else { BEHIND };
                (0..job.ranks).all(|rank| {
                    let place = |micro| of(job, step - 1, rank, micro);
                    let wrong: Vec<usize> = (0..job.accumulation).map(place).collect();
                    trained(&yours, stop, step, rank) == wrong
                })
            })
    };
    // The number of a step's first sequence, if a step in a range is worth `skipped(job)` sequences.
    let first = |skipped: &dyn Fn(Job) -> usize, over: usize| -> usize {
        (1..=over)
            .map(|step| {
                let job = if step <= stop { BEFORE } else { BEHIND };
                if is_skipped(skip, step) {
                    skipped(job)
                } else {
                    job.samples()
                }
            })
            .sum()
    };
    let right = |over: usize| first(&Job::samples, over);
    let within =
        |job: Job, rank: usize, micro: usize| (rank * job.accumulation + micro) * job.batch;
    for step in (1..=STEPS).filter(|&step| !is_skipped(skip, step)) {
        let job = if step <= stop { BEFORE } else { BEHIND };
        for rank in 0..job.ranks {
            let asked: Vec<usize> = (0..job.accumulation)
                .map(|micro| right(step - 1) + within(job, rank, micro))
                .collect();
            let got = trained(&yours, stop, step, rank);
            let at = format!("step {step}, rank {rank} of {}: trains from", job.ranks);
            evidence.row(asked == got, at, listed(&asked), listed(&got));
        }
    }
    if evidence.agrees() {
        return Ok(());
    }
    let none = skip.is_empty();
    evidence.means_if(
        none && is(&|job, over, _, micro| right(over) + micro * job.batch),
        "All ranks train on the same sequences. So the step learns from half as many as it should, and the other half is never \
         learned. What of a step is this rank's?",
    );
    evidence.means_if(
        none && is(&|job, over, rank, _| right(over) + within(job, rank, 0)),
        "A rank reads the same micro-batch for every micro-step of a step.",
    );
    evidence.means_if(
        none && is(&|job, over, rank, micro| right(over) + rank * job.accumulation + micro),
        "`first` is the number of a sequence, and these are numbers of micro-batches: neighbours overlap. A micro-batch has \
         `batch` sequences.",
    );
    evidence.means_if(
        none && is(&|job, over, rank, micro| right(over) + (rank + micro) * job.batch),
        "Rank 1 begins with rank 0's second micro-batch, so both train on it. A rank has `accumulation` micro-batches in a step, \
         and the next rank begins behind them.",
    );
    evidence.means_if(
        none && is(&|job, over, rank, micro| right(over) + (micro * job.ranks + rank) * job.batch),
        "The step has the right sequences, and deals its micro-batches out in turn. Here a rank's micro-batches follow each other, \
         as the picture shows: 0 and 3 are rank 0's.",
    );
    // What a step counts, and should not.
    let counts = |each: &dyn Fn(Job) -> usize| {
        is(&|job, over, rank, micro| over * each(job) + within(job, rank, micro))
    };
    evidence.means_if(
        none && counts(&|job| job.accumulation * job.batch),
        "A step counts only this rank's sequences. The next one reads again what other ranks have read: `global_samples` is the \
         number of the run's next sequence, so it counts those of all ranks.",
    );
    evidence.means_if(
        none && (counts(&|job| job.accumulation) || counts(&|job| job.ranks * job.accumulation)),
        "A step counts micro-batches. `global_samples` is the number of a sequence, and a micro-batch has `batch` of them.",
    );
    evidence.means_if(
        none && counts(&|_| 0),
        "Every step reads the same sequences: `global_samples` does not advance.",
    );
    // What a skipped step counts.
    let skips = |each: &dyn Fn(Job) -> usize| {
        is(&|job, over, rank, micro| first(each, over) + within(job, rank, micro))
    };
    evidence.means_if(
        skips(&|_| 0),
        "A skipped step does not move the run's place in the text. So step 5 trains on the sequences of step 2, the damaged ones: \
         the run has only put them off. They lie behind the run, whether or not they were read.",
    );
    evidence.means_if(
        skips(&|job| job.batch) || skips(&|job| job.ranks * job.batch) || skips(&|_| 1),
        "A skipped step moves the run's place by less than a step that is taken. So step 5 still trains on sequences of the \
         range, and every later step has other data than in a run without the skip.",
    );
    evidence.means_if(
        stop < STEPS && is(&|job, over, rank, micro| over * job.samples() + within(job, rank, micro)),
        "The place in the text follows from the number of steps and from what a step reads today. But the steps before the restart \
         read more. The run now goes back, and trains again on what it has seen. Only `global_samples` knows how much that is.",
    );
    evidence.means_if(
        stop < STEPS,
        "Without a restart all was right. A resumed run knows nothing but its counters, and the text is at sequence \
         `global_samples`, whoever has read what lies before it.",
    );
    evidence.means(
        "A step's sequences begin with number `global_samples`. Rank 0 has the first `accumulation` x `batch` of them, rank 1 the \
         next, and each micro-batch begins `batch` behind the one before.",
    );
    Ok(())
}

/// What a rank trained on in a step.
fn trained(all: &[Vec<Step>], stop: usize, step: usize, rank: usize) -> Vec<usize> {
    // A rank that came with the restart has no steps before it.
    let before = if rank < BEFORE.ranks { 0 } else { stop };
    let made = &all[rank][step - 1 - before].trained;
    made.first()
        .map_or(Vec::new(), |(firsts, _)| firsts.clone())
}

fn reads(evidence: &mut Evidence) -> Result<()> {
    let skip = [2, 4, 6, 6];
    let yours = &record(evidence, &skip, STEPS)[1];
    for (step, made) in (1..).zip(yours) {
        let asked = if is_skipped(&skip, step) {
            0
        } else {
            BEFORE.accumulation
        };
        evidence.same(
            format!("step {step}: micro-batches read"),
            asked,
            made.read.len(),
        );
    }
    if evidence.agrees() {
        return Ok(());
    }
    evidence.means_if(
        yours[1].read.len() == BEFORE.accumulation,
        "A skipped step reads its micro-batches and throws them away, as Megatron-LM does. All later steps are right, but to skip 200 \
         steps the run reads the data of 200 steps. Here nothing has to be read to be passed over.",
    );
    evidence.means(
        "A step that is taken reads `accumulation` micro-batches, and one that is skipped reads none: every read takes time.",
    );
    Ok(())
}

fn counters(evidence: &mut Evidence) -> Result<()> {
    let yours = &record(evidence, &[2, 4, 6, 6], STEPS)[1];
    let after_3 = yours[2].counters;
    let end = yours[STEPS - 1].counters;
    let samples = BEFORE.samples();
    evidence.same("after step 3: skipped_steps", 2, after_3.skipped_steps);
    evidence.same(
        "after step 3: global_samples",
        3 * samples,
        after_3.global_samples,
    );
    let position = yours[4]
        .trained
        .first()
        .map_or(0, |(_, schedule)| *schedule);
    evidence.same("step 5: position in the schedule", 4, position);
    evidence.same("after step 7: schedule", 7, end.schedule);
    evidence.same("after step 7: skipped_steps", 4, end.skipped_steps);
    evidence.same(
        "after step 7: global_samples",
        7 * samples,
        end.global_samples,
    );
    if evidence.agrees() {
        return Ok(());
    }
    evidence.means_if(
        position == 5 && end.schedule == STEPS,
        "The schedule is counted before it has trained: each step has the learning rate of the next one.",
    );
    evidence.means_if(
        position == 1,
        "The schedule waits in a skipped step. So step 5 has the learning rate of step 2, and every later step has one that \
         is three or four steps old. The learning rate follows the data: it should be the one of a run that skips nothing.",
    );
    evidence.means_if(
        after_3.skipped_steps == 0,
        "`skipped_steps` counts the steps that were skipped.",
    );
    evidence.means_if(
        after_3.skipped_steps == 2 * BEFORE.accumulation,
        "`skipped_steps` counts micro-batches. It counts steps, whatever the accumulation.",
    );
    evidence.means_if(
        after_3.global_samples != 3 * samples,
        "`global_samples` counts the sequences that lie behind the run, over all ranks. Those of a skipped step do, too.",
    );
    evidence.means("A skipped step advances every counter as a step that is taken does, and `skipped_steps` besides.");
    Ok(())
}
