//! The check of lab08-skip: which steps train, which sequences every rank reads for them, and what
//! the counters say.

use exercise::{Counters, Run, Trainer, iteration};
use kit::check::{Evidence, run};
use shardlab::Result;
use shardlab::data::Batch;
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("without a range, every step trains", |evidence| steps(evidence, &[])),
        ("2 4: steps 1, 5, 6 and 7 train", |evidence| steps(evidence, &[2, 4])),
        ("2 4 and 6 6: steps 1, 5 and 7 train", |evidence| steps(evidence, &[2, 4, 6, 6])),
        ("without a range, every sequence is read once", |evidence| {
            sequences(evidence, &[BEFORE])
        }),
        ("2 4 and 6 6: each step has its own sequences", |evidence| {
            sequences(evidence, &[SKIPS])
        }),
        ("a skipped step reads nothing", reads),
        ("the counters, and the learning rate", counters),
        ("resumed on 3 ranks, with smaller steps and other ranges", |evidence| {
            sequences(evidence, &RESTART)?;
            if evidence.agrees() {
                resumed(evidence)?;
            }
            Ok(())
        }),
        ("a run that has begun a new schedule at step 41", new_schedule),
    ])
}

const STEPS: usize = 7;

/// A run up to a stop: its ranks, and what each does in one step.
#[derive(Clone, Copy)]
struct Job {
    ranks: usize,
    accumulation: usize,
    batch: usize,
    skip: &'static [usize],
    /// Its last step.
    stop: usize,
}

const BEFORE: Job = Job { ranks: 2, accumulation: 2, batch: 3, skip: &[], stop: STEPS };
const SKIPS: Job = Job { skip: &[2, 4, 6, 6], ..BEFORE };

/// A run that ends in the middle of a range, and a second one: no number of it is that of the
/// first. Its ranges are out of order, and it begins inside of one.
const RESTART: [Job; 2] = [
    Job { skip: &[2, 4], stop: 2, ..BEFORE },
    Job {
        ranks: 3,
        accumulation: 1,
        batch: 2,
        skip: &[6, 6, 3, 3],
        stop: STEPS,
    },
];

impl Job {
    /// Sequences of one step, over all ranks.
    fn samples(&self) -> usize {
        self.ranks * self.accumulation * self.batch
    }

    fn skips(&self, step: usize) -> bool {
        self.skip.chunks(2).any(|ends| (ends[0]..=ends[1]).contains(&step))
    }
}

/// The job that makes a step.
fn job(jobs: &[Job], step: usize) -> &Job {
    let found = jobs.iter().find(|job| step <= job.stop);
    found.unwrap_or(&jobs[jobs.len() - 1])
}

/// One step of one rank: what it read, what it trained on and where in the schedule, and the
/// counters afterwards. A micro-batch is its first sequence's number.
#[derive(Default)]
struct Step {
    read: Vec<usize>,
    trained: Vec<(Vec<usize>, usize)>,
    counters: Counters,
}

impl Step {
    /// What it trained on, if it trained.
    fn firsts(&self) -> Vec<usize> {
        let trained = self.trained.first();
        trained.map_or(Vec::new(), |(firsts, _)| firsts.clone())
    }

    fn position(&self) -> Option<usize> {
        self.trained.first().map(|(_, schedule)| *schedule)
    }
}

impl Trainer for Step {
    fn read(&mut self, first: usize) -> Batch {
        self.read.push(first);
        Batch {
            inputs: vec![first as u32],
            targets: vec![first as u32 + 1],
            length: 1,
            sequences: [first as u64].into(),
            starts: vec![first],
            documents: Default::default(),
        }
    }

    fn train(&mut self, batches: &[Batch], schedule: usize) {
        let firsts = batches.iter().flat_map(|batch| batch.starts.clone());
        self.trained.push((firsts.collect(), schedule));
    }
}

