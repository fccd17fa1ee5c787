//! lab01's flags: they choose the collective and the view of it.

use crate::apparatus::breaking::Break;
use crate::apparatus::{Feed, Store, Way, benchmark, predict};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use kit::flags::{ensure_ranks_can_differ, one_of};
use kit::show::{bytes_binary, seconds, thousands};
use kit::{CommFlags, help};
use shardlab::comm::Link;
use shardlab::comm::algorithms::{Algorithm, Collective};
use shardlab::error::BadInput;
use shardlab::plan::Network;
use shardlab::{launch, named};
use std::path::{Path, PathBuf};

/// Collectives, taken apart: what each does, what it costs, and what if a rank is missing?
#[derive(Parser)]
#[command(name = "lab01", version)]
#[command(after_long_help = help::examples("lab01", &[
    ("--collective reduce-scatter --rounds", "each round of another collective"),
    ("--simulate 768 --network polaris", "predicted times on 768 ranks"),
    ("--break missing-rank", "a rank that never comes: who is missing, and where"),
]))]
pub struct Args {
    #[command(flatten)]
    pub study: StudyFlags,
    #[command(flatten)]
    pub feed: FeedFlags,
    #[command(flatten)]
    pub comm: CommFlags,
    /// Folder for the run's files [default: runs/lab01]
    #[arg(long, value_name = "DIR", help_heading = help::OUTPUT)]
    pub out: Option<PathBuf>,
    /// Draw with ASCII characters only
    #[arg(long, help_heading = help::OUTPUT)]
    pub ascii: bool,
}

/// The flags that choose a collective.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = help::STRATEGY)]
pub struct StudyFlags {
    /// Number of ranks: threads of this process [default: 4; with --bench one per core], or the
    /// launcher's processes
    #[arg(long, help_heading = help::RANKS)]
    pub ranks: Option<usize>,
    /// The collective to show. `all` shows each collective before and after
    #[arg(long, default_value = "all-reduce", value_parser = PossibleValuesParser::new(Collective::ALL.map(Collective::name).into_iter().chain(["all"])))]
    pub collective: String,
    /// Only this algorithm of the collective
    #[arg(long, value_parser = one_of::<Algorithm>())]
    pub algorithm: Option<Algorithm>,
    /// Show every round of an algorithm
    #[arg(long, alias = "step-by-step")]
    pub rounds: bool,
    /// Measure the algorithms on this machine, for arrays of 1 KiB and more
    #[arg(long, help_heading = help::INSTEAD)]
    pub bench: bool,
    /// The largest array to measure, in MiB [default: 64, or less if memory or time is short]
    #[arg(long, value_name = "MIB", hide_short_help = true, help_heading = help::INSTEAD)]
    pub up_to: Option<usize>,
    /// Write the measured or predicted times to this file
    #[arg(long, value_name = "FILE", help_heading = help::OUTPUT)]
    pub json: Option<PathBuf>,
    /// Predict the times on N ranks, and those of a training step on 4 to 65,536 ranks
    #[arg(long, value_name = "N", help_heading = help::INSTEAD)]
    pub simulate: Option<usize>,
    /// The network of the prediction
    #[arg(long, default_value = "ethernet", value_parser = PossibleValuesParser::new(Network::presets().map(|network| network.name)), help_heading = help::INSTEAD)]
    pub network: String,
    /// Let the last rank make a mistake
    #[arg(long = "break", value_enum, help_heading = help::BREAK)]
    pub broken: Option<Break>,
}

/// The flags after their check.
pub struct Study {
    pub flags: StudyFlags,
    pub ranks: usize,
    pub collective: Collective,
    /// Whether all collectives are drawn, and nothing else.
    pub all: bool,
    /// The algorithms of the collective that the lab shows.
    pub ways: Vec<Way>,
    /// Whether the lab measures the algorithms.
    pub timed: bool,
    /// The largest array to measure, in bytes.
    pub most: usize,
    pub network: Network,
    /// The simulated link between ranks.
    pub link: Option<Link>,
}

impl StudyFlags {
    /// Checks the flags before any rank starts. With a `link` the lab measures, unless a flag asks
    /// for a different view.
    pub fn resolve(&self, link: Option<Link>, feeding: bool) -> Result<Study, BadInput> {
        let all = self.collective == "all";
        let other =
            all || self.rounds || self.simulate.is_some() || self.broken.is_some() || feeding;
        let timed = self.bench || (link.is_some() && !other);
        if self.up_to.is_some() && !timed {
            let what = "--up-to is the largest array that --bench measures";
            return Err(BadInput::new(what, "give --bench with it, or leave it out"));
        }
        let ranks = launch::ranks(self.ranks, if timed { launch::cores().clamp(2, 4) } else { 4 })?;
        ensure_ranks_can_differ(self.broken.is_some(), ranks)?;
        let collective = named::find(&self.collective).unwrap_or(Collective::AllReduce);
        let auto = Way { collective, algorithm: Some(Algorithm::Auto) };
        let known =
            Way::algorithms(collective).chain(Some(auto).filter(|_| self.algorithm.is_some()));
        let chosen =
            |way: &Way| self.algorithm.is_none_or(|algorithm| way.algorithm == Some(algorithm));
        let ways: Vec<Way> = known.filter(chosen).collect();
        if let Some(algorithm) = self.algorithm.filter(|_| ways.is_empty()) {
            let names: Vec<&str> =
                collective.algorithms().iter().map(|algorithm| algorithm.name()).collect();
            let what = format!("{} has no algorithm {}", collective.name(), algorithm.name());
            return Err(BadInput::new(what, format!("it has {}", names.join(", "))));
        }
        let flags = self.clone();
        let most = self.most(ranks)?;
        let network = self.network(ranks)?;
        let study = Study {
            flags,
            ranks,
            collective,
            all,
            ways,
            timed: timed && ranks > 1,
            most,
            network,
            link,
        };
        if let Some(link) = link.filter(|_| study.timed) {
            study.ensure_short(link)?;
        }
        Ok(study)
    }

