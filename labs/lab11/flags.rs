//! lab11's flags: the job that a reader asks about, and what to print of it.

use crate::apparatus::ModelOfJob;
use clap::Parser;
use clap::builder::{PossibleValuesParser, RangedU64ValueParser};
use kit::flags::{ensure_runs, one_of};
use kit::help;
use planner::{Cluster, Device, Program, Strategy, TOKENS, TrainingJob, networks, read_cluster};
use shardlab::error::BadInput;
use shardlab::plan::{BytesEach, ModelShape};
use std::path::PathBuf;

/// The strategies for a job, ranked.
#[derive(Parser)]
#[command(name = "lab11", version)]
#[command(after_long_help = help::examples("lab11", &[
    ("--model gpt3-175b --devices 1024 --device a100-80g", "another job"),
    ("--layers 40 --embd 5120 --heads 40 --kv-heads 8", "a model of your own"),
    ("--plan dp=8,tp=8,pp=8", "one plan in detail"),
    ("--published", "the planner beside runs that papers report"),
]))]
pub struct Args {
    #[command(flatten)]
    pub decide: DecideFlags,
    /// Use only ASCII characters on the screen
    #[arg(long, help_heading = help::OUTPUT)]
    pub ascii: bool,
}

/// The model, the devices, and what is asked about them.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Devices")]
pub struct DecideFlags {
    #[command(flatten)]
    pub model: ModelOfJob,
    /// How many devices there are
    #[arg(long, value_name = "NUMBER", default_value_t = 512, value_parser = RangedU64ValueParser::<usize>::new().range(1..=100_000))]
    pub devices: usize,
    /// A device by name, such as a100-80g or mi250x-gcd
    #[arg(long, value_name = "NAME", default_value = "h100-80g")]
    pub device: String,
    /// The network, by name [default: what the device usually has]
    #[arg(long, value_name = "NAME")]
    pub network: Option<String>,
    /// Per cent of each device's memory to keep free: for the runtime's buffers and for
    /// fragmentation
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = RangedU64ValueParser::<usize>::new().range(0..=90))]
    pub free: usize,
    /// Your own devices and network, in a TOML file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["device", "network"])]
    pub cluster: Option<PathBuf>,
    /// Sequences per step, over all devices [default: as published for its size]
    #[arg(long, value_name = "SEQUENCES", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1 << 24), help_heading = help::MODEL)]
    pub batch: Option<usize>,
    /// Tokens of the whole training, such as 300e9 [default: 20 for each parameter]
    #[arg(long, value_name = "TOKENS", hide_short_help = true, help_heading = help::MODEL)]
    pub tokens: Option<f64>,
    /// Bytes per parameter: 18 has gradients in f32, 16 in 16 bits
    #[arg(long, default_value = "18", value_parser = PossibleValuesParser::new(["16", "18"]), hide_short_help = true, help_heading = help::MODEL)]
    pub bytes: String,
    /// Attention keeps its scores: no FlashAttention
    #[arg(long, hide_short_help = true, help_heading = help::STRATEGY)]
    pub keep_scores: bool,
    /// The program that trains: what it keeps, gathers again and hides
    #[arg(long, value_name = "NAME", default_value = "megatron", value_parser = one_of::<Program>(), hide_short_help = true, help_heading = help::STRATEGY)]
    pub program: Program,
    /// Cost this strategy, or say what is wrong with it: dp=16,tp=8,pp=4,zero=1,sp
    #[arg(long, value_name = "STRATEGY", help_heading = help::STRATEGY)]
    pub plan: Option<String>,
    /// How many plans to show
    #[arg(long, value_name = "NUMBER", default_value_t = 5, help_heading = help::OUTPUT)]
    pub top: usize,
    /// Print JSON for tools
    #[arg(long, conflicts_with_all = ["published", "presets", "help_cluster"], help_heading = help::OUTPUT)]
    pub json: bool,
    /// Print every published run beside the planner's figure
    #[arg(long, help_heading = help::INSTEAD)]
    pub published: bool,
    /// Print the job's figures in the order of the book's pages, or one page's
    #[arg(long, value_name = "PAGE", num_args = 0..=1, conflicts_with_all = ["json", "published", "plan"], help_heading = help::INSTEAD)]
    pub ledger: Option<Option<String>>,
    /// Print all names of models, devices and networks, with the sources of their figures
    #[arg(long, help_heading = help::INSTEAD)]
    pub presets: bool,
    /// Print a file for --cluster to begin with
    #[arg(long, help_heading = help::INSTEAD)]
    pub help_cluster: bool,
}

impl DecideFlags {
    /// The job: a training of `model`.
    ///
    /// # Errors
    /// If a device or a network has no such name, or the file of a cluster cannot be used.
    pub fn job(&self, model: ModelShape) -> Result<TrainingJob, BadInput> {
        let mut cluster = match &self.cluster {
            Some(path) => read_cluster(path)?,
            None => self.named()?,
        };
        cluster.device.free = self.free as f64 / 100.0;
        let job = TrainingJob::new(model, cluster, self.devices);
        let bytes = if self.bytes == "16" {
            BytesEach::MIXED
        } else {
            BytesEach::MEGATRON
        };
        Ok(TrainingJob {
            batch: self.batch.unwrap_or(job.batch),
            bytes,
            flash: !self.keep_scores,
            program: self.program,
            ..job
        })
    }

    fn named(&self) -> Result<Cluster, BadInput> {
        let unknown = |kind: &str, name: &str, all: &[&str]| {
            let help =
                format!("choose one of {}, or describe yours with --cluster FILE", all.join(", "));
            BadInput::new(format!("no {kind} is named {name}"), help)
        };
        let device = Device::named(&self.device).ok_or_else(|| {
            unknown("device", &self.device, &Device::all().map(|device| device.name))
        })?;
        let network = self.network.as_deref().unwrap_or(device.network);
        Cluster::new(device, network).ok_or_else(|| {
            unknown("network", network, &networks().map(|network| network.name).collect::<Vec<_>>())
        })
    }

    /// The strategy that `--plan` names.
    pub fn strategy(&self) -> Result<Option<Strategy>, BadInput> {
        let Some(plan) = &self.plan else {
            return Ok(None);
        };
        let read = |error: BadInput| BadInput::new(format!("--plan: {}", error.what), error.help);
        let strategy: Strategy = plan.parse().map_err(read)?;
        ensure_runs("--plan", &strategy, "lab11")?;
        Ok(Some(strategy))
    }

    /// The tokens of the whole training.
    pub fn tokens(&self, job: &TrainingJob) -> Result<f64, BadInput> {
        match self.tokens {
            Some(tokens) if tokens.is_finite() && tokens >= 1.0 => Ok(tokens),
            Some(tokens) => Err(BadInput::new(
                format!("--tokens {tokens} is no number of tokens"),
                "give one, such as 300e9",
            )),
            None => Ok(TOKENS * job.model.parameters() as f64),
        }
    }
}
