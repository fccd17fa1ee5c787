//! The check of lab05-seed: a small model's parts on 1 to 4 ranks, beside the numbers that one
//! generator draws, and how they train.

use exercise::{Cut, Matrix, Place, begin};
use kit::check::{Evidence, run};
use shardlab::Result;
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("1 rank: it begins with the numbers of before", one_rank),
        ("2 ranks: the losses of 1 rank", losses),
        ("2 ranks: together, the model of 1 rank", |evidence| one_model(evidence, 2)),
        ("3 ranks: the same model", |evidence| one_model(evidence, 3)),
        ("4 ranks: the same model", |evidence| one_model(evidence, 4)),
    ])
}

const SEED: u64 = 1337;

/// A has WIDTH rows, C has RESULTS columns.
const WIDTH: usize = 4;
const HIDDEN: usize = 12;
const RESULTS: usize = 3;
const EXAMPLES: usize = 24;

/// The MLP's two matrices, with a table of positions and the tokens beside them. No two have
/// equally many rows.
const MODEL: [(&str, usize, usize, Cut); 4] = [
    ("A", WIDTH, HIDDEN, Cut::Columns),
    ("positions", 5, 4, Cut::Whole),
    ("C", HIDDEN, RESULTS, Cut::Rows),
    ("tokens", 24, 2, Cut::Rows),
];

fn model() -> Vec<Matrix> {
    MODEL
        .iter()
        .map(|&(_, rows, columns, cut)| Matrix { rows, columns, cut })
        .collect()
}

/// The first `len` numbers of the exercise's generator, with the seed `seed`.
fn drawn(seed: u64, len: usize) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x >> 33) as f64 / (1u64 << 30) as f64 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// Each matrix as one rank begins with it.
fn wholes() -> Vec<Vec<f64>> {
    let all: usize = MODEL.iter().map(|(_, rows, columns, _)| rows * columns).sum();
    let mut numbers = drawn(SEED, all).into_iter();
    MODEL
        .iter()
        .map(|(_, rows, columns, _)| numbers.by_ref().take(rows * columns).collect())
        .collect()
}

/// The numbers of `whole`, matrix `i` of the model, for whose row and column `mine` holds.
fn those(whole: &[f64], i: usize, mine: impl Fn(usize, usize) -> bool) -> Vec<f64> {
    let columns = MODEL[i].2;
    let at = |place: &usize| mine(place / columns, place % columns);
    (0..whole.len()).filter(at).map(|place| whole[place]).collect()
}

/// A rank's slice of `whole`, if the ranks share it as `cut` says.
fn slice(whole: &[f64], i: usize, cut: Cut, place: Place) -> Vec<f64> {
    let (_, rows, columns, _) = MODEL[i];
    let Place { rank, ranks } = place;
    those(whole, i, |row, column| match cut {
        Cut::Whole => true,
        Cut::Rows => row * ranks / rows == rank,
        Cut::Columns => column * ranks / columns == rank,
    })
}

/// The reader's parts of all matrices on a rank; none if there is a part too few or too many.
fn parts(evidence: &mut Evidence, place: Place) -> Option<Vec<Vec<f64>>> {
    let Place { rank, ranks } = place;
    evidence.given(format!("rank {rank} of {ranks}, with seed {SEED}"));
    let parts = begin(SEED, &model(), place);
    if parts.len() != MODEL.len() {
        let at = format!("rank {rank} of {ranks}: parts");
        evidence.same(at, MODEL.len(), parts.len());
        evidence
            .means("`begin` returns one part for each matrix of the model, in the model's order.");
        return None;
    }
    for (part, (name, rows, columns, cut)) in parts.iter().zip(MODEL) {
        let each = if cut == Cut::Whole { 1 } else { ranks };
        if part.len() != rows * columns / each {
            let at = format!("rank {rank} of {ranks}: numbers of {name}");
            evidence.same(at, rows * columns / each, part.len());
            evidence.means_if(
                part.len() == rows * columns,
                "A rank holds a part of this matrix, and here it gets all of it. Then nothing is cut any more.",
            );
            evidence.means(
                "A part has another size than the rank's rows times its columns. `matrix.part(place)` says which these are.",
            );
            return None;
        }
    }
    Some(parts)
}

