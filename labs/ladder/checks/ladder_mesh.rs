//! The check of ladder-mesh: first a single node, then nodes of one rank, then both. Then the bytes
//! on the slow link, and the time.
//!
//! A wrong program is recognised by its gradients: they are those of a program that makes the same
//! mistake.

use exercise::train;
use kit::check::{Evidence, run};
use kit::show::thousands;
use ladder::judge::Judge;
use ladder::{Adam, Job, Rank, Run, best};
use shardlab::Result;
use shardlab::allocator::Counting;
use shardlab::comm::{self, Reduce};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static JUDGE: Judge = Judge::new("ladder-mesh", train);

fn main() -> ExitCode {
    run(&[
        ("1 rank: the program that is given", |evidence| JUDGE.alone(evidence)),
        ("a node of 2 ranks: the loss of one rank", |evidence| {
            recognise(evidence, NODE)?;
            JUDGE.look_at_parts(evidence, NODE)
        }),
        ("a node of 2 ranks: the gradients of one rank", |evidence| {
            recognise(evidence, NODE)?;
            JUDGE.look_at_gradients(evidence, NODE)
        }),
        ("2 nodes of 1 rank: the mean over the parts", |evidence| {
            recognise(evidence, NODES)?;
            JUDGE.look_at_parts(evidence, NODES)?;
            if evidence.agrees() {
                JUDGE.look_at_gradients(evidence, NODES)?;
            }
            Ok(())
        }),
        ("2 nodes of 2 ranks: the model of one rank", mesh),
        ("2 nodes of 2 ranks: bytes on the slow link", bytes),
        ("2 nodes of 2 ranks: less time than ladder-buckets", time),
    ])
}

/// Only tensor ranks.
const NODE: Job = Job { ranks: 2, parts: 1, tensor: 2, steps: 3 };

/// Only data ranks.
const NODES: Job = Job { ranks: 2, parts: 2, tensor: 1, steps: 3 };

/// How a rank combines something, over which group.
#[derive(Clone, Copy)]
enum Over {
    Nobody,
    Tensor(Reduce),
    Data(Reduce),
    World(Reduce),
}

/// A program that shares layers and batch, rightly or wrongly.
#[derive(Clone, Copy)]
struct Program {
    /// How outputs, gradients of inputs, and gradients of units are combined.
    y: Over,
    dx: Over,
    gradient: Over,
    /// Whether the rank has all units of each layer.
    whole: bool,
    /// Which of a layer's slices the rank has: the one of its number among the data ranks.
    units_by_node: bool,
}

const RIGHT: Program = Program {
    y: Over::Tensor(Reduce::Sum),
    dx: Over::Tensor(Reduce::Sum),
    gradient: Over::Data(Reduce::Mean),
    whole: false,
    units_by_node: false,
};

fn combine(rank: &Rank, numbers: &mut [f32], over: Over) -> comm::Result<()> {
    match over {
        Over::Nobody => Ok(()),
        Over::Tensor(how) => rank.tensor().all_reduce(numbers, how),
        Over::Data(how) => rank.data().all_reduce(numbers, how),
        Over::World(how) => rank.world().all_reduce(numbers, how),
    }
}

fn trained_by(program: Program, rank: &Rank) -> comm::Result<Vec<Vec<f32>>> {
    let (tensor, data) = (rank.tensor(), rank.data());
    let slices = if program.whole { 1 } else { tensor.size() };
    let place = if program.whole {
        0
    } else if program.units_by_node {
        data.rank() % tensor.size()
    } else {
        tensor.rank()
    };
    let mut weights: Vec<Vec<f32>> = Vec::new();
    for layer in 0..rank.layers() {
        let mine = rank.numel(layer) / slices;
        weights.push(rank.initial(layer)[place * mine..(place + 1) * mine].to_vec());
    }
    let mut inputs: Vec<Vec<f32>> = Vec::new();
    let mut x = rank.input(0, data.rank());
    for layer in 0..rank.layers() {
        let mut y = rank.forward(layer, &weights[layer], &x);
        combine(rank, &mut y, program.y)?;
        inputs.push(x);
        x = y;
    }
    let mut dy = rank.loss(0, data.rank(), &x);
    for layer in (0..rank.layers()).rev() {
        let (mut dx, mut gradient) = rank.backward(layer, &weights[layer], &inputs[layer], &dy);
        combine(rank, &mut dx, program.dx)?;
        combine(rank, &mut gradient, program.gradient)?;
        let mut adam = Adam::new(gradient.len());
        rank.update(&mut adam, &mut weights[layer], &gradient);
        dy = dx;
    }
    Ok(weights)
}

/// Whether two programs' losses, and what their optimizers get, are the same in the first step.
fn alike(one: &Run, other: &Run) -> bool {
    let near = |x: &[f32], y: &[f32]| {
        let size = y.iter().map(|y| y.abs()).fold(0.0, f32::max);
        x.len() == y.len() && x.iter().zip(y).all(|(x, y)| (x - y).abs() <= 1e-3 * size)
    };
    one.ranks.iter().zip(&other.ranks).all(|(one, other)| {
        let mut losses = one.losses.iter().zip(&other.losses);
        losses.all(|(x, y)| (x.0, x.1) == (y.0, y.1) && (x.2 - y.2).abs() <= 1e-4 * y.2)
            && one.losses.len() == other.losses.len()
            && one.updates.len() == other.updates.len()
            && one.updates.iter().all(|update| {
                let mut all = other.updates.iter();
                all.any(|theirs| near(&update.gradients, &theirs.gradients))
            })
    })
}

