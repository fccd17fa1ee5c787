//! The check of lab05-attention: all gradients against attention on one rank, with key heads that
//! one rank holds and that several hold, and the bytes.

use exercise::{D, Slices, attend, attend_backward, backward};
use kit::check::{Evidence, is_near, run};
use shardlab::tensor::{Device, Tensor};
use shardlab::{Result, launch};
use std::ops::Range;
use std::process::ExitCode;

/// There are more tokens than columns: the gradients of k and v are smaller than those of X k and X
/// v.
const TOKENS: usize = 12;
const WIDTH: usize = 10;
const HEADS: usize = 8;

fn main() -> ExitCode {
    run(&[
        ("1 rank: the gradients of 8 query and 2 key heads", |evidence| {
            gradients(evidence, Job::new(1, 2)?)
        }),
        ("2 ranks: each has a key head of its own", |evidence| {
            gradients(evidence, Job::new(2, 2)?)
        }),
        ("2 ranks: each has two key heads", |evidence| {
            gradients(evidence, Job::new(2, 4)?)
        }),
        ("4 ranks: two of them hold the same key head", |evidence| {
            gradients(evidence, Job::new(4, 2)?)
        }),
        ("4 ranks and one key head: all of them hold it", |evidence| {
            gradients(evidence, Job::new(4, 1)?)
        }),
        ("2 and 4 ranks: the bytes that a rank sends", |evidence| {
            costs(evidence, &Job::new(2, 2)?)?;
            costs(evidence, &Job::new(4, 2)?)
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

/// The parts of [`Slices`]: their names, and the axis along which heads lie side by side.
const PARTS: [(&str, usize); 4] = [("q", 1), ("k", 1), ("v", 1), ("out", 0)];

fn part(slices: &Slices, part: usize) -> &Tensor {
    [&slices.q, &slices.k, &slices.v, &slices.out][part]
}

/// A layer, and the ranks that share it.
struct Job {
    ranks: usize,
    key_heads: usize,
    whole: Slices,
    x: Tensor,
    dz: Tensor,
}

/// All that follows from one query head. Of k and v it has one summand of their gradients.
struct OneHead {
    gradients: Slices,
    /// The gradients of X through q, k and v.
    dx: [Tensor; 3],
    /// X v
    v: Tensor,
}

impl Job {
    fn new(ranks: usize, key_heads: usize) -> Result<Job> {
        Ok(Job {
            ranks,
            key_heads,
            whole: Slices {
                q: numbers(1.0, &[WIDTH, HEADS * D])?,
                k: numbers(2.0, &[WIDTH, key_heads * D])?,
                v: numbers(3.0, &[WIDTH, key_heads * D])?,
                out: numbers(4.0, &[HEADS * D, WIDTH])?,
            },
            x: numbers(6.0, &[TOKENS, WIDTH])?,
            dz: numbers(7.0, &[TOKENS, WIDTH])?,
        })
    }

    fn query_heads(&self, rank: usize) -> Range<usize> {
        let each = HEADS / self.ranks;
        rank * each..(rank + 1) * each
    }

    /// The key head that a query head uses.
    fn key_head(&self, head: usize) -> usize {
        head / (HEADS / self.key_heads)
    }

    fn key_heads(&self, rank: usize) -> Range<usize> {
        let heads = self.query_heads(rank);
        self.key_head(heads.start)..self.key_head(heads.end - 1) + 1
    }

    /// The heads of a rank that lie in one part of the slices.
    fn heads_in(&self, part: usize, rank: usize) -> Range<usize> {
        match PARTS[part].0 {
            "k" | "v" => self.key_heads(rank),
            _ => self.query_heads(rank),
        }
    }

    fn slices(&self, rank: usize) -> Result<Slices> {
        let of = |index: usize| {
            let heads = self.heads_in(index, rank);
            part(&self.whole, index).narrow(PARTS[index].1, heads.start * D, heads.len() * D)
        };
        Ok(Slices { q: of(0)?, k: of(1)?, v: of(2)?, out: of(3)? })
    }

    /// One query head, if it used the key head `key`.
    fn head(&self, head: usize, key: usize) -> Result<OneHead> {
        let Job { whole, x, dz, .. } = self;
        let columns = |m: &Tensor, head: usize| m.narrow(1, head * D, D);
        let weights = [columns(&whole.q, head)?, columns(&whole.k, key)?, columns(&whole.v, key)?];
        let [q, k, v] = [x.matmul(&weights[0])?, x.matmul(&weights[1])?, x.matmul(&weights[2])?];
        let (y, p) = attend(&q, &k, &v)?;
        let dy = dz.matmul(&whole.out.narrow(0, head * D, D)?.t()?)?;
        let d = attend_backward([&q, &k, &v], &p, &dy)?;
        let weight = |i: usize| -> Result<Tensor> { Ok(x.t()?.matmul(&d[i])?) };
        let through = |i: usize| -> Result<Tensor> { Ok(d[i].matmul(&weights[i].t()?)?) };
        Ok(OneHead {
            gradients: Slices {
                q: weight(0)?,
                k: weight(1)?,
                v: weight(2)?,
                out: y.t()?.matmul(dz)?,
            },
            dx: [through(0)?, through(1)?, through(2)?],
            v,
        })
    }

    fn heads(&self) -> Result<Vec<OneHead>> {
        (0..HEADS).map(|head| self.head(head, self.key_head(head))).collect()
    }

    /// The right gradient of one head in one part.
    fn right(&self, heads: &[OneHead], index: usize, head: usize) -> Result<Tensor> {
        match PARTS[index].0 {
            "k" | "v" => self.of_users(heads, index, head, 0..HEADS),
            _ => Ok(part(&heads[head].gradients, index).clone()),
        }
    }

    /// The gradient of key head `key` through those of `from` that use it.
    fn of_users(
        &self,
        heads: &[OneHead],
        index: usize,
        key: usize,
        from: Range<usize>,
    ) -> Result<Tensor> {
        let users = from.filter(|&head| self.key_head(head) == key);
        sum(users.map(|head| part(&heads[head].gradients, index)))
    }
}

/// The sum of tensors of one shape, at least one.
fn sum<'a>(all: impl IntoIterator<Item = &'a Tensor>) -> Result<Tensor> {
    let all: Vec<&Tensor> = all.into_iter().collect();
    let zero = all[0].zeros_like()?;
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

/// Compares, and notes the first number that is wrong.
fn compare(evidence: &mut Evidence, at: &str, expected: &Tensor, got: &Tensor) -> Result<()> {
    let shape = |x: &Tensor| format!("shape {:?}", x.dims());
    if expected.dims() != got.dims() {
        evidence.row(false, at, shape(expected), shape(got));
        return Ok(());
    }
    let (expected_values, got) = (values(expected)?, values(got)?);
    let i = (0..got.len()).find(|&i| !is_near(expected_values[i], got[i])).unwrap_or(0);
    let columns = expected.dim(1)?;
    let at = format!("{at} [{}, {}]", i / columns, i % columns);
    evidence.near(at, expected_values[i], got[i]);
    Ok(())
}

/// What a rank returned, and the bytes that it sent.
struct Answer {
    dx: Tensor,
    slices: Slices,
    bytes: u64,
}

fn answers(evidence: &Evidence, job: &Job) -> Result<Vec<Answer>> {
    launch::run(job.ranks, |comm| {
        let slices = job.slices(comm.rank())?;
        let before = comm.total_traffic();
        evidence.given(format!(
            "rank {} of {}, {} key heads in all, x [{TOKENS}, {WIDTH}], q {:?}, k {:?}",
            comm.rank(),
            job.ranks,
            job.key_heads,
            slices.q.dims(),
            slices.k.dims()
        ));
        let (dx, slices) = backward(&comm, job.key_heads, &slices, &job.x, &job.dz)?;
        Ok(Answer { dx, slices, bytes: (comm.total_traffic() - before).bytes })
    })
}

fn gradients(evidence: &mut Evidence, job: Job) -> Result<()> {
    let answers = answers(evidence, &job)?;
    let heads = job.heads()?;
    let dx = sum(heads.iter().flat_map(|head| &head.dx))?;
    for (rank, answer) in answers.iter().enumerate() {
        for (index, (name, axis)) in PARTS.into_iter().enumerate() {
            let mine = job.heads_in(index, rank);
            let right =
                mine.map(|head| job.right(&heads, index, head)).collect::<Result<Vec<_>>>()?;
            let at = format!("rank {rank}: {name}'s gradient");
            compare(evidence, &at, &Tensor::cat(&right, axis)?, part(&answer.slices, index))?;
        }
        compare(evidence, &format!("rank {rank}: dx"), &dx, &answer.dx)?;
    }
    if !evidence.agrees() {
        explain(evidence, &job, &heads, &dx, &answers)?;
    }
    Ok(())
}

/// Looks for what each known mistake would have given.
fn explain(
    evidence: &mut Evidence,
    job: &Job,
    heads: &[OneHead],
    dx: &Tensor,
    answers: &[Answer],
) -> Result<()> {
    let ranks = job.ranks;
    let n = ranks as f64;
    let several = ranks > 1;
    // So many ranks hold the same key head, and so many query heads use it.
    let holders = ranks.div_ceil(job.key_heads);
    let users = HEADS / job.key_heads;
    // Whether every rank has `wrong(rank, head)` of all its heads in one part.
    let is = |index: usize, wrong: &dyn Fn(usize, usize) -> Result<Tensor>| -> Result<bool> {
        for (rank, answer) in answers.iter().enumerate() {
            let wrong = job
                .heads_in(index, rank)
                .map(|head| wrong(rank, head))
                .collect::<Result<Vec<_>>>()?;
            if !same(&Tensor::cat(&wrong, PARTS[index].1)?, part(&answer.slices, index))? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    let dx_is = |wrong: &dyn Fn(usize) -> Result<Tensor>| -> Result<bool> {
        for (rank, answer) in answers.iter().enumerate() {
            if !same(&wrong(rank)?, &answer.dx)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    let right = |index: usize, head: usize| job.right(heads, index, head);

    let [q, k] = [0, 1].map(|index| part(&answers[0].slices, index).dims());
    evidence.means_if(
        users > 1 && k == [WIDTH, job.query_heads(0).len() * D],
        "k and v have a gradient for each query head. But the rank holds one key head for several of them: each number of k is \
         used by all query heads of its group, so its gradient is the sum of theirs.",
    );
    evidence.means_if(
        q == [WIDTH * job.query_heads(0).len(), D] || k == [WIDTH * job.key_heads(0).len(), D] && k[0] > WIDTH,
        "The heads are one below the other. In q, k and v a head has columns, so heads are beside each other: \
         `Tensor::cat(&heads, 1)?`. Only in `out` does a head have rows.",
    );
    for (index, (name, axis)) in PARTS.into_iter().enumerate() {
        let [rows, columns] = *part(&answers[0].slices, index).dims() else {
            continue;
        };
        let (long, other) = if axis == 1 { (columns, rows) } else { (rows, columns) };
        let count = job.heads_in(index, 0).len();
        evidence.means_if(
            other == WIDTH && long % D == 0 && long != count * D,
            format!(
                "{name}'s gradient is {} x {D} wide on rank 0, and its slice {count} x {D}. Go through all key \
                 heads of the rank, and through all query heads of each.",
                long / D
            ),
        );
    }
    evidence.means_if(
        several && is(0, &|_, head| Ok((right(0, head)? * n)?))? && is(3, &|_, head| Ok((right(3, head)? * n)?))?,
        format!(
            "The gradients are {ranks} times too large, because dz went through an all-reduce. Every rank has the whole dz \
             already: after the sum of `forward`, each summand has the sum's gradient. So nothing is sent for it."
        ),
    );
    evidence.means_if(
        several && is(0, &|_, head| Ok((right(0, head)? / n)?))? && is(3, &|_, head| Ok((right(3, head)? / n)?))?,
        "All gradients are those of a mean over the ranks: dz is divided. Every rank has the whole dz, and nothing is divided.",
    );
    // The pairs of query and key heads.
    let paired = |key: &dyn Fn(usize) -> usize| -> Result<bool> {
        if (0..HEADS).all(|head| key(head) == job.key_head(head)) {
            return Ok(false);
        }
        let wrong = (0..HEADS).map(|head| job.head(head, key(head))).collect::<Result<Vec<_>>>()?;
        is(0, &|_, head| Ok(wrong[head].gradients.q.clone()))
    };
    let own = |head: usize| job.key_heads(head / (HEADS / ranks));
    evidence.means_if(
        paired(&|head| own(head).start + head % own(head).len())?
            || paired(&|head| own(head).start)?
            || paired(&|head| own(head).end - 1)?,
        "A query head is paired with a key head that it does not use: its gradient is right for different keys. Neighbouring \
         query heads use the same key head, as in `forward`: the rank's query head number `head` uses its key head `head / group`.",
    );
    for index in [0, 3] {
        let name = PARTS[index].0;
        evidence.means_if(
            is(index, &|rank, head| {
                let mine = job.query_heads(rank);
                right(index, mine.end - 1 - (head - mine.start))
            })?,
            format!("The heads of {name}'s gradient are in the opposite order: a rank's first head comes first."),
        );
        let of_ranks = |groups: usize, factor: f64| {
            is(index, &|rank, head| {
                let ith = head - job.query_heads(rank).start;
                let each = ranks / groups;
                let all = (rank / each * each..(rank / each + 1) * each)
                    .map(|rank| right(index, job.query_heads(rank).start + ith))
                    .collect::<Result<Vec<_>>>()?;
                Ok((sum(&all)? * factor)?)
            })
        };
        evidence.means_if(
            several && (of_ranks(1, 1.0)? || of_ranks(1, 1.0 / n)? || holders > 1 && of_ranks(ranks / holders, 1.0)?),
            format!(
                "An all-reduce has combined {name}'s gradients of different heads. A rank has seen every token, and no other rank \
                 has this head: its gradient is complete."
            ),
        );
    }
    evidence.means_if(
        is(3, &|_, head| Ok(heads[head].v.t()?.matmul(&job.dz)?))?,
        "The gradient of `out` needs what was multiplied with `out`: the head's result, after `attend`.",
    );

    for index in [1, 2] {
        let name = PARTS[index].0;
        let word = ["key", "value"][index - 1];
        let users_of = |key: usize| (0..HEADS).filter(move |&head| job.key_head(head) == key);
        let one_of = |of: &dyn Fn(Vec<usize>) -> Option<usize>| {
            is(index, &|rank, key| {
                let mine = job.query_heads(rank);
                let users = users_of(key).filter(|head| mine.contains(head)).collect();
                Ok(part(&heads[of(users).unwrap_or(0)].gradients, index).clone())
            })
        };
        let group = users / holders;
        evidence.means_if(
            group > 1
                && (one_of(&|users| users.last().copied())? || one_of(&|users| users.first().copied())?),
            format!(
                "{name}'s gradient comes from one query head. {group} query heads of this rank use the same {word} head, and its \
                 gradient is the sum of what comes back from all of them."
            ),
        );
        evidence.means_if(
            holders > 1 && is(index, &|rank, key| job.of_users(heads, index, key, job.query_heads(rank)))?,
            format!(
                "{name}'s gradient has only what this rank's own query heads send back. {holders} ranks hold a copy of the same \
                 {word} head, and each of them has another part of its gradient. With different gradients the copies differ after \
                 the next update, and no rank computes the model any more that the others think it does."
            ),
        );
        evidence.means_if(
            holders > 1 && is(index, &|_, key| Ok((right(index, key)? / holders as f64)?))?,
            format!(
                "{name}'s gradient is the mean of {holders} ranks' parts. Each of these ranks has other query heads of the same \
                 tokens, so the parts are summands: nothing is divided."
            ),
        );
        evidence.means_if(
            several && holders < ranks && is(index, &|rank, key| {
                let ith = key - job.key_heads(rank).start;
                let all = (0..ranks)
                    .map(|rank| job.of_users(heads, index, job.key_heads(rank).start + ith, job.query_heads(rank)))
                    .collect::<Result<Vec<_>>>()?;
                sum(&all)
            })?,
            format!(
                "{name}'s gradients of all ranks are added up, and these ranks hold different {word} heads. Only gradients of the \
                 same head belong together: those on the ranks whose query heads use it."
            ),
        );
        evidence.means_if(
            holders > 1 && holders < ranks && is(index, &|rank, _| {
                let all = (0..ranks)
                    .filter(|other| other % job.key_heads == rank % job.key_heads)
                    .map(|rank| job.of_users(heads, index, job.key_heads(rank).start, job.query_heads(rank)))
                    .collect::<Result<Vec<_>>>()?;
                sum(&all)
            })?,
            format!(
                "{name}'s gradients are added up among the wrong ranks: ranks 0 and {} are in one group, and hold different {word} \
                 heads. Neighbouring ranks hold the same one, as the picture shows.",
                job.key_heads
            ),
        );
        let of_rank =
            |rank: usize, key: usize| job.of_users(heads, index, key, job.query_heads(rank));
        evidence.means_if(
            holders > 2
                && is(index, &|rank, key| Ok((of_rank(rank, key)? + of_rank(rank ^ 1, key)?)?))?,
            format!(
                "{name}'s gradient is the sum over 2 ranks, and {holders} hold this {word} head."
            ),
        );
        evidence.means_if(
            holders > 1
                && is(index, &|rank, key| {
                    if rank % holders == 0 { right(index, key) } else { of_rank(rank, key) }
                })?,
            format!("Of {holders} ranks that hold the same {word} head, one has its gradient. The others' copies need it, too."),
        );
        let factors = [
            (2.0, "2 times".to_string()),
            (n, format!("{ranks} times")),
            (1.0 / n, format!("one in {ranks} parts of")),
            (1.0 / users as f64, format!("one in {users} parts of")),
            (1.0 / group as f64, format!("one in {group} parts of")),
        ];
        for (factor, words) in factors {
            evidence.means_if(
                factor != 1.0 && is(index, &|_, key| Ok((right(index, key)? * factor)?))?,
                format!(
                    "{name}'s gradient is {words} the right one. It is the sum of what its query heads send back: each counts \
                     once, and nothing is divided."
                ),
            );
        }
    }
    evidence.means_if(
        is(1, &|_, key| right(2, key))? && is(2, &|_, key| right(1, key))?,
        "k has v's gradient, and v has k's. `attend_backward` returns those of q, k and v, in this order.",
    );

    let through = |parts: Range<usize>, from: Range<usize>| {
        sum(heads[from].iter().flat_map(|head| &head.dx[parts.clone()]))
    };
    evidence.means_if(
        several && dx_is(&|rank| through(0..3, job.query_heads(rank)))?,
        "dx has only the summands of this rank's heads. Megatron's f is missing: x goes into all ranks' heads, so an all-reduce \
         adds up the ranks' gradients of x.",
    );
    evidence.means_if(
        several && dx_is(&|_| Ok((dx / n)?))?,
        "dx is the mean of the ranks' summands. The ranks have parts of one gradient, so their sum is asked for.",
    );
    evidence.means_if(
        several && dx_is(&|_| Ok((dx * n)?))?,
        format!("dx is {ranks} times too large: the ranks have added it up twice."),
    );
    let of_holders = |rank: usize| {
        let each = HEADS / ranks * holders;
        let first = rank / holders * each;
        first..first + each
    };
    evidence.means_if(
        holders > 1 && holders < ranks && dx_is(&|rank| through(0..3, of_holders(rank)))?,
        "dx is added up among the ranks that hold the same key head. But x went into the heads of all ranks.",
    );
    let mine = |rank: usize| job.query_heads(rank);
    evidence.means_if(
        several
            && (dx_is(&|rank| Ok((through(0..1, 0..HEADS)? + through(1..3, mine(rank))?)?))?
                || dx_is(&|rank| Ok((through(0..1, mine(rank))? + through(1..3, 0..HEADS)?)?))?),
        "Of dx one part is added up among the ranks, and another part is only this rank's. It comes through q, k and v, and all of \
         it belongs into the all-reduce.",
    );
    evidence.means_if(
        holders > 1
            && dx_is(&|_| {
                let firsts = (0..ranks).step_by(holders).map(|rank| through(1..3, mine(rank)));
                let firsts = firsts.collect::<Result<Vec<_>>>()?;
                Ok((through(0..1, 0..HEADS)? + sum(&firsts)?)?)
            })?,
        format!(
            "What comes to dx through k and v is that of one rank in {holders}. The ranks' copies of a key head are equal, but each \
             rank has other query heads, and these send back another part."
        ),
    );
    evidence.means_if(
        holders > 1
            && dx_is(&|_| {
                let twice = (through(1..3, 0..HEADS)? * holders as f64)?;
                Ok((through(0..1, 0..HEADS)? + twice)?)
            })?,
        format!(
            "What comes to dx through k and v is counted {holders} times: {holders} ranks hold the same key head, and each of them \
             has brought the sum over all of them to dx. Compute dx from what the rank's own heads send back, and add up k's and \
             v's gradients after it."
        ),
    );
    for (parts, name, missing) in [
        (0..1, "q", "k and v"),
        (1..2, "k", "q and v"),
        (2..3, "v", "q and k"),
        (0..2, "q and k", "v"),
        (1..3, "k and v", "q"),
    ] {
        evidence.means_if(
            dx_is(&|_| through(parts.clone(), 0..HEADS))?,
            format!(
                "dx comes only through {name}. The same x also goes into {missing}: each head has three parts of dx, and they are \
                 added up before the all-reduce."
            ),
        );
    }
    let all_right = (0..4)
        .map(|index| is(index, &|_, head| right(index, head)))
        .collect::<Result<Vec<_>>>()?;
    evidence.means_if(
        all_right.iter().all(|right| *right),
        "The gradients of all heads are right, and dx is not. It is the sum over all query heads of dq q' + dk k' + dv v', where ' \
         is the transposed matrix, each query head with its own dk and dv.",
    );
    evidence.means_if(
        all_right[0] && all_right[3],
        "q's and out's gradients are right, so each query head is computed as it should be. What comes back to k and v belongs to \
         the key head and the value head that the query head has used.",
    );
    evidence.means(
        "For a product P = M N, the gradient of M is dP times N transposed, and that of N is M transposed times dP. Go back \
         from dz in this way, query head by query head: through `out`, `attend_backward`, then q, k and v.",
    );
    Ok(())
}

fn costs(evidence: &mut Evidence, job: &Job) -> Result<()> {
    let answers = answers(evidence, job)?;
    let bytes = answers.iter().map(|answer| answer.bytes).max().unwrap_or(0);
    // An all-reduce sends 2(n-1)/n of its data.
    let all_reduce = |ranks: usize, numbers: usize| {
        (2 * (ranks - 1) * numbers * size_of::<f64>() / ranks) as u64
    };
    let dx = all_reduce(job.ranks, TOKENS * WIDTH);
    let keys = 2 * all_reduce(job.ranks / job.key_heads, WIDTH * D);
    // Each rank tells its color and key to all others. A job does so once, before its first step.
    let split = (2 * size_of::<u64>() * (job.ranks - 1)) as u64;
    let most = dx + keys + 2 * split;
    evidence.row(
        bytes <= most,
        format!("{} ranks: bytes that one sends", job.ranks),
        format!("at most {most}"),
        bytes,
    );
    evidence.means_if(
        bytes >= most + 2 * dx - split && bytes <= most + 2 * dx + 2 * split,
        "Everything is right, but the ranks make three all-reduces of x's size, one for each of q, k and v. These three gradients \
         are of the same x, so a rank adds up its own first. One all-reduce is enough.",
    );
    evidence.means(
        "Everything is right, but a rank sends more than two all-reduces need: one of x's gradient among all ranks, and one of k's \
         and v's among the ranks that hold the same key head. The heads' results and the gradients of q and `out` stay on their \
         ranks, and where no other rank holds a key head, its gradient does, too.",
    );
    if job.ranks > job.key_heads {
        evidence.figure("bytes that a rank sends", bytes, most);
    }
    Ok(())
}