/// Some of the numbers, as the evidence shows them.
fn few(numbers: &[f64]) -> String {
    let few: Vec<String> = numbers.iter().take(3).map(|x| format!("{x:.3}")).collect();
    let more = if numbers.len() > 3 { " ..." } else { "" };
    format!("{}{more}", few.join(" "))
}

/// Compares two parts to the bit. The evidence shows the first numbers in which they differ.
fn same(evidence: &mut Evidence, at: String, expected: &[f64], got: &[f64]) {
    let differ = expected.iter().zip(got).position(|(a, b)| a != b);
    match differ {
        None | Some(0) => evidence.row(differ.is_none(), at, few(expected), few(got)),
        Some(from) => evidence.row(
            false,
            format!("{at}, from number {from} on"),
            few(&expected[from..]),
            few(&got[from..]),
        ),
    };
}

fn one_rank(evidence: &mut Evidence) -> Result<()> {
    let alone = Place { rank: 0, ranks: 1 };
    let Some(got) = parts(evidence, alone) else {
        return Ok(());
    };
    let wholes = wholes();
    for (i, (name, ..)) in MODEL.iter().enumerate() {
        same(evidence, name.to_string(), &wholes[i], &got[i]);
    }
    if evidence.agrees() {
        return Ok(());
    }
    let anew = got[0][..8] == got[2][..8] && got[0][0] != got[0][1];
    evidence.means_if(
        anew,
        "Every matrix begins with the same numbers, because its generator begins anew with the same seed. That is the fault of this \
         exercise once more, between matrices instead of ranks.",
    );
    evidence.means_if(
        got[1] == drawn(SEED, got[1].len()),
        "Matrices that are cut and those that are not come from two generators. Megatron-LM has two as well, and the seed of one of them \
         contains the rank. The model is healthy, and another one for each number of ranks, so no comparison with one rank can show \
         that all else is right. Here one rank has to begin with the numbers that it had, and all ranks with its slices.",
    );
    evidence.means(
        "One rank had nothing wrong. Its model is the reference with which everything else is compared, so with the same seed it has to \
         begin with the numbers it had: one generator for the whole model, matrix after matrix, row by row.",
    );
    Ok(())
}

/// The parts of all ranks.
fn all_parts(evidence: &mut Evidence, ranks: usize) -> Option<Vec<Vec<Vec<f64>>>> {
    (0..ranks).map(|rank| parts(evidence, Place { rank, ranks })).collect()
}

