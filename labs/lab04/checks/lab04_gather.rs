//! The check of lab04-gather: which blocks run, what they get, the slices of the mean gradients;
//! then what a rank holds while a block runs, by its own allocator, and what it sends.

use exercise::{Blocks, passes};
use kit::check::{Evidence, run};
use kit::show::thousands;
use shardlab::allocator::{Counting, live};
use shardlab::comm::Reduce;
use shardlab::{Result, launch};
use std::collections::HashSet;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Block b is a matrix of WIDTHS[b + 1] x WIDTHS[b] numbers and a bias. No two blocks are equally
/// long. 3 ranks need padding, and 2 and 8 do not.
const WIDTHS: [usize; 5] = [96, 160, 96, 128, 64];
const BLOCKS: usize = WIDTHS.len() - 1;
/// With so many ranks all slices together are shorter than the shortest block, so no block hides
/// among them.
const MANY: usize = 8;
/// Numbers for all small things that a rank may allocate: indices, names, messages.
const SMALL: isize = 1000;

fn main() -> ExitCode {
    run(&[
        ("1 rank: each block forward, then backward", |evidence| turns(evidence, 1)),
        ("2 ranks: a block gets its whole parameters", |evidence| parameters(evidence, 2)),
        ("2 ranks: the slices of the mean gradients", |evidence| gradients(evidence, 2)),
        ("3 ranks: blocks with padding", padded),
        ("8 ranks, forward: one block is whole when it runs", forward),
        ("8 ranks, backward: one block and its gradients", backward),
        ("8 ranks: the bytes that a rank sends", costs),
    ])
}

fn numel(block: usize) -> usize {
    (WIDTHS[block] + 1) * WIDTHS[block + 1]
}

/// Elements of a rank's slice of a block.
fn part(block: usize, ranks: usize) -> usize {
    numel(block).div_ceil(ranks)
}

/// The parameters of a block. No two are equal.
fn whole(block: usize) -> Vec<f32> {
    (0..numel(block))
        .map(|i| 0.1 * (1.0 + block as f32 + 1.7 * i as f32).sin())
        .collect()
}

/// A rank's slice of a block's numbers, with padding.
fn slice(mut numbers: Vec<f32>, rank: usize, ranks: usize) -> Vec<f32> {
    let part = numbers.len().div_ceil(ranks);
    numbers.resize(ranks * part, 0.0);
    numbers[rank * part..(rank + 1) * part].to_vec()
}

/// Whether all `wanted` numbers are among `numbers`, in any order.
fn holds_all(numbers: &[f32], wanted: &[f32]) -> bool {
    let there: HashSet<u32> = numbers.iter().map(|x| x.to_bits()).collect();
    wanted.iter().all(|x| there.contains(&x.to_bits()))
}

#[derive(Clone, Copy, PartialEq)]
enum Pass {
    Forward,
    Backward,
}

/// What a block got as its parameters.
#[derive(Clone, Copy, PartialEq)]
enum Given {
    Right,
    /// The right parameters, with padding after them.
    Padded(usize),
    /// Only this rank's slice, or the slice and zeros in place of the other slices.
    Slice,
    /// Those of a different block.
    Block(usize),
    /// All slices, not in rank order.
    Shuffled,
    Wrong,
}

/// A moment at which a block ran.
#[derive(Clone, Copy)]
struct Moment {
    pass: Pass,
    block: usize,
    given: Given,
    /// Numbers that the rank held, beyond what it held when the step began.
    held: isize,
}

/// The model of one rank. Block b computes tanh(W x + bias). It always computes with the right
/// parameters, so a mistake shows where it is made.
struct Chain {
    rank: usize,
    ranks: usize,
    wholes: Vec<Vec<f32>>,
    /// Each block's input, and the output of the last one.
    activations: Vec<Vec<f32>>,
    /// The gradient of the output of the block that runs backward next.
    gradient: Vec<f32>,
    moments: Vec<Moment>,
    /// Bytes that were live when the step began.
    before: isize,
}

