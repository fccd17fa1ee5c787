//! A run: both lives, in this process or each in one of its own.

use crate::life::{Each, Life, Span};
use crate::parts::{Part, Parts, Versions, Whose};
use crate::plan::Plan;
use crate::{Job, child, files, life};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What all runs of the program share.
pub struct Setting<'a> {
    pub plan: &'a Plan,
    pub text: &'a [u32],
    /// The reader's parts; the library's where there is none.
    pub yours: &'a Parts,
    /// The flags with which this program starts a life as a process of its own. Without them, lives
    /// run in this one.
    pub child: Option<&'a [String]>,
    /// Is told of the steps of all lives.
    pub each: Each<'a>,
}

/// Both lives.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    pub life1: Life,
    /// Has no steps if life 1 has left no checkpoint.
    pub life2: Life,
}

impl Setting<'_> {
    /// A job with these versions of the parts.
    pub fn job(&self, versions: &Versions) -> Job<'_> {
        let mut parts = Parts::library();
        for (part, whose) in Part::ALL.into_iter().zip(versions) {
            match whose {
                Whose::Yours => parts.take(part, self.yours),
                Whose::Library => {}
                Whose::Without => parts.take(part, &Parts::without()),
            }
        }
        Job { plan: self.plan.clone(), parts, text: self.text }
    }

    /// Both lives, from the first step to the last.
    pub fn run(&self, versions: &Versions, folder: &Path) -> Run {
        self.run_until(versions, folder, [self.plan.killed_after, self.plan.config.steps])
    }

    /// Each life up to a step; life 2 needs none. Life 1 is killed, if lives are processes; else it
    /// ends where it would be.
    pub fn run_until(&self, versions: &Versions, folder: &Path, until: [usize; 2]) -> Run {
        files::clear(folder, self.plan.config.steps); // of an earlier run
        let life = |life: usize| {
            let span = Span { life, until: until[life - 1], folder: folder.into() };
            match self.child {
                Some(flags) => child::run(flags, versions, &span, self.each),
                None => life::live(&self.job(versions), &span, self.each),
            }
        };
        let life1 = life(1);
        let has_saved = files::folder(folder, self.plan.saved()).exists();
        let goes_on = until[1] > 0 && has_saved && life1.failed.is_none();
        let life2 = if goes_on { life(2) } else { Life::default() };
        Run { life1, life2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life1;
    use crate::plan::RANKS_1;
    use crate::step::Step;
    use shardlab::data::Corpus;
    use shardlab::launch;
    use std::sync::Mutex;

    /// A kill, new ranks on another mesh and a skipped step cost nothing: the losses are those of
    /// two ranks that were never killed, and skip the same step.
    #[test]
    fn both_lives_train_what_one_life_trains() {
        let corpus = Corpus::embedded().unwrap();
        let plan = Plan::quick(&corpus);
        let setting = Setting {
            plan: &plan,
            text: &corpus.train,
            yours: &Parts::library(),
            child: None,
            each: &|_, _| (),
        };
        let library = [Whose::Library; Part::ALL.len()];
        let out = std::env::temp_dir().join(format!("capstone-{}", std::process::id()));
        let run = setting.run(&library, &out);

        let job = Job {
            plan: plan.clone(),
            parts: Parts::library(),
            text: &corpus.train,
        };
        let steps = Mutex::new(Vec::new());
        let skip = [plan.poison, plan.poison];
        launch::run(RANKS_1, |comm| {
            let report = |step| steps.lock().unwrap().push(step);
            life1::train(&job, &comm, &skip, plan.config.steps, &out, &report)
        })
        .unwrap();
        std::fs::remove_dir_all(&out).ok();
        let losses = |steps: &[Step]| -> Vec<(usize, Option<f64>)> {
            let loss = |step: &Step| (step.step, step.trained.map(|trained| trained.loss));
            steps.iter().map(loss).collect()
        };
        let never_killed = losses(&steps.into_inner().unwrap());
        let life2 = losses(&run.life2.steps);
        assert_eq!(life2.len(), plan.config.steps - plan.saved());
        for ((step, expected), (of, found)) in never_killed[plan.saved()..].iter().zip(&life2) {
            assert_eq!(step, of);
            let near = match (expected, found) {
                (Some(a), Some(b)) => (a - b).abs() < 1e-4,
                (None, None) => *step == plan.poison,
                _ => false,
            };
            assert!(near, "step {step}: {expected:?} and {found:?}");
        }
    }
}
