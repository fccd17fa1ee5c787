//! A strategy: how ranks divide one training job.

use super::TensorParallel;
use super::context::{ContextParallel, Exchange, Slicing};
use super::pipeline::{Partition, Pipeline, Schedule};
use super::zero::Stage;
use crate::error::BadInput;
use crate::mesh::{Coordinates, Layout, Order};
use crate::named::{NamedValue, find, named};
use crate::plan::{Capacity, Experts, Family, Groups, ModelShape};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// How ranks divide one training job, and what each of them keeps.
///
/// Its text names what differs from one rank that keeps everything:
///
/// ```
/// use shardlab::parallel::Strategy;
/// use shardlab::plan::{Family, ModelShape};
///
/// let strategy: Strategy = "dp=4,tp=2,pp=2,zero=1,sp".parse()?;
/// assert_eq!(strategy.ranks(), 16);
/// assert_eq!(strategy, Strategy { sequence: true, ..strategy });
/// assert_eq!(strategy.to_string(), "dp=4,tp=2,pp=2,zero=1,sp");
///
/// let (vocabulary, block, layers, heads, embd) = (50257, 1024, 12, 12, 768);
/// let family = Family::Gpt;
/// let gpt2 = ModelShape { vocabulary, block, layers, heads, embd, family, experts: None };
/// assert!(strategy.check(&gpt2).is_ok());
/// let wide: Strategy = "tp=5".parse()?; // 12 heads
/// assert!(wide.check(&gpt2).is_err());
/// # anyhow::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strategy {
    /// `dp`: replicas of the model, each with sequences of its own.
    pub data: usize,
    /// `tp`: ranks that share every layer.
    pub tensor: usize,
    /// `pp`: ranks that hold different layers.
    pub pipeline: usize,
    /// `cp`: ranks that share every sequence of a replica.
    pub context: usize,
    /// `ep`: ranks that share the experts of every block; they are data and context ranks.
    pub expert: usize,
    /// `cp-comm`: what context ranks send each other.
    pub exchange: Exchange,
    /// `cp-order`: which positions each context rank holds.
    pub slicing: Slicing,
    /// `chunks`: ranges of layers (virtual stages) per pipeline rank.
    pub chunks: usize,
    /// `m`: micro-batches per replica and step; `None` leaves it to the job.
    pub micro_batches: Option<usize>,
    /// `mb`: sequences of a micro-batch; `None` leaves it to the job.
    pub micro_batch: Option<usize>,
    /// `schedule`: the order of a pipeline's passes; `None` is 1F1B, and with several chunks
    /// interleaved 1F1B.
    pub schedule: Option<Schedule>,
    /// `partition`: how layers are divided among stages.
    pub partition: Partition,
    /// `zero`: the state that data ranks shard.
    pub zero: Stage,
    /// Groups of data ranks that hold the same (HSDP): within a group, neighbours shard with ZeRO;
    /// between groups, ranks average their parts of the gradients. In the text, `shard` is the size
    /// of a group.
    pub replicas: usize,
    /// `recompute`: what the backward pass computes once more.
    pub recompute: Recompute,
    /// `sp`: tensor ranks also divide the residual stream, by position.
    pub sequence: bool,
    /// `offload`: what lies in the host's memory.
    pub offload: Offloaded,
    /// `tiles`: parts in which ZeRO-3 gathers a matrix of an MLP (memory-centric tiling).
    pub tiles: usize,
    /// `order`: which axis runs slowest through the numbers of ranks.
    pub order: Order,
    /// `pad`: each tensor rank holds a multiple of this many rows of the token table.
    pub vocabulary_multiple: usize,
}

/// The activations that the backward pass computes once more, so that the forward pass can discard
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recompute {
    /// Nothing: all activations are kept.
    #[default]
    None,
    /// Attention's scores, where they are kept at all.
    Selective,
    /// The results of norms, and in PyTorch those of the MLP's activation function: they need no
    /// matrix product. (Megatron-LM's `--recompute-modules layernorm`, torchtitan's selective
    /// checkpoints of operations.)
    Norms,
    /// The MLP, from its norm's input on (`--recompute-modules mlp layernorm`).
    Mlp,
    /// One of so many layers, from its input. (Megatron-LM's `--recompute-method block`,
    /// torchtitan's `selective_ac_option`.)
    OneIn(usize),
    /// Each layer, from its input.
    Full,
    /// So many layers together, from the input of their first one. (Megatron-LM's
    /// `--recompute-method uniform --recompute-num-layers`.)
    Blocks(usize),
}