/// For each step, what each of its ranks did. A resumed run has the counters of the last one's
/// rank 0.
fn record(evidence: &Evidence, jobs: &[Job]) -> Vec<Vec<Step>> {
    let mut all: Vec<Vec<Step>> = (0..STEPS).map(|_| Vec::new()).collect();
    let mut first = 1;
    for job in jobs {
        let begin = match first {
            1 => Counters::default(),
            _ => all[first - 2][0].counters,
        };
        for rank in 0..job.ranks {
            let mut counters = begin;
            let run = Run {
                skip: job.skip,
                rank,
                ranks: job.ranks,
                accumulation: job.accumulation,
                batch: job.batch,
            };
            for step in first..=job.stop {
                evidence.given(format!(
                    "step {step}, to skip {:?}, rank {rank} of {}, {} micro-batches of {}",
                    job.skip, job.ranks, job.accumulation, job.batch
                ));
                let mut made = Step::default();
                iteration(&run, &mut counters, &mut made);
                made.counters = counters;
                all[step - 1].push(made);
            }
        }
        first = job.stop + 1;
    }
    all
}

fn listed(steps: &[usize]) -> String {
    steps.iter().map(usize::to_string).collect::<Vec<_>>().join(" ")
}

/// Which steps train.
fn steps(evidence: &mut Evidence, skip: &'static [usize]) -> Result<()> {
    let run = Job { skip, ..BEFORE };
    let all = record(evidence, &[run]);
    if let Some(step) = parted(&all) {
        let words = |rank: usize| {
            if all[step - 1][rank].trained.is_empty() {
                "skips"
            } else {
                "trains"
            }
        };
        evidence.row(
            false,
            format!("step {step}: ranks 0 and 1"),
            "the same",
            format!("{} and {}", words(0), words(1)),
        );
        evidence.means(
            "One rank trains, and the other does not. In a training it waits for gradients of the others, which have gone on, and from then on the \
             ranks' collectives do not belong together. All ranks skip a step, or none.",
        );
        return Ok(());
    }
    let yours: Vec<&Step> = all.iter().map(|ranks| &ranks[1]).collect();
    let of =
        |sign: &dyn Fn(usize) -> bool| (1..=STEPS).filter(|&step| sign(step)).collect::<Vec<_>>();
    let asked = of(&|step| !run.skips(step));
    let got = of(&|step| !yours[step - 1].trained.is_empty());
    evidence.row(asked == got, "the calls that train", listed(&asked), listed(&got));
    let counted = yours.iter().zip(1..).find(|(step, call)| step.counters.global_steps != *call);
    let (call, global_steps) =
        counted.map_or((1, 1), |(step, call)| (call, step.counters.global_steps));
    evidence.row(
        counted.is_none(),
        format!("after call {call}: global_steps"),
        call,
        global_steps,
    );
    let twice = yours.iter().position(|step| step.trained.len() > 1);
    let most = yours.iter().map(|step| step.trained.len()).max().unwrap_or(0);
    evidence.row(twice.is_none(), "trainings in one call", "at most 1", most);
    if evidence.agrees() {
        return Ok(());
    }
    evidence.means_if(
        most == BEFORE.accumulation,
        "A step trains several times, with one micro-batch each. Give `train` all its micro-batches at once: they are one step \
         of the optimizer.",
    );
    evidence.means_if(twice.is_some(), "A call runs one step: it trains once, or not at all.");
    evidence.means_if(
        yours.iter().any(|step| step.counters.global_steps == 0) || yours[1].counters.global_steps == 1,
        "`global_steps` does not advance in a skipped step. So the run never leaves the range: it finds the same number again.",
    );
    evidence.means_if(
        counted.is_some(),
        "One call is one step, so `global_steps` advances by 1, whether the step is taken or skipped.",
    );
    evidence.means_if(got.len() == STEPS, "Every step trains, also those in a range.");
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
        skip.len() > 2 && of(&|step| !(skip[2]..=skip[3]).contains(&step)) == got,
        "Only the last range is skipped: what a later pair says undoes what an earlier one has found.",
    );
    evidence.means_if(
        !skip.is_empty() && of(&|step| !skip.contains(&step)) == got,
        "These numbers are not single steps. They are pairs, the first and the last step of a range.",
    );
    evidence.means("Compare the number of the step with each pair: first and last step of a range, both included.");
    Ok(())
}

/// The first step that some ranks train in, and others do not.
fn parted(all: &[Vec<Step>]) -> Option<usize> {
    let trains = |made: &Step| !made.trained.is_empty();
    let parts = |ranks: &Vec<Step>| ranks.iter().any(trains) && !ranks.iter().all(trains);
    all.iter().position(parts).map(|at| at + 1)
}

