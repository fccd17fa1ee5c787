//! One life in this process: its ranks are threads.

use crate::plan::{RANKS_1, RANKS_2};
use crate::step::Step;
use crate::{Job, life1, life2};
use serde::{Deserialize, Serialize};
use shardlab::launch;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// What happened in one life.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Life {
    pub steps: Vec<Step>,
    /// Whether its process was killed, as was planned.
    pub killed: bool,
    /// Why it ended before its time.
    pub failed: Option<String>,
    /// What the model writes at the end, as tokens.
    pub text: Vec<u32>,
    /// Where it has saved.
    pub folder: PathBuf,
}

/// Which life, and up to which step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Span {
    pub life: usize,
    pub until: usize,
    /// Where it saves, and life 2 finds life 1's checkpoint.
    pub folder: PathBuf,
}

/// Is told of every step that is over, and of its life.
pub type Each<'a> = &'a (dyn Fn(usize, &Step) + Sync);

/// Lives a life.
pub fn live(job: &Job, span: &Span, each: Each) -> Life {
    let steps = Mutex::new(Vec::new());
    let report = |step: Step| {
        each(span.life, &step);
        steps.lock().unwrap_or_else(PoisonError::into_inner).push(step);
    };
    let (plan, until, folder) = (&job.plan, span.until, &span.folder);
    let ran = if span.life == 1 {
        launch::run(RANKS_1, |comm| {
            life1::train(job, &comm, &[], until, folder, &report)?;
            Ok(Vec::new())
        })
    } else {
        let skip = [plan.poison, plan.poison];
        launch::run(RANKS_2, |comm| life2::train(job, &comm, &skip, until, folder, &report))
    };
    let (text, failed) = match ran {
        Ok(mut texts) => (texts.swap_remove(0), None),
        Err(error) => (Vec::new(), Some(format!("{error:#}"))),
    };
    Life {
        steps: steps.into_inner().unwrap_or_else(PoisonError::into_inner),
        killed: false,
        failed,
        text,
        folder: folder.clone(),
    }
}