named! {
    /// The state that is kept in the host's memory.
    #[derive(PartialOrd, Ord)]
    pub enum Offloaded by default None {
        /// Nothing.
        None = "none",
        /// The optimizer's state: ZeRO-Offload (Ren et al., arXiv 2101.06840).
        Optimizer = "optimizer",
        /// Also parameters and gradients, with ZeRO-3: ZeRO-Infinity (Rajbhandari et al.,
        /// arXiv 2104.07857).
        Parameters = "parameters",
    }
}

impl Default for Strategy {
    fn default() -> Strategy {
        Strategy::SINGLE
    }
}

impl Strategy {
    /// One rank that keeps everything.
    pub const SINGLE: Strategy = Strategy {
        data: 1,
        tensor: 1,
        pipeline: 1,
        context: 1,
        expert: 1,
        exchange: Exchange::Gather,
        slicing: Slicing::ZigZag,
        chunks: 1,
        micro_batches: None,
        micro_batch: None,
        schedule: None,
        partition: Partition::Uniform,
        zero: Stage::Ddp,
        replicas: 1,
        recompute: Recompute::None,
        sequence: false,
        offload: Offloaded::None,
        tiles: 1,
        order: Order::PipelineSlowest,
        vocabulary_multiple: 1,
    };

    /// Replicas on `ranks` ranks that shard the state of `zero`'s stage.
    pub fn data(ranks: usize, zero: Stage) -> Strategy {
        Strategy { data: ranks, zero, ..Strategy::SINGLE }
    }

    /// The ranks of the job.
    pub fn ranks(&self) -> usize {
        self.data * self.context * self.tensor * self.pipeline
    }

    /// The numbers of ranks along the mesh's axes, and their order. Context ranks are neighbours
    /// along the data axis.
    pub fn layout(&self) -> Layout {
        let Strategy { pipeline, tensor, order, .. } = *self;
        Layout {
            sizes: Coordinates { data: self.gradient_ranks(), pipeline, tensor },
            order,
        }
    }

    /// The ranks that average a gradient: data ranks, and context ranks of each.
    pub fn gradient_ranks(&self) -> usize {
        self.data * self.context
    }

    /// The ranks that shard a state together.
    pub fn shard_ranks(&self) -> usize {
        self.gradient_ranks() / self.replicas
    }

    /// The pipeline of a job with `micro_batches` micro-batches, unless the strategy names another
    /// number.
    pub fn pipeline(&self, micro_batches: usize) -> Pipeline {
        Pipeline {
            ranks: self.pipeline,
            chunks: self.chunks,
            micro_batches: self.micro_batches.unwrap_or(micro_batches),
        }
    }

    /// The order of a pipeline's passes.
    pub fn schedule(&self) -> Schedule {
        self.schedule.unwrap_or_else(|| self.usual_schedule())
    }

    fn usual_schedule(&self) -> Schedule {
        if self.chunks > 1 {
            Schedule::Interleaved { group: self.pipeline }
        } else {
            Schedule::OneForwardOneBackward
        }
    }

