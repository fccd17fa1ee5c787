//! The check of lab08-skip: which steps train, on which micro-batches, and what the counters say.

use exercise::{Counters, Run, Trainer, iteration};
use kit::check::{Evidence, run};
use shardlab::Result;
use shardlab::data::{Batch, Corpus, Sampler, Sampling};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("without a range, every step trains", |evidence| {
            steps(evidence, &[], 4)
        }),
        ("2 3: steps 1 and 4 train", |evidence| {
            steps(evidence, &[2, 3], 1)
        }),
        ("2 3 and 6 6: steps 1, 4, 5 and 7 train", |evidence| {
            steps(evidence, &[2, 3, 6, 6], 1)
        }),
        ("each step trains on its own micro-batch", |evidence| {
            data(evidence, &[2, 3, 6, 6], 1, 0)
        }),
        ("also with 4 micro-steps of accumulation", |evidence| {
            data(evidence, &[2, 3, 6, 6], 4, 0)
        }),
        ("the counters, and the learning rate", counters),
        (
            "resumed after step 2, in the middle of a range",
            |evidence| data(evidence, &[2, 3, 6, 6], 4, 2),
        ),
    ])
}

const STEPS: usize = 7;
/// Sequences per step and micro-step, over all ranks.
const SAMPLES: usize = 4;

/// A training that only records.
struct Recorder<'a> {
    corpus: &'a Corpus,
    /// Micro-batches drawn since the text's beginning.
    drawn: usize,
    /// For each call of `train`: the hashes of its micro-batches, and the position in the schedule.
    trained: Vec<(Vec<String>, usize)>,
}

/// The hash of micro-batch `n` of the run, as the reader sees it.
fn hash(batch: &Batch) -> String {
    batch.hash()[..8].to_string()
}

/// Micro-batch `n`, counted from 0.
fn batch(corpus: &Corpus, n: usize) -> Batch {
    let sampler = Sampler {
        sampling: Sampling::Partition,
        seed: 8,
        rank: 1,
        ranks: 2,
        batch: 2,
        block: 16,
    };
    sampler.nth(&corpus.train, n, 1)
}

impl Trainer for Recorder<'_> {
    fn draw(&mut self) -> Batch {
        self.drawn += 1;
        batch(self.corpus, self.drawn - 1)
    }

    fn train(&mut self, batches: &[Batch], schedule: usize) {
        self.trained
            .push((batches.iter().map(hash).collect(), schedule));
    }
}

/// One call of `iteration`: what it trained on and where in the schedule, what it drew, and the counters after it.
struct Step {
    trained: Vec<(Vec<String>, usize)>,
    drawn: usize,
    counters: Counters,
}

/// The first seven calls. After `stop` steps the run is stopped and resumed, unless `stop` is 0.
fn record(
    evidence: &Evidence,
    corpus: &Corpus,
    skip: &[usize],
    accumulation: usize,
    stop: usize,
) -> Vec<Step> {
    let run = Run {
        skip,
        accumulation,
        samples: SAMPLES * accumulation,
    };
    let mut counters = Counters::default();
    let mut recorder = Recorder {
        corpus,
        drawn: 0,
        trained: Vec::new(),
    };
    let mut steps = Vec::new();
    for call in 1..=STEPS {
        if call > 1 && call == stop + 1 {
            // The checkpoint has the counters, and the sampler's position follows from them.
            recorder = Recorder {
                corpus,
                drawn: counters.micro_steps,
                trained: Vec::new(),
            };
        }
        evidence.given(format!(
            "call {call}, to skip {skip:?}, {accumulation} micro-steps"
        ));
        let before = recorder.drawn;
        iteration(&run, &mut counters, &mut recorder);
        let trained = std::mem::take(&mut recorder.trained);
        steps.push(Step {
            trained,
            drawn: recorder.drawn - before,
            counters,
        });
    }
    steps
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

fn steps(evidence: &mut Evidence, skip: &[usize], accumulation: usize) -> Result<()> {
    let corpus = Corpus::embedded()?;
    let yours = record(evidence, &corpus, skip, accumulation, 0);
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
        accumulation > 1 && most == accumulation,
        "A step trains several times, with one micro-batch each. Give `train` all its micro-batches at once: they are one step \
         of the optimizer.",
    );
    evidence.means_if(
        twice.is_some(),
        "A call runs one step: it trains once, or not at all.",
    );
    // The published bug: the range's micro-batches are discarded at once, and the numbers of its steps come again.
    let at_once = yours[1].drawn > accumulation && !yours[1].trained.is_empty();
    evidence.means_if(
        at_once,
        "Step 2 discards micro-batches and then trains, and its number is given to a later step. One published fork does \
         this. In its log no step was skipped, and a step no longer says which data it had. Skip a step by itself: it draws, \
         discards, and is counted.",
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
        "Steps between two ranges are skipped, too. The numbers are pairs: 2 3 and 6 6, so steps 4 and 5 train.",
    );
    evidence.means_if(
        skip.len() > 2 && of(&|step| !(skip[0]..=skip[1]).contains(&step)) == got,
        "Only the first range is skipped. Each further pair of numbers is one more range.",
    );
    evidence.means_if(
        skip.len() > 2 && of(&|step| !skip.contains(&step)) == got,
        "These numbers are not single steps. They are pairs, the first and the last step of a range.",
    );
    evidence.means("Compare the number of the step with each pair: first and last step of a range, both included.");
    Ok(())
}

