//! The check of lab05-mlp: the result and all gradients against an MLP on one rank, and the bytes of two all-reduces.

use exercise::{Gradients, Mlp, mlp};
use kit::check::{Evidence, is_near, run};
use shardlab::tensor::{Device, Tensor};
use shardlab::{Result, launch};
use std::f64::consts::{PI, SQRT_2};
use std::process::ExitCode;

/// No two of these lengths are equal, and no slice on 2 or 4 ranks is as long as a different length.
const TOKENS: usize = 5;
const WIDTH: usize = 8;
const INNER: usize = 12;

fn main() -> ExitCode {
    run(&[
        ("1 rank: Z = GELU(X A + a_bias) B + b_bias", |evidence| {
            forward(evidence, 1)
        }),
        ("2 ranks: each has the whole Z", |evidence| {
            forward(evidence, 2)
        }),
        ("4 ranks: each has the whole Z", |evidence| {
            forward(evidence, 4)
        }),
        ("1 rank: all five gradients", |evidence| {
            backward(evidence, 1)
        }),
        (
            "2 ranks: the gradients of X and of each slice",
            |evidence| backward(evidence, 2),
        ),
        (
            "4 ranks: the gradients of X and of each slice",
            |evidence| backward(evidence, 4),
        ),
        ("4 ranks: one all-reduce per pass", |evidence| {
            costs(evidence, 4)
        }),
    ])
}

/// Numbers without a pattern.
fn numbers(seed: f64, dims: &[usize]) -> Result<Tensor> {
    let numbers: Vec<f64> = (0..dims.iter().product())
        .map(|i: usize| (seed + 1.7 * i as f64).sin())
        .collect();
    Ok(Tensor::from_vec(numbers, dims, &Device::Cpu)?)
}

/// The inputs of the reader's code.
struct Inputs {
    mlp: Mlp,
    x: Tensor,
    dz: Tensor,
}

fn inputs() -> Result<Inputs> {
    let a = numbers(1.0, &[WIDTH, INNER])?;
    let a_bias = numbers(2.0, &[INNER])?;
    let mlp = Mlp {
        a,
        a_bias,
        b: numbers(3.0, &[INNER, WIDTH])?,
        b_bias: numbers(4.0, &[WIDTH])?,
    };
    Ok(Inputs {
        mlp,
        x: numbers(5.0, &[TOKENS, WIDTH])?,
        dz: numbers(6.0, &[TOKENS, WIDTH])?,
    })
}

/// Each rank's result, and the bytes that it sent.
type Answer = (Tensor, Option<Gradients>, u64);

fn answers(evidence: &Evidence, inputs: &Inputs, ranks: usize) -> Result<Vec<Answer>> {
    launch::run(ranks, |comm| {
        let rank = comm.rank();
        let before = comm.traffic();
        evidence.given(format!(
            "rank {rank} of {ranks}, X [{TOKENS}, {WIDTH}] and A [{WIDTH}, {INNER}]"
        ));
        let (z, gradients) = mlp(&comm, &inputs.mlp, &inputs.x, &inputs.dz)?;
        Ok((z, gradients, (comm.traffic() - before).bytes))
    })
}

/// All that one rank computes without the other ranks.
struct Slice {
    a: Tensor,
    a_bias: Tensor,
    b: Tensor,
    /// Its columns of X A + a_bias, and of Y.
    h: Tensor,
    y: Tensor,
    /// Its summand of Z.
    z: Tensor,
    dy: Tensor,
    /// Its summand of X's gradient, and the gradients of its slices.
    gradients: Gradients,
}

impl Inputs {
    fn slice(&self, ranks: usize, rank: usize) -> Result<Slice> {
        let Inputs { mlp, x, dz } = self;
        let each = INNER / ranks;
        let a = mlp.a.narrow(1, rank * each, each)?;
        let a_bias = mlp.a_bias.narrow(0, rank * each, each)?;
        let b = mlp.b.narrow(0, rank * each, each)?;
        let h = x.matmul(&a)?.broadcast_add(&a_bias)?;
        let y = h.gelu_erf()?;
        let dy = dz.matmul(&b.t()?)?;
        let dh = (&dy * slope(&h)?)?;
        let gradients = Gradients {
            x: dh.matmul(&a.t()?)?,
            a: x.t()?.matmul(&dh)?,
            a_bias: dh.sum(0)?,
            b: y.t()?.matmul(dz)?,
            b_bias: dz.sum(0)?,
        };
        Ok(Slice {
            z: y.matmul(&b)?,
            a,
            a_bias,
            b,
            h,
            y,
            dy,
            gradients,
        })
    }

