//! What happened, as plain values: screens and pages draw it.

use crate::compare::{Apart, Difference, LOSS, apart, difference};
use crate::culprit::{self, Culprit, Search};
use crate::life::Each;
use crate::meter::{AllUsed, Used};
use crate::parts::{Part, Versions, Whose};
use crate::plan::{Plan, RANKS_1, RANKS_2};
use crate::run::{Run, Setting};
use crate::step::Step;
use crate::{draws, files};
use kit::OtherWork;
use serde::{Deserialize, Serialize};
use shardlab::data::Corpus;
use std::path::Path;
use std::time::Instant;

/// A run of the trainer, and the library's beside it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Story {
    pub figures: Figures,
    pub parts: Vec<PartStory>,
    /// Both lives, in the order of time: steps between the checkpoint and the kill are there twice.
    pub steps: Vec<Point>,
    pub incidents: Vec<Incident>,
    /// The beginning that the model was given, and what it wrote.
    pub prompt: String,
    pub text: Option<String>,
    /// Of the steps that were trained.
    pub tokens_per_second: f64,
    /// None if the run has the library's parts only, or is too long to be compared.
    pub beside: Option<Beside>,
    pub checks: Vec<Check>,
    /// Of the whole program.
    pub seconds: f64,
    /// What to remark about the times, if other programs have disturbed them.
    pub busy: Option<String>,
}

/// The library's run of the same plan, and what it says about the first one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Beside {
    pub steps: Vec<Point>,
    pub text: Option<String>,
    pub tokens_per_second: f64,
    pub difference: Option<Difference>,
    pub apart: Apart,
    /// None: there was nothing to look for, or parts were left out.
    pub search: Option<Search>,
}

/// The run in numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    pub parameters: u64,
    pub layers: usize,
    pub width: usize,
    pub block: usize,
    pub sequences: usize,
    pub tokens: usize,
    pub steps: usize,
    /// Of each life.
    pub ranks: [usize; 2],
    pub saved: usize,
    pub poison: usize,
    pub killed_after: usize,
    pub corpus: String,
}

/// One part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartStory {
    pub part: Part,
    pub exercise: String,
    pub task: String,
    pub whose: Whose,
    /// Over both lives. Calls and bytes are of all ranks. Time is that of the rank that waits
    /// least, as if all steps were the median step.
    pub used: Used,
    /// The library's version in the run beside.
    pub library: Option<Used>,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub life: usize,
    pub step: usize,
    /// None: skipped.
    pub loss: Option<f64>,
    pub norm: Option<f64>,
    pub lr: Option<f64>,
    pub scale: Option<f64>,
    pub seconds: f64,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    pub life: usize,
    pub step: usize,
    pub kind: Kind,
    pub what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Saved,
    Poisoned,
    Killed,
    Resumed,
    Skipped,
    /// Gradients overflowed, and nothing was updated.
    Refused,
    /// The run ended with an error.
    Failed,
}

/// A claim, and whether it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    pub claim: String,
    pub passed: bool,
    pub found: String,
}