impl Chain {
    fn new(rank: usize, ranks: usize) -> Chain {
        let mut activations: Vec<Vec<f32>> = WIDTHS.iter().map(|width| vec![0.0; *width]).collect();
        for (i, x) in activations[0].iter_mut().enumerate() {
            *x = (0.3 + rank as f32 + 0.7 * i as f32).cos();
        }
        Chain {
            rank,
            ranks,
            wholes: (0..BLOCKS).map(whole).collect(),
            activations,
            // The loss is the sum of the last block's output.
            gradient: vec![1.0; WIDTHS[BLOCKS]],
            moments: Vec::with_capacity(64),
            before: 0,
        }
    }

    /// Notes that a block runs, before anything is allocated for it.
    fn note(&mut self, pass: Pass, block: usize, parameters: &[f32]) {
        let held = (live() - self.before) / size_of::<f32>() as isize;
        let given = self.given(block, parameters);
        // The list does not grow while the rank's bytes are counted.
        if self.moments.len() < self.moments.capacity() {
            self.moments.push(Moment { pass, block, given, held });
        }
    }

    fn given(&self, block: usize, parameters: &[f32]) -> Given {
        let right = &self.wholes[block];
        let part = part(block, self.ranks);
        let mine = self.rank * part..((self.rank + 1) * part).min(right.len());
        let own = right.get(mine.clone()).unwrap_or_default();
        let zeros = |numbers: &[f32]| numbers.iter().all(|x| *x == 0.0);
        let slice_alone = parameters.starts_with(own) && zeros(&parameters[own.len()..]);
        let slice_in_place = parameters.len() >= mine.end
            && parameters.get(mine.clone()) == Some(own)
            && zeros(&parameters[..mine.start])
            && zeros(&parameters[mine.end..]);
        let starts = |other: &Vec<f32>| !parameters.is_empty() && parameters[0] == other[0];
        if parameters == right {
            Given::Right
        } else if parameters.starts_with(right) && zeros(&parameters[right.len()..]) {
            Given::Padded(parameters.len())
        } else if self.ranks > 1 && (slice_alone || slice_in_place) {
            Given::Slice
        } else if let Some(other) =
            self.wholes.iter().position(starts).filter(|other| *other != block)
        {
            Given::Block(other)
        } else if parameters.len() >= right.len() && holds_all(parameters, right) {
            Given::Shuffled
        } else {
            Given::Wrong
        }
    }
}

impl Blocks for Chain {
    fn numel(&self, block: usize) -> usize {
        numel(block)
    }

    fn forward(&mut self, block: usize, parameters: &[f32]) {
        self.note(Pass::Forward, block, parameters);
        let (before, behind) = self.activations.split_at_mut(block + 1);
        let x = &before[block];
        let rows = self.wholes[block].chunks_exact(x.len() + 1);
        for (y, row) in behind[0].iter_mut().zip(rows) {
            let sum: f32 = row.iter().zip(x).map(|(w, x)| w * x).sum();
            *y = (sum + row[x.len()]).tanh();
        }
    }

    fn backward(&mut self, block: usize, parameters: &[f32]) -> Vec<f32> {
        self.note(Pass::Backward, block, parameters);
        let x = &self.activations[block];
        let y = &self.activations[block + 1];
        let mut gradients = Vec::with_capacity(numel(block));
        let mut dx = vec![0.0; x.len()];
        let rows = self.wholes[block].chunks_exact(x.len() + 1);
        for ((y, dy), row) in y.iter().zip(&self.gradient).zip(rows) {
            let before = dy * (1.0 - y * y);
            gradients.extend(x.iter().map(|x| before * x));
            gradients.push(before);
            for (dx, w) in dx.iter_mut().zip(row) {
                *dx += before * w;
            }
        }
        // Blocks that run in a wrong order would find a gradient of a wrong length.
        gradients.resize(numel(block), 0.0);
        self.gradient = dx;
        gradients
    }
}

/// One rank after the step.
struct Rank {
    moments: Vec<Moment>,
    means: Vec<Vec<f32>>,
    /// Numbers that it holds when the step is over, beyond what it held before.
    left: isize,
    bytes: u64,
}

