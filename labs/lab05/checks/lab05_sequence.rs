//! The check of lab05-sequence: both passes against the MLP on one rank, in f64; then what a rank
//! keeps between the passes, by its own allocator, what it computes twice, and what it sends in
//! each pass.

use exercise::{Slices, backward, forward};
use kit::check::{Evidence, run};
use kit::show::thousands;
use shardlab::allocator::{Counting, live};
use shardlab::tensor::{Device, Tensor};
use shardlab::{Result, launch};
use std::f64::consts::{PI, SQRT_2};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The lengths of an MLP, of all ranks together.
#[derive(Clone, Copy)]
struct Lengths {
    rows: usize,
    width: usize,
    hidden: usize,
}

/// No two lengths of a matrix or of a slice are equal, on 1, 2 or 4 ranks. 4 ranks can divide a
/// rank's rows once more, so a forgotten gather does not stop the run.
const SMALL: Lengths = Lengths { rows: 16, width: 6, hidden: 20 };
/// Here each tensor that a rank might keep is larger than all small things together.
const LARGE: Lengths = Lengths { rows: 128, width: 32, hidden: 160 };
/// Numbers for shapes, names and messages.
const FEW: usize = 300;

fn main() -> ExitCode {
    run(&[
        ("1 rank: Z is that of the MLP", |evidence| check_forward(evidence, 1)),
        ("2 ranks: each has its rows of Z", |evidence| check_forward(evidence, 2)),
        ("1 rank: the gradients of X, A and B", |evidence| {
            check_rows(evidence, 1)?;
            check_slices(evidence, 1)
        }),
        ("2 ranks: the gradient of a rank's rows of X", |evidence| {
            check_rows(evidence, 2)
        }),
        ("2 ranks: the gradients of a rank's slices", |evidence| {
            check_slices(evidence, 2)
        }),
        ("4 ranks: all of this", |evidence| {
            check_forward(evidence, 4)?;
            check_rows(evidence, 4)?;
            check_slices(evidence, 4)
        }),
        ("4 ranks: what a rank keeps between the passes", memory),
        ("4 ranks: X A is computed once", once),
        ("4 ranks: the bytes that a rank sends", costs),
    ])
}

/// The MLP on one rank, and all that it computes, in f64.
struct Mlp {
    of: Lengths,
    x: Tensor,
    a: Tensor,
    b: Tensor,
    dz: Tensor,
    /// X A, and gelu of it.
    h: Tensor,
    y: Tensor,
    /// The gradients of y and h.
    dy: Tensor,
    dh: Tensor,
}

/// Numbers without a pattern, which f32 has exactly.
fn numbers(seed: f64, dims: [usize; 2]) -> Result<Tensor> {
    let numbers: Vec<f64> = (0..dims[0] * dims[1])
        .map(|i| f64::from((seed + 1.7 * i as f64).sin() as f32))
        .collect();
    Ok(Tensor::from_vec(numbers, &dims, &Device::Cpu)?)
}

/// The gradient of GELU's input.
fn gelu_backward(h: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let below = (((h / SQRT_2)?.erf()? + 1.0)? / 2.0)?;
    let density = ((h.sqr()? / -2.0)?.exp()? / (2.0 * PI).sqrt())?;
    Ok((dy * (below + (h * density)?)?)?)
}

impl Mlp {
    fn new(of: Lengths) -> Result<Mlp> {
        let x = numbers(1.0, [of.rows, of.width])?;
        let a = numbers(2.0, [of.width, of.hidden])?;
        let b = numbers(3.0, [of.hidden, of.width])?;
        let dz = numbers(4.0, [of.rows, of.width])?;
        let h = x.matmul(&a)?;
        let y = h.gelu_erf()?;
        let dy = dz.matmul(&b.t()?)?;
        let dh = gelu_backward(&h, &dy)?;
        Ok(Mlp { of, x, a, b, dz, h, y, dy, dh })
    }
}

