//! The check of lab05-attention: the result and all gradients against attention on one rank, also where ranks do not divide the
//! heads or have none, and the bytes of two all-reduces.

use exercise::{Attention, Gradients, Head, attend, attend_backward, attention};
use kit::check::{Evidence, is_near, run};
use shardlab::tensor::{Device, Tensor};
use shardlab::{Result, launch};
use std::ops::Range;
use std::process::ExitCode;

/// No two of these lengths are equal, and none is a multiple of a head's 3 columns but the inner width.
const TOKENS: usize = 5;
const WIDTH: usize = 8;
const HEADS: usize = 4;
const D: usize = 3;

fn main() -> ExitCode {
    run(&[
        ("1 rank: Z has the results of all heads", |evidence| {
            forward(evidence, 1)
        }),
        ("2 ranks: each has the whole Z", |evidence| {
            forward(evidence, 2)
        }),
        ("1 rank: the gradients of X and of each head", |evidence| {
            backward(evidence, 1)
        }),
        ("2 ranks: the gradients of X and of each head", |evidence| {
            backward(evidence, 2)
        }),
        ("3 ranks do not divide 4 heads", |evidence| {
            both(evidence, 3)
        }),
        ("6 ranks: two of them have no head", |evidence| {
            both(evidence, 6)
        }),
        ("2 ranks: the bytes that a rank sends", |evidence| {
            costs(evidence, 2)
        }),
    ])
}

fn both(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    forward(evidence, ranks)?;
    if evidence.agrees() {
        backward(evidence, ranks)?;
    }
    Ok(())
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
    attention: Attention,
    x: Tensor,
    dz: Tensor,
}

fn inputs() -> Result<Inputs> {
    let attention = Attention {
        heads: HEADS,
        q: numbers(1.0, &[WIDTH, HEADS * D])?,
        k: numbers(2.0, &[WIDTH, HEADS * D])?,
        v: numbers(3.0, &[WIDTH, HEADS * D])?,
        out: numbers(4.0, &[HEADS * D, WIDTH])?,
        out_bias: numbers(5.0, &[WIDTH])?,
    };
    Ok(Inputs {
        attention,
        x: numbers(6.0, &[TOKENS, WIDTH])?,
        dz: numbers(7.0, &[TOKENS, WIDTH])?,
    })
}

/// The heads of a rank.
fn heads_of(rank: usize, ranks: usize) -> Range<usize> {
    let count = |rank: usize| HEADS / ranks + usize::from(rank < HEADS % ranks);
    let first = (0..rank).map(count).sum();
    first..first + count(rank)
}

/// Each rank's result, and the bytes that it sent.
type Answer = (Tensor, Option<Gradients>, u64);

/// The answers of all ranks. If a rank waits in vain for others, this becomes evidence.
fn answers(evidence: &mut Evidence, inputs: &Inputs, ranks: usize) -> Result<Option<Vec<Answer>>> {
    let given = &*evidence;
    let answers = launch::run(ranks, |comm| {
        let rank = comm.rank();
        let before = comm.traffic();
        given.given(format!(
            "rank {rank} of {ranks}, {HEADS} heads, X [{TOKENS}, {WIDTH}] and q [{WIDTH}, {}]",
            HEADS * D
        ));
        let (z, gradients) = attention(&comm, &inputs.attention, &inputs.x, &inputs.dz)?;
        Ok((z, gradients, (comm.traffic() - before).bytes))
    });
    let error = match answers {
        Ok(answers) => return Ok(Some(answers)),
        Err(error) => error,
    };
    let text = format!("{error:#}");
    let first_line = text.lines().next().unwrap_or_default();
    if HEADS.is_multiple_of(ranks) || !text.contains("all_reduce") {
        return Err(error);
    }
    println!("{text}");
    evidence.row(false, "all ranks", "end", first_line);
    evidence.means(format!(
        "The ranks do not make the same all-reduces. {HEADS} heads on {ranks} ranks: some ranks have more heads than others, or \
         none. So no all-reduce may depend on a rank's own heads. Add up their summands first, and let every rank make one \
         all-reduce, also a rank whose summand is 0."
    ));
    Ok(None)
}

/// All that a head computes, without any other head.
struct OneHead {
    /// X q, X k, X v
    projected: [Tensor; 3],
    /// Its rows of `out`.
    out: Tensor,
    /// Its summand of Z, and its summands of X's gradient through q, k and v.
    z: Tensor,
    dx: [Tensor; 3],
    gradients: Head,
}