    /// Refuses what cannot divide this model, before anything runs.
    ///
    /// # Errors
    /// If heads, vocabulary, block, MLP or layers cannot be divided, or the schedule cannot run the
    /// pipeline. The help says which number to change.
    pub fn check(&self, shape: &ModelShape) -> Result<(), BadInput> {
        let Strategy { tensor, pipeline, context, chunks, replicas, .. } = *self;
        let data = self.gradient_ranks();
        if self.expert == 0 || !data.is_multiple_of(self.expert) {
            let what =
                format!("{} expert ranks cannot be found among {data} data ranks", self.expert);
            let help = "ep must divide dp, or dp·cp: these ranks share the experts";
            return Err(BadInput::new(what, help));
        }
        if replicas == 0 || !data.is_multiple_of(replicas) {
            let what = format!("{replicas} groups cannot share {data} data ranks");
            return Err(BadInput::new(what, "shard must divide dp"));
        }
        match shape.family {
            Family::Llama(_) => TensorParallel::check_llama(shape, tensor)?,
            _ => TensorParallel::check(shape, tensor, self.sequence)?,
        }
        match shape.experts {
            Some(experts) => self.check_experts(shape, &experts)?,
            None if self.expert > 1 => {
                let what = format!("ep={}: this model has no experts to share", self.expert);
                return Err(BadInput::new(what, "leave ep out, or give the model experts"));
            }
            None => {}
        }
        let comm = (self.exchange, self.slicing);
        ContextParallel::check(shape, (context, tensor), comm, self.sequence)?;
        if pipeline == 1 && chunks > 1 {
            let what = format!(
                "{chunks} chunks on a pipeline of 1 rank would follow each other on the same rank"
            );
            return Err(BadInput::new(what, "give `pipeline` 2 or more, or `chunks` 1"));
        }
        // Any number of micro-batches that the job may choose fits a schedule without groups.
        let enough = match self.schedule() {
            Schedule::Interleaved { group } => group.max(pipeline),
            _ => 1,
        };
        self.schedule().check(&self.pipeline(enough))?;
        self.partition.layers(shape, pipeline * chunks).map(drop)
    }

    /// Refuses experts that these ranks cannot share, and choices among them that no token has.
    fn check_experts(&self, shape: &ModelShape, experts: &Experts) -> Result<(), BadInput> {
        let Experts { count, top_k, selection, dense_layers, .. } = *experts;
        let refuse = |what: String, help: String| Err(BadInput::new(what, help));
        let ranks = self.expert;
        if count == 0 || !count.is_multiple_of(ranks) {
            let near = nearest(count, usize::MAX, |n| n.is_multiple_of(ranks));
            return refuse(
                format!("`experts` {count} cannot be divided evenly among {ranks} ranks"),
                format!("give `experts` {near}, or other ranks"),
            );
        }
        if let Some(groups) = selection.groups {
            if groups.count == 0 || !count.is_multiple_of(groups.count) {
                let near = nearest(groups.count, count, |n| count.is_multiple_of(n));
                return refuse(
                    format!("`groups` {} cannot divide {count} experts", groups.count),
                    format!("give `groups` {near}"),
                );
            }
            if !(1..=groups.count).contains(&groups.top_k) {
                let Groups { count, top_k } = groups;
                return refuse(
                    format!("`top_groups` {top_k} is not from 1 to {count}, the number of groups"),
                    format!("give `top_groups` {count} at most"),
                );
            }
        }
        let most = experts.selectable();
        if !(1..=most).contains(&top_k) {
            let (of, more) = match selection.groups {
                None => ("the number of experts", "`experts`"),
                Some(_) => ("the number of experts in a token's groups", "`top_groups`"),
            };
            return refuse(
                format!("`top_k` {top_k} is not from 1 to {most}, {of}"),
                format!("give `top_k` {most} at most, or more {more}"),
            );
        }
        if let Some(Capacity { factor, .. }) = selection.capacity
            && (!factor.is_finite() || factor <= 0.0)
        {
            return refuse(
                format!("experts cannot take {factor} of an even load"),
                "choose a factor above 0 for their `capacity`".into(),
            );
        }
        if dense_layers >= shape.layers {
            let layers = shape.layers;
            return refuse(
                format!("`dense_layers` {dense_layers} leaves none of {layers} layers to experts"),
                format!("give `dense_layers` {} at most, or more `layers`", layers.max(1) - 1),
            );
        }
        if !experts.ffn.is_multiple_of(self.tensor) {
            let (width, ranks) = (experts.ffn, self.tensor);
            return refuse(
                format!("experts of width {width} cannot be divided among {ranks} tensor ranks"),
                "choose a `tensor` that divides it".into(),
            );
        }
        if self.sequence {
            return refuse(
                "tensor ranks that divide the residual stream would each route their own positions"
                    .into(),
                "train a model with experts without `sequence`".into(),
            );
        }
        Ok(())
    }

