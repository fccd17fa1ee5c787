//! A pipeline's run: what each pass took, what each rank kept and sent, and whether it trained what
//! one rank trains.

use super::predicted::{Predicted, bar, paced, pipeline_of};
use super::{Break, Unpipelined, rehearse};
use anyhow::Result;
use kit::parity;
use kit::show::Bar;
use kit::trace::Trace;
use shardlab::comm::{Comm, Reduce};
use shardlab::difference::same_bits;
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::parallel::pipeline::{Instruction, Op, PassRecord, Times, Work};
use shardlab::parallel::zero::Stage;
use shardlab::train::{Config, Setup};
use std::time::Instant;

/// One pass of one rank.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    pub op: Op,
    /// Seconds since all ranks began the step.
    pub start: f64,
    pub end: f64,
    /// Chunks whose activations the rank held after it, and the bytes that it had allocated since
    /// the step began.
    pub live: usize,
    pub bytes: f64,
}

/// A short training with one schedule, as all of its ranks saw it.
pub struct Measured {
    pub strategy: Strategy,
    /// Each rank's passes in the fastest step.
    pub ranks: Vec<Vec<Pass>>,
    pub losses: Vec<f64>,
    /// The losses of the unpipelined training, if there was one.
    pub expected: Vec<f64>,
    /// Whether every parameter ends with the bits of the unpipelined training.
    pub same_parameters: bool,
    /// Bytes of activations and their gradients that all ranks sent in a step.
    pub sent: f64,
}

/// How one run of the pipeline differs from the next.
#[derive(Clone, Copy)]
pub struct Way {
    pub strategy: Strategy,
    /// The least seconds of a rank's forward pass; 0 is none.
    pub pace: f64,
    pub broken: Option<Break>,
    /// A moment before the run, the same for all ranks of a process.
    pub epoch: Instant,
}

// ANCHOR: program
/// Each rank's program: its passes in the schedule's order, with messages between them. Refuses
/// programs that cannot end.
pub fn programs(strategy: &Strategy, broken: Option<Break>) -> Result<Vec<Vec<Instruction>>> {
    let pipeline = pipeline_of(strategy);
    let program = |rank| {
        let order = strategy.schedule().order(&pipeline, rank);
        let mut program = pipeline.with_messages(rank, &order);
        if let Some(mistake) = broken {
            mistake.spoil(&mut program, rank, pipeline.ranks);
        }
        program
    };
    let programs: Vec<_> = (0..pipeline.ranks).map(program).collect();
    rehearse(&pipeline, &programs)?;
    Ok(programs)
}
// ANCHOR_END: program

/// Trains `config.steps` steps, and compares with the same steps on one rank, if they are given.
/// All ranks of `comm` call it.
pub fn measure(
    comm: &Comm,
    way: Way,
    config: &Config,
    text: &[u32],
    one: Option<&Unpipelined>,
    trace: &mut Trace,
) -> Result<Measured> {
    let Way { strategy, pace, broken, epoch } = way;
    let mut zero = config.zero(Stage::Ddp);
    zero.add_tied = broken != Some(Break::Untied);
    let mut training = Setup::new(config, &strategy).zero(zero).begin(comm)?;
    training.program.clone_from(&programs(&strategy, broken)?[comm.rank()]);
    let times = paced(strategy.schedule(), strategy.chunks, pace);
    training.stages.pace = (pace > 0.0).then_some(times);
    let mut losses = Vec::new();
    let mut fastest = None::<(f64, Vec<Pass>)>;
    let mut sent = 0.0;
    for step in 0..config.steps {
        let before = training.stages.group().traffic().bytes;
        let micro_batches = training.draw(text, step, &mut ())?;
        let origin = start_together(comm, epoch)?;
        let ran = training.passes(&micro_batches)?;
        let bytes = (training.stages.group().traffic().bytes - before) as f64;
        let averaged = training.average()?;
        let finished = Instant::now();
        training.update(step)?;
        trace.pipelined(step + 1, &ran, &averaged, (finished, Instant::now()));
        losses.push(training.loss(&ran)?);
        let seconds =
            |moment: Instant| moment.saturating_duration_since(epoch).as_secs_f64() - origin;
        let pass = |done: &PassRecord| Pass {
            op: done.op,
            start: seconds(done.start),
            end: seconds(done.end),
            live: done.live,
            bytes: done.bytes.max(0) as f64,
        };
        let passes: Vec<Pass> = ran.passes.iter().map(pass).collect();
        let end = passes.iter().map(|pass| pass.end).fold(0.0, f64::max);
        let end = comm.reduced(end, Reduce::Max)?;
        // The first step also leaves buffers that are not the step's.
        if fastest.as_ref().is_none_or(|(best, _)| end < *best) || step == 1 {
            fastest = Some((end, passes));
            sent = bytes;
        }
    }
    let params = &training.stages.chunks[0].params;
    let values = parity::stored_values(params);
    let as_one_rank = |one: &Unpipelined| {
        let expected = |name: &str| one.value(name).unwrap_or_default();
        let mut specs = params.specs().iter();
        specs.all(|spec| same_bits(&values[spec.range()], &expected(&spec.name)))
    };
    let same_parameters = !comm.any(!one.is_none_or(as_one_rank))?;
    let sent = comm.reduced(sent, Reduce::Sum)?;
    Ok(Measured {
        strategy,
        ranks: gather(comm, &fastest.map(|(_, passes)| passes).unwrap_or_default())?,
        expected: one.map_or_else(Vec::new, |one| one.losses.clone()),
        losses,
        same_parameters,
        sent,
    })
}