    fn slices(&self, ranks: usize) -> Result<Vec<Slice>> {
        (0..ranks).map(|rank| self.slice(ranks, rank)).collect()
    }
}

/// GELU's derivative at `h`.
fn slope(h: &Tensor) -> Result<Tensor> {
    let below = (((h / SQRT_2)?.erf()? + 1.0)? * 0.5)?;
    Ok((below + (h * (h.sqr()? * -0.5)?.exp()?)? / (2.0 * PI).sqrt())?)
}

fn sum<'a>(all: impl IntoIterator<Item = &'a Tensor>) -> Result<Tensor> {
    let mut all = all.into_iter();
    let first = all.next().expect("a rank").clone();
    all.try_fold(first, |sum, x| Ok((sum + x)?))
}

fn values(x: &Tensor) -> Result<Vec<f64>> {
    Ok(x.flatten_all()?.to_vec1()?)
}

/// Whether every rank has what `wrong` gives for it.
fn every(got: &[&Tensor], wrong: &dyn Fn(usize) -> Result<Tensor>) -> Result<bool> {
    for (rank, got) in got.iter().enumerate() {
        let wrong = wrong(rank)?;
        let near = |(x, y): (&f64, &f64)| is_near(*x, *y);
        if wrong.dims() != got.dims() || !values(&wrong)?.iter().zip(&values(got)?).all(near) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Compares, and notes the first number that is wrong.
fn compare(evidence: &mut Evidence, at: &str, expected: &Tensor, got: &Tensor) -> Result<bool> {
    let shape = |x: &Tensor| format!("shape {:?}", x.dims());
    if expected.dims() != got.dims() {
        return Ok(evidence.row(false, at, shape(expected), shape(got)));
    }
    let expected_values = values(expected)?;
    let got = values(got)?;
    let i = (0..got.len())
        .find(|&i| !is_near(expected_values[i], got[i]))
        .unwrap_or(0);
    let index = match *expected.dims() {
        [_, columns] => format!("[{}, {}]", i / columns, i % columns),
        _ => format!("[{i}]"),
    };
    Ok(evidence.near(format!("{at} {index}"), expected_values[i], got[i]))
}

fn forward(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    let inputs = inputs()?;
    let answers = answers(evidence, &inputs, ranks)?;
    let slices = inputs.slices(ranks)?;
    let Mlp {
        a,
        a_bias,
        b,
        b_bias,
    } = &inputs.mlp;
    let x = &inputs.x;
    let whole = sum(slices.iter().map(|slice| &slice.z))?;
    let expected = whole.broadcast_add(b_bias)?;
    for (rank, (z, ..)) in answers.iter().enumerate() {
        compare(evidence, &format!("rank {rank}: Z"), &expected, z)?;
    }
    if evidence.agrees() {
        return Ok(());
    }

    let n = ranks as f64;
    let several = ranks > 1;
    let all: Vec<&Tensor> = answers.iter().map(|(z, ..)| z).collect();
    let is = |wrong: &dyn Fn(usize) -> Result<Tensor>| every(&all, wrong);
    // A mistake in the summands can come with the bias and without it.
    let either = |wrong: &dyn Fn(usize) -> Result<Tensor>| -> Result<bool> {
        Ok(is(wrong)? || is(&|rank| Ok(wrong(rank)?.broadcast_add(b_bias)?))?)
    };
    let total = |summand: &dyn Fn(usize) -> Result<Tensor>| {
        sum(&(0..ranks).map(summand).collect::<Result<Vec<_>>>()?)
    };
    // Z, if this is what each rank multiplies with its rows of B.
    let with = |y: &dyn Fn(&Slice) -> Result<Tensor>| {
        either(&|_| total(&|rank| Ok(y(&slices[rank])?.matmul(&slices[rank].b)?)))
    };
    evidence.means_if(
        several && either(&|rank| Ok(slices[rank].z.clone()))?,
        "Each rank has its own summand of Z. Megatron's g is missing: the all-reduce that adds up all summands in the \
         forward pass.",
    );
    evidence.means_if(
        several && either(&|_| Ok((&whole / n)?))?,
        "This is the mean of the summands, and Z is their sum. Data parallelism averages, because there each rank has a \
         gradient of different data. Here each rank has a part of one result.",
    );
    evidence.means_if(
        several && is(&|_| Ok(whole.broadcast_add(&(b_bias * n)?)?))?,
        format!("Z has b_bias {ranks} times: each rank adds it to its summand. Add it once, after the all-reduce."),
    );
    evidence.means_if(is(&|_| Ok(whole.clone()))?, "b_bias is missing in Z.");
    let rows_first = |bias: &Tensor| {
        let each = WIDTH / ranks;
        total(&|rank| {
            let h = x
                .narrow(1, rank * each, each)?
                .matmul(&a.narrow(0, rank * each, each)?)?
                .broadcast_add(bias)?;
            Ok(h.gelu_erf()?.matmul(b)?)
        })
    };
    evidence.means_if(
        several && (either(&|_| rows_first(a_bias))? || either(&|_| rows_first(&(a_bias / n)?))?),
        "A was cut by rows. Then each rank has a summand of X A, and GELU of a summand is no summand of GELU(X A). Cut A by \
         columns: then a rank has only some numbers of X A, but these are complete.",
    );
    evidence.means_if(
        several && with(&|_| Ok(sum(slices.iter().map(|slice| &slice.h))?.gelu_erf()?))?,
        "An all-reduce before the GELU adds up different columns of X A. A rank's columns are complete already, so the ranks \
         communicate nothing between the two matrices.",
    );
    evidence.means_if(
        several && with(&|slice| Ok((x * n)?.matmul(&slice.a)?.broadcast_add(&slice.a_bias)?.gelu_erf()?))?,
        format!(
            "X is {ranks} times too large: the ranks have added it up. Each rank has the whole X already, so Megatron's f \
             communicates nothing in the forward pass."
        ),
    );
    evidence.means_if(
        several && either(&|_| Ok((&slices[0].z * n)?))?,
        "Every rank computes the slice of rank 0. The first column of a rank's slice depends on its rank.",
    );
    evidence.means_if(
        with(&|slice| Ok(slice.h.clone()))?,
        "The GELU is missing: this is (X A + a_bias) B.",
    );
    evidence.means_if(
        with(&|slice| Ok(slice.h.gelu()?))?,
        "`gelu` is an approximation by tanh. The exact GELU is `gelu_erf`, and `gelu_slope` is the slope of that one.",
    );
    evidence.means_if(
        with(&|slice| Ok(x.matmul(&slice.a)?.gelu_erf()?))?,
        "a_bias is missing. It belongs to the columns of A, so each rank adds its slice of it before the GELU.",
    );
    evidence.means(
        "Z is the sum of all ranks' summands, and b_bias once. A rank's summand is its columns of GELU(X A + a_bias) times \
         the same rows of B.",
    );
    Ok(())
}

/// The names of the gradients, and their places in [`Gradients`].
const GRADIENTS: [(&str, fn(&Gradients) -> &Tensor); 5] = [
    ("X", |g| &g.x),
    ("A", |g| &g.a),
    ("a_bias", |g| &g.a_bias),
    ("B", |g| &g.b),
    ("b_bias", |g| &g.b_bias),
];

fn backward(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    let inputs = inputs()?;
    let answers = answers(evidence, &inputs, ranks)?;
    let slices = inputs.slices(ranks)?;
    let dx = sum(slices.iter().map(|slice| &slice.gradients.x))?;
    let mut all = Vec::new();
    for (rank, (_, gradients, _)) in answers.iter().enumerate() {
        let Some(gradients) = gradients else {
            evidence.row(false, format!("rank {rank}"), "five gradients", "None");
            continue;
        };
        for (name, of) in GRADIENTS {
            let expected = if name == "X" {
                &dx
            } else {
                of(&slices[rank].gradients)
            };
            compare(
                evidence,
                &format!("rank {rank}: {name}'s gradient"),
                expected,
                of(gradients),
            )?;
        }
        all.push(gradients);
    }
    if evidence.agrees() {
        return Ok(());
    }
    if all.len() < ranks {
        evidence.means(
            "Z is right. Now compute the gradients, and return them as `Some(Gradients { .. })`.",
        );
        return Ok(());
    }

    let n = ranks as f64;
    let several = ranks > 1;
    let is = |field: usize, wrong: &dyn Fn(usize) -> Result<Tensor>| {
        every(
            &all.iter()
                .map(|gradients| GRADIENTS[field].1(gradients))
                .collect::<Vec<_>>(),
            wrong,
        )
    };
    let times = |field: usize, factor: f64| {
        is(field, &|rank| {
            Ok((GRADIENTS[field].1(&slices[rank].gradients) * factor)?)
        })
    };
    let reduced = |field: usize, factor: f64| {
        is(field, &|_| {
            Ok((sum(slices
                .iter()
                .map(|slice| GRADIENTS[field].1(&slice.gradients)))?
                * factor)?)
        })
    };
    let [x, a, a_bias, b, b_bias] = [0, 1, 2, 3, 4];
    evidence.means_if(
        several && times(b, n)? && times(a, n)?,
        format!(
            "The gradients are {ranks} times too large, because dZ went through an all-reduce. Every rank has the whole dZ \
             already: behind g's sum, each summand has the sum's gradient. So g communicates nothing in the backward pass."
        ),
    );
    evidence.means_if(
        several && times(x, 1.0)?,
        "X's gradient has only this rank's summand. Megatron's f is missing: X goes into all ranks' columns, so an all-reduce \
         adds up the ranks' gradients of X in the backward pass.",
    );
    evidence.means_if(
        several && reduced(x, 1.0 / n)?,
        "X's gradient is the mean of the ranks' summands. The ranks have parts of one gradient, so their sum is asked for.",
    );
    for (field, name) in [(a, "A"), (a_bias, "a_bias"), (b, "B")] {
        evidence.means_if(
            several && (reduced(field, 1.0)? || reduced(field, 1.0 / n)?),
            format!(
                "An all-reduce has combined the gradients of different slices of {name}. A rank has seen every token, so the \
                 gradient of its slice is complete. In tensor parallelism alone no weight's gradient is communicated."
            ),
        );
    }
    evidence.means_if(
        several && (times(b_bias, n)? || times(b_bias, 1.0 / n)?),
        format!(
            "b_bias's gradient is wrong by a factor of {ranks}. Every rank has the same whole dZ, and so the same gradient: \
             nothing is added up or divided."
        ),
    );
    let whole = |field: usize, of: &Tensor| {
        all.iter()
            .any(|gradients| GRADIENTS[field].1(gradients).dims() == of.dims())
    };
    evidence.means_if(
        several && (whole(a, &inputs.mlp.a) || whole(a_bias, &inputs.mlp.a_bias) || whole(b, &inputs.mlp.b)),
        "A gradient has the shape of a whole matrix. A rank computes the gradients of its slices alone.",
    );
    let tokens = &inputs.x;
    let dz = &inputs.dz;
    evidence.means_if(
        is(a, &|rank| Ok(tokens.t()?.matmul(&slices[rank].dy)?))?,
        "GELU's slope is missing: number by number, the gradient of X A + a_bias is that of Y times `gelu_slope`.",
    );
    evidence.means_if(
        is(a, &|rank| Ok(tokens.t()?.matmul(&(&slices[rank].dy * slope(&slices[rank].y)?)?)?))?,
        "GELU's slope was computed at its result Y. Compute it where GELU was applied: at X A + a_bias.",
    );
    evidence.means_if(
        is(b, &|rank| Ok(slices[rank].h.t()?.matmul(dz)?))?,
        "B's gradient needs what was multiplied with B: Y, behind the GELU.",
    );
    evidence.means(
        "For a product P = M N, the gradient of M is dP times N transposed, and that of N is M transposed times dP. A bias \
         has the sum over the tokens. Go back from dZ in this way, through B, GELU and A.",
    );
    Ok(())
}

fn costs(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    let answers = answers(evidence, &inputs()?, ranks)?;
    let bytes = answers.iter().map(|(.., bytes)| *bytes).max().unwrap_or(0);
    // Two all-reduces, each of 2(n-1)/n of its data.
    let best = 2 * (2 * (ranks - 1) * TOKENS * WIDTH * size_of::<f64>() / ranks) as u64;
    evidence.row(
        bytes <= best,
        "bytes that a rank sends",
        format!("at most {best}"),
        bytes,
    );
    evidence.means(
        "Everything is right, but more is sent than two all-reduces of X's size: one of Z in the forward pass, and one of X's \
         gradient in the backward pass. The slices of Y and of the weights stay on their ranks.",
    );
    evidence.figure("bytes that a rank sends", bytes, best);
    Ok(())
}