/// A rank's place in the MLP.
#[derive(Clone, Copy)]
struct Place {
    rank: usize,
    ranks: usize,
}

impl Place {
    /// This rank's rows of a matrix.
    fn rows(self, m: &Tensor) -> Result<Tensor> {
        let each = m.dim(0)? / self.ranks;
        Ok(m.narrow(0, self.rank * each, each)?.contiguous()?)
    }

    /// This rank's columns of a matrix.
    fn columns(self, m: &Tensor) -> Result<Tensor> {
        let each = m.dim(1)? / self.ranks;
        Ok(m.narrow(1, self.rank * each, each)?.contiguous()?)
    }

    /// Its summands of Z and of dX: all rows.
    fn of_z(self, mlp: &Mlp) -> Result<Tensor> {
        Ok(self.columns(&mlp.y)?.matmul(&self.rows(&mlp.b)?)?)
    }

    fn of_dx(self, mlp: &Mlp) -> Result<Tensor> {
        Ok(self.columns(&mlp.dh)?.matmul(&self.columns(&mlp.a)?.t()?)?)
    }
}

fn places(ranks: usize) -> Vec<Place> {
    (0..ranks).map(|rank| Place { rank, ranks }).collect()
}

/// What a rank has returned, kept and sent.
struct Answer {
    /// Why its call ended with an error, if it did.
    error: String,
    z: Option<Tensor>,
    /// The gradients of its rows of X, and of its slices.
    dx: Option<Tensor>,
    slices: Option<Slices>,
    /// The tensors that it kept, and the numbers that they have in memory.
    kept: Vec<Tensor>,
    held: usize,
    /// Bytes that it sent forward and backward.
    sent: [u64; 2],
}

fn in_f32(x: &Tensor) -> Result<Tensor> {
    let numbers = x.flatten_all()?.to_vec1::<f64>()?;
    let numbers: Vec<f32> = numbers.into_iter().map(|x| x as f32).collect();
    Ok(Tensor::from_vec(numbers, x.shape(), &Device::Cpu)?)
}

fn in_f64(x: &Tensor) -> Result<Tensor> {
    let numbers = x.flatten_all()?.to_vec1::<f32>()?;
    let numbers: Vec<f64> = numbers.into_iter().map(f64::from).collect();
    Ok(Tensor::from_vec(numbers, x.shape(), &Device::Cpu)?)
}

#[derive(Clone, Copy, PartialEq)]
enum Passes {
    Forward,
    Both,
    /// `backward` gets minus `a`, which changes the gradients of what is computed with it there:
    /// not dB, if h was kept.
    OtherA,
}

/// The answers of all ranks.
fn answers(evidence: &Evidence, mlp: &Mlp, ranks: usize, passes: Passes) -> Result<Vec<Answer>> {
    let Lengths { rows, width, hidden } = mlp.of;
    Ok(launch::run(ranks, |comm| {
        let rank = comm.rank();
        let at = Place { rank, ranks };
        let mut slices = Slices {
            a: in_f32(&at.columns(&mlp.a)?)?,
            b: in_f32(&at.rows(&mlp.b)?)?,
        };
        let dz = in_f32(&at.rows(&mlp.dz)?)?;
        let own = at.rows(&mlp.x)?;
        let shapes = format!(
            "rank {rank} of {ranks}: x and dz [{}, {width}], a [{width}, {}], b [{1}, {width}]",
            rows / ranks,
            hidden / ranks
        );
        let mut answer = Answer {
            error: String::new(),
            z: None,
            dx: None,
            slices: None,
            kept: Vec::new(),
            held: 0,
            sent: [0; 2],
        };
        // The first call also allocates what a thread needs once.
        let once = if mlp.of.rows == LARGE.rows { 2 } else { 1 };
        for _ in 0..once {
            answer.kept = Vec::new();
            let before = (live(), comm.traffic());
            let x = in_f32(&own)?;
            evidence.given(format!("`forward` of {shapes}"));
            let result = forward(&comm, &slices, &x);
            answer.sent[0] = (comm.traffic() - before.1).bytes;
            // A rank that keeps x keeps its memory.
            drop(x);
            match result {
                Ok((z, kept)) => {
                    let z_bytes = z.elem_count() * size_of::<f32>();
                    let held = live() - before.0 - z_bytes as isize;
                    answer.held = held.max(0) as usize / size_of::<f32>();
                    answer.z = Some(in_f64(&z)?);
                    answer.kept = kept;
                }
                Err(error) => {
                    answer.error = format!("{error:#}");
                    return Ok(answer);
                }
            }
        }
        if passes == Passes::Forward {
            return Ok(answer);
        }
        if passes == Passes::OtherA {
            slices.a = in_f32(&at.columns(&mlp.a.neg()?)?)?;
        }
        let before = comm.traffic();
        evidence.given(format!("`backward` of {shapes}"));
        let result = backward(&comm, &slices, answer.kept.clone(), &dz);
        answer.sent[1] = (comm.traffic() - before).bytes;
        match result {
            Ok((dx, Slices { a, b })) => {
                answer.dx = Some(in_f64(&dx)?);
                answer.slices = Some(Slices { a: in_f64(&a)?, b: in_f64(&b)? });
            }
            Err(error) => answer.error = format!("{error:#}"),
        }
        Ok(answer)
    })?)
}

