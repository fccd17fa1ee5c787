//! How long each part of a step takes.

use shardlab::named::named;
use shardlab::parallel::pipeline::Work;
use shardlab::train::ComputedStep;
use std::time::Instant;

/// A step's clock. Each call of [`Clock::time`] assigns the time since the previous call to a part
/// of the step.
#[derive(Debug)]
pub struct Clock {
    start: Instant,
    pub laps: Vec<Lap>,
    pub parts: StepTimes,
}

/// An interval that belongs to one part of a step.
#[derive(Clone, Copy, Debug)]
pub struct Lap {
    pub part: Part,
    pub start: Instant,
    pub end: Instant,
}

named! {
    /// The parts of a training step.
    pub enum Part {
        Data = "data",
        Forward = "forward",
        Backward = "backward",
        Optimizer = "optimizer",
    }
}

/// Seconds by part of the step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTimes {
    pub data: f64,
    pub forward: f64,
    pub backward: f64,
    pub optimizer: f64,
}

impl StepTimes {
    pub fn total(&self) -> f64 {
        self.data + self.forward + self.backward + self.optimizer
    }

    pub fn add(&mut self, other: &StepTimes) {
        self.data += other.data;
        self.forward += other.forward;
        self.backward += other.backward;
        self.optimizer += other.optimizer;
    }
}

impl Clock {
    /// The parts of a step that the library has computed.
    pub fn of(step: &ComputedStep) -> Clock {
        let times = &step.times;
        let mut clock = Clock::started(times.begun);
        clock.lap_until(Part::Data, times.drawn);
        for pass in &step.ran.passes {
            let part = match pass.op.work {
                Work::Forward => Part::Forward,
                Work::Backward | Work::Weights => Part::Backward,
            };
            clock.lap_until(part, pass.end);
        }
        clock.lap_until(Part::Backward, times.averaged);
        clock.lap_until(Part::Optimizer, times.updated);
        clock
    }

    pub fn start() -> Clock {
        Clock::started(Instant::now())
    }

    fn started(start: Instant) -> Clock {
        Clock { start, laps: Vec::new(), parts: StepTimes::default() }
    }

    /// Seconds from the clock's start to `moment`.
    pub fn at(&self, moment: Instant) -> f64 {
        moment.saturating_duration_since(self.start).as_secs_f64()
    }

    /// Runs `work`, and adds the time since the last lap to `part`.
    pub fn time<R>(&mut self, part: Part, work: impl FnOnce() -> R) -> R {
        let result = work();
        self.lap_until(part, Instant::now());
        result
    }

    fn lap_until(&mut self, part: Part, end: Instant) {
        let start = self.laps.last().map_or(self.start, |last| last.end);
        let lap = Lap { part, start, end };
        let sum = match part {
            Part::Data => &mut self.parts.data,
            Part::Forward => &mut self.parts.forward,
            Part::Backward => &mut self.parts.backward,
            Part::Optimizer => &mut self.parts.optimizer,
        };
        *sum += (lap.end - lap.start).as_secs_f64();
        self.laps.push(lap);
    }
}
