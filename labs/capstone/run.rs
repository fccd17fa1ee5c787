//! A run: both lives, in this process or in one of their own.

use crate::life2::End;
use crate::parts::{Part, Parts, Whose};
use crate::plan::{Plan, RANKS_1, RANKS_2};
use crate::step::Step;
use crate::{Job, child, files, life1, life2};
use serde::{Deserialize, Serialize};
use shardlab::comm::Options;
use shardlab::launch;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Whose version each part has, in the order of [`Part::ALL`].
pub type Versions = [Whose; Part::ALL.len()];

/// What all runs of the program share.
pub struct Setting<'a> {
    pub plan: &'a Plan,
    pub text: &'a [u32],
    /// The reader's parts; the library's where there is none.
    pub yours: &'a Parts,
    /// The flags with which this program starts a life as a process of its own. Without any, lives run in this one.
    pub child: Option<&'a [String]>,
}

/// One life.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Life {
    pub steps: Vec<Step>,
    /// Whether its process was killed, as was planned.
    pub killed: bool,
    /// Why it ended before its time.
    pub failed: Option<String>,
    /// Only of life 2.
    pub end: Option<End>,
    /// Where it has saved.
    pub folder: PathBuf,
}

/// Both lives.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    pub life1: Life,
    /// None: life 1 has left no checkpoint.
    pub life2: Option<Life>,
}

/// Is told of every step that is over, and of its life.
pub type Each<'a> = &'a (dyn Fn(usize, &Step) + Sync);

/// Which life, and up to which step.
#[derive(Clone, Debug)]
pub struct Span {
    pub life: usize,
    pub until: usize,
    /// Where it saves.
    pub folder: PathBuf,
    /// Where life 2 finds life 1's checkpoint.
    pub from: PathBuf,
}

impl Setting<'_> {
    /// The parts of these versions.
    pub fn parts(&self, versions: &Versions) -> Parts {
        let mut parts = Parts::library();
        for (part, whose) in Part::ALL.into_iter().zip(versions) {
            match whose {
                Whose::Yours => parts.take(part, self.yours),
                Whose::Library => {}
                Whose::Without => parts.take(part, &Parts::without()),
            }
        }
        parts
    }

    /// Both lives, from the first step to the last. Life 1 is killed, if lives are processes; else it ends where it would be.
    pub fn run(&self, versions: &Versions, folder: &Path, each: Each) -> Run {
        std::fs::remove_dir_all(folder).ok(); // of an earlier run
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

    /// One life. Life 2 begins with the checkpoint that life 1 has left in the folder.
    pub fn life(&self, versions: &Versions, span: &Span, each: Each) -> Life {
        let life = match self.child {
            Some(flags) => child::run(flags, versions, span, each),
            None => self.life_here(versions, span, each),
        };
        Life {
            folder: span.folder.clone(),
            ..life
        }
    }

    /// One life in this process: its ranks are threads.
    pub fn life_here(&self, versions: &Versions, span: &Span, each: Each) -> Life {
        let job = Job {
            plan: self.plan.clone(),
            parts: self.parts(versions),
            text: self.text,
        };
        let steps = Mutex::new(Vec::new());
        let report = |step: Step| {
            each(span.life, &step);
            steps
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(step);
        };
        // Ranks that wait for each other in vain should say so soon.
        let options = Options {
            deadline: Duration::from_secs(60),
            ..Options::default()
        };
        let (until, folder) = (span.until, &span.folder);
        let ran = if span.life == 1 {
            launch::run_with(RANKS_1, &options, |comm| {
                life1::train(&job, &comm, &[], until, Some(folder), &report)?;
                Ok(None)
            })
        } else {
            let checkpoint = files::folder(&span.from, self.plan.saved());
            let skip = [self.plan.poison, self.plan.poison];
            launch::run_with(RANKS_2, &options, |comm| {
                life2::train(&job, &comm, &skip, until, (&checkpoint, folder), &report).map(Some)
            })
        };
        let (end, failed) = match ran {
            Ok(mut ends) => (ends.swap_remove(0), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        Life {
            steps: steps.into_inner().unwrap_or_else(PoisonError::into_inner),
            killed: false,
            failed,
            end,
            folder: folder.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::data::Corpus;

    /// A kill, new ranks on another mesh and a skipped step cost nothing: the losses are those of two ranks that were never
    /// killed, and skip the same step.
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