/// The sequences that every rank trains on, in every step.
fn sequences(evidence: &mut Evidence, jobs: &[Job]) -> Result<()> {
    let yours = record(evidence, jobs);
    let restarts = jobs.len() > 1;
    // Whether `of(job, steps before, rank, micro-batch)` is the number of the first sequence of
    // every micro-batch.
    type Place<'a> = &'a dyn Fn(&Job, usize, usize, usize) -> usize;
    let is = |of: Place| {
        (1..=STEPS).filter(|&step| !job(jobs, step).skips(step)).all(|step| {
            let job = job(jobs, step);
            (0..job.ranks).all(|rank| {
                let place = |micro| of(job, step - 1, rank, micro);
                let wrong: Vec<usize> = (0..job.accumulation).map(place).collect();
                yours[step - 1][rank].firsts() == wrong
            })
        })
    };
    // The number of a step's first sequence, if a step in a range is worth `skipped(job)`
    // sequences.
    let first = |skipped: &dyn Fn(&Job) -> usize, over: usize| -> usize {
        let worth = |step| {
            let job = job(jobs, step);
            if job.skips(step) { skipped(job) } else { job.samples() }
        };
        (1..=over).map(worth).sum()
    };
    let right = |over: usize| first(&Job::samples, over);
    let within =
        |job: &Job, rank: usize, micro: usize| (rank * job.accumulation + micro) * job.batch;
    let mut fewer = false;
    for step in 1..=STEPS {
        let job = job(jobs, step);
        for (rank, made) in yours[step - 1].iter().enumerate() {
            let taken = if job.skips(step) { 0 } else { job.accumulation };
            let asked: Vec<usize> =
                (0..taken).map(|micro| right(step - 1) + within(job, rank, micro)).collect();
            let got = made.firsts();
            let at = format!("step {step}, rank {rank} of {}: trains from", job.ranks);
            let words = |firsts: &[usize]| {
                if firsts.is_empty() {
                    "nothing".into()
                } else {
                    listed(firsts)
                }
            };
            evidence.row(asked == got, at, words(&asked), words(&got));
            fewer |= !got.is_empty() && got.len() < taken;
        }
    }
    if evidence.agrees() {
        return Ok(());
    }
    let none = !restarts && jobs[0].skip.is_empty();
    evidence.means_if(
        fewer,
        "A step trains on fewer micro-batches than it has, and the sequences of the others are never learned.",
    );
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
         and the next rank begins after them.",
    );
    evidence.means_if(
        none && is(&|job, over, rank, micro| right(over) + (micro * job.ranks + rank) * job.batch),
        "The step has the right sequences, and deals its micro-batches out in turn. Here a rank's micro-batches follow each other, \
         as the picture shows: 0 and 3 are rank 0's.",
    );
    evidence.means_if(
        none && (is(&|job, over, rank, micro| right(over) + within(job, job.ranks - 1 - rank, micro))
            || is(&|job, over, rank, micro| right(over) + within(job, rank, job.accumulation - 1 - micro))),
        "The step has the right sequences in the opposite order. The first are rank 0's, and a rank begins with its first.",
    );
    evidence.means_if(
        none && is(&|job, over, rank, micro| right(over) + within(job, rank, micro) + 1),
        "Every micro-batch begins one sequence too late. Sequences count from 0, as the picture shows.",
    );
    // What a step counts, and should not.
    let counts = |each: &dyn Fn(&Job) -> usize| {
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
    let skips = |each: &dyn Fn(&Job) -> usize| {
        is(&|job, over, rank, micro| first(each, over) + within(job, rank, micro))
    };
    evidence.means_if(
        skips(&|_| 0),
        "A skipped step does not move the run's place in the text. So step 5 trains on the sequences of step 2, the damaged ones: \
         the run has only put them off. The run has passed them, whether or not they were read.",
    );
    evidence.means_if(
        skips(&|job| job.batch)
            || skips(&|job| job.ranks * job.batch)
            || skips(&|job| job.accumulation)
            || skips(&|job| job.ranks * job.accumulation)
            || skips(&|_| 1),
        "A skipped step moves the run's place by less than a step that is taken. So step 5 still trains on sequences of the \
         range, and every later step has other data than in a run without the skip.",
    );
    evidence.means_if(
        restarts && is(&|job, over, rank, micro| over * job.samples() + within(job, rank, micro)),
        "The place in the text follows from the number of steps and from what a step reads today. But the steps before the restart \
         read more. The run now goes back, and trains again on what it has seen. Only `global_samples` knows how much that is.",
    );
    let trains = |step: usize| yours[step - 1].iter().any(|made| !made.trained.is_empty());
    let wrong = (1..=STEPS).find(|&step| trains(step) == job(jobs, step).skips(step));
    if let Some(step) = wrong.filter(|_| restarts) {
        evidence.means(format!(
            "Step {step} is {}. The second run skips 6 6 and 3 3: its ranges are its own and in no order, and it begins inside of one.",
            if trains(step) { "taken" } else { "skipped" }
        ));
    }
    evidence.means_if(
        restarts,
        "Without a restart all was right. A resumed run knows nothing but its counters, and the text is at sequence \
         `global_samples`, whichever ranks have read what comes before it.",
    );
    evidence.means(
        "A step's sequences begin with number `global_samples`. Rank 0 has the first `accumulation` x `batch` of them, rank 1 the \
         next, and each micro-batch begins `batch` after the one before.",
    );
    Ok(())
}