fn first_different(losses: &[f64], expected: &[f64]) -> Option<(usize, f64, f64)> {
    let at = |of: &[f64], step: usize| of.get(step).copied().unwrap_or(f64::NAN);
    let steps = losses.len().max(expected.len()).max(1);
    let mut pairs = (0..steps).map(|step| (step + 1, at(losses, step), at(expected, step)));
    pairs.find(|(_, a, b)| !same_bits(&[*a], &[*b]))
}

/// Waits for all ranks. Returns the time at which the first of them went on, in seconds since
/// `epoch`. MPI processes have no common clock, so each returns its own.
fn start_together(comm: &Comm, epoch: Instant) -> Result<f64> {
    comm.labelled("step").barrier()?;
    let now = epoch.elapsed().as_secs_f64();
    Ok(if launch::is_mpi() {
        now
    } else {
        comm.reduced(now, Reduce::Min)?
    })
}

/// All ranks' passes, on every rank.
fn gather(comm: &Comm, passes: &[Pass]) -> Result<Vec<Vec<Pass>>> {
    let numbers = |pass: &Pass| {
        let Op { work, chunk, micro } = pass.op;
        let whole = [work as usize, chunk, micro, pass.live].map(|number| number as f64);
        [&whole[..], &[pass.start, pass.end, pass.bytes]].concat()
    };
    let mine: Vec<f64> = passes.iter().flat_map(numbers).collect();
    let all = comm.gathered(&mine)?;
    let pass = |numbers: &[f64; NUMBERS]| {
        let [work, chunk, micro, live, start, end, bytes] = *numbers;
        let [work, chunk, micro, live] = [work, chunk, micro, live].map(|number| number as usize);
        let op = Op { work: Work::ALL[work], chunk, micro };
        Pass { op, start, end, live, bytes }
    };
    Ok(all
        .chunks_exact(mine.len().max(1))
        .map(|rank| rank.as_chunks::<NUMBERS>().0.iter().map(pass).collect())
        .collect())
}

/// Numbers that describe a pass.
const NUMBERS: usize = 7;

impl Measured {
    /// The same step, simulated: with the `pace` of the passes, or without one with the mean time
    /// that each rank took for passes of one kind through one chunk.
    pub fn predicted(&self, pace: f64) -> Result<Predicted> {
        let schedule = self.strategy.schedule();
        let pipeline = pipeline_of(&self.strategy);
        match pace {
            0.0 => Predicted::new(schedule, pipeline, self.times(), |rank, op| self.mean(rank, op)),
            pace => Predicted::paced(schedule, pipeline, pace),
        }
    }

    /// The first step whose loss has other bits than the unpipelined training's: its number, its
    /// loss, and that one's. A loss that is missing is NaN.
    pub fn first_different_loss(&self) -> Option<(usize, f64, f64)> {
        first_different(&self.losses, &self.expected)
    }

    /// Each rank's passes, to draw them.
    pub fn bars(&self) -> Vec<Vec<Bar>> {
        let bar = |pass: &Pass| bar(pass.op, pass.start, pass.end);
        self.ranks.iter().map(|passes| passes.iter().map(bar).collect()).collect()
    }

    /// When the last pass of the step ended.
    pub fn makespan(&self) -> f64 {
        self.ranks.iter().flatten().map(|pass| pass.end).fold(0.0, f64::max)
    }

    /// The share of the step in which the busiest rank did not compute.
    pub fn bubble(&self) -> f64 {
        let busy =
            |passes: &Vec<Pass>| passes.iter().map(|pass| pass.end - pass.start).sum::<f64>();
        1.0 - self.ranks.iter().map(busy).fold(0.0, f64::max) / self.makespan()
    }

    /// The most chunks' activations that each rank held at once, and the most bytes.
    pub fn peaks(&self) -> Vec<(usize, f64)> {
        let more =
            |(live, bytes): (usize, f64), pass: &Pass| (live.max(pass.live), pass.bytes.max(bytes));
        self.ranks.iter().map(|passes| passes.iter().fold((0, 0.0), more)).collect()
    }