/// The loss of an MLP, tanh(x A) C, after `steps` steps on random examples. It begins with the
/// ranks' parts of A and C.
fn loss_after(steps: usize, parts: &[Vec<Vec<f64>>]) -> f64 {
    let ranks = parts.len();
    let mut a = vec![0.0; WIDTH * HIDDEN];
    for (rank, part) in parts.iter().enumerate() {
        for (i, x) in part[0].iter().enumerate() {
            let each = HIDDEN / ranks;
            a[i / each * HIDDEN + rank * each + i % each] = *x;
        }
    }
    let mut c: Vec<f64> = parts.iter().flat_map(|part| part[2].clone()).collect();
    let examples = drawn(1, EXAMPLES * (WIDTH + RESULTS));
    let (inputs, targets) = examples.split_at(EXAMPLES * WIDTH);
    let n = EXAMPLES as f64;
    let mut loss = 0.0;
    for step in 0..=steps {
        loss = 0.0;
        let mut da = vec![0.0; a.len()];
        let mut dc = vec![0.0; c.len()];
        for (x, target) in inputs.chunks(WIDTH).zip(targets.chunks(RESULTS)) {
            let unit = |j: usize| (0..WIDTH).map(|i| x[i] * a[i * HIDDEN + j]).sum::<f64>();
            let h: Vec<f64> = (0..HIDDEN).map(|j| unit(j).tanh()).collect();
            let result = |k: usize| (0..HIDDEN).map(|j| h[j] * c[j * RESULTS + k]).sum::<f64>();
            let off: Vec<f64> = (0..RESULTS).map(|k| result(k) - target[k]).collect();
            loss += off.iter().map(|off| off * off).sum::<f64>() / n;
            for j in 0..HIDDEN {
                let mut dh = 0.0;
                for k in 0..RESULTS {
                    dc[j * RESULTS + k] += 2.0 * h[j] * off[k] / n;
                    dh += 2.0 * off[k] * c[j * RESULTS + k] / n;
                }
                for i in 0..WIDTH {
                    da[i * HIDDEN + j] += x[i] * dh * (1.0 - h[j] * h[j]);
                }
            }
        }
        if step < steps {
            let update = |(weight, gradient): (&mut f64, f64)| *weight -= 0.2 * gradient;
            a.iter_mut().zip(da).for_each(update);
            c.iter_mut().zip(dc).for_each(update);
        }
    }
    loss
}

/// What the people saw who ran this: two ranks train worse than one.
fn losses(evidence: &mut Evidence) -> Result<()> {
    let Some(all) = all_parts(evidence, 2) else {
        return Ok(());
    };
    let one = [wholes()];
    for steps in [0, 100, 400] {
        let at = format!("loss after {steps} steps");
        evidence.near(at, loss_after(steps, &one), loss_after(steps, &all));
    }
    if !evidence.agrees() {
        diagnose(evidence, &all);
    }
    Ok(())
}

fn one_model(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    let Some(all) = all_parts(evidence, ranks) else {
        return Ok(());
    };
    let wholes = wholes();
    for (i, (name, .., cut)) in MODEL.iter().enumerate() {
        for (rank, parts) in all.iter().enumerate() {
            let expected = slice(&wholes[i], i, *cut, Place { rank, ranks });
            same(evidence, format!("rank {rank}: {name}"), &expected, &parts[i]);
        }
    }
    if !evidence.agrees() {
        diagnose(evidence, &all);
    }
    Ok(())
}