impl Inputs {
    fn head(&self, head: usize) -> Result<OneHead> {
        let Inputs { attention, x, dz } = self;
        let columns = |m: &Tensor| m.narrow(1, head * D, D);
        let weights = [
            columns(&attention.q)?,
            columns(&attention.k)?,
            columns(&attention.v)?,
        ];
        let out = attention.out.narrow(0, head * D, D)?;
        let [xq, xk, xv] = [
            x.matmul(&weights[0])?,
            x.matmul(&weights[1])?,
            x.matmul(&weights[2])?,
        ];
        let (y, p) = attend(&xq, &xk, &xv)?;
        let dy = dz.matmul(&out.t()?)?;
        let d = attend_backward([&xq, &xk, &xv], &p, &dy)?;
        let through = |i: usize| -> Result<Tensor> { Ok(d[i].matmul(&weights[i].t()?)?) };
        let weight = |i: usize| -> Result<Tensor> { Ok(x.t()?.matmul(&d[i])?) };
        Ok(OneHead {
            z: y.matmul(&out)?,
            dx: [through(0)?, through(1)?, through(2)?],
            gradients: Head {
                q: weight(0)?,
                k: weight(1)?,
                v: weight(2)?,
                out: y.t()?.matmul(dz)?,
            },
            projected: [xq, xk, xv],
            out,
        })
    }

    fn heads(&self) -> Result<Vec<OneHead>> {
        (0..HEADS).map(|head| self.head(head)).collect()
    }
}

/// The sum of some tensors of X's shape.
fn sum<'a>(all: impl IntoIterator<Item = &'a Tensor>) -> Result<Tensor> {
    let zero = numbers(0.0, &[TOKENS, WIDTH])?.zeros_like()?;
    all.into_iter().try_fold(zero, |sum, x| Ok((sum + x)?))
}

fn values(x: &Tensor) -> Result<Vec<f64>> {
    Ok(x.flatten_all()?.to_vec1()?)
}

/// Whether the two have one shape and nearly the same numbers.
fn same(x: &Tensor, y: &Tensor) -> Result<bool> {
    let near = |(x, y): (&f64, &f64)| is_near(*x, *y);
    Ok(x.dims() == y.dims() && values(x)?.iter().zip(&values(y)?).all(near))
}

