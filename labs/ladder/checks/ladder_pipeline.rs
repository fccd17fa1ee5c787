//! The check of ladder-pipeline: the same model, in any order that works. Then the time of a step,
//! and the parts in flight.

use exercise::train;
use kit::check::{Evidence, run};
use kit::show::thousands;
use ladder::judge::Judge;
use ladder::{Doing, Job, Pass, Run, most_in_flight, passes};
use shardlab::Result;
use shardlab::allocator::Counting;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static JUDGE: Judge = Judge::new("ladder-pipeline", train);

fn main() -> ExitCode {
    run(&[
        ("1 rank: the program that is given", alone),
        ("2 ranks: every part goes through all layers", travels),
        ("2 ranks: the mean over the parts, and one update", |evidence| {
            gradients(evidence, 2)
        }),
        ("4 ranks: the model of one rank, bit by bit", |evidence| {
            ends(evidence, JUDGE.job(4)?, |evidence| JUDGE.weights(evidence, 4))
        }),
        ("4 ranks, 2 parts: fewer parts than ranks", few),
        ("4 ranks, 8 parts: they compute at the same time", time),
        ("4 ranks, 8 parts: at most 4, 3, 2, 1 in flight", in_flight),
    ])
}

/// Looks at a run with `look`, or says why it does not end well.
fn ends(
    evidence: &mut Evidence,
    job: Job,
    look: impl FnOnce(&mut Evidence) -> Result<()>,
) -> Result<()> {
    let Err(error) = JUDGE.run(job) else {
        return look(evidence);
    };
    let told = format!("{error:#}");
    // The workbook shows a panic by itself.
    if told.contains("panicked: ") {
        return Err(error);
    }
    println!("{told}");
    evidence.row(false, "the run", "ends", "an error");
    evidence.means_if(
        told.contains("deadlock"),
        "All ranks wait for a message, and the one that somebody needs has not been sent. A rank that waits for a part's gradient must have \
         sent that part's activations before, and one that waits for activations must not owe a gradient. For each rank the message \
         below names the line at which it waits.",
    );
    evidence.means_if(
        told.contains("there is no rank"),
        "The pipeline has two ends: nobody is before rank 0, where parts come from `rank.input`, and nobody is after the last rank, \
         where `rank.loss` gives the first gradient.",
    );
    evidence.means_if(
        told.contains("were not received"),
        "Something was sent that nobody has received. Each part crosses each border twice: its activations forward, the gradient backward.",
    );
    evidence.means_if(
        told.contains("does not fit"),
        "A message has another length than the vector that should take it. What crosses a border between ranks are \
         `rank.activations()` numbers: activations forward, and gradients of these backward.",
    );
    evidence.means(
        "A rank waits for a message that never comes: the rank that should send it has ended, or has sent it elsewhere.",
    );
    Ok(())
}

/// Passes of a rank that are not updates.
fn computed(run: &Run, rank: usize) -> Vec<Pass> {
    let mut passes = passes(&run.ranks[rank]);
    passes.retain(|pass| pass.doing != Doing::Update);
    passes
}

fn travels(evidence: &mut Evidence) -> Result<()> {
    let job = JUDGE.job(2)?;
    ends(evidence, job, |evidence| {
        let run = JUDGE.run(job)?;
        let layers = |rank: usize| {
            let mut layers: Vec<usize> =
                computed(&run, rank).iter().map(|pass| pass.layer).collect();
            layers.sort_unstable();
            layers.dedup();
            layers
        };
        let each = ladder::LAYERS / job.ranks;
        for rank in 0..job.ranks {
            let expected: Vec<usize> = (rank * each..(rank + 1) * each).collect();
            evidence.same(format!("rank {rank}: layers that it runs"), expected, layers(rank));
        }
        evidence.means_if(
            (0..job.ranks).all(|rank| layers(rank).len() == ladder::LAYERS),
            "Every rank runs all layers, so every rank holds the whole model. Rank r has the layers from r * 8/p on, 8/p of them.",
        );
        evidence.means(
            "Rank 0 has the first layers, and each rank the next ones: as many on each rank.",
        );
        if evidence.agrees() {
            JUDGE.parts(evidence, 2)?;
        }
        Ok(())
    })
}

fn alone(evidence: &mut Evidence) -> Result<()> {
    ends(evidence, JUDGE.job(1)?, |evidence| {
        many_updates(evidence, 1)?;
        JUDGE.parts(evidence, 1)?;
        if evidence.agrees() {
            gradients(evidence, 1)?;
        }
        if evidence.agrees() {
            JUDGE.weights(evidence, 1)?;
        }
        Ok(())
    })
}

/// Whether each part has its own updates.
fn many_updates(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    let job = JUDGE.job(ranks)?;
    let count = job.parts * job.steps * ladder::LAYERS / ranks;
    let run = JUDGE.run(job)?;
    evidence.means_if(
        run.ranks.iter().all(|rank| rank.updates.len() == count),
        "Each part has an update of its own. So a step is as many small steps, and every part but the first meets weights that the parts \
         before it have changed. Add up the parts' gradients, and update once at the end of the step.",
    );
    Ok(())
}

