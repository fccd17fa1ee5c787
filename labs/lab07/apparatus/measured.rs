//! The ranks' measurements, beside the plan's figures and beside one rank's training.

use super::plan::Plan;
use super::report::{Iteration, Memory, times};
use anyhow::Result;
use kit::neighbours::groups;
use kit::parity::{self, Trained};
use kit::show::{Screen, bytes_decimal, counted, explained, significant, table, thousands};
use kit::{Checks, report, steady};
use shardlab::comm::{Comm, CommTraffic, Reduce};
use shardlab::difference::largest_relative_difference;
use shardlab::mesh::{Axis, Layout, Mesh};
use shardlab::plan::zero_memory;
use shardlab::tensor::{Params, Precision};
use shardlab::train::{Config, StepTimes, TakenStep, Training};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The largest relative differences from one rank: of the first norm, and of losses after some
/// steps. They are rounding: ranks add up in a different order, and round gradients or what they
/// send if either is bf16.
fn bounds(precision: Precision) -> [f64; 2] {
    [parity::loss_bound(precision), parity::later_loss_bound(precision)]
}

/// The steps that one rank repeats.
const COMPARED: usize = 20;

/// One rank's measurements.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Seconds until the first step.
    pub set_up: f64,
    /// Seconds of each step: forward and backward passes, averaging, optimizer.
    pub phases: Vec<[f64; 3]>,
    /// The mean loss of this rank's replica, and the norm by which this rank clipped.
    pub losses: Vec<f64>,
    pub norms: Vec<f64>,
    pub parameters: usize,
    /// After the first step.
    pub memory: Memory,
    /// The traffic of all steps together.
    pub traffic: [CommTraffic; 4],
}

impl Measured {
    /// Adds a step.
    pub fn add(&mut self, taken: &TakenStep) {
        let StepTimes { begun, passed, averaged, updated, .. } = taken.computed.times;
        let phases = [passed - begun, averaged - passed, updated - averaged];
        self.phases.push(phases.map(|time| time.as_secs_f64()));
        self.losses.push(taken.loss);
        self.norms.push(taken.grad_norm);
    }
}

/// This rank's traffic so far, by what it was for: in the order of [`Sent`](super::Sent).
pub fn traffic(mesh: &Mesh) -> [CommTraffic; 4] {
    let [tensor, pipeline, data] =
        [Axis::Tensor, Axis::Pipeline, Axis::Data].map(|axis| mesh.group(axis).traffic());
    let world = mesh.world();
    // The two stages that have a copy of the table are a group that no axis has.
    let table = world.total_traffic() - world.traffic() - tensor - pipeline - data;
    [tensor, pipeline, table, data]
}

/// All ranks' measurements.
pub struct Run {
    /// Seconds of each rank: the set-up, and a step's three phases.
    times: Vec<[f64; 4]>,
    parameters: Vec<u64>,
    memory: Vec<Memory>,
    /// Of each rank and kind: bytes, calls and seconds in them, per step.
    traffic: Vec<[[f64; 3]; 4]>,
    /// The mean over replicas, of each step.
    losses: Vec<f64>,
    /// By rank and step.
    norms: Vec<Vec<f64>>,
    same_copies: bool,
    layout: Layout,
}

