//! What a run's ranks share, and what is said of it first.

use super::settings;
use crate::flags::Args;
use kit::flags::{EvalConfig, Preset, characters};
use kit::show::Screen;
use kit::{Evaluator, LabRun, report};
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::error::is_hidden;
use shardlab::parallel::zero::Stage;
use shardlab::parallel::{Strategy, ZeroConfig};
use shardlab::train::Config;

/// All ranks read this, and none changes it.
pub struct Lab {
    pub args: Args,
    pub config: Config,
    pub strategy: Strategy,
    pub eval: EvalConfig,
    pub corpus: Corpus,
    pub run: LabRun,
    /// One thread's matmul peak, FLOP/s.
    pub peak: f64,
}

impl Lab {
    /// What evaluates the model on a rank.
    pub fn evaluator<'a>(&'a self, comm: &'a Comm) -> Evaluator<'a> {
        Evaluator {
            config: &self.config,
            eval: &self.eval,
            corpus: &self.corpus,
            screen: &self.run.screen,
            comm,
            save_to: self.run.save_to(),
            init_from: self.args.train.model.init_from.as_deref(),
        }
    }

    /// How the ranks average gradients: all of them hold everything.
    pub fn zero(&self) -> ZeroConfig {
        ZeroConfig {
            overlap: !self.args.no_overlap,
            algorithm: self.args.all_reduce,
            ..self.config.zero(Stage::Ddp)
        }
    }
}

/// Prints the heading, and the rows about the run.
pub fn introduce(lab: &Lab) {
    let Lab { args, config, eval, corpus, run, .. } = lab;
    let screen = &run.screen;
    let small = args.train.model.preset == Preset::Baby && config.steps <= 1000;
    run.heading((!small).then_some("--dry-run says how long"));
    report::data(screen, corpus);
    if args.log.all {
        alphabet(screen, corpus);
        report::splits(screen, corpus);
    }
    report::run(screen, config);
    if args.log.all {
        report::reached(screen, config, lab.peak);
    }
    if let Some(algorithm) = args.all_reduce {
        let words = format!(
            "{}, in the rounds that lab01 draws; the backward pass waits",
            algorithm.name()
        );
        run.row("all-reduce", &words);
    }
    // A dry run prints them anyway.
    if args.log.all && !run.is_dry {
        report::settings(screen, config);
    }
    if args.log.all {
        screen.say(settings::settings(screen, args, config, eval, corpus));
    }
}

/// Prints the text's characters, whose numbers are the tokens.
fn alphabet(screen: &Screen, corpus: &Corpus) {
    let shown = |c: char| match c {
        ' ' => "\u{a0}".to_string(), // a line does not end here
        c if is_hidden(c) => c.escape_default().to_string(),
        c => c.to_string(),
    };
    let (first, more) = characters(&corpus.vocabulary);
    let characters: String = first.chars().map(shown).collect();
    screen.say(screen.row("alphabet", &(characters + &more)));
}
