//! What happened, as plain values. The screen draws it.

use crate::compare::{Difference, LOSS, Losses, difference};
use crate::culprit::{self, Search};
use crate::life::Life;
use crate::parts::{Part, Versions, Whose};
use crate::plan::Plan;
use crate::run::{Run, Setting};
use crate::step::Step;
use crate::{draws, files};
use kit::parity::worst;
use serde::{Deserialize, Serialize};
use shardlab::data::Corpus;
use std::path::Path;

/// A run of the trainer, and the library's beside it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Story {
    /// Whose version of each part it had.
    pub versions: Versions,
    /// Steps between the checkpoint and the kill are in both lives.
    pub run: Run,
    /// What the model wrote, with the beginning that it was given.
    pub text: Option<String>,
    /// None if the run has the library's parts only, or is too long to be compared.
    pub beside: Option<Beside>,
    pub checks: Vec<Check>,
}

/// The library's run of the same plan, and what it says about the first one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Beside {
    pub run: Run,
    pub difference: Option<Difference>,
    /// How far the losses of both lives are apart.
    pub apart: [Losses; 2],
    /// Empty if there was nothing to look for, or parts were left out.
    pub search: Search,
}

/// A claim, and whether it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    pub claim: String,
    pub passed: bool,
    pub found: String,
}

impl Story {
    /// Runs the trainer with these versions of its parts, and the library's beside it.
    pub fn live(
        setting: &Setting,
        versions: &Versions,
        corpus: &Corpus,
        out: &Path,
        say: &dyn Fn(String),
    ) -> Story {
        let plan = setting.plan;
        let run = setting.run(versions, &out.join("yours"));
        let all_library = versions.iter().all(|&whose| whose == Whose::Library);
        let beside = (!all_library && plan.is_compared()).then(|| {
            say("the same with the library's parts".to_string());
            Beside::of(setting, versions, &run, out, say)
        });
        for folder in ["library", "search"] {
            files::clear(&out.join(folder), plan.config.steps);
        }
        let written = [&corpus.train[..8], &run.life2.text].concat();
        Story {
            versions: *versions,
            text: (!run.life2.text.is_empty()).then(|| corpus.vocabulary.decode(&written)),
            checks: checks(&run, plan, beside.as_ref()),
            run,
            beside,
        }
    }
}

impl Beside {
    fn of(
        setting: &Setting,
        versions: &Versions,
        run: &Run,
        out: &Path,
        say: &dyn Fn(String),
    ) -> Beside {
        let mut baseline = [Whose::Library; Part::ALL.len()];
        // Any right draw is right. A wrong one is a culprit that no run needs to find.
        let mut drawn = None;
        if versions[Part::Batches as usize] == Whose::Yours {
            drawn = draws::wrong(setting.plan, setting.text.len(), setting.yours.batches);
            if drawn.is_none() {
                baseline[Part::Batches as usize] = Whose::Yours;
            }
        }
        let right = setting.run(&baseline, &out.join("library"));
        let differs = difference(run, &right);
        let looks = versions.contains(&Whose::Yours) && !versions.contains(&Whose::Without);
        let found = [differs.clone(), drawn];
        let search = match looks {
            true => culprit::find(setting, versions, &right, found, &out.join("search"), say),
            false => Search::default(),
        };
        Beside {
            difference: differs,
            apart: [Losses::of(&run.life1, &right.life1), Losses::of(&run.life2, &right.life2)],
            run: right,
            search,
        }
    }
}

impl Run {
    /// The steps of both lives, each with the number of its life.
    pub fn steps(&self) -> impl Iterator<Item = (usize, &Step)> {
        let life1 = self.life1.steps.iter().map(|step| (1, step));
        life1.chain(self.life2.steps.iter().map(|step| (2, step)))
    }

    /// Of the steps that were trained.
    pub fn tokens_per_second(&self, plan: &Plan) -> f64 {
        let trained = || self.steps().filter(|(_, step)| step.trained.is_some());
        let seconds: f64 = trained().map(|(_, step)| step.seconds).sum();
        (trained().count() * plan.config.tokens_per_step()) as f64 / seconds.max(1e-9)
    }
}

impl Life {
    /// The steps that were trained, each with its loss.
    pub fn losses(&self) -> impl Iterator<Item = (usize, f64)> {
        let trained = self.steps.iter();
        trained.filter_map(|step| Some((step.step, step.trained?.loss)))
    }

    /// The loss of a step, if the life has trained it.
    pub fn loss(&self, step: usize) -> Option<f64> {
        self.losses().find(|of| of.0 == step).map(|(_, loss)| loss)
    }
}

/// Losses that are the same but for rounding, one step after the other on different meshes.
const SAME: f64 = 1e-3;

fn checks(run: &Run, plan: &Plan, beside: Option<&Beside>) -> Vec<Check> {
    let mut all = Vec::new();
    let mut check = |claim: &str, passed, found: String| {
        all.push(Check { claim: claim.to_string(), passed, found })
    };
    let Run { life1, life2 } = run;
    let last = life2.steps.last().map_or(0, |step| step.step);
    let failed = life1.failed.is_some() || life2.failed.is_some();
    let found = format!("step {last} of {}", plan.config.steps);
    check("both lives reach their ends", !failed && last == plan.config.steps, found);

    let few = (plan.config.steps / 12).max(3);
    let mean = |all: Vec<f64>| all.iter().sum::<f64>() / all.len() as f64;
    let first = mean(life1.losses().take(few).map(|(_, loss)| loss).collect());
    let ends = life2.losses().filter(|(step, _)| step + few > last);
    let end = mean(ends.map(|(_, loss)| loss).collect());
    let found = match life2.losses().next() {
        None => "life 2 has trained nothing".to_string(),
        Some(_) => format!("{first:.2} to {end:.2}"),
    };
    check("the loss falls", end < 0.95 * first, found);

    let again = life2.losses().filter(|(step, _)| *step < plan.poison);
    let pairs = again.filter_map(|(step, loss)| Some((life1.loss(step)? - loss).abs()));
    let apart: Vec<f64> = pairs.collect();
    let most = worst(apart.iter().copied());
    let found = match apart.len() {
        0 => "no step of both".to_string(),
        n => format!("{n} losses, {most:.0e} apart"),
    };
    check("life 2 begins as life 1 went on", !apart.is_empty() && most <= SAME, found);

    let mut steps = life2.steps.iter();
    let skipped = steps.any(|step| step.step == plan.poison && step.trained.is_none());
    let found = if skipped { "skipped" } else { "not skipped" };
    check("life 2 leaves the poisoned step out", skipped, found.to_string());

    if let Some(Beside { difference, apart, .. }) = beside {
        let most = worst(apart.iter().map(|losses| losses.most));
        let found = match difference {
            None if apart.iter().all(|losses| losses.equal) => "bitwise equal".to_string(),
            None => format!("{most:.0e} apart, bound {LOSS:.0e}"),
            Some(difference) => format!("not from step {} on", difference.step),
        };
        check("it trains as the library's parts do", difference.is_none(), found);
    }
    all
}
