//! `--strategy TEXT`: how ranks divide the job, in the one text that all labs read.

use crate::course::{Course, Lab};
use crate::help;
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::parallel::context::{Exchange, Slicing};
use shardlab::parallel::pipeline::Partition;
use shardlab::parallel::zero::Stage;
use shardlab::plan::ModelShape;

/// How ranks divide the job, in place of a lab's own flags for it.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = help::STRATEGY)]
pub struct StrategyFlag {
    /// How ranks divide the job, as lab11 prints it: dp=4,tp=2,pp=2,zero=1,sp
    #[arg(long, value_name = "TEXT", value_parser = read_strategy)]
    pub strategy: Option<Strategy>,
}

/// Reads a strategy, for a flag.
pub fn read_strategy(text: &str) -> Result<Strategy, String> {
    text.parse()
        .map_err(|error: BadInput| format!("{}: {}", error.what, error.help))
}

impl StrategyFlag {
    /// The strategy, if one is given, for the lab called `lab`.
    ///
    /// # Errors
    /// If it has a part that the lab does not run: the help names the lab that does.
    pub fn of_lab(&self, lab: &str) -> Result<Option<Strategy>, BadInput> {
        let Some(strategy) = self.strategy else {
            return Ok(None);
        };
        ensure_runs("--strategy", &strategy, lab)?;
        Ok(Some(strategy))
    }

    /// The strategy of a lab whose ranks are replicas: the given one, or as many replicas as
    /// `ranks` says, or `usual`.
    ///
    /// # Errors
    /// Those of [`StrategyFlag::of_lab`]; if a launcher has started another number of processes.
    pub fn or_replicas(
        &self,
        lab: &str,
        ranks: Option<usize>,
        usual: usize,
    ) -> Result<Strategy, BadInput> {
        let Some(strategy) = self.of_lab(lab)? else {
            return Ok(Strategy::data(launch::ranks(ranks, usual)?, Stage::Ddp));
        };
        launch::ranks(Some(strategy.ranks()), usual)?;
        Ok(strategy)
    }
}

/// Refuses a strategy that `flag` gives, if it has a part that the lab called `lab` does not run.
///
/// # Errors
/// The help names the lab that does.
pub fn ensure_runs(flag: &str, strategy: &Strategy, lab: &str) -> Result<(), BadInput> {
    not_run(&Course::read()?, strategy, lab).map_or(Ok(()), |(part, help)| {
        Err(BadInput::new(format!("{flag}: {lab} does not run {part}"), help))
    })
}

/// The first part of a strategy that a lab does not run, and what to do.
fn not_run(course: &Course, strategy: &Strategy, lab: &str) -> Option<(String, String)> {
    let text = strategy.to_string();
    let key = |part: &str| part.split('=').next().unwrap_or(part).to_string();
    let runs = |lab: &Lab, part: &str| part == "dp=1" || course.runs(lab, &key(part));
    let this = course.labs.iter().find(|other| other.name == lab)?;
    let part = text.split(',').find(|part| !runs(this, part))?;
    let key = key(part);
    let command = |lab: &Lab| format!("cargo run --bin {} -- --strategy {strategy}", lab.name);
    let teaches = |lab: &&Lab| lab.axes.contains(&key);
    let subject = course.labs.iter().find(teaches);
    // Those that take the flag.
    let others = course.labs.iter().filter(|lab| !lab.axes.is_empty());
    let whole: Vec<&Lab> =
        others.filter(|lab| text.split(',').all(|part| runs(lab, part))).collect();
    let help = match (subject, whole.iter().copied().find(teaches).or(whole.first().copied())) {
        (Some(subject), Some(lab)) if subject.name == lab.name => {
            format!("{} has it: {}", lab.name, command(lab))
        }
        (Some(subject), Some(lab)) => format!(
            "{} has it: leave {key} out here, or run all of it: {}",
            subject.name,
            command(lab)
        ),
        (Some(subject), None) => format!("{} has it: leave {key} out here", subject.name),
        (None, _) => format!("a plan of lab11 may have it: leave {key} out"),
    };
    Some((part.to_string(), help))
}