/// Collects all ranks' measurements, on every rank.
pub fn collect(mesh: &Mesh, measured: &Measured, params: &Params) -> Result<Run> {
    let world = mesh.world();
    let taken = measured.phases.len().max(1) as f64;
    let phase = |i: usize| measured.phases.iter().map(|phases| phases[i]).sum::<f64>() / taken;
    let times = world.gathered(&[measured.set_up, phase(0), phase(1), phase(2)])?;
    let Memory { allocated, max_allocated, reserved } = measured.memory;
    let memory = world.gathered(&[allocated, max_allocated, reserved])?;
    let figures = |of: CommTraffic| [of.bytes as f64, of.calls as f64, of.seconds];
    let sent = measured.traffic.map(|of| figures(of).map(|figure| figure / taken));
    let traffic = world.gathered(sent.as_flattened())?;
    let mut losses = measured.losses.clone();
    mesh.group(Axis::Data).all_reduce(&mut losses, Reduce::Mean)?;
    let steps = measured.norms.len();
    let norms = world.gathered(&measured.norms)?;
    let norms = norms.chunks_exact(steps.max(1)).map(<[f64]>::to_vec).collect();
    let same_copies = same_copies(world, params)?;
    Ok(Run {
        times: times.as_chunks().0.to_vec(),
        parameters: world.gathered(&[measured.parameters as u64])?,
        memory: memory.as_chunks().0.iter().copied().map(Memory::of).collect(),
        traffic: traffic.as_chunks().0.as_chunks().0.to_vec(),
        losses,
        norms,
        same_copies,
        layout: mesh.layout,
    })
}

/// Whether ranks that hold the same elements of a parameter hold the same values: replicas, tensor
/// ranks with the same norms, stages with the same token table. All ranks call it.
fn same_copies(world: &Comm, params: &Params) -> Result<bool> {
    let hash = |of: &dyn Fn(&mut DefaultHasher)| {
        let mut hasher = DefaultHasher::new();
        of(&mut hasher);
        hasher.finish()
    };
    let values = params.whole()?;
    let fragment = |spec: &shardlab::tensor::Spec| {
        let name = hash(&|hasher| (&spec.whole.name, format!("{:?}", spec.cut)).hash(hasher));
        let bits = bytemuck::cast_slice::<f32, u8>(&values[spec.range()]);
        [name, hash(&|hasher| bits.hash(hasher))]
    };
    let mut mine: Vec<u64> = params.specs().iter().flat_map(|spec| fragment(spec)).collect();
    let most = world.reduced(mine.len() as u64, Reduce::Max)?;
    mine.resize(most as usize, 0); // ranks hold different numbers of parameters
    let mut seen = HashMap::new();
    Ok(world
        .gathered(&mine)?
        .chunks_exact(2)
        .all(|pair| *seen.entry(pair[0]).or_insert(pair[1]) == pair[1]))
}

/// The same training on one rank, without any parallelism: the micro-batches of all replicas one
/// after the other.
pub fn one_rank(config: &Config, text: &[u32]) -> Result<Trained> {
    parity::accumulated(config, text, config.steps.min(COMPARED))
}

/// The largest difference in the steps that one rank repeats, relative to its figures.
fn apart(all: &[f64], one: &[f64]) -> f64 {
    largest_relative_difference(all.get(..one.len()).unwrap_or_default(), one)
}

impl Run {
    /// The bytes on each axis, by the plan and as counted: the mean over ranks. With `waits`, also
    /// the time in the calls, which depends on the link.
    pub fn axes(&self, screen: &Screen, plan: &Plan, waits: bool) -> String {
        let n = self.traffic.len();
        let predicted =
            |kind: usize| (0..n).map(|rank| plan.sent(rank).parts()[kind]).sum::<f64>() / n as f64;
        let counted = |kind: usize, i: usize| {
            self.traffic.iter().map(|rank| rank[kind][i]).sum::<f64>() / n as f64
        };
        let row = |(kind, (name, groups)): (usize, (&str, String))| {
            let predicted = predicted(kind);
            let [bytes, calls, seconds] = [0, 1, 2].map(|i| counted(kind, i));
            let calls = (100.0 * calls).round() / 100.0;
            let mut row = vec![name.to_string(), groups, calls.to_string()];
            row.extend([bytes_decimal(predicted), bytes_decimal(bytes)]);
            row.extend(waits.then(|| screen.seconds(seconds)));
            row
        };
        let ends = "first and last stage".to_string();
        let kinds = [
            ("tensor", self.groups(screen, Axis::Tensor)),
            ("pipeline", self.groups(screen, Axis::Pipeline)),
            ("  tied table", ends),
            ("data", self.groups(screen, Axis::Data)),
        ];
        let table_is_tied = self.layout.sizes.pipeline > 1;
        let kinds = kinds.into_iter().enumerate().filter(|&(kind, _)| kind != 2 || table_is_tied);
        let kinds: Vec<(usize, (&str, String))> = kinds.collect();
        // The axis with the most bytes wants the fastest link. The tied table is no axis.
        let bytes = kinds.iter().map(|&(kind, _)| match kind {
            2 => f64::NAN,
            _ => counted(kind, 0),
        });
        let bytes: Vec<f64> = bytes.collect();
        let mut rows: Vec<Vec<String>> = kinds.into_iter().map(row).collect();
        screen.least_is_best(&mut rows, 4, &bytes);
        let head = ["axis", "groups of ranks", "calls", "predicted", report::counted(), "in calls"];
        let words = "Calls of a rank per step, and the bytes that it sends: the mean over ranks.";
        explained(screen, &head[..if waits { 6 } else { 5 }], &rows, words)
    }

