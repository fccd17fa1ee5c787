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

/// Of e4m3.
const LARGEST: f64 = 448.0;

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

/// What comes back of `x` with this scale: two numbers, which are the same but for an `x` between
/// two numbers of e4m3. There the last bit of the quotient decides, and dividing by a scale and
/// multiplying by its reciprocal differ in that bit.
fn comes_back(x: f32, scale: f64) -> [f64; 2] {
    if scale == 0.0 {
        return [x.into(); 2];
    }
    let quotient = f64::from(x) / scale;
    [1.0 - ROUNDING, 1.0 + ROUNDING].map(|off| NumberFormat::E4M3.round(quotient * off) * scale)
}

/// More than f32 rounds of a number in four operations, as a part of it.
const ROUNDING: f64 = 5e-7;

fn is_one_of(right: [f64; 2], got: f32) -> bool {
    right.iter().any(|right| {
        let got = f64::from(got);
        (right - got).abs() <= ROUNDING * right.abs() || right.is_nan() && got.is_nan()
    })
}

/// The largest number of a group, without its sign.
fn largest(x: &[f32]) -> f64 {
    x.iter().fold(0f32, |largest, x| largest.max(x.abs())).into()
}

/// The scale with which a group's largest number becomes e4m3's.
fn full(x: &[f32]) -> f64 {
    largest(x) / LARGEST
}

/// The groups of `x`, one after the other.
fn groups(x: &[f32], cols: usize, group: Group) -> Vec<&[f32]> {
    match group {
        Group::Tensor => vec![x],
        Group::Row => x.chunks(cols).collect(),
        Group::Block(length) => x.chunks(cols).flat_map(|row| row.chunks(length)).collect(),
    }
}

/// What comes back of each number; `scale` makes a scale of a group.
fn all_back(groups: &[&[f32]], scale: impl Fn(&[f32]) -> f64) -> Vec<[f64; 2]> {
    let back = |group: &&[f32]| {
        let scale = scale(group);
        group.iter().map(|&x| comes_back(x, scale)).collect::<Vec<_>>()
    };
    groups.iter().flat_map(back).collect()
}

fn are(right: &[[f64; 2]], got: &[f32]) -> bool {
    right.len() == got.len() && right.iter().zip(got).all(|(right, got)| is_one_of(*right, *got))
}

fn compare(evidence: &mut Evidence, x: &[f32], cols: usize, group: Group) -> Result<()> {
    evidence.given(format!("{x:?} in rows of {cols}, {group:?}"));
    let right = all_back(&groups(x, cols, group), full);
    let got = stored(x, cols, group);
    evidence.same("how many numbers come back", right.len(), got.len());
    let apart = right.iter().zip(&got).position(|(right, got)| !is_one_of(*right, *got));
    if let Some(i) = apart {
        let at = format!("of {}, at {i}", x[i]);
        evidence.row(false, at, number(right[i][0]), number(got[i].into()));
    }
    if !evidence.agrees() {
        explain(evidence, x, cols, group, &got);
    }
    Ok(())
}

/// Recognises mistakes by what they give.
fn explain(evidence: &mut Evidence, x: &[f32], cols: usize, group: Group, got: &[f32]) {
    let own = groups(x, cols, group);
    let by = |scale: &dyn Fn(&[f32]) -> f64| are(&all_back(&own, scale), got);
    let zero = x.iter().all(|x| *x == 0.0);
    evidence.means_if(
        zero && got.iter().all(|x| x.is_nan()),
        "0 divided by a scale of 0 is NaN. A group whose largest number is 0 needs no scale.",
    );
    evidence.means_if(
        by(&|x| f64::from(x.iter().fold(0f32, |largest, x| largest.max(*x))) / LARGEST),
        "The scale is that of the largest number, and -3 is larger than 1 in size: it becomes NaN, or worse, if it decides \
         nothing.",
    );
    // Of a power of two, the first claim shows nothing: 896 has one.
    evidence.means_if(
        by(&|x| full(x).log2().ceil().exp2()) || by(&|x| full(x).log2().round().exp2()),
        "The scale is a power of two here, as in MXFP8. That costs up to one power of two of the range: here the scale is an \
         f32, with which the group's largest number becomes exactly 448.",
    );
    evidence.means_if(
        by(&|x| full(x).log2().floor().exp2()) || by(&|x| (largest(x).log2().floor() - 8.0).exp2()),
        "The scale is a power of two here, rounded down: the group's largest number is then beyond 448, and becomes NaN. The \
         scale is an f32, with which it becomes exactly 448.",
    );
    let divided: Vec<[f64; 2]> = own
        .iter()
        .flat_map(|x| {
            let scale = full(x);
            x.iter().map(move |&x| comes_back(x, scale).map(|x| x / scale))
        })
        .collect();
    evidence.means_if(
        are(&divided, got),
        "These are the numbers of e4m3. Where they are used, each is multiplied by its scale again.",
    );
    evidence.means_if(
        by(&largest),
        "With this scale the largest number becomes 1, and the numbers from 1 to 448 are never used: the small ones have nine \
         powers of two less before they become 0.",
    );
    evidence.means_if(
        by(&|_| 1.0),
        "The scale is 1 here. 896 is too large for e4m3, and most gradients are too small.",
    );
    for other in [127.0, 224.0, 240.0, 256.0, 447.0, 464.0, 480.0, 512.0, 896.0, 57_344.0] {
        evidence.means_if(
            by(&|x| largest(x) / other),
            format!("With this scale the largest number of a group becomes {other}. The largest of e4m3 is 448."),
        );
    }
    evidence.means_if(
        are(&all_back(&[x], full), got),
        "All numbers have one scale here: the largest one of all of them decides about the others.",
    );
    let flat = match group {
        Group::Block(length) => x.chunks(length).collect(),
        _ => Vec::new(),
    };
    evidence.means_if(
        are(&all_back(&flat, full), got),
        "A block goes on in the next row here. A row of 5 has blocks of 2, 2 and 1: rows are multiplied each by itself.",
    );
    evidence.means_if(
        are(&all_back(&groups(x, cols, Group::Row), full), got),
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
