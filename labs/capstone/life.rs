//! One life in this process: its ranks are threads.

use crate::life2::End;
use crate::plan::{RANKS_1, RANKS_2};
use crate::step::Step;
use crate::{Job, files, life1, life2};
use serde::{Deserialize, Serialize};
use shardlab::comm::Options;
use shardlab::error::printable;
use shardlab::launch;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What happened in one life.
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

/// Is told of every step that is over, and of its life.
pub type Each<'a> = &'a (dyn Fn(usize, &Step) + Sync);

/// Ranks that wait for each other in vain say so after this time. A tenth of it must be more than a
/// step on a busy machine: then a notice says which rank is late.
const DEADLINE: Duration = Duration::from_secs(300);

/// Lives a life.
pub fn live(job: &Job, span: &Span, each: Each) -> Life {
    let steps = Mutex::new(Vec::new());
    let report = |step: Step| {
        each(span.life, &step);
        steps.lock().unwrap_or_else(PoisonError::into_inner).push(step);
    };
    let options = Options { deadline: DEADLINE, ..Options::default() };
    let (plan, until, folder) = (&job.plan, span.until, &span.folder);
    let ran = if span.life == 1 {
        launch::run_with(RANKS_1, &options, |comm| {
            life1::train(job, &comm, &[], until, Some(folder), &report)?;
            Ok(None)
        })
    } else {
        let checkpoint = files::folder(&span.from, plan.saved());
        let skip = [plan.poison, plan.poison];
        launch::run_with(RANKS_2, &options, |comm| {
            life2::train(job, &comm, &skip, until, (&checkpoint, folder), &report).map(Some)
        })
    };
    let (end, failed) = match ran {
        Ok(mut ends) => (ends.swap_remove(0), None),
        // A part's own words may be in it.
        Err(error) => (None, Some(printable(&format!("{error:#}")))),
    };
    Life {
        steps: steps.into_inner().unwrap_or_else(PoisonError::into_inner),
        killed: false,
        failed,
        end,
        folder: folder.clone(),
    }
}
