//! What a conversion tells its watcher.

use super::super::Watch;
use super::*;
use std::sync::Mutex;

/// Each phase: its number, tasks, those that are done, and whether it has ended.
#[derive(Default)]
struct Watched(Mutex<Vec<(char, usize, usize, bool)>>);

impl Watch for Watched {
    fn begin(&self, phase: &str, tasks: usize) {
        self.0.lock().unwrap().push((phase.chars().next().unwrap(), tasks, 0, false));
    }

    fn advance(&self) {
        self.0.lock().unwrap().last_mut().unwrap().2 += 1;
    }

    fn end(&self) {
        self.0.lock().unwrap().last_mut().unwrap().3 = true;
    }
}

#[test]
fn each_phase_begins_counts_its_tasks_and_ends() {
    let dir = saved(&Example::new(2, 3, groups()));
    let watched = Watched::default();
    convert(&options(dir.path()), &watched).unwrap();
    let phases = watched.0.into_inner().unwrap();
    assert_eq!(phases, [('1', 3, 3, true), ('2', 6, 6, true), ('3', 1, 1, true)]);
}