    fn network(&self, ranks: usize) -> Result<Network, BadInput> {
        let network = Network::named(&self.network).ok_or_else(|| {
            BadInput::new(
                format!("--network {} is unknown", self.network),
                format!("give {}", Network::presets().map(|network| network.name).join(", ")),
            )
        })?;
        let (flag, n) = self.simulate.map_or(("ranks", ranks), |n| ("simulate", n));
        let least = if self.simulate.is_some() { 2 } else { 1 };
        if !(least..=network.most_ranks).contains(&n) {
            let most = thousands(network.most_ranks as u64);
            let help = format!("give {least} to {most}: {} is {}", network.name, network.about);
            return Err(BadInput::new(format!("--{flag} {n} is out of range"), help));
        }
        Ok(network)
    }

    /// The largest array to measure, in bytes: the flag's, or else 64 MiB, or less if half of the
    /// memory does not hold that or many ranks would take too long.
    fn most(&self, ranks: usize) -> Result<usize, BadInput> {
        const MIB: usize = 1 << 20;
        let free = launch::free_memory(launch::ranks_here(ranks)).unwrap_or(u64::MAX);
        let fits = |most: usize| benchmark::memory(launch::ranks_here(ranks), most) < free / 2;
        let Some(mib) = self.up_to else {
            let is_short = |most: usize| most <= 512 * MIB / launch::ranks_here(ranks);
            let sizes = [64, 16, 4, 1].map(|mib| mib * MIB);
            return Ok(sizes
                .into_iter()
                .find(|&most| fits(most) && is_short(most))
                .unwrap_or(MIB / 64));
        };
        match mib.checked_mul(MIB) {
            Some(most) if mib > 0 && fits(most) => Ok(most),
            _ => {
                let room = bytes_binary(free as f64 / 2.0);
                let help = format!(
                    "give 1 or more; {ranks} ranks take 4 arrays each, and may fill {room}"
                );
                Err(BadInput::new(format!("--up-to {mib} is not possible here"), help))
            }
        }
    }
}

impl Study {
    /// An error if the link alone makes the measurement longer than two minutes. Each size is
    /// called twice at least.
    fn ensure_short(&self, link: Link) -> Result<(), BadInput> {
        const LONGEST: f64 = 120.0;
        let sizes = benchmark::sizes(4, self.most);
        let timings =
            predict::predict(self.collective, self.ranks, &sizes, &Network::uniform(link));
        let timings =
            timings.map_err(|error| BadInput::new(error.to_string(), "give a different --link"))?;
        let once: f64 = timings
            .iter()
            .flat_map(|timing| &timing.points)
            .map(|point| point.seconds)
            .sum();
        if 2.0 * once <= LONGEST {
            return Ok(());
        }
        let what = format!("timing over --link {link} would take about {}", seconds(2.0 * once));
        Err(BadInput::new(
            what,
            "give a faster link, such as 100us,1GB/s, or smaller arrays: --up-to 1",
        ))
    }
}

/// The flags of `--feed`.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Reading data")]
pub struct FeedFlags {
    /// Read batches from files: `each-file`, `shared-file`, or `readers K` for K ranks that read
    /// and scatter
    #[arg(long, num_args = 1..=2, value_names = ["HOW", "K"])]
    feed: Option<Vec<String>>,
    /// The simulated file server of --feed, or none for this machine's own disk
    #[arg(
        long,
        default_value = "2ms,200MB/s",
        value_name = "LATENCY,BANDWIDTH",
        requires = "feed"
    )]
    disk: String,
}

impl FeedFlags {
    pub fn is_asked_for(&self) -> bool {
        self.feed.is_some()
    }

    /// The feed and the files that the flags ask for, on `ranks` ranks, with files in `folder`;
    /// none without `--feed`.
    pub fn resolve(&self, ranks: usize, folder: &Path) -> Result<Option<(Feed, Store)>, BadInput> {
        let Some(words) = &self.feed else {
            return Ok(None);
        };
        let help = "give a latency and a bandwidth, as in 2ms,200MB/s, or none";
        let disk = (self.disk != "none").then(|| kit::flags::link(&self.disk)).transpose();
        let disk =
            disk.map_err(|error| BadInput::new(format!("--disk {}: {error}", self.disk), help))?;
        let store = Store { folder: folder.join("feed"), batch: 1 << 16, steps: 24, disk };
        let feed = Feed::parse(words, ranks)?;
        // All batches are read twice: when wanted, and ahead.
        let takes = 2.0 * store.steps as f64 * store.disk_seconds(feed, ranks);
        if takes > LONGEST {
            let what =
                format!("--feed would read for {} from --disk {}", seconds(takes), self.disk);
            return Err(BadInput::new(
                what,
                "give a faster one, such as 2ms,200MB/s, or none for this machine's own",
            ));
        }
        Ok(Some((feed, store)))
    }
}

/// Seconds that a simulated file server may take in all.
const LONGEST: f64 = 120.0;
