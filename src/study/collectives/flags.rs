//! lab01's flags: they choose which collective is looked at, and how.

use super::benchmark;
use super::breaking::Break;
use super::call::Way;
use crate::comm::algorithms::{Algorithm, Collective};
use crate::error::BadInput;
use crate::launch;
use crate::plan::Network;
use crate::show::{bytes_binary, thousands};
use clap::builder::PossibleValuesParser;
use std::path::PathBuf;

/// The flags.
#[derive(Clone, Debug, clap::Args)]
pub struct StudyFlags {
    /// Ranks: threads of this process [default: 4], or the launcher's processes
    #[arg(long)]
    pub ranks: Option<usize>,
    /// The collective to look at closely
    #[arg(long, value_enum, default_value_t = Collective::AllReduce)]
    pub collective: Collective,
    /// Only this algorithm of it
    #[arg(long, value_enum)]
    pub algorithm: Option<Algorithm>,
    /// Show every step of an algorithm
    #[arg(long)]
    pub step_by_step: bool,
    /// Time more sizes, and print them all
    #[arg(long)]
    pub bench: bool,
    /// The largest array to be timed, in MiB [default: 64, or what fits]
    #[arg(long, value_name = "MIB")]
    pub up_to: Option<usize>,
    /// Write what was timed and counted to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Predict the times on N ranks
    #[arg(long, value_name = "N")]
    pub simulate: Option<usize>,
    /// The network that they are predicted for
    #[arg(long, default_value = "aurora", value_parser = PossibleValuesParser::new(Network::NAMES))]
    pub network: String,
    /// Let the last rank do something else than the others
    #[arg(long = "break", value_enum)]
    pub broken: Option<Break>,
}

/// The flags, checked.
pub struct Study {
    pub flags: StudyFlags,
    pub ranks: usize,
    pub collective: Collective,
    /// The algorithms of it that are looked at.
    pub ways: Vec<Way>,
    /// The largest array to be timed, in bytes.
    pub most: usize,
    pub network: Network,
}

impl StudyFlags {
    /// Checks the flags before any rank starts.
    pub fn resolve(&self) -> Result<Study, BadInput> {
        let ranks = launch::ranks(self.ranks, 4)?;
        if self.broken.is_some() && ranks < 2 {
            return Err(BadInput::new("--break needs ranks that can differ", "give --ranks 2 or more"));
        }
        let (collective, flags) = (self.collective, self.clone());
        let auto = Way { collective, algorithm: Some(Algorithm::Auto) };
        let all = Way::algorithms(collective).chain(Some(auto).filter(|_| self.algorithm.is_some()));
        let chosen = |way: &Way| self.algorithm.is_none_or(|algorithm| way.algorithm == Some(algorithm));
        let ways: Vec<Way> = all.filter(chosen).collect();
        if let Some(algorithm) = self.algorithm.filter(|_| ways.is_empty()) {
            let names: Vec<&str> = collective.algorithms().iter().map(|algorithm| algorithm.name()).collect();
            let what = format!("{} has no algorithm {}", collective.name(), algorithm.name());
            return Err(BadInput::new(what, format!("it has {}", names.join(", "))));
        }
        Ok(Study { flags, ranks, collective, ways, most: self.most(ranks)?, network: self.network()? })
    }

    fn network(&self) -> Result<Network, BadInput> {
        let network = Network::named(&self.network).ok_or_else(|| {
            BadInput::new(
                format!("--network {} is unknown", self.network),
                format!("give {}", Network::NAMES.join(", ")),
            )
        })?;
        if let Some(n) = self.simulate.filter(|n| !(2..=network.most_ranks).contains(n)) {
            let most = thousands(network.most_ranks as u64);
            let help = format!("give 2 to {most}: {} is {}", network.name, network.about);
            return Err(BadInput::new(format!("--simulate {n} is out of range"), help));
        }
        Ok(network)
    }

    /// The largest array to be timed, in bytes: what was asked for, or the largest up to 64 MiB that half of the memory holds
    /// and that does not take many ranks too long.
    fn most(&self, ranks: usize) -> Result<usize, BadInput> {
        const MIB: usize = 1 << 20;
        let free = launch::free_memory(launch::ranks_here(ranks)).unwrap_or(u64::MAX);
        let fits = |most: usize| benchmark::memory(launch::ranks_here(ranks), most) < free / 2;
        let Some(mib) = self.up_to else {
            let is_short = |most: usize| most <= 512 * MIB / launch::ranks_here(ranks);
            let sizes = [64, 16, 4, 1].map(|mib| mib * MIB);
            return Ok(sizes.into_iter().find(|&most| fits(most) && is_short(most)).unwrap_or(MIB / 64));
        };
        match mib.checked_mul(MIB) {
            Some(most) if mib > 0 && fits(most) => Ok(most),
            _ => {
                let room = bytes_binary(free as f64 / 2.0);
                let help = format!("give 1 or more; {ranks} ranks take 4 arrays each, and {room} are for them");
                Err(BadInput::new(format!("--up-to {mib} is not possible here"), help))
            }
        }
    }
}