    /// Refuses what the library's trainer does not run; a plan may say it.
    ///
    /// # Errors
    /// If it shards gradients in a pipeline, shards in groups, recomputes parts of layers, offloads
    /// to disks, or tiles without ZeRO-3.
    pub fn ensure_trainable(&self) -> Result<(), BadInput> {
        let (what, help) = match self {
            _ if self.zero >= Stage::Two && self.pipeline > 1 => (
                "a pipeline adds up the gradients of several micro-batches, and ZeRO's stages 2 and 3 shard them in each".to_string(),
                "give zero=0 or zero=1 with pp".to_string(),
            ),
            _ if self.replicas > 1 => (
                format!("shard={}: the trainer shards over all data ranks", self.shard_ranks()),
                "leave shard out; the planner reckons with it".to_string(),
            ),
            _ if !matches!(self.recompute, Recompute::None | Recompute::Full | Recompute::Blocks(_)) => (
                format!("recompute={}: the trainer recomputes whole layers", self.recompute),
                "give recompute=full, or recompute=2 for two layers together".to_string(),
            ),
            _ if self.tiles > 1 && self.zero != Stage::Three => (
                format!("tiles={}: only ZeRO-3 gathers parameters, whole or in tiles", self.tiles),
                "give zero=3, or leave tiles out".to_string(),
            ),
            _ if (self.offload == Offloaded::Parameters) != (self.zero == Stage::Three)
                && self.offload != Offloaded::None => (
                format!("offload={} with zero={}", self.offload.name(), self.zero.number()),
                "stage 3 offloads parameters, stages 0 to 2 the optimizer's state".to_string(),
            ),
            _ => return Ok(()),
        };
        Err(BadInput::new(what, help))
    }
}

impl Recompute {
    /// Groups of so many layers are computed again together; 0: nothing is.
    pub fn every(layers: usize) -> Recompute {
        match layers {
            0 => Recompute::None,
            1 => Recompute::Full,
            several => Recompute::Blocks(several),
        }
    }

    /// The layers that are computed again together; 0: nothing is.
    pub fn blocks(self) -> usize {
        match self {
            Recompute::Full => 1,
            Recompute::Blocks(blocks) => blocks,
            _ => 0,
        }
    }
}

impl fmt::Display for Recompute {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Recompute::None => f.write_str("none"),
            Recompute::Selective => f.write_str("selective"),
            Recompute::Norms => f.write_str("norms"),
            Recompute::Mlp => f.write_str("mlp"),
            Recompute::OneIn(layers) => write!(f, "1/{layers}"),
            Recompute::Full => f.write_str("full"),
            Recompute::Blocks(blocks) => write!(f, "{blocks}"),
        }
    }
}

/// What differs from [`Strategy::SINGLE`], or `dp=1`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut parts = Vec::new();
        let mut number = |key: &str, value: usize, usual: usize| {
            if value != usual {
                parts.push(format!("{key}={value}"));
            }
        };
        number("dp", self.data, 1);
        number("tp", self.tensor, 1);
        number("pp", self.pipeline, 1);
        number("cp", self.context, 1);
        number("ep", self.expert, 1);
        number("chunks", self.chunks, 1);
        number("m", self.micro_batches.unwrap_or(0), 0);
        number("mb", self.micro_batch.unwrap_or(0), 0);
        number("zero", self.zero.number(), 0);
        if self.replicas > 1 {
            number("shard", self.shard_ranks(), 0);
        }
        if self.schedule() != self.usual_schedule() {
            parts.push(format!("schedule={}", self.schedule().name()));
            if let Schedule::Interleaved { group } = self.schedule()
                && group != self.pipeline
            {
                parts.push(format!("group={group}"));
            }
        }
        if self.partition != Partition::Uniform {
            parts.push(format!("partition={}", self.partition.name()));
        }
        if self.context > 1 && self.exchange != Exchange::Gather {
            parts.push(format!("cp-comm={}", self.exchange.name()));
        }
        if self.context > 1 && self.slicing != Slicing::ZigZag {
            parts.push(format!("cp-order={}", self.slicing.name()));
        }
        if self.recompute != Recompute::None {
            parts.push(format!("recompute={}", self.recompute));
        }
        if self.sequence {
            parts.push("sp".to_string());
        }
        if self.offload != Offloaded::None {
            parts.push(format!("offload={}", self.offload.name()));
        }
        if self.tiles > 1 {
            parts.push(format!("tiles={}", self.tiles));
        }
        if self.order != Order::PipelineSlowest {
            parts.push(format!("order={}", self.order.name()));
        }
        if self.vocabulary_multiple > 1 {
            parts.push(format!("pad={}", self.vocabulary_multiple));
        }
        if parts.is_empty() {
            parts.push("dp=1".to_string());
        }
        f.write_str(&parts.join(","))
    }
}