impl Story {
    /// Runs the trainer with these versions of its parts, and the library's beside it. `each` is
    /// told of the first run's steps, `quiet` of the second's.
    pub fn live(
        setting: &Setting,
        versions: &Versions,
        corpus: &Corpus,
        out: &Path,
        (each, quiet): (Each, Each),
        say: &dyn Fn(String),
    ) -> Story {
        let start = Instant::now();
        let watch = OtherWork::watch();
        let run = setting.run(versions, &out.join("yours"), each);
        let all_library = versions.iter().all(|&whose| whose == Whose::Library);
        let beside = (!all_library && setting.plan.is_compared()).then(|| {
            say("the same with the library's parts".to_string());
            Beside::of(setting, versions, &run, corpus, out, (quiet, say))
        });
        let (beside, right) = beside.unzip();
        for folder in ["library", "search"] {
            files::clear(&out.join(folder), setting.plan.steps);
        }
        // Of steps that both runs have taken, if one has ended early.
        let used = parts_used(&run, right.as_ref());
        let of_library = right.as_ref().map(|right| parts_used(right, Some(&run)));
        let part = |part: Part| PartStory {
            part,
            exercise: part.exercise().to_string(),
            task: part.task().to_string(),
            whose: versions[part as usize],
            used: used[part as usize],
            library: of_library.map(|used| used[part as usize]),
        };
        Story {
            figures: Figures::of(setting.plan, corpus),
            parts: Part::ALL.map(part).to_vec(),
            steps: points(&run),
            incidents: incidents(&run, setting.plan),
            prompt: corpus.vocabulary.decode(&corpus.train[..8]),
            text: text(&run, corpus),
            tokens_per_second: tokens_per_second(&run, setting.plan),
            checks: checks(&run, setting.plan, beside.as_ref()),
            beside,
            seconds: start.elapsed().as_secs_f64(),
            busy: watch.remark(RANKS_2),
        }
    }

    /// Whose version of a part the run had.
    pub fn whose(&self, part: Part) -> Whose {
        self.parts[part as usize].whose
    }

    /// The wrong parts that were found.
    pub fn culprits(&self) -> &[Culprit] {
        let search = self.beside.as_ref().and_then(|beside| beside.search.as_ref());
        search.map_or(&[], |search| &search.culprits)
    }
}

impl Beside {
    fn of(
        setting: &Setting,
        versions: &Versions,
        run: &Run,
        corpus: &Corpus,
        out: &Path,
        (quiet, say): (Each, &dyn Fn(String)),
    ) -> (Beside, Run) {
        let is = |whose| versions.contains(&whose);
        let mut baseline = [Whose::Library; Part::ALL.len()];
        // Any right draw is right. A wrong one is a culprit that no run needs to find.
        let mut drawn = None;
        if versions[Part::Batches as usize] == Whose::Yours {
            drawn = draws::wrong(setting.plan, setting.text.len(), setting.yours.batches);
            if drawn.is_none() {
                baseline[Part::Batches as usize] = Whose::Yours;
            }
        }
        let right = setting.run(&baseline, &out.join("library"), quiet);
        let differs = difference(run, &right);
        let looks =
            is(Whose::Yours) && !is(Whose::Without) && (differs.is_some() || drawn.is_some());
        let search = looks.then(|| {
            let mut suspects = *versions;
            let mut search = Search::default();
            let mut next = differs.clone();
            if let Some(shows) = drawn {
                let part = Part::Batches;
                search.culprits.push(Culprit { part, shows });
                suspects[part as usize] = Whose::Library;
                search.runs += 1;
                let rest = setting.run(&suspects, &out.join("search"), &|_, _| ());
                next = difference(&rest, &right);
            }
            if let Some(first) = next {
                let found =
                    culprit::find(setting, &suspects, &right, first, &out.join("search"), say);
                search.culprits.extend(found.culprits);
                search.runs += found.runs;
                search.unexplained = found.unexplained;
            }
            search
        });
        let beside = Beside {
            steps: points(&right),
            text: text(&right, corpus),
            tokens_per_second: tokens_per_second(&right, setting.plan),
            difference: differs,
            apart: apart(run, &right),
            search,
        };
        (beside, right)
    }
}

impl Figures {
    fn of(plan: &Plan, corpus: &Corpus) -> Figures {
        Figures {
            parameters: plan.shape.parameters(),
            layers: plan.shape.layers,
            width: plan.shape.embd,
            block: plan.shape.block,
            sequences: plan.samples(),
            tokens: plan.tokens(),
            steps: plan.steps,
            ranks: [RANKS_1, RANKS_2],
            saved: plan.saved(),
            poison: plan.poison,
            killed_after: plan.killed_after,
            corpus: corpus.name.clone(),
        }
    }
}