/// Says what is wrong with the parts of all ranks.
fn diagnose(evidence: &mut Evidence, all: &[Vec<Vec<f64>>]) {
    let ranks = all.len();
    let wholes = wholes();
    let alike = (0..MODEL.len()).any(|i| MODEL[i].3 != Cut::Whole && all[0][i] == all[1][i]);
    let c = &all[1][2];
    evidence.means_if(
        c.iter().all(|x| x == &c[0]),
        "A slice holds one number many times. Nothing tells its rows apart, so they get the same gradients and stay alike.",
    );
    evidence.means_if(
        alike && all[1][0] == slice(&wholes[0], 0, Cut::Columns, Place { rank: 0, ranks }),
        "All ranks take rank 0's slice of the whole matrix. Each rank has rows and columns of its own.",
    );
    evidence.means_if(
        alike,
        "Two ranks hold the same numbers. So many hidden units are copies of others: they see the same input, get the same gradients, \
         and no step tells them apart. The model is large, and computes what a smaller one would compute. Its loss falls all the \
         same. Which numbers does a rank draw, and from which seed?",
    );

    // The numbers of the whole model and some more. What is not among them comes from another seed.
    let drawn = drawn(SEED, 1000);
    let foreign = |part: &[f64]| part.iter().any(|x| !drawn.contains(x));
    let held_whole = 1;
    let last = &all[ranks - 1];
    evidence.means_if(
        last[held_whole].iter().all(|x| *x == 0.0),
        "The positions are on rank 0 alone, and `begin` sends nothing. What all ranks hold whole each of them draws, with the same \
         numbers.",
    );
    evidence.means_if(
        last[held_whole] != all[0][held_whole] && foreign(&last[held_whole]),
        "Each rank has a seed of its own now, so what all should hold whole differs: rank 1 adds other positions to the same tokens. \
         Seed plus rank was the repair of the real run, and it was enough there: a Llama has only norms that all ranks hold whole, and \
         they begin as ones. Here they also hold positions.",
    );
    evidence.means_if(
        last[held_whole] == all[0][held_whole] && foreign(&last[0]),
        "This is a healthy model: ranks have their own numbers where they share a matrix, and the same ones where all hold it whole. \
         Megatron-LM begins in this way, with a second generator whose seed contains the rank. But it is another model for each number of \
         ranks, so no comparison with one rank can show that all else is right. Take the slices of one rank's matrices.",
    );
    let stray = |i: usize, part: &[f64]| {
        let other = |x| drawn.contains(x) && !wholes[i].contains(x);
        part.iter().any(other)
    };
    let strays = all.iter().any(|parts| (0..MODEL.len()).any(|i| stray(i, &parts[i])));
    evidence.means_if(
        strays,
        "The ranks' generators are out of step: they come to a matrix after different counts of numbers, and some hold numbers of another \
         matrix. Whatever a rank skips or throws away before its slice, or after it, it has to draw as many numbers for a matrix as the \
         others.",
    );

    // What one wrong rule would give every rank of all matrices that are cut.
    let is = |wrong: &dyn Fn(usize, Place) -> Vec<f64>| {
        all.iter().enumerate().all(|(rank, parts)| {
            let cut = (0..MODEL.len()).filter(|&i| MODEL[i].3 != Cut::Whole);
            cut.into_iter().all(|i| parts[i] == wrong(i, Place { rank, ranks }))
        })
    };
    let in_a_row = |i: usize, place: Place| {
        let each = wholes[i].len() / place.ranks;
        wholes[i][place.rank * each..][..each].to_vec()
    };
    evidence.means_if(
        is(&in_a_row),
        "C and the tokens are right, and A is not: each rank takes numbers of A that were drawn one after the other. These are some of \
         its rows. A is cut by columns, and a rank's columns lie apart: some numbers of every row.",
    );
    let in_turn = |i: usize, place: Place| {
        let by_columns = MODEL[i].3 == Cut::Columns;
        those(&wholes[i], i, |row, column| {
            let line = if by_columns { column } else { row };
            line % place.ranks == place.rank
        })
    };
    evidence.means_if(
        is(&in_turn),
        "The ranks take rows and columns in turn: rank 0 the first, rank 1 the second, and so on. A rank's rows and columns lie side by \
         side, as `matrix.part(place)` says.",
    );
    let from_behind = |i: usize, Place { rank, ranks }: Place| {
        let place = Place { rank: ranks - 1 - rank, ranks };
        slice(&wholes[i], i, MODEL[i].3, place)
    };
    evidence.means_if(
        is(&from_behind),
        "The slices are right, and on other ranks: rank 0 has those of the last one.",
    );
    let other = |cut: Cut| {
        if cut == Cut::Rows { Cut::Columns } else { Cut::Rows }
    };
    let swapped = (0..MODEL.len()).any(|i| {
        let cut = MODEL[i].3;
        cut != Cut::Whole && all[1][i] == slice(&wholes[i], i, other(cut), Place { rank: 1, ranks })
    });
    evidence.means_if(
        swapped,
        "Rows and columns are mixed up: a matrix that is cut by columns is filled with the numbers of rows, or the other way around.",
    );
    evidence.means_if(ranks > 2, "With 2 ranks it was right. Where does your code count on two?");
    evidence.means(
        "Each rank has its own numbers, and they are not its slice of one rank's matrix. Which numbers lie between two of a rank's rows, \
         and who draws them?",
    );
}