fn gradients(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    let job = JUDGE.job(ranks)?;
    let run = JUDGE.run(job)?;
    let each = ladder::LAYERS / ranks;
    let one = Job { ranks: 1, tensor: 1, ..job };
    let one = ladder::run(one, ladder::one_rank::train)?;
    let first_step = &one.ranks[0].updates[..ladder::LAYERS];
    // Whether a layer gets its mean gradients in the first step.
    let right = |layer: usize| {
        let mean = &first_step[layer].gradients;
        let updates = run.ranks[layer / each].updates.iter().take(each);
        updates.into_iter().any(|update| near(&update.gradients, mean))
    };
    evidence.means_if(
        right(ladder::LAYERS - 1) && !right(0),
        "The last layer's gradients are right, and those of layers before it are not. A layer gets the gradient that the layer after it \
         returned as `dx`, also from rank to rank, and of the part whose inputs it gets: parts come back in the order in which they went. \
         If two parts are mixed up, all lengths fit, and the loss still falls, because the last layers learn.",
    );
    JUDGE.gradients(evidence, ranks)
}

fn near(x: &[f32], y: &[f32]) -> bool {
    let near = |x: f32, y: f32| (x - y).abs() <= 1e-7 + 1e-3 * y.abs();
    x.len() == y.len() && x.iter().zip(y).all(|(x, y)| near(*x, *y))
}

fn few(evidence: &mut Evidence) -> Result<()> {
    let job = Job { parts: 2, ..JUDGE.job(4)? };
    ends(evidence, job, |evidence| {
        evidence.means(
            "With 8 parts this was right, and with 2 parts it is not: rank 0 has three ranks after it, and only two parts to run ahead \
             with.",
        );
        JUDGE.look_at_gradients(evidence, job)?;
        if evidence.agrees() {
            JUDGE.look_at_weights(evidence, job)?;
        }
        Ok(())
    })
}

/// Ranks that wait for one part after the other take longer than one rank. GPipe and 1F1B take two
/// fifths of its time.
fn time(evidence: &mut Evidence) -> Result<()> {
    let run = JUDGE.run(JUDGE.job(4)?)?;
    let one = JUDGE.ours("")?.micros();
    let got = run.score().micros();
    evidence.row(
        got < one * 6 / 10,
        "microseconds per step on a slow link",
        format!("less than {}", thousands(one * 6 / 10)),
        thousands(got),
    );
    let in_flight = run.ranks.iter().map(most_in_flight);
    let most = in_flight.clone().max();
    evidence.means_if(
        most == Some(1),
        format!(
            "One part is in flight at a time: while a rank computes, the other three wait. Four ranks take {} microseconds and one takes {}. \
             While rank 1 has part 0, rank 0 can run part 1.",
            thousands(got),
            thousands(one)
        ),
    );
    evidence.means_if(
        in_flight.clone().min() == most && most == Some(4),
        "Every rank runs as many parts ahead as rank 0 must. So the last rank has the first gradient in its hands and waits for three more \
         parts before it computes it, and all ranks wait with it. Behind rank r there are p - r - 1 ranks.",
    );
    evidence.means(format!(
        "One rank takes {} microseconds for a step, and four ranks should take much less. A rank waits at each `recv`: which messages does \
         it wait for although it could run the next part?",
        thousands(one)
    ));
    Ok(())
}

fn in_flight(evidence: &mut Evidence) -> Result<()> {
    let job = JUDGE.job(4)?;
    let run = JUDGE.run(job)?;
    let most: Vec<usize> = run.ranks.iter().map(most_in_flight).collect();
    for (rank, got) in most.iter().enumerate() {
        let expected = job.ranks - rank;
        evidence.row(
            *got <= expected,
            format!("rank {rank}: parts in flight"),
            format!("at most {expected}"),
            got,
        );
    }
    if evidence.agrees() {
        return JUDGE.score(evidence);
    }
    let ours = JUDGE.ours("ladder-pipeline")?.peak;
    let got = run.score().peak;
    evidence.means_if(
        most.iter().all(|most| *most == job.parts),
        format!(
            "This is GPipe: all forward passes, then all backward passes. It is right, and trains what one rank trains, in about the time of \
             1F1B. But each rank keeps the inputs of all {} parts: {} bytes, where 1F1B holds {}. With 64 parts GPipe would keep 64, and \
             1F1B no more than now. Run a backward pass as soon as there is one.",
            job.parts,
            thousands(got),
            thousands(ours)
        ),
    );
    evidence.means_if(
        (0..job.ranks).all(|rank| most[rank] == job.ranks - rank + 1),
        "Every rank runs one part more ahead than it must, and keeps it: the part that it runs next is in flight as well. Behind rank r there \
         are p - r - 1 ranks.",
    );
    evidence.means(
        "A rank keeps more parts than have to be on their way. When rank r has run a part forward, how many ranks must that part still visit \
         before its gradient can come back?",
    );
    Ok(())
}