fn results(evidence: &Evidence, ranks: usize) -> Result<Vec<Rank>> {
    launch::run(ranks, |comm| {
        let rank = comm.rank();
        let slices: Vec<Vec<f32>> =
            (0..BLOCKS).map(|block| slice(whole(block), rank, ranks)).collect();
        let mut model = Chain::new(rank, ranks);
        evidence.given(format!(
            "rank {rank} of {ranks}, and {BLOCKS} blocks of {} to {} parameters",
            numel(3),
            numel(0)
        ));
        // The first call of a rank makes lists that stay.
        comm.barrier()?;
        let sent = comm.traffic();
        model.before = live();
        let means = passes(&comm, &slices, &mut model)?;
        let left = (live() - model.before) / size_of::<f32>() as isize;
        Ok(Rank {
            moments: model.moments,
            means,
            left,
            bytes: (comm.traffic() - sent).bytes,
        })
    })
}

/// The gradients of each rank's own data: whole, of each block.
fn own_gradients(rank: usize) -> Vec<Vec<f32>> {
    let mut model = Chain::new(rank, 1);
    for block in 0..BLOCKS {
        model.forward(block, &[]);
    }
    let mut all = vec![Vec::new(); BLOCKS];
    for block in (0..BLOCKS).rev() {
        all[block] = model.backward(block, &[]);
    }
    all
}

/// The mean gradients of each block, whole.
fn mean_gradients(ranks: usize) -> Result<Vec<Vec<f32>>> {
    let means = launch::run(ranks, |comm| {
        let mut means = own_gradients(comm.rank());
        for mean in &mut means {
            comm.all_reduce(mean, Reduce::Mean)?;
        }
        Ok(means)
    })?;
    Ok(means.into_iter().next().unwrap_or_default())
}

fn turns(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    let found = results(evidence, ranks)?;
    let run: Vec<(Pass, usize)> =
        found[0].moments.iter().map(|moment| (moment.pass, moment.block)).collect();
    let forward = (0..BLOCKS).map(|block| (Pass::Forward, block));
    let backward = (0..BLOCKS).map(|block| (Pass::Backward, block));
    let expected: Vec<(Pass, usize)> = forward.clone().chain(backward.clone().rev()).collect();
    let told = |run: Option<&(Pass, usize)>| match run {
        Some((Pass::Forward, block)) => format!("block {block} forward"),
        Some((Pass::Backward, block)) => format!("block {block} backward"),
        None => "nothing".into(),
    };
    for i in 0..run.len().max(expected.len()) {
        let agrees = run.get(i) == expected.get(i);
        let place = format!("pass {}", i + 1);
        evidence.row(agrees, place, told(expected.get(i)), told(run.get(i)));
    }
    if evidence.agrees() {
        return Ok(());
    }
    let count = |pass: Pass| run.iter().filter(|run| run.0 == pass).count();
    evidence.means_if(
        run.is_empty(),
        "No block has run. Each block runs forward once, from the first to the last, and backward once, from the last to the \
         first.",
    );
    evidence.means_if(
        count(Pass::Backward) == 0,
        "The blocks run forward, and none runs backward, so there are no gradients.",
    );
    evidence.means_if(
        run == forward.chain(backward).collect::<Vec<_>>(),
        "The backward pass begins with the first block. A gradient comes from the loss, so the last block is the first that \
         can run backward.",
    );
    let early = run
        .iter()
        .position(|run| run.0 == Pass::Backward)
        .is_some_and(|first| run[first..].iter().any(|run| run.0 == Pass::Forward));
    evidence.means_if(
        early,
        "A block runs backward before all blocks have run forward. There is no gradient yet: it comes from the loss, after \
         the last block.",
    );
    evidence.means_if(
        run.len() > expected.len(),
        "A block runs twice in the same pass. One forward and one backward pass for each block are enough.",
    );
    evidence.means(
        "Each block runs forward once, in order, and then backward once, in the opposite order.",
    );
    Ok(())
}