/// The micro-batches of every step that trains.
fn data(evidence: &mut Evidence, skip: &[usize], accumulation: usize, stop: usize) -> Result<()> {
    let corpus = Corpus::embedded()?;
    let yours = record(evidence, &corpus, skip, accumulation, stop);
    let all: Vec<String> = (0..STEPS * accumulation)
        .map(|n| hash(&batch(&corpus, n)))
        .collect();
    for (step, made) in yours
        .iter()
        .enumerate()
        .filter(|(step, _)| !is_skipped(skip, step + 1))
    {
        let trained = made.trained.first().map_or(&[][..], |(hashes, _)| hashes);
        let asked = &all[step * accumulation..(step + 1) * accumulation];
        let wrong = (0..accumulation).find(|&micro| trained.get(micro) != asked.get(micro));
        let micro = wrong.unwrap_or(0);
        // Its own hash tells nothing to a reader; the step that it belongs to does.
        let name = |hash: &String| match all.iter().position(|other| other == hash) {
            Some(n) => format!("{hash}, of step {}", n / accumulation + 1),
            None => hash.clone(),
        };
        let got = trained.get(micro).map_or("nothing".into(), name);
        evidence.row(
            wrong.is_none(),
            format!("step {}, micro-step {micro}", step + 1),
            name(&asked[micro]),
            got,
        );
    }
    if evidence.agrees() {
        return Ok(());
    }
    let drawn: Vec<usize> = (2..=3).map(|step| yours[step - 1].drawn).collect();
    evidence.means_if(
        drawn == [0, 0],
        "A skipped step draws nothing. So the next step trains on the damaged text that should have been skipped.",
    );
    evidence.means_if(
        stop > 0 && drawn == [2 * accumulation, 0],
        "Step 2 draws the micro-batches of the whole range. The run is then stopped, and resumed at the micro-batch that \
         belongs to step 3. But step 3 draws nothing any more. Each step draws its own data only.",
    );
    evidence.means_if(
        accumulation > 1 && drawn == [1, 1],
        format!(
            "A skipped step draws 1 micro-batch, but a step that is taken draws {accumulation}. So step 4 still trains on \
             micro-batches of steps 2 and 3: damaged text. Every later step has different data than before. One published \
             fork has this mistake, and without accumulation nothing shows it.",
        ),
    );
    evidence.means_if(
        stop > 0,
        "Without a stop the data was right. A resumed run knows nothing but its counters: `micro_steps` must say how many \
         micro-batches have been drawn.",
    );
    evidence.means(format!(
        "Step 2 draws {} and step 3 draws {} micro-batches. A step that is taken draws {accumulation}.",
        drawn[0], drawn[1]
    ));
    Ok(())
}

fn counters(evidence: &mut Evidence) -> Result<()> {
    let corpus = Corpus::embedded()?;
    let yours = record(evidence, &corpus, &[2, 3, 6, 6], 4, 0);
    let after_3 = yours[2].counters;
    let end = yours[STEPS - 1].counters;
    evidence.same("after step 3: skipped_steps", 2, after_3.skipped_steps);
    evidence.same("after step 3: micro_steps", 12, after_3.micro_steps);
    evidence.same(
        "after step 3: global_samples",
        12 * SAMPLES,
        after_3.global_samples,
    );
    let position = yours[3]
        .trained
        .first()
        .map_or(0, |(_, schedule)| *schedule);
    evidence.same("step 4: position in the schedule", 3, position);
    evidence.same("after step 7: schedule", 7, end.schedule);
    evidence.same("after step 7: skipped_steps", 3, end.skipped_steps);
    if evidence.agrees() {
        return Ok(());
    }
    evidence.means_if(
        position == 4 && end.schedule == STEPS,
        "The schedule is counted before it has trained: each step has the learning rate of the next one.",
    );
    evidence.means_if(
        position == 1,
        "The schedule waits in a skipped step. So step 4 has the learning rate of step 2, and every later step has one that \
         is two steps old. The learning rate follows the data: it should be the one of a run that skips nothing.",
    );
    evidence.means_if(
        after_3.skipped_steps == 0,
        "`skipped_steps` counts the steps that were skipped.",
    );
    evidence.means_if(
        after_3.skipped_steps == 8,
        "`skipped_steps` counts micro-steps. It counts steps, whatever the accumulation.",
    );
    evidence.means_if(
        [3, 4, 6].contains(&after_3.micro_steps),
        "`micro_steps` counts the micro-batches that were drawn: 4 in each step, also in a skipped step. A resumed run finds \
         its place in the data by it.",
    );
    evidence.means_if(
        after_3.global_samples < 12 * SAMPLES,
        "`global_samples` counts the sequences that the run has consumed. Those of a skipped step are consumed, too.",
    );
    evidence.means_if(
        after_3.global_samples > 12 * SAMPLES,
        "`run.samples` has the sequences of the whole step already, over all ranks and micro-steps.",
    );
    evidence.means("A skipped step advances every counter as a step that is taken does, and `skipped_steps` besides.");
    Ok(())
}