/// Whether a call of the reader's code has failed; then this is the evidence.
fn failed(evidence: &mut Evidence, answers: &[Answer]) -> bool {
    let all: Vec<&Answer> = answers.iter().filter(|a| !a.error.is_empty()).collect();
    // What a single rank does wrong, others notice when they wait for it.
    let cause = |answer: &&&Answer| !answer.error.contains("rank ");
    let Some(first) = all.iter().find(cause).or(all.first()) else {
        return false;
    };
    println!("{}", first.error);
    let line = first.error.lines().next().unwrap_or_default();
    let several = answers.len() > 1;
    if first.z.is_none() {
        evidence.row(false, "forward", "the rows of Z", line);
        evidence.means("`forward` ends with an error. X has all rows where it meets a column of A, and Z where it is added up.");
    } else {
        evidence.row(false, "backward", "the gradients", line);
        evidence.means_if(
            several && first.sent[1] == 0,
            "`backward` ends with an error before any rank has sent anything. dz has this rank's rows. This rank's slices met \
             all rows in the forward pass, so here they need the gradient of all rows of Z: gather it first.",
        );
        evidence.means_if(
            several,
            "`backward` ends with an error: two matrices do not fit together, because one has all rows and the other has only \
             this rank's. `dz` comes with this rank's rows, and so does what was kept so, such as rows of X. Which of them meets a \
             matrix with all rows, such as h, as it came?",
        );
        evidence.means("`backward` ends with an error. Write down the shape of each matrix, and of its gradient: they are equal.");
    }
    true
}

fn values(x: &Tensor) -> Result<Vec<f64>> {
    Ok(x.flatten_all()?.to_vec1()?)
}

/// The first number that is wrong, by more than rounding to f32 does.
fn wrong(expected: &Tensor, got: &Tensor) -> Result<Option<usize>> {
    let expected = values(expected)?;
    let most = expected.iter().fold(1e-9f64, |most, x| most.max(x.abs()));
    let far = |(x, y): (&f64, &f64)| !((x - y).abs() <= 1e-5 * most);
    Ok(expected.iter().zip(&values(got)?).position(far))
}

/// Whether the two have one shape and nearly the same numbers.
fn same(x: &Tensor, y: &Tensor) -> Result<bool> {
    Ok(x.dims() == y.dims() && wrong(x, y)?.is_none())
}