fn parameters(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    let found = results(evidence, ranks)?;
    let told = |given: Given, block: usize| match given {
        Given::Right => format!("all {} of them", thousands(numel(block) as u64)),
        Given::Padded(len) => format!("{} numbers", thousands(len as u64)),
        Given::Slice => "this rank's slice".into(),
        Given::Block(other) => format!("those of block {other}"),
        Given::Shuffled => "in a different order".into(),
        Given::Wrong => "different numbers".into(),
    };
    let mut wrong = None;
    for (rank, of_rank) in found.iter().enumerate() {
        for moment in &of_rank.moments {
            let pass = match moment.pass {
                Pass::Forward => "forward",
                Pass::Backward => "backward",
            };
            let place = format!("rank {rank}, block {} {pass}: its parameters", moment.block);
            let right = moment.given == Given::Right;
            let expected = told(Given::Right, moment.block);
            if !evidence.row(right, place, expected, told(moment.given, moment.block)) {
                wrong = wrong.or(Some((rank, *moment)));
            }
        }
    }
    let Some((rank, moment)) = wrong else {
        return Ok(());
    };
    let block = moment.block;
    let numel = numel(block);
    evidence.means(match moment.given {
        Given::Slice => format!(
            "Rank {rank} runs block {block} with only its own slice. The other slices are on the other ranks: gather them \
             before the block runs."
        ),
        Given::Padded(len) => format!(
            "Block {block} has {numel} parameters, and it got {len} numbers: the slices' padding is still there. It is no \
             parameter, so cut it off."
        ),
        Given::Block(other) => format!(
            "Block {block} got the parameters of block {other}. Each block runs with its own, gathered for it."
        ),
        Given::Shuffled => {
            "All slices are there, but not in rank order: rank 0's slice has the block's first parameters.".into()
        }
        _ => format!("Block {block} has {numel} parameters: the slices of all ranks, end to end, without their padding."),
    });
    Ok(())
}

fn near(x: f32, y: f32) -> bool {
    (x - y).abs() <= 1e-9 + 1e-4 * y.abs()
}

fn all_near(x: &[f32], y: &[f32]) -> bool {
    x.len() == y.len() && x.iter().zip(y).all(|(x, y)| near(*x, *y))
}

fn gradients(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    let found = results(evidence, ranks)?;
    let means = mean_gradients(ranks)?;
    let expected = |rank: usize, block: usize| slice(means[block].clone(), rank, ranks);
    for (rank, of_rank) in found.iter().enumerate() {
        let count = of_rank.means.len();
        if count != BLOCKS {
            evidence.same(format!("rank {rank}: slices of gradients"), BLOCKS, count);
            continue;
        }
        for (block, mean) in of_rank.means.iter().enumerate() {
            let expected = expected(rank, block);
            let place = format!("rank {rank}, block {block}: gradient");
            if mean.len() != expected.len() {
                let numbers = |len: usize| format!("{} numbers", thousands(len as u64));
                evidence.row(false, place, numbers(expected.len()), numbers(mean.len()));
                continue;
            }
            let first = (0..mean.len()).find(|&i| !near(mean[i], expected[i]));
            let i = first.unwrap_or(0);
            evidence.row(first.is_none(), format!("{place} {i}"), expected[i], mean[i]);
        }
    }
    if evidence.agrees() {
        return Ok(());
    }

    evidence.means_if(
        found.iter().any(|rank| rank.means.len() != BLOCKS),
        format!(
            "The model has {BLOCKS} blocks, and a rank has one slice of the gradients of each."
        ),
    );
    let own: Vec<Vec<Vec<f32>>> = (0..ranks).map(own_gradients).collect();
    // Whether every rank has what `wrong` gives for it and a block.
    let is = |wrong: &dyn Fn(usize, usize) -> Vec<f32>| {
        found.iter().enumerate().all(|(rank, of_rank)| {
            of_rank
                .means
                .iter()
                .enumerate()
                .all(|(block, mean)| all_near(mean, &wrong(rank, block)))
        })
    };
    let times =
        |factor: f32| is(&|rank, block| expected(rank, block).iter().map(|g| g * factor).collect());
    evidence.means_if(
        is(&|_, _| Vec::new()),
        "The slices are empty. A block's backward pass returns its gradients: average them over the ranks, and keep your slice.",
    );
    evidence.means_if(
        is(&|rank, block| expected(rank, BLOCKS - 1 - block)),
        "The slices are in the order of the backward pass. Return them in the order of the blocks, as `slices` are.",
    );
    evidence.means_if(
        is(&|_, block| means[block].clone()) || is(&|rank, block| own[rank][block].clone()),
        "These are whole gradients. A rank updates only its slice of the parameters, so it keeps its slice of the gradients.",
    );
    evidence.means_if(
        ranks > 1 && times(ranks as f32),
        format!(
            "The gradients are {ranks} times too large: the ranks' sum, not their mean. With a sum, each additional rank makes \
             the steps longer."
        ),
    );
    evidence.means_if(
        ranks > 1 && times(1.0 / ranks as f32),
        format!("The gradients are {ranks} times too small: your code divides the mean once more."),
    );
    evidence.means_if(
        ranks > 1 && is(&|rank, block| slice(own[rank][block].clone(), rank, ranks)),
        "Each rank keeps a slice of its own gradients. Then every slice of the model learns only from one rank's data: combine \
         them with `comm.reduce_scatter`.",
    );
    evidence.means_if(
        ranks > 1 && (1..ranks).any(|by| is(&|rank, block| expected((rank + by) % ranks, block))),
        "These are the slices of other ranks. Slice r of the gradients belongs to slice r of the parameters, on rank r.",
    );
    evidence.means_if(
        is(&|rank, block| slice(whole(block), rank, ranks)),
        "These are the slices of the parameters. The gradients are what a block's backward pass returns.",
    );
    evidence.means("These are not the rank's slices of the mean gradients of all ranks.");
    Ok(())
}

