//! A run: both lives, in this process or each in one of its own.

use crate::child::Children;
use crate::life::{self, Each, Life, Span};
use crate::parts::{Part, Parts, Versions, Whose};
use crate::plan::Plan;
use crate::{Job, files};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What all runs of the program share.
pub struct Setting<'a> {
    pub plan: &'a Plan,
    pub text: &'a [u32],
    /// The reader's parts; the library's where there is none.
    pub yours: &'a Parts,
    /// How this program starts a life as a process of its own. Without it, lives run in this one.
    pub child: Option<&'a Children<'a>>,
}

/// Both lives.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    pub life1: Life,
    /// None: life 1 has left no checkpoint.
    pub life2: Option<Life>,
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

    /// Both lives, from the first step to the last. Life 1 is killed, if lives are processes; else
    /// it ends where it would be.
    pub fn run(&self, versions: &Versions, folder: &Path, each: Each) -> Run {
        files::clear(folder, self.plan.steps); // of an earlier run
        let span = |life, until| Span {
            life,
            until,
            folder: folder.to_path_buf(),
            from: folder.to_path_buf(),
        };
        let life1 = self.life(versions, &span(1, self.plan.killed_after), each);
        let has_saved = files::folder(folder, self.plan.saved()).exists();
        let goes_on = life1.failed.is_none() && has_saved;
        Run {
            life2: goes_on.then(|| self.life(versions, &span(2, self.plan.steps), each)),
            life1,
        }
    }

    /// One life. Life 2 begins with a checkpoint that a life 1 has left.
    pub fn life(&self, versions: &Versions, span: &Span, each: Each) -> Life {
        match self.child {
            Some(children) => children.run(versions, span, each),
            None => life::live(&self.job(versions), span, each),
        }
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
        };
        let library = [Whose::Library; Part::ALL.len()];
        let out = std::env::temp_dir().join(format!("capstone-{}", std::process::id()));
        let run = setting.run(&library, &out, &|_, _| ());
        std::fs::remove_dir_all(&out).ok();

        let job = Job {
            plan: plan.clone(),
            parts: Parts::library(),
            text: &corpus.train,
        };
        let steps = Mutex::new(Vec::new());
        let skip = [plan.poison, plan.poison];
        launch::run(RANKS_1, |comm| {
            let report = |step| steps.lock().unwrap().push(step);
            life1::train(&job, &comm, &skip, plan.steps, None, &report)
        })
        .unwrap();
        let losses = |steps: &[Step]| -> Vec<(usize, Option<f64>)> {
            let loss = |step: &Step| (step.step, step.trained.map(|trained| trained.loss));
            steps.iter().map(loss).collect()
        };
        let never_killed = losses(&steps.into_inner().unwrap());
        let life2 = losses(&run.life2.unwrap().steps);
        assert_eq!(life2.len(), plan.steps - plan.saved());
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