fn recognise(evidence: &mut Evidence, job: Job) -> Result<()> {
    let job = Job { steps: 1, ..job };
    let theirs = JUDGE.run(job)?;
    let is = |program: Program| -> Result<bool> {
        Ok(alike(&theirs, &ladder::run(job, |rank| trained_by(program, rank))?))
    };
    if is(RIGHT)? {
        return Ok(());
    }
    use Over::{Data, Nobody, Tensor, World};
    use Reduce::{Mean, Sum};
    let all: [(Program, &str); 13] = [
        (
            Program { gradient: Nobody, ..RIGHT },
            "Nobody averages the gradients over the nodes: each node trains a model of its own on its part of the text.",
        ),
        (
            Program { gradient: Data(Sum), ..RIGHT },
            "The gradients are added up over the nodes, and not averaged: they are as many times too large as there are nodes. Units add up to \
             an output, and parts of a batch are averaged. Adam hides it. Clipping by the norm does not.",
        ),
        (
            Program { units_by_node: true, ..RIGHT },
            "Ranks of one node have the same units, so each layer computes half of its units twice, and the other half never. A rank's \
             place among the ranks of its node decides which units it has.",
        ),
        (
            Program { whole: true, ..RIGHT },
            "Each rank of the node runs all 64 units, so the sum has every unit twice. A rank has only the units of its own place.",
        ),
        (
            Program { y: Nobody, ..RIGHT },
            "Each rank goes on with its own summand of a layer's output: from layer 1 on the ranks of a node compute different things, and \
             none computes the model. Add up the summands after each layer.",
        ),
        (
            Program { y: Nobody, dx: Nobody, ..RIGHT },
            "Each rank goes on with its own summand of a layer's output, and of its input's gradient: every rank trains a model with half of \
             the units. Add up the summands, forward and backward.",
        ),
        (
            Program { y: Tensor(Mean), ..RIGHT },
            "The summands of an output are averaged: each layer gives half of what it should. The model still learns, and it is another one, \
             on as many ranks another one again. Summands are added up.",
        ),
        (
            Program { y: Tensor(Mean), dx: Tensor(Mean), ..RIGHT },
            "The summands are averaged, of outputs and of inputs' gradients: each layer gives half of what it should. Units add up, and only \
             parts of a batch are averaged.",
        ),
        (
            Program { dx: Nobody, ..RIGHT },
            "The last layer's gradients are right, and those of all layers before it are not: each rank passes its own summand of an input's \
             gradient on. All units of the layer have used the input, so its gradient comes from all of them. The loss of the first step \
             is right, and the model learns, worse, with no error.",
        ),
        (
            Program { dx: Tensor(Mean), ..RIGHT },
            "The summands of an input's gradient are averaged: with each layer from the last to the first, gradients become half as large. It \
             looks like gradients that vanish, and Adam hides it. Summands are added up.",
        ),
        (
            Program { gradient: Tensor(Mean), ..RIGHT },
            "The gradients of units are averaged with those of the other units of the node: one unit learns from the mistakes of another. \
             Average over the ranks that have the same units, `rank.data()`.",
        ),
        (
            Program { gradient: Tensor(Sum), ..RIGHT },
            "The gradients of units are added to those of the other units of the node: one unit learns from the mistakes of another. A unit's \
             gradient is complete on its own rank, for the part of the batch that it has seen.",
        ),
        (
            Program { gradient: World(Mean), ..RIGHT },
            "The gradients are averaged over all ranks, and ranks of one node have different units: one unit learns from the mistakes of \
             another. Average over the ranks that have the same units, `rank.data()`.",
        ),
    ];
    for (program, means) in all {
        if is(program)? {
            evidence.means(means);
            break;
        }
    }
    Ok(())
}

fn mesh(evidence: &mut Evidence) -> Result<()> {
    let job = JUDGE.job(4)?;
    recognise(evidence, job)?;
    JUDGE.parts(evidence, 4)?;
    if evidence.agrees() {
        JUDGE.gradients(evidence, 4)?;
    }
    if evidence.agrees() {
        JUDGE.weights(evidence, 4)?;
    }
    Ok(())
}

fn bytes(evidence: &mut Evidence) -> Result<()> {
    let run = JUDGE.run(JUDGE.job(4)?)?;
    let most = best(JUDGE.rung()?)?.sent;
    for (rank, trained) in run.ranks.iter().enumerate() {
        evidence.row(
            trained.far <= most,
            format!("rank {rank}: bytes sent between nodes per step"),
            format!("at most {}", thousands(most)),
            thousands(trained.far),
        );
    }
    evidence.means_if(
        run.ranks.iter().all(|rank| rank.near == 0),
        "Nothing goes over the fast link: what the ranks of a node tell each other takes the slow one. The groups of `rank.tensor()` are on the \
         fast link, those of `rank.world()` and `rank.data()` on the slow one.",
    );
    evidence.means(
        "Between nodes a rank sends the gradients of its own units, once in a step: 2(n-1)/n of them, with n = 2 nodes. What else goes over the \
         slow link: outputs, or gradients of units that the rank does not have?",
    );
    Ok(())
}

fn time(evidence: &mut Evidence) -> Result<()> {
    if JUDGE.less_time(evidence, "ladder-buckets")? {
        return JUDGE.score(evidence);
    }
    evidence.means(
        "The bytes are few, and the ranks wait for them: the gradients of a layer's units are complete as soon as the rank has run it \
         backward, and may travel while it goes on. `start_all_reduce` begins, and `wait` takes the result.",
    );
    Ok(())
}
