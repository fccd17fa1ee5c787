//! The flags of labs that can train with Muon.

use super::one_of;
use crate::help;
use shardlab::error::BadInput;
use shardlab::named::named;
use shardlab::optim::{MuonConfig, MuonScale, NewtonSchulz};
use shardlab::train::Config;

named! {
    /// What updates the matrices of blocks.
    pub enum Updates by default AdamW {
        /// AdamW, number by number
        AdamW = "adamw",
        /// Muon, matrix by matrix; AdamW has all else
        Muon = "muon",
    }
}

named! {
    /// Whether q, k and v are one matrix.
    pub enum Qkv by default Split {
        /// Three matrices
        Split = "split",
        /// One, as they are stored
        Whole = "whole",
    }
}

/// The choice of the optimizer.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = help::TRAINING)]
pub struct MuonFlags {
    /// What updates the matrices of blocks: adamw, or muon, which needs each of them whole
    #[arg(long, value_parser = one_of::<Updates>(), default_value = "adamw", hide_short_help = true)]
    pub optimizer: Updates,
    /// Muon's steps towards an orthogonal matrix: Jordan's 5, or DeepSeek-V4's 10 [default: jordan]
    #[arg(long, value_parser = one_of::<NewtonSchulz>(), hide_short_help = true)]
    pub muon_steps: Option<NewtonSchulz>,
    /// How Muon's learning rate follows from a matrix's shape [default: match-rms-adamw]
    #[arg(long, value_parser = one_of::<MuonScale>(), hide_short_help = true)]
    pub muon_scale: Option<MuonScale>,
    /// Whether Muon takes q, k and v as three matrices or as one [default: split]
    #[arg(long, value_parser = one_of::<Qkv>(), hide_short_help = true)]
    pub muon_qkv: Option<Qkv>,
}

impl MuonFlags {
    /// `config` with the optimizer that the flags choose.
    ///
    /// # Errors
    /// If a flag is Muon's, and Muon is not chosen.
    pub fn resolve(&self, config: Config) -> Result<Config, BadInput> {
        let given = [
            ("muon-steps", self.muon_steps.is_some()),
            ("muon-scale", self.muon_scale.is_some()),
            ("muon-qkv", self.muon_qkv.is_some()),
        ];
        let given = given.into_iter().find(|(_, given)| *given);
        let muon = match (self.optimizer, given) {
            (Updates::AdamW, Some((flag, _))) => {
                let what = format!("--{flag} is Muon's, and --optimizer is adamw");
                return Err(BadInput::new(what, "give --optimizer muon"));
            }
            (Updates::AdamW, None) => None,
            (Updates::Muon, _) => Some(MuonConfig {
                newton_schulz: self.muon_steps.unwrap_or_default(),
                scale: self.muon_scale.unwrap_or_default(),
                split_qkv: self.muon_qkv.unwrap_or_default() == Qkv::Split,
                weight_decay: config.adamw.weight_decay,
                ..MuonConfig::default()
            }),
        };
        Ok(Config { muon, ..config })
    }
}