    /// The groups of ranks along an axis, in words.
    fn groups(&self, screen: &Screen, axis: Axis) -> String {
        const SHOWN: usize = 4;
        let words = |group: &Vec<usize>| {
            let ranks: Vec<String> = group.iter().map(|&rank| screen.rank(rank, rank)).collect();
            format!("[{}]", ranks.join(" "))
        };
        let mut all: Vec<String> = groups(&self.layout, axis).iter().map(words).collect();
        if all.len() > SHOWN {
            all.truncate(SHOWN);
            all.push("...".to_string());
        }
        all.join(" ")
    }

    /// The first and the last step, beside one rank's.
    pub fn steps(&self, screen: &Screen, one: &Trained) -> String {
        let row = |step: usize| {
            let of = |all: &[f64]| all.get(step).map_or(String::new(), |x| format!("{x:.6}"));
            let step = (step + 1).to_string();
            [step, of(&self.losses), of(&one.losses), of(&self.norms[0]), of(&one.norms)]
        };
        let last = Some(one.losses.len().saturating_sub(1)).filter(|last| *last > 0);
        let rows = std::iter::once(0).chain(last).map(row);
        table(screen, &["step", "loss", "of 1 rank", "gradient norm", "of 1 rank"], rows)
    }

    /// How many of the first losses are to be compared with one rank's.
    ///
    /// # Errors
    /// If a pass of one rank's own trainings fails.
    pub fn steady_steps(&self, plan: &Plan, text: &[u32], one: &Trained) -> Result<usize> {
        let job = &plan.config;
        let [_, drift] = bounds(parity::rounds(job));
        let alone = Config {
            ranks: 1,
            grad_accum: job.ranks * job.grad_accum,
            ..job.clone()
        };
        let passes =
            |alone: &Training, step: usize| parity::drawn(alone, job, 0..job.ranks, text, step);
        let found = self.losses.get(..one.losses.len()).unwrap_or_default();
        steady::compared(&alone, 0, (found, &one.losses), drift, passes)
    }

