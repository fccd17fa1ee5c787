//! What rank 0 says on a terminal while nothing is printed: the step it is at, and how long is
//! left.

use crate::show::{self, thousands};
use shardlab::comm::Comm;
use std::time::{Duration, Instant};

/// Shows what a program does, on rank 0's terminal.
pub fn progress(comm: &Comm, text: impl FnOnce() -> String) {
    if comm.rank() == 0 {
        show::progress(text);
    }
}

/// Some steps, and how fast they are taken.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    pub all: usize,
    /// The first step is left out: it also allocates.
    first: Option<(usize, Instant)>,
}

impl Steps {
    pub fn new(all: usize) -> Steps {
        Steps { all, first: None }
    }

    /// Shows that so many steps are done, on rank 0's terminal: `what`, and how long the rest will
    /// take.
    pub fn show(&mut self, comm: &Comm, done: usize, what: impl FnOnce() -> String) {
        let now = Instant::now();
        let (step, time) = *self.first.get_or_insert((done, now));
        let left = left(now - time, done - step, self.all - done);
        progress(comm, || what() + &left.unwrap_or_default());
    }

    /// The same in the words of one training.
    pub fn training(&mut self, comm: &Comm, done: usize) {
        let all = self.all;
        let number = |n: usize| thousands(n as u64);
        self.show(comm, done, || format!("step {} of {}", number(done), number(all)));
    }
}

/// How long `rest` steps will take if the last `done` took so long.
fn left(time: Duration, done: usize, rest: usize) -> Option<String> {
    let seconds = time.as_secs_f64() / done as f64 * rest as f64;
    let about = match seconds {
        s if s < 1.0 || !s.is_finite() => return None,
        s if s < 90.0 => format!("{s:.0} s"),
        s => format!("{:.0} min", s / 60.0),
    };
    Some(format!(", about {about} left"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_a_step_as_what_is_done() {
        let left = |ms, done, rest| left(Duration::from_millis(ms), done, rest).unwrap_or_default();
        assert_eq!(left(30_000, 430, 570), ", about 40 s left");
        assert_eq!(left(100_000, 250, 750), ", about 5 min left");
        for nothing in [left(0, 0, 7), left(900, 9, 0), left(500, 9, 9)] {
            assert_eq!(nothing, "");
        }
    }
}