/// Compares, and shows the first number that is wrong.
fn compare(evidence: &mut Evidence, at: &str, expected: &Tensor, got: &Tensor) -> Result<()> {
    if expected.dims() != got.dims() {
        let shape = |x: &Tensor| format!("shape {:?}", x.dims());
        evidence.row(false, at, shape(expected), shape(got));
        return Ok(());
    }
    let first = wrong(expected, got)?;
    let i = first.unwrap_or(0);
    let columns = expected.dim(1)?;
    let at = format!("{at} [{}, {}]", i / columns, i % columns);
    let [x, y] = [values(expected)?[i], values(got)?[i]];
    let digits = |x: f64| format!("{x:.5}");
    evidence.row(first.is_none(), at, digits(x), digits(y));
    Ok(())
}

/// What all ranks have returned in one place of their answers.
struct Returned<'a>(Vec<&'a Tensor>);

impl Returned<'_> {
    /// Whether every rank has returned what `made` makes for it.
    fn is(&self, made: impl Fn(Place) -> Result<Tensor>) -> Result<bool> {
        for (at, got) in places(self.0.len()).into_iter().zip(&self.0) {
            if !same(&made(at)?, got)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn has_rows(&self, rows: usize) -> bool {
        self.0.iter().all(|got| got.dims()[0] == rows)
    }
}

/// The sum over all ranks.
fn sum(ranks: usize, of: impl Fn(Place) -> Result<Tensor>) -> Result<Tensor> {
    let mut all = places(ranks).into_iter();
    let first = of(all.next().expect("a rank"))?;
    all.try_fold(first, |sum, at| Ok((sum + of(at)?)?))
}

/// With 4 ranks, what was right with 1 and with 2 is wrong.
fn only_with_many(evidence: &mut Evidence, ranks: usize) {
    evidence.means_if(
        ranks > 2 && !evidence.agrees(),
        format!(
            "With 2 ranks this was right, and with {ranks} it is not: is a number of ranks written into your code? \
             `comm.size()` knows it."
        ),
    );
}

fn check_forward(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    let mlp = Mlp::new(SMALL)?;
    let answers = answers(evidence, &mlp, ranks, Passes::Forward)?;
    if failed(evidence, &answers) {
        return Ok(());
    }
    let z = mlp.y.matmul(&mlp.b)?;
    let got = Returned(answers.iter().filter_map(|a| a.z.as_ref()).collect());
    for (at, got) in places(ranks).into_iter().zip(&got.0) {
        compare(evidence, &format!("rank {}: its rows of Z", at.rank), &at.rows(&z)?, got)?;
    }
    if evidence.agrees() {
        return Ok(());
    }
    only_with_many(evidence, ranks);
    let Mlp { x, a, b, h, .. } = &mlp;
    let rows = mlp.of.rows;
    let n = ranks as f64;
    let several = ranks > 1;
    evidence.means_if(
        several && got.has_rows(rows / ranks / ranks),
        "Z has too few rows: the ranks never gathered X. What is scattered has one summand of every row, so each rank must compute \
         all rows with its slices, and for that it needs all rows of X.",
    );
    evidence.means_if(
        several && got.is(|_| Ok(z.clone()))?,
        "Every rank has all rows of Z: that is an all-reduce, and plain tensor parallelism. All that follows, norm, dropout and \
         residual stream, would be whole on each rank again, in time and in memory. A rank needs its own rows of the sum.",
    );
    evidence.means_if(
        several && got.is(|at| at.of_z(&mlp))?,
        format!(
            "These are all rows of this rank's summand of Z: nothing has been added up. Each rank would go on with 1/{ranks} of \
             the MLP, and its loss would fall all the same, only to a worse model."
        ),
    );
    evidence.means_if(
        several && got.is(|at| at.rows(&at.of_z(&mlp)?))?,
        "Each rank has its rows of its own summand. What the other ranks' slices make of these rows is missing: they compute it, \
         and it has to be added up on the way to this rank.",
    );
    evidence.means_if(
        several && got.is(|at| Ok((at.rows(&z)? / n)?))?,
        "This is the mean of the ranks' summands, and Z is their sum. Data parallelism averages gradients of different data. \
         Here each rank has a part of one product.",
    );
    evidence.means_if(
        several && got.is(|at| Ok((at.rows(&z)? * n)?))?,
        format!(
            "Z is {ranks} times too large: something that was complete has gone through a scatter, which adds up what all ranks \
             bring. Scatter summands only. To take a rank's rows of a complete matrix, nothing needs to be sent."
        ),
    );
    evidence.means_if(
        several && got.is(|at| Place { rank: (at.rank + 1) % ranks, ..at }.rows(&z))?,
        "Each rank has the rows of another rank. The stream has its own rows, and the residual adds other positions to them.",
    );
    evidence.means_if(
        got.is(|at| at.rows(&h.matmul(b)?))?,
        "GELU is missing. X A B without it is one matrix product, and a model of such layers learns little more than a linear one.",
    );
    evidence.means_if(
        got.is(|at| at.rows(&x.gelu_erf()?.matmul(a)?.matmul(b)?))?,
        "GELU is applied to X. It belongs between the two matrices.",
    );
    evidence.means_if(
        got.is(|at| at.rows(&h.matmul(b)?.gelu_erf()?))?,
        "GELU is applied to the sum, after the second matrix. It belongs between the two: each rank's columns of X A are complete, \
         so no rank has to wait for others before it.",
    );
    let before_the_sum = |inner: &Tensor| {
        let inner = inner.clone();
        let b = b.clone();
        move |at: Place| -> Result<Tensor> {
            Ok(at.columns(&inner)?.matmul(&at.rows(&b)?)?.gelu_erf()?)
        }
    };
    for inner in [h, &mlp.y] {
        let of = before_the_sum(inner);
        evidence.means_if(
            got.is(|at| at.rows(&sum(ranks, &of)?))?,
            "GELU is applied to each rank's summand after the second matrix, before the sum. GELU of summands does not add up to \
             GELU of the sum, so the result depends on the number of ranks. It belongs between the two matrices.",
        );
    }
    evidence.means(
        "A rank's rows of Z are its rows of the sum of all ranks' summands. A summand is gelu(X a) b: all rows of X, and this \
         rank's slices.",
    );
    Ok(())
}

fn check_rows(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    if !evidence.agrees() {
        return Ok(());
    }
    let mlp = Mlp::new(SMALL)?;
    let answers = answers(evidence, &mlp, ranks, Passes::Both)?;
    if failed(evidence, &answers) {
        return Ok(());
    }
    let dx = mlp.dh.matmul(&mlp.a.t()?)?;
    let got = Returned(answers.iter().filter_map(|a| a.dx.as_ref()).collect());
    for (at, got) in places(ranks).into_iter().zip(&got.0) {
        let name = format!("rank {}: its rows of dX", at.rank);
        compare(evidence, &name, &at.rows(&dx)?, got)?;
    }
    if evidence.agrees() {
        return Ok(());
    }
    only_with_many(evidence, ranks);
    let Mlp { of, a, h, y, dy, .. } = &mlp;
    let n = ranks as f64;
    let several = ranks > 1;
    evidence.means_if(
        several && got.has_rows(of.rows / ranks / ranks),
        "dX has too few rows: the ranks never gathered dZ. This rank's slices met all rows in the forward pass, so the gradient \
         of all rows of Z goes back through them.",
    );
    evidence.means_if(
        several && got.is(|_| Ok(dx.clone()))?,
        "Every rank has all rows of dX: that is an all-reduce. A rank goes on with its own rows, and a scatter brings just those, \
         for half the bytes.",
    );
    evidence.means_if(
        several && got.is(|at| at.of_dx(&mlp))?,
        "These are all rows of this rank's summand of dX: nothing has been added up. X went into all ranks' columns of A, so all \
         ranks have a summand of its gradient. The layers before would learn from one rank's part.",
    );
    evidence.means_if(
        several && got.is(|at| at.rows(&at.of_dx(&mlp)?))?,
        "Each rank has its rows of its own summand of dX. The other ranks' columns of A met these rows as well: their summands \
         must be added up, or the layers before learn from one rank's part.",
    );
    evidence.means_if(
        several && got.is(|at| Ok((at.rows(&dx)? / n)?))?,
        "This is the mean of the ranks' summands of dX, and dX is their sum.",
    );
    evidence.means_if(
        several && got.is(|at| Ok((at.rows(&dx)? * n)?))?,
        format!(
            "dX is {ranks} times too large: something that was complete has gone through a scatter, for instance dZ after it was \
             gathered. The layers before would learn {ranks} times too fast, and clipping would hide it."
        ),
    );
    evidence.means_if(
        got.is(|at| at.rows(&dy.matmul(&a.t()?)?))?,
        "GELU has no part in this gradient: `gelu_backward` is missing between the two matrices.",
    );
    evidence.means_if(
        got.is(|at| at.rows(&gelu_backward(y, dy)?.matmul(&a.t()?)?))?,
        "`gelu_backward` got gelu(h), and it needs h, the input of GELU. h cannot be computed from gelu(h): two inputs below 0 have \
         the same result.",
    );
    evidence.means_if(
        got.is(|at| at.rows(&(gelu_backward(h, dy)?.matmul(&a.t()?)? + &mlp.x)?))?,
        "X itself is added to its gradient. The residual stream is not part of this MLP.",
    );
    evidence.means(
        "For a product P = M N, the gradient of M is dP times N transposed. Go back from all rows of dZ: through b, GELU and a. \
         What comes out is this rank's summand of all rows of dX.",
    );
    Ok(())
}

fn check_slices(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    if !evidence.agrees() {
        return Ok(());
    }
    let mlp = Mlp::new(SMALL)?;
    let answers = answers(evidence, &mlp, ranks, Passes::Both)?;
    if failed(evidence, &answers) {
        return Ok(());
    }
    let Mlp { x, dz, h, y, dy, dh, .. } = &mlp;
    let slices: Vec<&Slices> = answers.iter().filter_map(|a| a.slices.as_ref()).collect();
    let da = Returned(slices.iter().map(|slices| &slices.a).collect());
    let db = Returned(slices.iter().map(|slices| &slices.b).collect());
    let of_a = |at: Place| -> Result<Tensor> { Ok(x.t()?.matmul(&at.columns(dh)?)?) };
    let of_b = |at: Place| -> Result<Tensor> { Ok(at.columns(y)?.t()?.matmul(dz)?) };
    for (at, got) in places(ranks).into_iter().zip(&slices) {
        let name = |m: &str| format!("rank {}: {m}", at.rank);
        compare(evidence, &name("its columns of dA"), &of_a(at)?, &got.a)?;
        compare(evidence, &name("its rows of dB"), &of_b(at)?, &got.b)?;
    }
    if evidence.agrees() {
        return Ok(());
    }
    only_with_many(evidence, ranks);
    let n = ranks as f64;
    let several = ranks > 1;
    evidence.means_if(
        several
            && da.is(|at| Ok(at.rows(x)?.t()?.matmul(&at.rows(&at.columns(dh)?)?)?))?,
        "dA comes from this rank's own rows of X only. Its columns of A met all rows, so it would learn from some positions of each \
         sequence and not from the others: on rank 0 from the beginnings, on the last rank from the ends.",
    );
    evidence.means_if(
        several
            && db.is(|at| Ok(at.rows(&at.columns(y)?)?.t()?.matmul(&at.rows(dz)?)?))?,
        "dB comes from this rank's own rows only. Its rows of B met all positions in the forward pass, so the gradient of all of them \
         is needed. Otherwise the matrix learns from some positions of each sequence only.",
    );
    evidence.means_if(
        several && (da.is(|at| Ok((of_a(at)? * n)?))? || db.is(|at| Ok((of_b(at)? * n)?))?),
        format!(
            "A gradient is {ranks} times too large: something that was complete has gone through a scatter, for instance X or dZ \
             after it was gathered."
        ),
    );
    for (name, got, of) in
        [("dA", &da, &of_a as &dyn Fn(Place) -> Result<Tensor>), ("dB", &db, &of_b)]
    {
        let mixed = sum(ranks, of)?;
        evidence.means_if(
            several && (got.is(|_| Ok(mixed.clone()))? || got.is(|_| Ok((&mixed / n)?))?),
            format!(
                "The ranks have combined {name} of different slices. Each rank has a slice that no other has, and its gradient from all \
                 rows is complete. Only what all ranks hold alike, such as a norm's gain, needs a sum over the tensor ranks."
            ),
        );
        evidence.means_if(
            several && got.is(|at| Ok((of(at)? / n)?))?,
            format!(
                "{name} is {ranks} times too small. No rank has seen other data than the others: nothing is averaged here."
            ),
        );
    }
    evidence.means_if(
        db.is(|at| Ok(at.columns(h)?.t()?.matmul(dz)?))?,
        "dB needs what was multiplied with B in the forward pass: gelu(h), and not h.",
    );
    evidence.means_if(
        da.is(|at| Ok(x.t()?.matmul(&at.columns(dy)?)?))?,
        "dA needs the gradient of h, which `gelu_backward` returns, and not that of gelu(h).",
    );
    evidence.means(
        "For a product P = M N, the gradient of N is M transposed times dP, over all rows. For A, M is all of X. For B, M is gelu(h).",
    );
    Ok(())
}

fn memory(evidence: &mut Evidence) -> Result<()> {
    let ranks = 4;
    let mlp = Mlp::new(LARGE)?;
    let answers = answers(evidence, &mlp, ranks, Passes::Forward)?;
    if failed(evidence, &answers) {
        return Ok(());
    }
    let Lengths { rows, width, hidden } = LARGE;
    let own = rows / ranks * width;
    let most = own + rows * hidden / ranks;
    let held = answers.iter().map(|a| a.held).max().unwrap_or(0);
    evidence.row(
        held <= most + FEW,
        "numbers that a rank keeps",
        format!("at most {}", thousands(most as u64)),
        thousands(held as u64),
    );
    if evidence.agrees() {
        return Ok(());
    }
    // Whether every rank has kept this matrix, or its transpose.
    let keeps = |made: &dyn Fn(Place) -> Result<Tensor>| -> Result<bool> {
        for (at, answer) in places(ranks).into_iter().zip(&answers) {
            let wanted = made(at)?;
            let turned = wanted.t()?;
            let mut found = false;
            for kept in &answer.kept {
                let kept = in_f64(kept)?;
                found |= same(&wanted, &kept)? || same(&turned, &kept)?;
            }
            if !found {
                return Ok(false);
            }
        }
        Ok(true)
    };
    let listed = |answer: &Answer| answer.kept.iter().map(Tensor::elem_count).sum::<usize>();
    evidence.means_if(
        keeps(&|_| Ok(mlp.x.clone()))?,
        format!(
            "A rank keeps all rows of X: {} numbers, and its own are {}. Between a model's two passes every MLP keeps that much, on \
             every rank, and what sequence parallelism has saved is partly lost again. The library of this book does so. \
             Megatron-LM keeps its own rows and pays with one more all-gather: the backward pass gathers X again.",
            thousands((rows * width) as u64),
            thousands(own as u64)
        ),
    );
    evidence.means_if(
        answers.iter().all(|answer| answer.held > listed(answer) + FEW),
        "A rank's tensors have fewer numbers than it holds in memory: one of them is a view (`narrow`, `t`, `chunk`) of a larger \
         tensor, and keeps all of that tensor's memory. A view of all of X costs as much as X. In PyTorch it is the same.",
    );
    evidence.means_if(
        keeps(&|at| at.columns(&mlp.h))? && keeps(&|at| at.columns(&mlp.y))?,
        format!(
            "Both h and gelu(h) are kept, {} numbers each. One of them follows from the other without a matrix product and without \
             any communication. Which one?",
            thousands((rows * hidden / ranks) as u64)
        ),
    );
    evidence.means_if(
        keeps(&|at| at.of_z(&mlp))?,
        "A rank keeps its summand of Z. No gradient needs it: in a sum, each summand's gradient is the sum's.",
    );
    evidence.means(
        "A rank keeps more than its own rows of X and one tensor as large as h. What else the backward pass needs can be gathered \
         again, or computed again.",
    );
    Ok(())
}

/// Bytes that a rank sends in an all-gather or a reduce-scatter of all rows.
fn transfer(ranks: usize) -> u64 {
    (SMALL.rows / ranks * (ranks - 1) * SMALL.width * size_of::<f32>()) as u64
}

/// The most bytes that a rank has sent in each pass.
fn most_sent(answers: &[Answer]) -> [u64; 2] {
    [0, 1].map(|pass| answers.iter().map(|a| a.sent[pass]).max().unwrap_or(0))
}

/// `backward` gets another A than `forward`. What it computes with h is the same only if h has come
/// from `forward`.
fn once(evidence: &mut Evidence) -> Result<()> {
    let ranks = 4;
    let mlp = Mlp::new(SMALL)?;
    let answers = answers(evidence, &mlp, ranks, Passes::OtherA)?;
    if failed(evidence, &answers) {
        return Ok(());
    }
    for (at, answer) in places(ranks).into_iter().zip(&answers) {
        let Some(slices) = &answer.slices else {
            continue;
        };
        let name = format!("rank {}: dB, if A changes after `forward`", at.rank);
        let of_forward = at.columns(&mlp.y)?.t()?.matmul(&mlp.dz)?;
        compare(evidence, &name, &of_forward, &slices.b)?;
    }
    let [forward, backward] = most_sent(&answers);
    evidence.means_if(
        backward == 2 * transfer(ranks),
        format!(
            "`backward` computes h = X A once more, from all rows of X, which a rank has kept. So X is not gathered again, and a rank \
             sends {} bytes in place of {}. That is a real trade: one more product for one gather less. In a hidden layer 4 times as \
             wide as X, all rows of X are less to keep than h and the own rows on 4 ranks, and more on 8. In this exercise each \
             product is computed once: keep h, and gather X again.",
            thousands(forward + backward),
            thousands(5 * transfer(ranks))
        ),
    );
    evidence.means(
        "`backward` computes h = X A once more, after it has gathered X. So a rank keeps only its own rows of X, the least of all, and \
         pays with one more product: that is activation recomputation. In this exercise each product is computed once, and the \
         memory has room for h.",
    );
    Ok(())
}

fn costs(evidence: &mut Evidence) -> Result<()> {
    let ranks = 4;
    let mlp = Mlp::new(SMALL)?;
    let answers = answers(evidence, &mlp, ranks, Passes::Both)?;
    if failed(evidence, &answers) {
        return Ok(());
    }
    let one = transfer(ranks);
    let sent = most_sent(&answers);
    for (name, sent, best) in [("forward", sent[0], 2 * one), ("backward", sent[1], 3 * one)] {
        evidence.row(
            sent <= best,
            format!("bytes that a rank sends {name}"),
            format!("at most {best}"),
            sent,
        );
    }
    evidence.means_if(
        sent[0] == 3 * one,
        "In the forward pass the ranks send three times all rows: an all-reduce of Z is a reduce-scatter and an all-gather. A rank \
         then takes its rows, and throws the gathered ones away. The reduce-scatter is enough.",
    );
    evidence.means_if(
        sent[1] == 4 * one,
        "In the backward pass the ranks send four times all rows. dZ and X are gathered, and dX is scattered: that is three. A scatter \
         brings a rank its rows of the sum at once, so nothing has to be gathered after it, and nothing twice. An all-reduce \
         is both.",
    );
    evidence.means(
        "More is sent than X gathered and Z scattered in the forward pass, dZ and X gathered and dX scattered in the backward \
         pass. h and the slices' gradients stay on their ranks.",
    );
    evidence.figure("bytes that a rank sends", sent[0] + sent[1], 5 * one);
    Ok(())
}