const HELP: &str = "write it like dp=4,tp=2,pp=2,zero=1,sp; what is left out is 1, none or off. \
                    Also: cp, ep, cp-comm, cp-order, chunks, m, mb, schedule, group, partition, \
                    shard, recompute, offload, tiles, order, pad";

fn bad(what: String) -> BadInput {
    BadInput::new(what, HELP)
}

/// A text that names more ranks is refused, so that no product of them overflows.
const MOST_RANKS: usize = 1 << 30;

/// The value that a text names.
fn choice<T: NamedValue>(key: &str, value: &str) -> Result<T, BadInput> {
    let names: Vec<&str> = T::TABLE.iter().map(|row| row.1).collect();
    find(value).ok_or_else(|| bad(format!("{key}={value} is none of {}", names.join(", "))))
}

impl FromStr for Strategy {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Strategy, BadInput> {
        let mut strategy = Strategy::SINGLE;
        let mut shard = None;
        let mut group = None;
        let mut seen = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            if seen.contains(&key) {
                return Err(bad(format!("{key} is there twice")));
            }
            seen.push(key);
            let number = |least: usize, most: usize| match value.parse::<usize>() {
                Ok(number) if (least..=most).contains(&number) => Ok(number),
                _ => Err(bad(format!("{key}={value} is no whole number from {least} to {most}"))),
            };
            match key {
                "dp" => strategy.data = number(1, 1 << 24)?,
                "tp" => strategy.tensor = number(1, 1 << 16)?,
                "pp" => strategy.pipeline = number(1, 1 << 16)?,
                "cp" => strategy.context = number(1, 1 << 16)?,
                "ep" => strategy.expert = number(1, 1 << 16)?,
                "cp-comm" => strategy.exchange = choice(key, value)?,
                "cp-order" => strategy.slicing = choice(key, value)?,
                "chunks" => strategy.chunks = number(1, 1 << 10)?,
                "m" => strategy.micro_batches = Some(number(1, 1 << 20)?),
                "mb" => strategy.micro_batch = Some(number(1, 1 << 20)?),
                "zero" => strategy.zero = Stage::ALL[number(0, 3)?],
                "shard" => shard = Some(number(1, 1 << 24)?),
                "group" => group = Some(number(1, 1 << 20)?),
                "tiles" => strategy.tiles = number(1, 1 << 10)?,
                "pad" => strategy.vocabulary_multiple = number(1, 1 << 16)?,
                "sp" if value.is_empty() => strategy.sequence = true,
                "schedule" => strategy.schedule = Some(schedule(value)?),
                "partition" => strategy.partition = choice(key, value)?,
                "recompute" => strategy.recompute = recompute(value)?,
                "offload" => strategy.offload = choice(key, value)?,
                "order" => strategy.order = choice(key, value)?,
                _ => return Err(bad(format!("there is no {part:?} in a strategy"))),
            }
        }
        let Strategy { data, context, tensor, pipeline, .. } = strategy;
        let ranks = [data, context, tensor, pipeline]
            .iter()
            .try_fold(1usize, |ranks, &axis| ranks.checked_mul(axis));
        if ranks.is_none_or(|ranks| ranks > MOST_RANKS) {
            return Err(BadInput::new(
                format!(
                    "dp={data} x tp={tensor} x pp={pipeline} x cp={context} is more than 2^30 ranks"
                ),
                "give smaller numbers: no machine has so many",
            ));
        }
        if let Some(shard) = shard {
            let data = strategy.gradient_ranks();
            if !data.is_multiple_of(shard) {
                let of = if strategy.context > 1 { "dp·cp" } else { "dp" };
                return Err(bad(format!("shard={shard} does not divide {of}={data}")));
            }
            strategy.replicas = data / shard;
        }
        match (strategy.schedule, group) {
            (Some(Schedule::Interleaved { .. }), group) => {
                let group = group.unwrap_or(strategy.pipeline);
                strategy.schedule = Some(Schedule::Interleaved { group });
            }
            (None, Some(group)) if strategy.chunks > 1 => {
                strategy.schedule = Some(Schedule::Interleaved { group });
            }
            (_, Some(group)) => {
                return Err(bad(format!("group={group} is for interleaved schedules")));
            }
            (_, None) => {}
        }
        // Two texts of one strategy are one value.
        if context == 1 {
            (strategy.exchange, strategy.slicing) = (Exchange::Gather, Slicing::ZigZag);
        }
        if strategy.schedule == Some(strategy.usual_schedule()) {
            strategy.schedule = None;
        }
        Ok(strategy)
    }
}