impl StrategyFlag {
    /// Refuses a given strategy that cannot divide this model, or needs more ranks than there can
    /// be.
    ///
    /// # Errors
    /// The help has the nearest strategy that can.
    pub fn ensure_divides(&self, shape: &ModelShape) -> Result<(), BadInput> {
        self.strategy.map_or(Ok(()), |strategy| ensure_divides(&strategy, shape))
    }
}

/// The processes of a launcher that has started this one.
fn launched_processes() -> Option<usize> {
    launch::launched(|name| std::env::var(name).ok())?.size
}

/// Refuses a strategy that cannot divide this model, or needs more ranks than there can be.
///
/// # Errors
/// The help has the nearest strategy that can.
pub fn ensure_divides(strategy: &Strategy, shape: &ModelShape) -> Result<(), BadInput> {
    let most = launched_processes().unwrap_or(launch::MAX_RANKS);
    let ranks = strategy.ranks();
    let what = match (strategy.check(shape), strategy.ensure_trainable()) {
        (Err(error), _) => error.what,
        (Ok(()), Err(error)) => return Err(error),
        (Ok(()), Ok(())) if ranks > most => {
            format!("{ranks} ranks are needed, and there can be {most}")
        }
        (Ok(()), Ok(())) => return Ok(()),
    };
    let help = match nearest(strategy, shape, most) {
        Some(near) => {
            format!("the nearest that this model can be divided by is --strategy {near}")
        }
        None => "nothing like it divides this model: give other numbers of layers, heads or tokens"
            .to_string(),
    };
    Err(BadInput::new(format!("--strategy {strategy}: {what}"), help))
}

/// The strategy most like `strategy` that can divide `shape` and needs at most `ranks` ranks: never
/// the same. None if a model cannot be divided at all.
fn nearest(strategy: &Strategy, shape: &ModelShape, ranks: usize) -> Option<Strategy> {
    let near = cut_to_size(strategy, shape, ranks);
    let fits = |one: &Strategy| {
        let runs = one.check(shape).is_ok() && one.ensure_trainable().is_ok();
        runs && one.ranks() <= ranks && one != strategy
    };
    // The least change first: of the ranks that share a sequence, and of how they do.
    let plain = |one: &Strategy| {
        let schedule = Strategy { chunks: 1, schedule: None, ..*one };
        [
            *one,
            Strategy { exchange: Exchange::Gather, ..*one },
            Strategy { sequence: false, ..*one },
            Strategy { partition: Partition::Uniform, ..*one },
            schedule,
            Strategy {
                exchange: Exchange::Gather,
                sequence: false,
                partition: Partition::Uniform,
                ..schedule
            },
        ]
    };
    let most = near.context.min(ranks / (near.tensor * near.pipeline)).min(shape.block).max(1);
    let contexts = (1..=most).rev().map(|context| {
        let others = context * near.tensor * near.pipeline;
        let data = near.data.min((ranks / others).max(1));
        let mut replicas = near.replicas.max(1);
        while !(data * context).is_multiple_of(replicas) {
            replicas -= 1;
        }
        // Of a model without experts there is one MLP to share.
        let experts = shape.experts.map_or(1, |experts| experts.count);
        let mut expert = near.expert.max(1);
        while !(data * context).is_multiple_of(expert) || !experts.is_multiple_of(expert) {
            expert -= 1;
        }
        Strategy { context, data, replicas, expert, ..near }
    });
    // What shares no sequence exchanges nothing: as its text is read.
    let read = |one: Strategy| match one.context {
        1 => Strategy {
            exchange: Exchange::default(),
            slicing: Slicing::default(),
            ..one
        },
        _ => one,
    };
    contexts
        .flat_map(|one| plain(&one))
        .map(read)
        .chain([Strategy::SINGLE])
        .find(fits)
}