fn reads(evidence: &mut Evidence) -> Result<()> {
    let all = record(evidence, &[SKIPS]);
    for (step, made) in (1..).zip(&all) {
        for (rank, made) in made.iter().enumerate() {
            let asked = if SKIPS.skips(step) { 0 } else { SKIPS.accumulation };
            evidence.same(
                format!("step {step}, rank {rank}: micro-batches read"),
                asked,
                made.read.len(),
            );
        }
    }
    if evidence.agrees() {
        return Ok(());
    }
    evidence.means_if(
        all[1][0].read.len() == SKIPS.accumulation,
        "A skipped step reads its micro-batches and throws them away, as Megatron-LM does. All later steps are right, but to skip \
         200 steps the run reads the data of 200 steps. Here nothing has to be read to be passed over.",
    );
    evidence.means(
        "A step that is taken reads `accumulation` micro-batches, and one that is skipped reads none: every read takes time.",
    );
    Ok(())
}

/// Whether all ranks have the same counters in all steps, and train with the same learning rates.
fn agree(evidence: &mut Evidence, all: &[Vec<Step>]) -> bool {
    for (step, ranks) in (1..).zip(all) {
        for (rank, made) in ranks.iter().enumerate() {
            if made.counters != ranks[0].counters {
                let words = |counters: &Counters| {
                    let Counters { global_steps, skipped_steps, global_samples, schedule } =
                        counters;
                    format!("{global_steps} {skipped_steps} {global_samples} {schedule}")
                };
                let at = format!("rank {rank} after step {step}: the counters");
                evidence.row(false, at, words(&ranks[0].counters), words(&made.counters));
                evidence.means(
                    "The counters are not the same on every rank. They are the run's, and not a rank's: a checkpoint has them once, \
                     and after a restart every rank gets those of rank 0.",
                );
                return false;
            }
            if made.position() != ranks[0].position() {
                let words =
                    |position: Option<usize>| position.map_or("none".into(), |at| at.to_string());
                let at = format!("rank {rank} in step {step}: position in the schedule");
                evidence.row(false, at, words(ranks[0].position()), words(made.position()));
                evidence.means("The ranks train one step with different learning rates, and have different weights from then on.");
                return false;
            }
        }
    }
    true
}

fn counters(evidence: &mut Evidence) -> Result<()> {
    let all = record(evidence, &[SKIPS]);
    if !agree(evidence, &all) {
        return Ok(());
    }
    let after = |step: usize| all[step - 1][0].counters;
    let samples = SKIPS.samples();
    evidence.same("after step 1: skipped_steps", 0, after(1).skipped_steps);
    evidence.same("after step 3: skipped_steps", 2, after(3).skipped_steps);
    evidence.same("after step 3: global_samples", 3 * samples, after(3).global_samples);
    let position = all[4][0].position().unwrap_or(0);
    evidence.same("step 5: position in the schedule", 4, position);
    evidence.same("after step 7: schedule", 7, after(7).schedule);
    evidence.same("after step 7: skipped_steps", 4, after(7).skipped_steps);
    evidence.same("after step 7: global_samples", 7 * samples, after(7).global_samples);
    if evidence.agrees() {
        let both = record(evidence, &[Job { skip: &[2, 4, 4, 6], ..BEFORE }]);
        let skipped = both[6][0].counters.skipped_steps;
        evidence.same("with 2 4 and 4 6: skipped_steps", 5, skipped);
        evidence
            .means_if(skipped == 6, "Step 4 is in both ranges. It is one step, and counts once.");
    }
    if evidence.agrees() {
        return Ok(());
    }
    evidence.means_if(
        position == 5 && after(7).schedule == STEPS,
        "Each step has the learning rate of the next one: the first step's position is 0.",
    );
    evidence.means_if(
        position == 1,
        "The schedule waits in a skipped step. So step 5 has the learning rate of step 2, and every later step has one that \
         is three or four steps old. The learning rate follows the data: it should be the one of a run that skips nothing.",
    );
    evidence.means_if(
        after(1).skipped_steps > 0 || after(2).skipped_steps > 2,
        "`skipped_steps` has the steps that are to be skipped. It counts those that were.",
    );
    evidence.means_if(
        after(3).skipped_steps == 0,
        "`skipped_steps` counts the steps that were skipped.",
    );
    evidence.means_if(
        after(3).skipped_steps == 2 * SKIPS.accumulation,
        "`skipped_steps` counts micro-batches. It counts steps, whatever the accumulation.",
    );
    evidence.means_if(
        after(3).global_samples != 3 * samples,
        "`global_samples` counts the sequences that the run has passed, over all ranks. A skipped step passes its own as well.",
    );
    evidence.means("A skipped step advances every counter as a step that is taken does, and `skipped_steps` besides.");
    Ok(())
}

