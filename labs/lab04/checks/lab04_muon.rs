//! The check of lab04-muon: wide and tall matrices, several steps, and the bytes of one.

use exercise::{Rows, step};
use kit::check::{Evidence, run};
use shardlab::comm::Comm;
use shardlab::difference::largest_difference;
use shardlab::optim::{NewtonSchulz, orthogonal};
use shardlab::{Result, launch};
use std::process::ExitCode;

const LR: f32 = 0.1;

fn main() -> ExitCode {
    run(&[
        ("1 rank: one step", |evidence| moves(evidence, 1, [4, 6], 1)),
        ("2 ranks: the step of the whole matrix", |evidence| {
            moves(evidence, 2, [4, 6], 1)
        }),
        ("2 ranks, three steps", |evidence| moves(evidence, 2, [4, 6], 3)),
        ("4 ranks, a tall matrix", |evidence| moves(evidence, 4, [12, 5], 2)),
        ("3 ranks: a step sends one all-gather", sends),
    ])
}

fn gradient(step: usize, numel: usize) -> Vec<f32> {
    let wave = |i: usize| ((3 * i + 5 * step) as f32 * 0.7).sin() + 0.2 * (i % 5) as f32;
    (0..numel).map(wave).collect()
}

/// Steps of one rank, which goes along what `aim` makes of momentum and gradient: the values of
/// each rank's rows, end to end. In `parts`, each is orthogonal by itself.
fn of_one(
    shape: [usize; 2],
    steps: usize,
    parts: usize,
    aim: fn(&[f32], &[f32]) -> Vec<f32>,
) -> Vec<f32> {
    let numel = shape[0] * shape[1];
    let mut values = vec![1.0; numel];
    let mut momentum = vec![0.0; numel];
    for step in 0..steps {
        let gradient = gradient(step, numel);
        for (m, g) in momentum.iter_mut().zip(&gradient) {
            *m = 0.95 * *m + 0.05 * g;
        }
        let aim = aim(&momentum, &gradient);
        let part = [shape[0] / parts, shape[1]];
        let along = aim
            .chunks(numel / parts)
            .flat_map(|aim| orthogonal(aim, part, NewtonSchulz::DeepSeekV4));
        values.iter_mut().zip(along).for_each(|(p, x)| *p -= LR * x);
    }
    values
}

/// Every rank's rows after some steps: values, and the length of the momentum.
fn of_ranks(
    ranks: usize,
    shape: [usize; 2],
    steps: usize,
    look: impl Fn(&Comm) + Send + Sync,
) -> Result<Vec<(Vec<f32>, usize)>> {
    let part = shape[0] * shape[1] / ranks;
    launch::run(ranks, |comm| {
        let mut mine = Rows { values: vec![1.0; part], momentum: vec![0.0; part] };
        for number in 0..steps {
            let gradient = gradient(number, part * ranks);
            let here = &gradient[comm.rank() * part..][..part];
            step(&comm, &mut mine, here, shape, LR)?;
        }
        look(&comm);
        Ok((mine.values, mine.momentum.len()))
    })
}

fn moves(evidence: &mut Evidence, ranks: usize, shape: [usize; 2], steps: usize) -> Result<()> {
    let [rows, cols] = shape;
    evidence.given(format!(
        "{steps} steps of a {rows} x {cols} matrix, whose rows {ranks} ranks share"
    ));
    let all = of_ranks(ranks, shape, steps, |_| ())?;
    let expected = of_one(shape, steps, 1, |momentum, _| momentum.to_vec());
    let got: Vec<f32> = all.iter().flat_map(|(values, _)| values.iter().copied()).collect();
    let part = rows * cols / ranks;
    for (rank, (values, held)) in all.iter().enumerate() {
        let right = &expected[rank * part..][..part];
        let off = largest_difference(right, values);
        let shown = |numbers: &[f32]| format!("{:.3} {:.3}", numbers[0], numbers[1]);
        let what = format!("rank {rank}: its first numbers");
        evidence.row(
            off < 1e-5,
            what,
            shown(right),
            values.get(..2).map_or_else(String::new, shown),
        );
        evidence.row(*held == part, format!("rank {rank}: numbers of momentum"), part, held);
    }
    if evidence.agrees() {
        return Ok(());
    }
    let is = |wrong: &[f32]| largest_difference(wrong, &got) < 1e-5;
    let first: Vec<f32> = {
        // Every rank moves as if it had the first rows.
        let moved = &expected[..part];
        moved.repeat(ranks)
    };
    evidence.means_if(
        all.iter().any(|(_, held)| *held != part),
        "A rank keeps another number of momentum's numbers than its rows have. What is put together for a step is needed \
         in that step only.",
    );
    evidence.means_if(
        is(&of_one(shape, steps, ranks, |momentum, _| momentum.to_vec())),
        "Each rank makes its own rows orthogonal, by themselves. Then rows of different ranks are at no right angles, and \
         together they are another step: on one rank nothing is wrong. Put the rows together first.",
    );
    evidence.means_if(
        is(&first),
        "The step is the whole matrix's, but each rank takes its first rows. Rank r's begin after those of r ranks.",
    );
    evidence.means_if(
        is(&of_one(shape, steps, 1, |_, gradient| gradient.to_vec())),
        "This goes along the last gradient. The momentum, which remembers earlier ones, is what becomes orthogonal.",
    );
    evidence.means(
        "On one rank the momentum of all rows is made orthogonal, and each row moves along its row of that. The ranks' rows \
         are to move alike.",
    );
    Ok(())
}

fn sends(evidence: &mut Evidence) -> Result<()> {
    let (ranks, shape) = (3, [6, 4]);
    evidence.given("one step of a 6 x 4 matrix, whose rows 3 ranks share");
    let sent = std::sync::Mutex::new(vec![0; ranks]);
    of_ranks(ranks, shape, 1, |comm| {
        if let Ok(mut sent) = sent.lock() {
            sent[comm.rank()] = comm.total_traffic().bytes as usize;
        }
    })?;
    let sent = sent.into_inner().unwrap_or_default();
    let one = 4 * (ranks - 1) * shape[0] * shape[1] / ranks;
    for (rank, &bytes) in sent.iter().enumerate() {
        evidence.row(
            bytes <= one,
            format!("rank {rank}: bytes sent"),
            format!("{one} or less"),
            bytes,
        );
    }
    evidence.means_if(
        sent.iter().all(|&bytes| bytes == 2 * one),
        "This is twice what an all-gather sends: an all-reduce, or two gathers. One of the momentum is enough.",
    );
    evidence.means("A rank has to send its rows of the momentum to all others, and nothing else.");
    Ok(())
}