/// 3 divides neither the first block nor the third.
fn padded(evidence: &mut Evidence) -> Result<()> {
    parameters(evidence, 3)?;
    if evidence.agrees() {
        gradients(evidence, 3)?;
    }
    Ok(())
}

/// All slices of a rank.
fn parts(ranks: usize) -> usize {
    (0..BLOCKS).map(|block| part(block, ranks)).sum()
}

/// For each block, the most numbers that a rank held when it ran.
fn held(found: &[Rank], pass: Pass) -> Vec<isize> {
    let of_block = |block: usize| {
        let moments = found.iter().flat_map(|rank| &rank.moments);
        let held = moments.filter(|moment| moment.pass == pass && moment.block == block);
        held.map(|moment| moment.held).max().unwrap_or(0)
    };
    (0..BLOCKS).map(of_block).collect()
}

/// Compares what ranks held, whenever a block ran, with one whole block and all slices of
/// gradients. Returns for each block how much was too much.
fn beyond(evidence: &mut Evidence, found: &[Rank], pass: Pass) -> Vec<isize> {
    let name = match pass {
        Pass::Forward => "forward",
        Pass::Backward => "backward",
    };
    let mut beyond = Vec::new();
    for (block, held) in held(found, pass).into_iter().enumerate() {
        let most = (MANY * part(block, MANY) + parts(MANY)) as isize;
        beyond.push(held - most);
        let place = format!("block {block} {name}: numbers held");
        let most_shown = format!("at most {}", thousands(most as u64));
        evidence.row(held <= most + SMALL, place, most_shown, thousands(held.max(0) as u64));
    }
    beyond
}

/// Whether `beyond` is about what these blocks take, less the slices of gradients that may not be
/// there yet.
fn is_blocks(beyond: isize, blocks: impl Iterator<Item = usize>) -> bool {
    let blocks: usize = blocks.map(numel).sum();
    let blocks = blocks as isize;
    blocks > 0 && (blocks - parts(MANY) as isize - SMALL..=blocks + SMALL).contains(&beyond)
}

fn forward(evidence: &mut Evidence) -> Result<()> {
    let found = results(evidence, MANY)?;
    let beyond = beyond(evidence, &found, Pass::Forward);
    let Some(block) = (0..BLOCKS).find(|&block| beyond[block] > SMALL) else {
        return Ok(());
    };
    evidence.means_if(
        is_blocks(beyond[0], 1..BLOCKS),
        "The ranks gather the whole model before the first block runs, and so each of them needs memory for all of it. Gather \
         one block, run it, and free it, before you gather the next one.",
    );
    evidence.means_if(
        (1..BLOCKS).all(|block| is_blocks(beyond[block], 0..block)),
        "No block is freed after its forward pass: while the last block runs, the rank has the whole model. The backward pass \
         needs each block again, and gathers it again. This is what stage 3 pays with: a second all-gather of each block.",
    );
    evidence.means_if(
        (0..BLOCKS - 1).all(|block| is_blocks(beyond[block], block + 1..block + 2)),
        "While a block runs, the next one is gathered already. Stage 3 really does so, to hide the all-gather during the \
         computation (prefetch), and pays with the memory of one more block. Here memory is all that counts.",
    );
    evidence.means_if(
        (1..BLOCKS).all(|block| is_blocks(beyond[block], block - 1..block)),
        "While a block runs, the one before it is still whole. Each rank needs memory for two blocks all through the \
         pass. A block is freed where its variable ends, or by `drop`.",
    );
    evidence.means(format!(
        "While block {block} runs, the rank holds {} numbers more than this block and its slices of the gradients.",
        thousands(beyond[block] as u64)
    ));
    Ok(())
}