/// Whether every rank has what `wrong` gives for it.
fn every(got: &[&Tensor], wrong: &dyn Fn(usize) -> Result<Tensor>) -> Result<bool> {
    for (rank, got) in got.iter().enumerate() {
        if !same(&wrong(rank)?, got)? {
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
    let Some(answers) = answers(evidence, &inputs, ranks)? else {
        return Ok(());
    };
    let heads = inputs.heads()?;
    let Inputs { attention, x, .. } = &inputs;
    let bias = &attention.out_bias;
    let whole = sum(heads.iter().map(|head| &head.z))?;
    let expected = whole.broadcast_add(bias)?;
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
        Ok(is(wrong)? || is(&|rank| Ok(wrong(rank)?.broadcast_add(bias)?))?)
    };
    let of_heads = |range: Range<usize>| sum(heads[range].iter().map(|head| &head.z));
    // Z, if this is the summand of each head.
    let with = |summand: &dyn Fn(usize) -> Result<Tensor>| {
        let summands = (0..HEADS).map(summand).collect::<Result<Vec<_>>>()?;
        either(&|_| sum(&summands))
    };
    evidence.means_if(
        several && either(&|rank| of_heads(heads_of(rank, ranks)))?,
        "Each rank has the summands of its own heads. Megatron's g is missing: the all-reduce that adds up all ranks' summands \
         in the forward pass.",
    );
    evidence.means_if(
        several && either(&|_| Ok((&whole / n)?))?,
        "This is the mean of the ranks' summands, and Z is their sum. Data parallelism averages, because there each rank has a \
         gradient of different data. Here each rank has a part of one result.",
    );
    evidence.means_if(
        several && is(&|_| Ok(whole.broadcast_add(&(bias * n)?)?))?,
        format!("Z has out_bias {ranks} times: each rank adds it to its summand. Add it once, after the all-reduce."),
    );
    evidence.means_if(
        is(&|_| Ok(whole.broadcast_add(&(bias * HEADS as f64)?)?))?,
        format!(
            "Z has out_bias {HEADS} times: once for each head. Add it once, after the all-reduce."
        ),
    );
    evidence.means_if(is(&|_| Ok(whole.clone()))?, "out_bias is missing in Z.");
    let each = HEADS / ranks;
    let even = each * ranks;
    evidence.means_if(
        even < HEADS && either(&|_| of_heads(0..even))?,
        format!(
            "With {each} on each of {ranks} ranks, no rank has {} of {HEADS} heads. The first ranks have one more than the others.",
            if HEADS - even == 1 { "the last".into() } else { format!("the last {}", HEADS - even) }
        ),
    );
    evidence.means_if(
        several && either(&|_| Ok((of_heads(heads_of(0, ranks))? * n)?))?,
        "Every rank computes the heads of rank 0. The first head of a rank depends on its number.",
    );
    // All heads of a rank as one wide head.
    let wide = |rank: usize| -> Result<Tensor> {
        let mine = heads_of(rank, ranks);
        if mine.is_empty() {
            return sum([]);
        }
        let part = |i: usize| -> Result<Tensor> {
            let columns: Vec<&Tensor> = heads[mine.clone()]
                .iter()
                .map(|head| &head.projected[i])
                .collect();
            Ok(Tensor::cat(&columns, 1)?)
        };
        let (y, _) = attend(&part(0)?, &part(1)?, &part(2)?)?;
        Ok(y.matmul(&attention.out.narrow(0, mine.start * D, mine.len() * D)?)?)
    };
    let wides = (0..ranks).map(wide).collect::<Result<Vec<_>>>()?;
    evidence.means_if(
        either(&|_| sum(&wides))?,
        "A rank's heads are computed as one wide head. Each head has scores and probabilities of its own, from its own columns \
         of q and k: go through the heads one by one.",
    );
    evidence.means_if(
        several && with(&|head| {
            let [q, k, v] = heads[head].projected.each_ref().map(|m| m * n);
            Ok(attend(&q?, &k?, &v?)?.0.matmul(&heads[head].out)?)
        })?,
        format!(
            "X is {ranks} times too large: the ranks have added it up. Each rank has the whole X already, so Megatron's f \
             communicates nothing in the forward pass."
        ),
    );
    let [q, k, v] = ["q", "k", "v"].map(|name| format!("{name}'s columns"));
    for (i, name) in [q, k, v, "`out`'s rows".to_string()]
        .into_iter()
        .enumerate()
    {
        // Head `other`'s part of one matrix.
        let taken = |head: usize, other: usize| -> Result<Tensor> {
            let own = &heads[head];
            let other = &heads[other];
            let of = |j: usize| {
                if i == j {
                    &other.projected[j]
                } else {
                    &own.projected[j]
                }
            };
            let out = if i == 3 { &other.out } else { &own.out };
            Ok(attend(of(0), of(1), of(2))?.0.matmul(out)?)
        };
        let first_of_rank = |head: usize| {
            let rank = (0..ranks)
                .find(|&rank| heads_of(rank, ranks).contains(&head))
                .unwrap_or(0);
            heads_of(rank, ranks).start
        };
        let in_rank = |head: usize| head - first_of_rank(head);
        evidence.means_if(
            with(&|head| taken(head, 0))?
                || with(&|head| taken(head, first_of_rank(head)))?
                || with(&|head| taken(head, in_rank(head)))?,
            format!(
                "{name} are not those of the head. All four parts of a head have the same number, counted over all ranks: from \
                 column or row head x d on."
            ),
        );
    }
    evidence.means_if(
        with(&|head| {
            Ok(attend(
                &heads[head].projected[1],
                &heads[head].projected[0],
                &heads[head].projected[2],
            )?
            .0
            .matmul(&heads[head].out)?)
        })?,
        "q and k are exchanged: each token asks with q, and all tokens answer with k.",
    );
    evidence.means_if(
        with(&|head| Ok(heads[head].projected[2].matmul(&heads[head].out)?))?,
        "Each token gets its own value alone: `attend` is missing.",
    );
    evidence.means_if(
        is(&|_| Ok(x.zeros_like()?.broadcast_add(bias)?))? || is(&|_| Ok(x.zeros_like()?))?,
        "No head has computed anything: Z has no summand.",
    );
    evidence.means(
        "Z is the sum of all heads' summands, and out_bias once. A head's summand is `attend` of its columns of X q, X k and \
         X v, times the same rows of `out`.",
    );
    Ok(())
}

/// The names of a head's gradients, and their places in [`Head`].
const PARTS: [(&str, fn(&Head) -> &Tensor); 4] = [
    ("q", |head| &head.q),
    ("k", |head| &head.k),
    ("v", |head| &head.v),
    ("out", |head| &head.out),
];

fn backward(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    let inputs = inputs()?;
    let Some(answers) = answers(evidence, &inputs, ranks)? else {
        return Ok(());
    };
    let heads = inputs.heads()?;
    let dx = sum(heads.iter().flat_map(|head| &head.dx))?;
    let out_bias = inputs.dz.sum(0)?;
    let mut all = Vec::new();
    for (rank, (_, gradients, _)) in answers.iter().enumerate() {
        let Some(gradients) = gradients else {
            evidence.row(false, format!("rank {rank}"), "gradients", "None");
            continue;
        };
        compare(
            evidence,
            &format!("rank {rank}: X's gradient"),
            &dx,
            &gradients.x,
        )?;
        compare(
            evidence,
            &format!("rank {rank}: out_bias's gradient"),
            &out_bias,
            &gradients.out_bias,
        )?;
        let mine = heads_of(rank, ranks);
        let count = gradients.heads.len();
        if evidence.row(
            count == mine.len(),
            format!("rank {rank}: heads"),
            mine.len(),
            count,
        ) {
            for (head, got) in mine.zip(&gradients.heads) {
                for (name, of) in PARTS {
                    let at = format!("rank {rank}, head {head}: {name}'s gradient");
                    compare(evidence, &at, of(&heads[head].gradients), of(got))?;
                }
            }
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
    let counts: Vec<usize> = all.iter().map(|gradients| gradients.heads.len()).collect();
    if let Some(rank) = (0..ranks).find(|&rank| counts[rank] != heads_of(rank, ranks).len()) {
        evidence.means_if(
            counts.iter().sum::<usize>() == HEADS,
            format!(
                "Every head is on one rank, but not on the one that is asked for: the first ranks have one head more than the \
                 others. With {ranks} ranks, no rank then has more than {} heads, and the rank with most heads sets the time.",
                HEADS.div_ceil(ranks)
            ),
        );
        evidence.means(format!(
            "Rank {rank} returns the gradients of {} heads, and has {}.",
            counts[rank],
            heads_of(rank, ranks).len()
        ));
        return Ok(());
    }
    let xs: Vec<&Tensor> = all.iter().map(|gradients| &gradients.x).collect();
    let biases: Vec<&Tensor> = all.iter().map(|gradients| &gradients.out_bias).collect();
    let through = |parts: Range<usize>, heads: &[OneHead]| {
        sum(heads.iter().flat_map(|head| &head.dx[parts.clone()]))
    };
    // Whether all ranks have `wrong` of the heads' number and one part.
    let parts_are = |part: usize, wrong: &dyn Fn(usize, usize) -> Result<Tensor>| -> Result<bool> {
        for (rank, gradients) in all.iter().enumerate() {
            for (i, got) in gradients.heads.iter().enumerate() {
                if !same(&wrong(rank, i)?, PARTS[part].1(got))? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    };
    let right = |part: usize, head: usize| PARTS[part].1(&heads[head].gradients);
    let times = |part: usize, factor: f64| {
        parts_are(part, &|rank, i| {
            Ok((right(part, heads_of(rank, ranks).start + i) * factor)?)
        })
    };
    evidence.means_if(
        several && times(0, n)? && times(3, n)?,
        format!(
            "The gradients are {ranks} times too large, because dZ went through an all-reduce. Every rank has the whole dZ \
             already: behind g's sum, each summand has the sum's gradient. So g communicates nothing in the backward pass."
        ),
    );
    evidence.means_if(
        several && every(&xs, &|rank| through(0..3, &heads[heads_of(rank, ranks)]))?,
        "X's gradient has only the summands of this rank's heads. Megatron's f is missing: X goes into all ranks' heads, so an \
         all-reduce adds up the ranks' gradients of X in the backward pass.",
    );
    evidence.means_if(
        several && every(&xs, &|_| Ok((&dx / n)?))?,
        "X's gradient is the mean of the ranks' summands. The ranks have parts of one gradient, so their sum is asked for.",
    );
    for (parts, name, missing) in [
        (0..1, "q", "k and v"),
        (1..2, "k", "q and v"),
        (2..3, "v", "q and k"),
        (0..2, "q and k", "v"),
        (1..3, "k and v", "q"),
    ] {
        evidence.means_if(
            every(&xs, &|_| through(parts.clone(), &heads))?,
            format!(
                "X's gradient comes through {name} alone. The same X also goes into {missing}: each head has three parts of X's \
                 gradient, and they are added up before the all-reduce."
            ),
        );
    }
    let even: Vec<usize> = (0..ranks).map(|rank| heads_of(rank, ranks).len()).collect();
    for (part, (name, _)) in PARTS.into_iter().enumerate() {
        // Rank by rank: the sum over all ranks' first heads, second heads, and so on.
        let mixed = |factor: f64| {
            parts_are(part, &|_, i| {
                let ith = (0..ranks)
                    .filter(|&rank| i < even[rank])
                    .map(|rank| right(part, heads_of(rank, ranks).start + i));
                let zero = right(part, 0).zeros_like()?;
                let sum = ith.into_iter().try_fold(zero, |sum, x| sum + x)?;
                Ok((sum * factor)?)
            })
        };
        evidence.means_if(
            several && (mixed(1.0)? || mixed(1.0 / n)?),
            format!(
                "An all-reduce has combined {name}'s gradients of different heads. A rank has seen every token, so the gradients \
                 of its heads are complete. In tensor parallelism alone no weight's gradient is communicated."
            ),
        );
    }
    evidence.means_if(
        parts_are(0, &|rank, i| {
            Ok(right(0, heads_of(rank, ranks).end - 1 - i).clone())
        })? && counts[0] > 1,
        "The heads' gradients are in the opposite order: a rank's first head comes first.",
    );
    evidence.means_if(
        several && (every(&biases, &|_| Ok((&out_bias * n)?))? || every(&biases, &|_| Ok((&out_bias / n)?))?),
        format!(
            "out_bias's gradient is wrong by a factor of {ranks}. Every rank has the same whole dZ, and so the same gradient: \
             nothing is added up or divided."
        ),
    );
    evidence.means_if(
        parts_are(3, &|rank, i| {
            let head = &heads[heads_of(rank, ranks).start + i];
            Ok(head.projected[2].t()?.matmul(&inputs.dz)?)
        })?,
        "The gradient of `out` needs what was multiplied with `out`: the head's result, behind `attend`.",
    );
    evidence.means_if(
        [0, 1, 2].into_iter().all(|part| matches!(times(part, 1.0), Ok(true))) && times(3, 1.0)?,
        "The heads' gradients are right, and X's or out_bias's is not. X's gradient is the sum over all heads of dq q' + dk k' + \
         dv v', where ' is the transposed matrix. out_bias has the sum of dZ over the tokens.",
    );
    evidence.means(
        "For a product P = M N, the gradient of M is dP times N transposed, and that of N is M transposed times dP. Go back \
         from dZ in this way, head by head: through `out`, `attend_backward`, then q, k and v.",
    );
    Ok(())
}

fn costs(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    let Some(answers) = answers(evidence, &inputs()?, ranks)? else {
        return Ok(());
    };
    let bytes = answers.iter().map(|(.., bytes)| *bytes).max().unwrap_or(0);
    // An all-reduce sends 2(n-1)/n of its data, which is as large as X.
    let one = (2 * (ranks - 1) * TOKENS * WIDTH * size_of::<f64>() / ranks) as u64;
    let best = 2 * one;
    evidence.row(
        bytes <= best,
        "bytes that a rank sends",
        format!("at most {best}"),
        bytes,
    );
    evidence.means_if(
        bytes == 4 * one,
        "Everything is right, but the ranks make four all-reduces of X's size: one for Z, and one for each of q, k and v. These \
         three gradients are of the same X, so a rank adds up its own first. The ranks then need one all-reduce in each pass.",
    );
    evidence.means(
        "Everything is right, but more is sent than two all-reduces of X's size: one of Z in the forward pass, and one of X's \
         gradient in the backward pass. The heads' results and the weights stay on their ranks.",
    );
    evidence.figure("bytes that a rank sends", bytes, best);
    Ok(())
}