/// A text says the groups of an interleaved schedule apart.
fn schedule(value: &str) -> Result<Schedule, BadInput> {
    match value {
        "gpipe" => Ok(Schedule::GPipe),
        "1f1b" => Ok(Schedule::OneForwardOneBackward),
        "interleaved" => Ok(Schedule::Interleaved { group: 0 }),
        "zero-bubble" => Ok(Schedule::ZeroBubble),
        _ => Err(bad(format!(
            "schedule={value} is none of gpipe, 1f1b, interleaved, zero-bubble"
        ))),
    }
}

fn recompute(value: &str) -> Result<Recompute, BadInput> {
    let names = [
        ("none", Recompute::None),
        ("selective", Recompute::Selective),
        ("norms", Recompute::Norms),
        ("mlp", Recompute::Mlp),
        ("full", Recompute::Full),
        ("1", Recompute::Full),
    ];
    if let Some((_, found)) = names.iter().find(|(name, _)| *name == value) {
        return Ok(*found);
    }
    if let Some(Ok(layers @ 2..=1000)) = value.strip_prefix("1/").map(str::parse) {
        return Ok(Recompute::OneIn(layers));
    }
    if let Ok(blocks @ 2..=1000) = value.parse() {
        return Ok(Recompute::Blocks(blocks));
    }
    Err(bad(format!(
        "recompute={value} is neither none, selective, norms, mlp, full, nor a part of the layers \
         such as 1/2, nor a number of layers"
    )))
}