/// As many tensor ranks as divide the model, as many stages as it has layers, and no more ranks
/// than there can be.
fn cut_to_size(strategy: &Strategy, shape: &ModelShape, ranks: usize) -> Strategy {
    let mut near = *strategy;
    let fits = |near: &Strategy| near.check(shape).is_ok();
    let cut = |tensor: usize| Strategy {
        tensor,
        sequence: strategy.sequence && tensor > 1,
        ..Strategy::SINGLE
    };
    while near.tensor > 1 && (near.tensor > ranks || !fits(&cut(near.tensor))) {
        near.tensor -= 1;
    }
    near.sequence &= near.tensor > 1;
    near.pipeline = near.pipeline.min((ranks / near.tensor).max(1)).min(shape.layers).max(1);
    near.chunks = near.chunks.min(shape.layers / near.pipeline).max(1);
    if near.pipeline == 1 {
        near.chunks = 1;
    }
    if near.schedule.is_some() && near.schedule().check(&near.pipeline(near.pipeline)).is_err() {
        near.schedule = None;
    }
    near
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::data::Corpus;
    use shardlab::plan::{Experts, Family};
    use shardlab::train::Config;
    use std::collections::BTreeSet;

    fn flag(text: &str) -> StrategyFlag {
        StrategyFlag { strategy: Some(text.parse().unwrap()) }
    }

    #[test]
    fn a_lab_refuses_what_another_one_runs() {
        for text in ["dp=4,zero=1", "dp=4,zero=3,shard=2"] {
            let found = flag(text).of_lab("lab04").unwrap();
            assert_eq!(found.unwrap().to_string(), text);
        }
        assert_eq!(flag("dp=1").of_lab("lab06").unwrap(), Some(Strategy::SINGLE));
        for (text, what, help) in [
            (
                "dp=2,tp=2",
                "lab04 does not run tp=2",
                "lab05 has it: cargo run --bin lab05 -- --strategy dp=2,tp=2",
            ),
            (
                "tp=2,pp=2",
                "lab04 does not run tp=2",
                "lab05 has it: leave tp out here, or run all of it: cargo run --bin lab07",
            ),
            ("dp=2,cp=2", "lab04 does not run cp=2", "lab12 -- --strategy dp=2,cp=2"),
        ] {
            let error = flag(text).of_lab("lab04").unwrap_err();
            assert!(error.what.contains(what) && error.help.contains(help), "{text}: {error}");
        }
        assert!(StrategyFlag::default().of_lab("lab04").unwrap().is_none());
    }

    /// What no lab teaches is refused until labs.toml has a lab that does.
    #[test]
    fn a_new_labs_axis_is_found() {
        let mut course = Course::read().unwrap();
        course.labs.iter_mut().for_each(|lab| lab.axes.retain(|axis| axis != "shard"));
        let strategy: Strategy = "dp=4,zero=3,shard=2".parse().unwrap();
        let help = |course: &Course, lab| not_run(course, &strategy, lab).map(|(_, help)| help);
        assert!(help(&course, "lab12").unwrap().starts_with("a plan of lab11"));
        let axes = vec!["shard".to_string()];
        let runs = vec!["dp".to_string(), "zero".to_string()];
        let last = course.labs.last().unwrap().clone();
        course.labs.push(Lab { name: "lab99".into(), axes, runs, ..last });
        let says = "lab99 has it: cargo run --bin lab99 -- --strategy dp=4,zero=3,shard=2";
        assert_eq!(help(&course, "lab04").unwrap(), says);
        assert_eq!(help(&course, "lab99"), None);
        assert_eq!(help(&course, "lab12"), None, "it runs what any lab teaches");
    }

    #[test]
    fn what_cannot_divide_the_model_is_refused_with_the_nearest() {
        let shape = Config::small(1, &Corpus::embedded().unwrap()).shape; // 2 layers, 2 heads
        for (text, near) in [("tp=3,pp=2", "tp=2,pp=2"), ("dp=2000", "dp=1024"), ("pp=5", "pp=2")] {
            let error = ensure_divides(&text.parse().unwrap(), &shape).unwrap_err();
            assert!(error.help.ends_with(&format!("--strategy {near}")), "{text}: {error}");
        }
        ensure_divides(&"dp=2,tp=2,pp=2,zero=1".parse().unwrap(), &shape).unwrap();
    }

    /// As GPT-2.
    #[test]
    fn the_nearest_strategy_can_divide_the_model() {
        let shape = ModelShape {
            vocabulary: 50257,
            block: 1024,
            layers: 12,
            heads: 12,
            embd: 768,
            family: Family::Gpt,
            experts: None,
        };
        for (text, ranks, near) in [
            ("tp=5", 64, "tp=4"),
            ("tp=16,dp=2", 64, "dp=2,tp=12"),
            ("pp=16", 64, "pp=12"),
            ("pp=4,chunks=4", 64, "pp=4,chunks=3"),
            ("chunks=2", 64, "dp=1"),
            ("pp=2,chunks=2,schedule=gpipe", 64, "pp=2,chunks=2"),
            ("tp=7,sp", 64, "tp=4,sp"),
            ("dp=16,tp=8,pp=4,zero=1", 8, "tp=6,zero=1"),
            ("dp=16,tp=2,zero=1", 8, "dp=4,tp=2,zero=1"),
        ] {
            let found = nearest(&text.parse().unwrap(), &shape, ranks).unwrap();
            assert_eq!(found.to_string(), near, "{text}");
            assert!(found.check(&shape).is_ok() && found.ranks() <= ranks, "{text}");
        }
    }

    /// Experts that these ranks cannot share are shared by fewer, and those of a dense model by
    /// none.
    #[test]
    fn the_nearest_strategy_shares_experts_evenly() {
        let dense = Config::small(1, &Corpus::embedded().unwrap()).shape;
        let experts = Experts { count: 4, top_k: 2, normalized: true, ..Experts::default() };
        let mixture = ModelShape { experts: Some(Experts { ffn: 64, ..experts }), ..dense };
        for (text, shape, near) in [
            ("dp=3,ep=2", mixture, "dp=3"),
            ("dp=6,ep=6", mixture, "dp=6,ep=2"),
            ("dp=2,tp=3,ep=2", mixture, "dp=2,tp=2,ep=2"),
            ("dp=4,ep=2", dense, "dp=4"),
        ] {
            let found = nearest(&text.parse().unwrap(), &shape, 64).unwrap();
            assert_eq!(found.to_string(), near, "{text}");
        }
    }

    /// Whatever is refused, the answer runs, and is another strategy.
    #[test]
    fn the_nearest_strategy_is_never_what_was_refused() {
        let numbers = [1, 2, 3, 4, 7, 16];
        let rests = ["", ",sp", ",cp-comm=ulysses", ",chunks=3", ",cp-order=contiguous"];
        let mut refused = BTreeSet::new();
        let shapes = [(2, 2, 7), (6, 6, 12), (8, 4, 1), (1, 1, 64), (12, 12, 96)];
        let most = [8, 1024];
        for (layers, heads, block) in shapes {
            let (vocabulary, embd, family) = (65, 4 * heads, Family::Gpt);
            let shape = ModelShape {
                vocabulary,
                block,
                layers,
                heads,
                embd,
                family,
                experts: None,
            };
            for (tensor, pipeline, context) in numbers
                .iter()
                .flat_map(|t| numbers.iter().flat_map(move |p| numbers.map(|c| (*t, *p, c))))
            {
                for rest in rests {
                    let text = format!("dp=3,tp={tensor},pp={pipeline},cp={context}{rest}");
                    let strategy: Strategy = text.parse().unwrap();
                    for ranks in most {
                        if strategy.check(&shape).is_ok() && strategy.ranks() <= ranks {
                            continue;
                        }
                        refused.insert((layers, rest, ranks));
                        let near = nearest(&strategy, &shape, ranks).unwrap();
                        near.check(&shape)
                            .unwrap_or_else(|error| panic!("{text}: {near}: {error}"));
                        assert!(near != strategy && near.ranks() <= ranks, "{text}: {near}");
                        assert_eq!(near.to_string().parse(), Ok(near), "{text}: what is shown");
                    }
                }
            }
        }
        let all = rests.len() * shapes.len() * most.len();
        assert_eq!(refused.len(), all, "each shape refuses some of each");
        // A prime block: ranks that share sequences do not.
        let shape = Config::small(1, &Corpus::embedded().unwrap()).shape;
        let near = |text: &str, block| {
            let shape = ModelShape { block, ..shape };
            nearest(&text.parse().unwrap(), &shape, 64).unwrap().to_string()
        };
        assert_eq!(near("cp=2", 7), "dp=1");
        assert_eq!(near("cp=4,tp=2", 12), "tp=2,cp=3");
        assert_eq!(near("cp=3,cp-comm=ulysses", 12), "cp=3");
    }
}
