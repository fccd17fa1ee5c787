//! The check of lab08-blocks: numbers that share a scale, beside the definition in f64, from one
//! number on; then real gradients, and an outlier.

use exercise::{Group, ruined, stored};
use kit::check::{Evidence, number, run};
use kit::number_format::NumberFormat;
use shardlab::Result;
use shardlab::data::Corpus;
use shardlab::model::Gpt;
use shardlab::train::Config;
use std::process::ExitCode;

const LARGEST: f32 = 448.0;

fn main() -> ExitCode {
    run(&[
        ("one scale for a tensor", |evidence| {
            compare(evidence, &[896.0, 1.3, 0.001, -2.1], 4, Group::Tensor)
        }),
        ("the largest number is negative", |evidence| {
            compare(evidence, &[1.0, -3.0, 0.004, 0.7], 2, Group::Tensor)
        }),
        ("numbers that are all 0", |evidence| compare(evidence, &[0.0; 4], 2, Group::Row)),
        ("a scale for each row", |evidence| {
            let x = [896.0, 1.3, 0.001, -2.1, 0.5, -0.001, 0.06, 0.25];
            compare(evidence, &x, 4, Group::Row)
        }),
        ("a scale for each 2 numbers of a row of 5", |evidence| {
            let x = [896.0, 0.3, 0.02, -2.1, 0.006, 700.0, 0.04, 0.03, 5.0, 0.007];
            compare(evidence, &x, 5, Group::Block(2))
        }),
        ("gradients of a training, a scale for each 32", gradients),
        ("what one outlier ruins", outlier),
    ])
}

/// What comes back, by the definition; `scale` makes it of a group's largest number.
fn defined(x: &[f32], scale: impl Fn(&[f32]) -> f32) -> Vec<f32> {
    let scale = scale(x);
    let back = |&x: &f32| match scale {
        0.0 => x,
        _ => NumberFormat::E4M3.round(f64::from(x / scale)) as f32 * scale,
    };
    x.iter().map(back).collect()
}

fn largest(x: &[f32]) -> f32 {
    x.iter().fold(0f32, |largest, x| largest.max(x.abs())) / LARGEST
}

/// The groups of `x`, one after the other.
fn groups(x: &[f32], cols: usize, group: Group) -> Vec<&[f32]> {
    match group {
        Group::Tensor => vec![x],
        Group::Row => x.chunks(cols).collect(),
        Group::Block(length) => x.chunks(cols).flat_map(|row| row.chunks(length)).collect(),
    }
}

fn expected(x: &[f32], cols: usize, group: Group) -> Vec<f32> {
    groups(x, cols, group).into_iter().flat_map(|x| defined(x, largest)).collect()
}

fn is(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b || a.is_nan() && b.is_nan())
}

fn compare(evidence: &mut Evidence, x: &[f32], cols: usize, group: Group) -> Result<()> {
    evidence.given(format!("{x:?} in rows of {cols}, {group:?}"));
    let right = expected(x, cols, group);
    let got = stored(x, cols, group);
    evidence.same("how many numbers come back", right.len(), got.len());
    let apart = right.iter().zip(&got).position(|(right, got)| right != got);
    if let Some(i) = apart {
        let at = format!("of {}, at {i}", x[i]);
        evidence.row(false, at, number(right[i].into()), number(got[i].into()));
    }
    if !evidence.agrees() {
        explain(evidence, x, cols, group, &got);
    }
    Ok(())
}

/// Recognises mistakes by what they give.
fn explain(evidence: &mut Evidence, x: &[f32], cols: usize, group: Group, got: &[f32]) {
    let by = |scale: &dyn Fn(&[f32]) -> f32| -> Vec<f32> {
        groups(x, cols, group).into_iter().flat_map(|x| defined(x, scale)).collect()
    };
    let zero = x.iter().all(|x| *x == 0.0);
    evidence.means_if(
        zero && got.iter().all(|x| x.is_nan()),
        "0 divided by a scale of 0 is NaN. A group whose largest number is 0 needs no scale.",
    );
    evidence.means_if(
        is(got, &by(&|x| x.iter().fold(0f32, |largest, x| largest.max(*x)) / LARGEST)),
        "The scale is that of the largest number, and -3 is larger than 1 in size: it becomes NaN, or worse, if it decides \
         nothing.",
    );
    let divided: Vec<f32> = groups(x, cols, group)
        .into_iter()
        .flat_map(|x| {
            let scale = largest(x);
            defined(x, largest).into_iter().map(move |x| x / scale)
        })
        .collect();
    evidence.means_if(
        is(got, &divided),
        "These are the numbers of e4m3. Where they are used, each is multiplied by its scale again.",
    );
    evidence.means_if(
        is(got, &by(&|x| largest(x) * LARGEST)),
        "With this scale the largest number becomes 1, and the numbers from 1 to 448 are never used: the small ones have nine \
         powers of two less before they become 0.",
    );
    evidence.means_if(
        is(got, &by(&|_| 1.0)),
        "The scale is 1 here. 896 is too large for e4m3, and most gradients are too small.",
    );
    evidence.means_if(
        is(got, &expected(x, cols, Group::Tensor)),
        "All numbers have one scale here: the largest one of all of them decides about the others.",
    );
    let flat = match group {
        Group::Block(length) => expected(x, x.len(), Group::Block(length)),
        _ => Vec::new(),
    };
    evidence.means_if(
        is(got, &flat),
        "A block goes on in the next row here. A row of 5 has blocks of 2, 2 and 1: rows are multiplied each by itself.",
    );
    evidence.means_if(
        is(got, &expected(x, cols, Group::Row)),
        "Each row has one scale here, not each block of it.",
    );
    evidence.means("The first number that differs is in the row above. Which numbers have its scale, and which of them is the largest?");
}

/// The first gradients of a small GPT's widest matrix.
fn gradients(evidence: &mut Evidence) -> Result<()> {
    let corpus = Corpus::embedded()?;
    let config = Config::small(1, &corpus);
    let gpt = Gpt::new(&config.shape)?;
    gpt.params.allocate(config.seed);
    gpt.params.zero_gradients();
    let batch = config.sampler(0).batch(&corpus.train, 0, 0);
    gpt.loss(&batch, &config.pass(0, &batch.sequences))?.backward()?;
    let (name, dims) = config.shape.block_named(0, "out.weight");
    let spec = gpt.params.specs().iter().find(|spec| spec.name == name);
    let gradient = spec.map(|spec| gpt.params.gradients()[spec.range()].to_vec());
    let gradient = gradient.unwrap_or_default();
    compare(evidence, &gradient, dims[1], Group::Block(32))
}

/// Each number that shares a scale with the outlier has fewer digits from then on.
fn outlier(evidence: &mut Evidence) -> Result<()> {
    const ROWS: usize = 1024;
    const COLS: usize = 4096;
    let right = [ROWS * COLS, COLS, 128, 32].map(|group| group - 1);
    let got = ruined();
    for ((name, right), got) in ["tensor", "row", "128", "32"].into_iter().zip(right).zip(got) {
        evidence.answer(format!("others that an outlier ruins, a scale per {name}"), right, got);
    }
    evidence.means_if(
        got == right.map(|others| others + 1),
        "The outlier itself keeps its digits: it is the number that decides the scale.",
    );
    evidence.means_if(
        got[1..] == [COLS * ROWS / COLS - 1, 128 - 1, 32 - 1],
        "A row has 4,096 numbers: 1,024 is how many rows there are.",
    );
    evidence.means(
        "An outlier changes the scale that it shares, and no other. How many numbers share it?",
    );
    Ok(())
}