/// A fine-tuning goes on from a checkpoint, and its schedule begins anew: from here on the
/// schedule's count is not that of the steps.
const TUNING: Counters = Counters {
    global_steps: 40,
    skipped_steps: 0,
    global_samples: 480,
    schedule: 0,
};

fn new_schedule(evidence: &mut Evidence) -> Result<()> {
    let run = Run {
        skip: &[42, 43],
        rank: 0,
        ranks: BEFORE.ranks,
        accumulation: BEFORE.accumulation,
        batch: BEFORE.batch,
    };
    let mut counters = TUNING;
    let mut positions = Vec::new();
    for step in 41..=45 {
        let count = counters.schedule;
        evidence.given(format!(
            "step {step}, to skip {:?}, and position {count} in the schedule",
            run.skip
        ));
        let mut made = Step::default();
        iteration(&run, &mut counters, &mut made);
        positions.push(made.position());
    }
    let shown = |position: Option<usize>| position.map_or("none".into(), |at| at.to_string());
    let asked = [Some(0), None, None, Some(3), Some(4)];
    for (step, (asked, got)) in (41..).zip(asked.into_iter().zip(&positions)) {
        evidence.row(
            asked == *got,
            format!("step {step}: position in the schedule"),
            shown(asked),
            shown(*got),
        );
    }
    evidence.same("after step 45: schedule", 5, counters.schedule);
    evidence.same("after step 45: global_steps", 45, counters.global_steps);
    if evidence.agrees() {
        return Ok(());
    }
    evidence.means_if(
        positions[0] == Some(TUNING.global_steps),
        "The learning rate follows from `global_steps`. This run has 40 steps in its past, and a schedule that began after \
         them: it should warm up, and gets a learning rate from deep in the decay. `schedule` counts its own steps.",
    );
    evidence.means_if(
        counters.schedule == counters.global_steps,
        "`schedule` is set to the number of steps. It advances by 1, from wherever it was.",
    );
    evidence.means(
        "A step trains at position `schedule`, and every step, taken or skipped, advances it by 1.",
    );
    Ok(())
}

/// The counters and learning rates of a run that was resumed.
fn resumed(evidence: &mut Evidence) -> Result<()> {
    let all = record(evidence, &RESTART);
    if !agree(evidence, &all) {
        return Ok(());
    }
    for step in [5, 7] {
        let position = all[step - 1][0].position().unwrap_or(0);
        evidence.same(format!("step {step}: position in the schedule"), step - 1, position);
    }
    let end = all[STEPS - 1][0].counters;
    evidence.same("after step 7: global_steps", 7, end.global_steps);
    evidence.same("after step 7: skipped_steps", 3, end.skipped_steps);
    evidence.same("after step 7: schedule", 7, end.schedule);
    evidence.means_if(
        end.skipped_steps != 3,
        "`skipped_steps` follows from the ranges of today. The first run skipped step 2, and the second one does not know why: \
         only the counter does.",
    );
    evidence.means(
        "The learning rate follows from what a step has today: its number of sequences, or its ranks. The schedule has counted \
         steps, the second run's as well as the first one's.",
    );
    Ok(())
}