    /// Runs all checks. Of the losses, those of the first `compared` steps are one rank's.
    pub fn check(&self, checks: &mut Checks, plan: &Plan, one: &Trained, compared: usize) {
        let off = |apart: f64| {
            if apart == 0.0 {
                "0".to_string()
            } else {
                format!("off by {apart:.0e}")
            }
        };
        let losses = apart(&self.losses, &one.losses[..compared]);
        let norm = apart(&self.norms[0], one.norms.get(..1).unwrap_or_default());
        let [rounding, drift] = bounds(parity::rounds(&plan.config));
        let steps = counted(compared, "step", "steps");
        checks.check(
            losses < drift,
            &format!("{steps}: losses are one rank's, within {drift:.0e}"),
            &off(losses),
            "the ranks trained a different model than one rank",
        );
        checks.compared(compared, one.losses.len());
        checks.check(
            norm < rounding,
            &format!("the first gradient norm is one rank's, within {rounding:.0e}"),
            &off(norm),
            "the gradients differ from one rank's",
        );
        let different = self.norms.iter().filter(|norms| !norms.iter().eq(&self.norms[0])).count();
        let result = if different == 0 {
            "equal".to_string()
        } else {
            format!("{} different", different + 1)
        };
        checks.check(
            different == 0,
            "all ranks clip by one norm",
            &result,
            "ranks clipped by different norms",
        );
        checks.check_bits(
            self.same_copies,
            "copies of parameters are the same on their ranks",
            "copies of one parameter became different",
        );
        let job = plan.job();
        let expected = |rank: usize| job.parameters(self.layout.coordinates(rank).pipeline);
        let found = |rank: usize| self.parameters[rank];
        let wrong = (0..self.parameters.len()).find(|&rank| found(rank) != expected(rank));
        let result = match wrong {
            None => "as counted".to_string(),
            Some(rank) => {
                let expected = thousands(expected(rank));
                let found = thousands(found(rank));
                format!("rank {rank}: expected {expected}, found {found}")
            }
        };
        checks.check(
            wrong.is_none(),
            "parameters on each rank",
            &result,
            "a rank holds more or less than it should",
        );
        // ZeRO gives the data ranks unequal parts of the norms and positions, whose gradients
        // tensor ranks add up with sequence parallelism: there the mean over the data ranks counts.
        let counted = |rank: usize, kind: usize| {
            let one = |rank: usize| self.traffic[rank][kind][0];
            if kind > 0 || !plan.strategy.sequence {
                return one(rank);
            }
            let data = self.layout.group(rank, Axis::Data);
            data.iter().map(|&rank| one(rank)).sum::<f64>() / data.len() as f64
        };
        let mut most: f64 = 0.0;
        let mut sound = true;
        for rank in 0..self.traffic.len() {
            for (kind, predicted) in plan.sent(rank).parts().into_iter().enumerate() {
                let counted = counted(rank, kind);
                // A group's ranks share few bytes, such as a norm's, unevenly.
                let off = ((counted - predicted).abs() - 64.0) / predicted.max(1.0);
                most = most.max(off);
                sound &= off < 0.01;
            }
        }
        let result = format!("off by {}%", significant(100.0 * most, 2));
        checks.check(
            sound,
            "bytes on each axis, within 1%",
            &result,
            "a rank sent more or less than planned",
        );
    }