    /// The mean time of `rank`'s passes like `op`, over its micro-batches.
    fn mean(&self, rank: usize, op: Op) -> f64 {
        let like = |pass: &&Pass| (pass.op.work, pass.op.chunk) == (op.work, op.chunk);
        mean_time(self.ranks[rank].iter().filter(like))
    }

    /// The mean time of each kind of pass.
    pub fn times(&self) -> Times {
        let all = || self.ranks.iter().flatten();
        let mean = |work: Work| mean_time(all().filter(|pass| pass.op.work == work));
        let [forward, backward, weights] = Work::ALL.map(mean);
        Times { forward, backward, weights, message: 0.0 }
    }

    /// Bytes that the ranks send in a step, by formula: a message in each direction for each
    /// micro-batch at each boundary between stages of different ranks.
    pub fn expected_bytes(&self, config: &Config) -> f64 {
        let pipeline = pipeline_of(&self.strategy);
        let boundaries = if pipeline.ranks > 1 { pipeline.stages() - 1 } else { 0 };
        (2 * boundaries * pipeline.micro_batches) as f64 * message_bytes(config)
    }
}

/// The mean time of some passes: 0 without any.
fn mean_time<'a>(passes: impl Iterator<Item = &'a Pass>) -> f64 {
    let times: Vec<f64> = passes.map(|pass| pass.end - pass.start).collect();
    times.iter().sum::<f64>() / times.len().max(1) as f64
}

/// Bytes of one message between two stages: batch x sequence x width.
pub fn message_bytes(config: &Config) -> f64 {
    (config.precision.bytes() * config.batch * config.shape.block * config.shape.embd) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::difference::damaged;

    #[test]
    fn nan_and_missing_losses_are_different() {
        let good = [3.0, 2.0, 1.0];
        assert_eq!(first_different(&good, &good), None);
        assert_eq!(first_different(&[3.0, 2.5, 1.5], &good), Some((2, 2.5, 2.0)));
        for bad in damaged(&good) {
            assert!(
                first_different(&bad, &good).is_some() && first_different(&good, &bad).is_some(),
                "{bad:?}"
            );
            let always = bad.is_empty() || bad.iter().any(|loss| loss.is_nan());
            assert_eq!(first_different(&bad, &bad).is_some(), always, "{bad:?}");
        }
    }

    /// Every check sees what it is for in one run among right ones, wherever that is.
    #[test]
    fn one_hostile_run_is_enough() {
        let config = Config::small(1, &shardlab::data::Corpus::embedded().unwrap());
        let strategy: Strategy = "pp=2,m=2".parse().unwrap();
        let predicted = || {
            let schedule = strategy.schedule();
            Predicted::paced(schedule, pipeline_of(&strategy), 1.0).unwrap()
        };
        let right = || {
            let pass = |op, live| Pass { op, start: 0.0, end: 1.0, live, bytes: 1.0 };
            let Predicted { orders, simulated, .. } = predicted();
            let ranks = orders.iter().zip(&simulated.peaks);
            let passes =
                ranks.map(|(order, &peak)| order.iter().map(|&op| pass(op, peak)).collect());
            let mut measured = Measured {
                strategy,
                ranks: passes.collect(),
                losses: vec![3.0, 2.0],
                expected: vec![3.0, 2.0],
                same_parameters: true,
                sent: 0.0,
            };
            measured.sent = measured.expected_bytes(&config);
            measured
        };
        let errors = |place: usize, change: fn(&mut Measured)| {
            let mut all = [(predicted(), right()), (predicted(), right())];
            change(&mut all[place].1);
            let screen = kit::show::Screen::plain();
            let mut checks = kit::Checks::new(&screen);
            super::super::check(&mut checks, &config, &all);
            checks.failed()
        };
        assert_eq!(errors(0, |_| ()), Vec::<String>::new());
        for place in [0, 1] {
            for (errors, says) in [
                (errors(place, |run| run.losses[1] = f64::NAN), "losses are not one rank's"),
                (errors(place, |run| run.losses.truncate(1)), "losses are not one rank's"),
                (errors(place, |run| run.same_parameters = false), "a different model"),
                (errors(place, |run| run.ranks[0][0].live += 1), "kept other activations"),
                (errors(place, |run| run.ranks.truncate(1)), "kept other activations"),
                (errors(place, |run| run.sent = f64::NAN), "sent other bytes"),
                (errors(place, |run| run.sent -= 4.0), "sent other bytes"),
            ] {
                assert!(errors.len() == 1 && errors[0].contains(says), "{says}: {errors:?}");
            }
        }
    }
}