impl Serialize for Strategy {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Strategy {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Strategy, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The numbers beside `n`, from 1 to `most`, that fit: "6 or 9".
fn nearest(n: usize, most: usize, fits: impl Fn(usize) -> bool) -> String {
    let less = (1..n).rev().find(|&n| fits(n));
    let more = (n + 1..=most).find(|&n| fits(n));
    let all = less.into_iter().chain(more).map(|n| n.to_string());
    all.collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Selection;

    fn read(text: &str) -> Strategy {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn what_is_written_is_read() {
        for text in [
            "dp=1",
            "dp=4,tp=2,pp=2,zero=1,sp",
            "dp=16,tp=8,pp=4,chunks=2,mb=1,zero=1,recompute=norms,sp",
            "dp=64,tp=8,mb=1,zero=3,shard=8,recompute=1/4,sp",
            "zero=3,recompute=mlp,offload=parameters,tiles=4",
            "pp=4,m=8,schedule=zero-bubble,partition=parameters,recompute=2,order=tp-pp-dp,pad=128",
            "dp=2,tp=2,cp=4,zero=1,cp-comm=ring,cp-order=contiguous,sp",
            "dp=4,tp=2,ep=2,zero=1",
            "pp=2,chunks=2,m=8,schedule=interleaved,group=4",
            "pp=2,chunks=2,schedule=1f1b",
        ] {
            let strategy = read(text);
            let written = strategy.to_string();
            assert_eq!(read(&written), strategy, "{text}");
            assert_eq!(
                written.replace(",schedule=interleaved", ""),
                text.replace(",schedule=interleaved", "")
            );
            let json = serde_json::to_string(&strategy).unwrap();
            assert_eq!(serde_json::from_str::<Strategy>(&json).unwrap(), strategy);
        }
        assert_eq!(read(""), Strategy::SINGLE);
        // What the planner and lab09 have written in full.
        assert_eq!(read("dp=2,tp=1,pp=1,chunks=1,mb=1,zero=0,recompute=none"), read("dp=2,mb=1"));
        assert_eq!(read("dp=3,pp=2,tp=2,zero=1").to_string(), "dp=3,tp=2,pp=2,zero=1");
        assert_eq!(read("pp=2,chunks=2,schedule=interleaved"), read("pp=2,chunks=2"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("dp=0", "dp=0 is no whole number"),
            ("tp=two", "tp=two is no whole number"),
            ("zero=4", "zero=4 is no whole number from 0 to 3"),
            ("recompute=some", "neither none, selective, norms"),
            ("recompute=1/1", "neither none, selective, norms"),
            ("recompute=0", "neither none, selective, norms"),
            ("shard=0", "shard=0 is no whole number"),
            ("dp=8,shard=3", "shard=3 does not divide dp=8"),
            ("dp=2,dp=4", "dp is there twice"),
            ("offload=disk", "offload=disk is none of none, optimizer, parameters"),
            ("schedule=best", "schedule=best is none of gpipe, 1f1b"),
            ("group=4", "group=4 is for interleaved"),
            ("cp=0", "cp=0 is no whole number"),
            ("cp=2,cp-comm=mail", "cp-comm=mail is none of gather, ring, ulysses"),
            ("ep=0", "ep=0 is no whole number"),
            ("sp=1", "there is no \"sp=1\""),
        ] {
            let error = text.parse::<Strategy>().unwrap_err();
            assert!(error.what.contains(says) && error.help.contains("dp=4"), "{text}: {error}");
        }
    }

    /// As GPT-2.
    #[test]
    fn what_cannot_divide_a_model_is_refused() {
        let shape = ModelShape {
            vocabulary: 50257,
            block: 1024,
            layers: 12,
            heads: 12,
            embd: 768,
            family: Family::Gpt,
            experts: None,
        };
        for (text, says) in [
            ("tp=5", "12 heads cannot be divided"),
            ("tp=16,dp=2", "16 tensor ranks cannot share 12 heads"),
            ("pp=16", "16 stages cannot share 12 layers"),
            ("pp=4,chunks=4", "16 stages cannot share 12 layers"),
            ("chunks=2", "on a pipeline of 1 rank"),
            ("pp=2,chunks=2,schedule=gpipe", "gpipe runs 1 chunk per rank"),
            ("tp=7,sp", "cannot be divided"),
            ("cp=3", "cannot be cut into 6 equal chunks"),
            (
                "tp=4,cp=2,cp-comm=ulysses",
                "2 context ranks cannot exchange 3 key and value heads",
            ),
            (
                "tp=4,cp=512,sp,cp-order=contiguous",
                "4 tensor ranks cannot share the 2 positions",
            ),
        ] {
            let error = read(text).check(&shape).unwrap_err();
            assert!(error.what.contains(says), "{text}: {error}");
        }
    }

    const MIXTURE: ModelShape = ModelShape {
        vocabulary: 65,
        block: 16,
        layers: 2,
        heads: 4,
        embd: 16,
        family: Family::Gpt,
        experts: None,
    };

    #[test]
    fn experts_that_cannot_be_shared_are_refused() {
        let experts = Experts { count: 4, top_k: 2, ffn: 6, ..Experts::default() };
        let of = |experts| ModelShape { experts: Some(experts), ..MIXTURE };
        for (text, experts, says) in [
            ("dp=2", Experts { top_k: 0, ..experts }, "`top_k` 0 is not from 1 to 4"),
            ("dp=2", Experts { top_k: 5, ..experts }, "`top_k` 5 is not from 1 to 4"),
            ("tp=4", experts, "experts of width 6 cannot be divided among 4 tensor ranks"),
            ("tp=2,sp", experts, "route their own positions"),
            ("dp=3,ep=2", experts, "2 expert ranks cannot be found among 3 data ranks"),
            ("dp=3,ep=3", experts, "`experts` 4 cannot be divided evenly among 3 ranks"),
            ("dp=1", Experts { dense_layers: 2, ..experts }, "leaves none of 2 layers"),
            ("dp=1", Experts { dense_layers: 3, ..experts }, "leaves none of 2 layers"),
        ] {
            let error = read(text).check(&of(experts)).unwrap_err();
            assert!(error.what.contains(says) && !error.help.is_empty(), "{text}: {error}");
        }
        let all = Experts { top_k: 4, dense_layers: 1, ..experts };
        for text in ["dp=2,tp=2,ep=2", "dp=2,cp=2,ep=4"] {
            read(text).check(&of(all)).unwrap();
        }
        let error = read("dp=2,ep=2").check(&MIXTURE).unwrap_err();
        assert!(error.what.contains("no experts to share"), "{error}");
        let error = read("dp=3,ep=3").check(&of(experts)).unwrap_err();
        assert_eq!(error.help, "give `experts` 3 or 6, or other ranks");
        let few = Experts { count: 2, ..experts };
        let error = read("dp=3,ep=3").check(&of(few)).unwrap_err();
        assert_eq!(error.help, "give `experts` 3, or other ranks");
    }

    #[test]
    fn groups_that_experts_do_not_have_are_refused() {
        for (count, groups, top_k, says) in [
            (3, 1, 1, "`groups` 3 cannot divide 8 experts"),
            (0, 0, 1, "`groups` 0 cannot divide 8 experts"),
            (4, 0, 1, "`top_groups` 0 is not from 1 to 4"),
            (4, 5, 1, "`top_groups` 5 is not from 1 to 4"),
            (4, 1, 3, "`top_k` 3 is not from 1 to 2"),
        ] {
            let groups = Some(Groups { count, top_k: groups });
            let selection = Selection { groups, ..Selection::default() };
            let experts = Experts { count: 8, top_k, selection, ..Experts::default() };
            let error = read("dp=2").check_experts(&MIXTURE, &experts).unwrap_err();
            assert!(error.what.contains(says), "{error}");
        }
    }

    /// Each axis has its bound, and so has their product.
    #[test]
    fn a_product_that_overflows_is_refused_where_it_is_read() {
        for text in [
            "dp=16777216,tp=65536,pp=65536,cp=65536",
            "dp=16777216,cp=65536,tp=65536,pp=256",
            "dp=16777216,pp=128",
        ] {
            let error = text.parse::<Strategy>().unwrap_err();
            assert!(error.what.contains("is more than 2^30 ranks"), "{text}: {error}");
        }
        assert_eq!(read("dp=16777216,tp=64").ranks(), 1 << 30);
    }

    /// Nothing is exchanged where nothing is shared.
    #[test]
    fn an_exchange_belongs_to_shared_sequences() {
        assert_eq!(read("dp=2,cp-comm=ring,cp-order=contiguous"), read("dp=2"));
        let alone = Strategy { exchange: Exchange::Ring, ..Strategy::SINGLE };
        assert_eq!(alone.to_string(), "dp=1");
        assert_eq!(read("cp=2,cp-comm=ring").to_string(), "cp=2,cp-comm=ring");
    }

    #[test]
    fn what_the_trainer_does_not_run_is_refused() {
        for (text, says) in [
            ("dp=2,pp=2,zero=2", "zero=0 or zero=1"),
            ("dp=8,zero=3,shard=4", "leave shard out"),
            ("recompute=norms", "recompute=full"),
            ("tiles=2", "give zero=3"),
            ("zero=1,offload=parameters", "stage 3 offloads parameters"),
        ] {
            let error = read(text).ensure_trainable().unwrap_err();
            assert!(error.help.contains(says), "{text}: {error}");
        }
        for text in ["dp=2,pp=2,zero=1,recompute=full", "zero=3,tiles=2,offload=parameters"] {
            read(text).ensure_trainable().unwrap();
        }
    }
}
