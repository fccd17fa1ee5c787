//! lab11's flags: the job that a reader asks about, and what to print of it.

use crate::planner::{Described, Sizes, described, read_cluster};
use crate::strategy::{Cluster, Device, Overlap, Program, Strategy, TOKENS, TrainingJob};
use clap::Parser;
use clap::builder::{PossibleValuesParser, RangedU64ValueParser};
use kit::flags::ensure_runs;
use kit::help;
use shardlab::error::BadInput;
use shardlab::plan::{BytesEach, Network};
use std::path::PathBuf;

/// The parts of a strategy that a plan reckons with.
const PLANNED: [&str; 12] = [
    "dp",
    "tp",
    "pp",
    "chunks",
    "mb",
    "zero",
    "shard",
    "recompute",
    "sp",
    "offload",
    "nvme",
    "tiles",
];

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
    /// A model by name, such as gpt3-175b or llama-3-8b [default: llama-3-70b]
    #[arg(long, value_name = "NAME", help_heading = help::MODEL)]
    pub model: Option<String>,
    /// A model of the Hugging Face Hub, by its file config.json
    #[arg(long, value_name = "FILE", conflicts_with = "model", help_heading = help::MODEL)]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub sizes: Sizes,
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
    #[arg(long, value_name = "NAME", default_value = "megatron", value_parser = PossibleValuesParser::new(Program::ALL.map(Program::name)), hide_short_help = true, help_heading = help::STRATEGY)]
    pub program: String,
    /// Nothing hides the data axis
    #[arg(long, help_heading = help::STRATEGY)]
    pub no_overlap: bool,
    /// US dollars per device and hour
    #[arg(
        long,
        value_name = "DOLLARS",
        allow_negative_numbers = true,
        hide_short_help = true
    )]
    pub price_per_hour: Option<f64>,
    /// Cost this strategy, or say what is wrong with it: dp=16,tp=8,pp=4,zero=1,sp
    #[arg(long, value_name = "STRATEGY", help_heading = help::STRATEGY)]
    pub plan: Option<String>,
    /// How many plans to show
    #[arg(long, value_name = "NUMBER", default_value_t = 5, help_heading = help::OUTPUT)]
    pub top: usize,
    /// Print JSON for tools
    #[arg(long, conflicts_with = "published", help_heading = help::OUTPUT)]
    pub json: bool,
    /// Print every published run beside the planner's figure
    #[arg(long, help_heading = help::INSTEAD)]
    pub published: bool,
    /// Print the job's figures in the order of the book's pages, or one page's
    #[arg(long, value_name = "PAGE", num_args = 0..=1, conflicts_with_all = ["json", "published", "plan", "refused"], help_heading = help::INSTEAD)]
    pub ledger: Option<Option<String>>,
    /// Search again with slower and with faster links
    #[arg(long, conflicts_with_all = ["json", "published", "plan", "refused", "ledger"], help_heading = help::INSTEAD)]
    pub links: bool,
    /// Print why strategies are refused, and what does not fit
    #[arg(long, conflicts_with_all = ["json", "published", "plan"], help_heading = help::INSTEAD)]
    pub refused: bool,
    /// Print all names of models, devices and networks, with the sources of their figures
    #[arg(long, help_heading = help::INSTEAD)]
    pub presets: bool,
    /// Measure this machine, and compare trainings as labs 03 to 07 run them with their predictions
    #[arg(long, conflicts_with_all = ["cluster", "json", "published", "plan"], help_heading = help::INSTEAD)]
    pub calibrate: bool,
    /// Print a file for --cluster to begin with
    #[arg(long, help_heading = help::INSTEAD)]
    pub help_cluster: bool,
}

impl DecideFlags {
    /// The model: by name, from a file, or of one's own.
    ///
    /// # Errors
    /// If there is no such model or file, numbers are missing, or they do not fit together.
    pub fn model(&self) -> Result<Described, BadInput> {
        described(self.config.as_deref(), self.model.as_deref(), &self.sizes)
    }

    /// The job: a training of `model`.
    pub fn job(&self, model: &Described) -> Result<TrainingJob, BadInput> {
        let mut cluster = match &self.cluster {
            Some(path) => read_cluster(path)?,
            None => self.named()?,
        };
        if let Some(price) = self.price_per_hour {
            if !(price.is_finite() && price >= 0.0) {
                return Err(BadInput::new(
                    format!("--price-per-hour {price} is no price"),
                    "give dollars, such as 2.5",
                ));
            }
            cluster.device.price = price;
        }
        cluster.device.free = self.free as f64 / 100.0;
        let mut job = TrainingJob::new(model.shape, cluster, self.devices);
        job.batch = self.batch.unwrap_or(job.batch);
        job.bytes = if self.bytes == "16" {
            BytesEach::MIXED
        } else {
            BytesEach::MEGATRON
        };
        job.flash = !self.keep_scores;
        job.program = self.program.parse()?;
        job.overlap = if self.no_overlap { Overlap::Tensor } else { Overlap::All };
        Ok(job)
    }

    fn named(&self) -> Result<Cluster, BadInput> {
        let device = Device::named(&self.device).ok_or_else(|| {
            let help = format!(
                "choose one of {}, or describe yours with --cluster FILE",
                Device::all().map(|device| device.name).join(", ")
            );
            BadInput::new(format!("no device is named {}", self.device), help)
        })?;
        let usual = Cluster::usual_network(&self.device);
        let name = self.network.as_deref().or(usual).unwrap_or("none");
        Cluster::new(device, name).ok_or_else(|| {
            let help = format!(
                "choose one of {}, or describe yours with --cluster FILE",
                Network::all().map(|network| network.name).join(", ")
            );
            BadInput::new(format!("no network is named {name}"), help)
        })
    }

    /// The strategy that `--plan` names.
    pub fn strategy(&self) -> Result<Option<Strategy>, BadInput> {
        let Some(plan) = &self.plan else {
            return Ok(None);
        };
        let read = |error: BadInput| BadInput::new(format!("--plan: {}", error.what), error.help);
        let strategy: Strategy = plan.parse().map_err(read)?;
        ensure_runs("--plan", &strategy, "lab11", &PLANNED)?;
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