/// Both lives' steps.
fn points(run: &Run) -> Vec<Point> {
    let lives = [Some(&run.life1), run.life2.as_ref()];
    let mut points = Vec::new();
    for (life, of) in (1..).zip(lives.into_iter().flatten()) {
        points.extend(of.steps.iter().map(|step| Point {
            life,
            step: step.step,
            loss: step.trained.map(|trained| trained.loss),
            norm: step.trained.and_then(|trained| trained.norm),
            lr: step.trained.map(|trained| trained.lr),
            scale: step.trained.map(|trained| trained.scale),
            seconds: step.seconds,
        }));
    }
    points
}

/// What each part used in both lives, in the steps that `other` has, too.
fn parts_used(run: &Run, other: Option<&Run>) -> AllUsed {
    let life2 = |run: &Run| run.life2.as_ref().map_or(0, |life| life.steps.len());
    let [first, second] = match other {
        Some(other) => [other.life1.steps.len(), life2(other)],
        None => [usize::MAX; 2],
    };
    let life2 = run.life2.iter();
    let life2 = life2.flat_map(|life| life.steps.iter().take(second));
    let steps: Vec<&Step> = run.life1.steps.iter().take(first).chain(life2).collect();
    std::array::from_fn(|part| {
        let used = steps.iter().map(|step| step.used[part]);
        let used: Vec<Used> = used.filter(|used| used.calls > 0.0).collect();
        // Other programs disturb some steps: the median represents all.
        let mut seconds: Vec<f64> = used.iter().map(|used| used.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let median = seconds.get(seconds.len() / 2).copied().unwrap_or_default();
        Used {
            calls: used.iter().map(|used| used.calls).sum(),
            bytes: used.iter().map(|used| used.bytes).sum(),
            seconds: median * seconds.len() as f64,
        }
    })
}

fn text(run: &Run, corpus: &Corpus) -> Option<String> {
    let end = run.life2.as_ref()?.end.as_ref()?;
    Some(corpus.vocabulary.decode(&end.text)).filter(|text| !text.is_empty())
}

fn tokens_per_second(run: &Run, plan: &Plan) -> f64 {
    let life2 = run.life2.iter().flat_map(|life| &life.steps);
    let trained = run.life1.steps.iter().chain(life2).filter(|step| step.trained.is_some());
    let (steps, seconds) = trained.fold((0, 0.0), |(n, time), step| (n + 1, time + step.seconds));
    (steps * plan.tokens()) as f64 / f64::max(seconds, 1e-9)
}

fn incidents(run: &Run, plan: &Plan) -> Vec<Incident> {
    let mut all = Vec::new();
    let mut add = |life, step, kind, what: String| all.push(Incident { life, step, kind, what });
    let loss = |life: &[Point], step| life.iter().find(|p| p.step == step).and_then(|p| p.loss);
    let points = points(run);
    let life1: Vec<Point> = points.iter().filter(|p| p.life == 1).copied().collect();
    for point in &points {
        let Point { life, step, .. } = *point;
        if life == 1 && step.is_multiple_of(plan.save_every) {
            add(life, step, Kind::Saved, format!("{RANKS_1} ranks save"));
        }
        if step == plan.poison {
            match (point.loss, loss(&life1, step - 1)) {
                (None, _) => add(life, step, Kind::Skipped, "its sequences are left out".into()),
                (Some(now), Some(before)) => {
                    let what =
                        format!("random tokens: the loss jumps from {before:.2} to {now:.2}");
                    add(life, step, Kind::Poisoned, what);
                }
                (Some(now), None) => {
                    add(life, step, Kind::Poisoned, format!("random tokens: loss {now:.2}"))
                }
            }
        } else if point.loss.is_none() {
            add(life, step, Kind::Skipped, "skipped, and should not be".into());
        }
        if point.loss.is_some() && point.norm.is_none() {
            add(life, step, Kind::Refused, "gradients overflow: no update".into());
        }
    }
    if run.life1.killed {
        add(
            1,
            plan.killed_after,
            Kind::Killed,
            "SIGKILL: nothing of it is left but files".into(),
        );
    }
    if let Some(life) = &run.life2
        && !life.steps.is_empty()
    {
        let what = "4 ranks resume: 2 pipeline stages x 2 tensor ranks".to_string();
        add(2, plan.saved(), Kind::Resumed, what);
    }
    let failures = [(1, Some(&run.life1), 0), (2, run.life2.as_ref(), plan.saved())];
    for (number, life, before) in failures {
        if let Some((life, what)) = life.and_then(|life| Some((life, life.failed.clone()?))) {
            let step = life.steps.last().map_or(before, |step| step.step) + 1;
            add(number, step, Kind::Failed, what);
        }
    }
    all.sort_by_key(|incident| (incident.life, incident.step));
    all
}

/// Losses that are the same but for rounding, one step after the other on different meshes.
const SAME: f64 = 1e-3;

fn checks(run: &Run, plan: &Plan, beside: Option<&Beside>) -> Vec<Check> {
    let mut all = Vec::new();
    let mut check = |claim: &str, passed, found: String| {
        all.push(Check { claim: claim.to_string(), passed, found })
    };
    let points = points(run);
    let trained = |life: usize| -> Vec<(usize, f64)> {
        let of = points.iter().filter(move |point| point.life == life);
        of.filter_map(|point| Some((point.step, point.loss?))).collect()
    };
    let (life1, life2) = (trained(1), trained(2));
    let failed =
        run.life1.failed.is_some() || run.life2.as_ref().is_none_or(|life| life.failed.is_some());
    let last = life2.last().map_or(0, |(step, _)| *step);
    check(
        "both lives reach their ends",
        !failed && last == plan.steps,
        format!("step {last} of {}", plan.steps),
    );

    let mean =
        |all: &[(usize, f64)]| all.iter().map(|(_, loss)| loss).sum::<f64>() / all.len() as f64;
    let few = (plan.steps / 12).max(3);
    let first = mean(&life1[..few.min(life1.len())]);
    let end = mean(&life2[life2.len().saturating_sub(few)..]);
    let found = match life2.is_empty() {
        true => "life 2 has trained nothing".to_string(),
        false => format!("{first:.2} to {end:.2}"),
    };
    check("the loss falls", end < 0.95 * first, found);

    let again = |&(step, loss): &(usize, f64)| {
        let before = life1.iter().find(|(other, _)| *other == step && step < plan.poison)?;
        Some((before.1 - loss).abs())
    };
    let apart: Vec<f64> = life2.iter().filter_map(again).collect();
    let most = apart
        .iter()
        .fold(0.0, |most: f64, &d| if d > most || d.is_nan() { d } else { most });
    check(
        "life 2 begins as life 1 went on",
        !apart.is_empty() && most <= SAME,
        match apart.len() {
            0 => "no step of both".to_string(),
            1 => format!("1 loss, {most:.0e} apart"),
            n => format!("{n} losses, {most:.0e} apart"),
        },
    );

    let skipped = points.iter().any(|p| p.life == 2 && p.step == plan.poison && p.loss.is_none());
    let found = if skipped { "skipped" } else { "not skipped" };
    check("life 2 leaves the poisoned step out", skipped, found.to_string());

    let end = run.life2.as_ref().and_then(|life| life.end.as_ref());
    if let Some(end) = end {
        let wrong = end.not_loaded.len();
        let found = match wrong {
            0 => "all parameters".to_string(),
            _ => format!("{wrong} parameters are not"),
        };
        check("four ranks load what two have saved", wrong == 0, found);
    }
    if let Some(Beside { difference, apart, .. }) = beside {
        let found = match difference {
            None if apart.is_equal() => "bitwise equal".to_string(),
            None => format!("{:.0e} apart, bound {LOSS:.0e}", apart.loss()),
            Some(difference) => format!("not from step {} on", difference.step),
        };
        check("it trains as the library's parts do", difference.is_none(), found);
    }
    all
}