    /// The steps, times and memory as a Megatron-LM log prints them.
    pub fn log(&self, plan: &Plan, seconds: &[f64]) -> Vec<String> {
        let config = &plan.config;
        let job = plan.job();
        let phase = |name: &'static str, i: usize| {
            let of = self.times.iter().map(|times| times[i]);
            (name, of.clone().fold(f64::INFINITY, f64::min), of.fold(0.0, f64::max))
        };
        let line = |step: usize| {
            let iteration = Iteration {
                number: step + 1,
                steps: config.steps,
                seconds: seconds[step],
                lr: config.schedule.at(step),
                global_batch: job.global_batch(),
                loss: Some(self.losses[step]),
                loss_scale: 1.0,
                grad_norm: Some(self.norms[0][step]),
                nan: 0,
            };
            iteration.line()
        };
        let mut lines = job.counts();
        lines.extend(job.begin());
        lines.extend(times(&[phase("model-and-optimizer-setup", 0)]));
        lines.extend(self.losses.first().map(|_| line(0)));
        lines.extend(job.estimate());
        let memory = self.memory.iter().enumerate();
        lines.extend(memory.map(|(rank, memory)| memory.line(rank, 1)));
        let due = |step: &usize| (step + 1).is_multiple_of(job.log_interval);
        lines.extend((1..self.losses.len()).filter(due).map(line));
        let phases =
            [phase("forward-backward", 1), phase("all-grads-sync", 2), phase("optimizer", 3)];
        lines.extend(times(&phases));
        lines
    }

    /// The bytes that the most loaded rank holds for its parameters, and has allocated after the
    /// first step.
    pub fn memory(&self, screen: &Screen, plan: &Plan) -> String {
        let job = plan.job();
        let n = self.parameters.len();
        let stage = plan.strategy.zero.number();
        let state = |rank: usize| {
            zero_memory(stage, self.parameters[rank], job.sizes.data as u64, job.bytes)
        };
        let held = |rank: usize| state(rank).iter().sum::<u64>() as f64;
        let most = (0..n).rev().max_by(|&a, &b| held(a).total_cmp(&held(b))).unwrap_or_default();
        let each = held(most) / self.parameters[most] as f64;
        let text = format!(
            "rank {most}: {} x {} bytes = {}; in step 1 at most {}",
            thousands(self.parameters[most]),
            significant(each, 3).trim_end_matches(".0"),
            bytes_decimal(held(most)),
            bytes_decimal(self.memory[most].max_allocated),
        );
        screen.row("memory", &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::data::Corpus;
    use shardlab::difference::damaged;
    use shardlab::parallel::Strategy;

    #[test]
    fn nan_and_missing_steps_are_differences() {
        let good = [3.0, 2.0, 1.0];
        let [_, drift] = bounds(Precision::Bf16);
        assert_eq!(apart(&good, &good), 0.0);
        assert_eq!(apart(&[3.0, 2.0, 1.5, 7.0], &good), 0.5, "one rank does not repeat all steps");
        for bad in damaged(&good) {
            assert!(apart(&bad, &good) > drift, "{bad:?}");
        }
        assert!(apart(&good, &[]) > drift && apart(&good, &[3.0, f64::NAN]) > drift);
    }

    /// Every check sees what it is for on one of the ranks.
    #[test]
    fn one_hostile_rank_is_enough() {
        let strategy: Strategy = "dp=2,tp=2".parse().unwrap();
        let config = Config::small(2, &Corpus::embedded().unwrap());
        let plan = Plan { config, strategy };
        let layout = plan.layout();
        let one = Trained {
            losses: vec![4.0, 3.0],
            norms: vec![1.0, 1.0],
            values: Vec::new(),
        };
        let parameters = |rank| plan.job().parameters(layout.coordinates(rank).pipeline);
        let traffic = |rank| plan.sent(rank).parts().map(|bytes| [bytes, 0.0, 0.0]);
        let errors = |change: fn(&mut Run)| {
            let mut run = Run {
                times: vec![[0.0; 4]; 4],
                parameters: (0..4).map(parameters).collect(),
                memory: vec![Memory::default(); 4],
                traffic: (0..4).map(traffic).collect(),
                losses: one.losses.clone(),
                norms: vec![one.norms.clone(); 4],
                same_copies: true,
                layout,
            };
            change(&mut run);
            let screen = Screen::plain();
            let mut checks = Checks::new(&screen);
            run.check(&mut checks, &plan, &one, one.losses.len());
            checks.failed()
        };
        assert_eq!(errors(|_| ()), Vec::<String>::new());
        for (errors, says) in [
            (errors(|run| run.losses[1] = f64::NAN), "a different model"),
            (errors(|run| run.losses.truncate(1)), "a different model"),
            (errors(|run| run.norms[3][1] = f64::NAN), "clipped by different norms"),
            (errors(|run| run.same_copies = false), "copies of one parameter"),
            (errors(|run| run.parameters[3] = 0), "holds more or less"),
            (errors(|run| run.traffic[3][0][0] = f64::NAN), "sent more or less"),
            (errors(|run| run.traffic[3][0][0] *= 0.9), "sent more or less"),
        ] {
            assert!(errors.len() == 1 && errors[0].contains(says), "{says}: {errors:?}");
        }
        // All ranks clip by it.
        let errors = errors(|run| run.norms.iter_mut().for_each(|norms| norms[0] = f64::NAN));
        assert!(errors[0].contains("gradients differ from one rank's"), "{errors:?}");
    }
}