fn backward(evidence: &mut Evidence) -> Result<()> {
    let found = results(evidence, MANY)?;
    let beyond = beyond(evidence, &found, Pass::Backward);
    let most = parts(MANY) as isize;
    let left = found.iter().map(|rank| rank.left).max().unwrap_or(0);
    evidence.row(
        left <= most + SMALL,
        "after the step: numbers held",
        format!("at most {}", thousands(most as u64)),
        thousands(left.max(0) as u64),
    );
    if evidence.agrees() {
        return Ok(());
    }
    let roomy = found[0]
        .means
        .iter()
        .enumerate()
        .find(|(block, mean)| mean.capacity() >= numel(*block));
    if let Some((block, mean)) = roomy {
        evidence.means(format!(
            "The slice of block {block}'s gradients has {} numbers, and its `Vec` still has the memory of {}: `truncate` and \
             `drain` shorten a `Vec` and free nothing. Copy the slice into a `Vec` of its own, or let reduce-scatter write it \
             there. In PyTorch a slice of a tensor is a view, and keeps the whole tensor's memory in the same way.",
            thousands(mean.len() as u64),
            thousands(mean.capacity() as u64)
        ));
    }
    evidence.means_if(
        (0..BLOCKS - 1).all(|block| is_blocks(beyond[block], block + 1..BLOCKS)),
        "While a block runs backward, all later blocks are still whole: their gradients, or their parameters. So the first \
         block finds the memory full. Scatter a block's gradients as soon as its backward pass is over, and free both.",
    );
    evidence.means_if(
        (0..BLOCKS - 1).all(|block| {
            is_blocks(beyond[block], block + 1..block + 2)
                || is_blocks(beyond[block], [block + 1, block + 1].into_iter())
        }),
        "While a block runs backward, the parameters or the gradients of the one after it are still whole. Free both before \
         you gather the next block.",
    );
    evidence.means_if(
        (1..BLOCKS).all(|block| is_blocks(beyond[block], block - 1..block)),
        "While a block runs backward, the next one is gathered already. Stage 3 really does so, to hide the all-gather during \
         the computation (prefetch), and pays with the memory of one more block. Here memory is all that counts.",
    );
    evidence.means_if(
        is_blocks(beyond[BLOCKS - 1], 0..BLOCKS - 1),
        "The ranks gather the whole model again before the backward pass. Gather one block, run it, and free it.",
    );
    evidence.means(
        "A rank holds more than the block that runs backward and its slices of the gradients. The parameters of a block, and \
         its whole gradients, are needed only at this block.",
    );
    Ok(())
}

fn costs(evidence: &mut Evidence) -> Result<()> {
    let found = results(evidence, MANY)?;
    let bytes = found.iter().map(|rank| rank.bytes).max().unwrap_or(0);
    let all = |count: usize| ((MANY - 1) * count * size_of::<f32>()) as u64;
    let once = all(parts(MANY));
    // Two all-gathers and one reduce-scatter of each block; but the last block's passes follow one
    // another.
    let last = all(part(BLOCKS - 1, MANY));
    let best = 3 * once - last;
    let most = format!("at most {}", thousands(best));
    evidence.row(bytes <= best, "bytes that a rank sends", most, thousands(bytes));
    evidence.means_if(
        bytes == 4 * once || bytes == 4 * once - last,
        "The gradients go through an all-reduce, which leaves all of them on every rank. A rank keeps one slice: a \
         reduce-scatter leaves just this slice, and sends half as much.",
    );
    evidence.means_if(
        bytes == 3 * once,
        "Each block is gathered once for each of its passes, and one of these gathers brings what the rank could still have, \
         within its memory. In every step, ranks wait for it. Write down in which order the blocks run: which gather \
         is it?",
    );
    evidence.means(
        "More is sent than each block's parameters once for each of its passes, and its gradients once. Every step of the training \
         waits for these bytes.",
    );
    evidence.figure("bytes per rank and step", bytes, best);
    Ok(())
}
