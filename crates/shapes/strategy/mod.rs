//! A strategy: how ranks divide one training job.
//!
//! Reading order: `mod.rs` (what there is to choose), `text.rs` (how it is written), `layout.rs`
//! (which ranks form groups), `stage.rs` (what data ranks shard), `context.rs` and `slices.rs` (who
//! holds which positions), `schedule.rs` and `partition.rs` (a pipeline), `sharing.rs` (what cannot
//! be divided).

pub mod context;
mod layout;
mod partition;
pub mod schedule;
mod sharing;
mod slices;
mod stage;
mod text;

pub use context::{Exchange, Slicing};
pub use layout::{Axis, Coordinates, Layout, Order};
pub use partition::Partition;
pub use schedule::{Pipeline, Schedule};
pub use sharing::{ensure_context, ensure_tensor, ensure_tensor_llama};
pub use slices::Slices;
pub use stage::Stage;

use crate::error::BadInput;
use crate::model::{Family, ModelShape};
use crate::named::named;

/// How ranks divide one training job, and what each of them keeps.
///
/// Its text names what differs from one rank that keeps everything:
///
/// ```
/// use shapes::model::{Family, ModelShape};
/// use shapes::strategy::Strategy;
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
/// # Ok::<(), shapes::error::BadInput>(())
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
            Family::Llama(_) => ensure_tensor_llama(shape, tensor)?,
            _ => ensure_tensor(shape, tensor, self.sequence)?,
        }
        match shape.experts {
            Some(experts) => sharing::ensure_experts(shape, &experts, self)?,
            None if self.expert > 1 => {
                let what = format!("ep={}: this model has no experts to share", self.expert);
                return Err(BadInput::new(what, "leave ep out, or give the model experts"));
            }
            None => {}
        }
        let comm = (self.exchange, self.slicing);
        ensure_context(shape, (context, tensor), comm, self.sequence)?;
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

    /// Refuses what the library's trainer does not run; a plan may say it.
    ///
    /// # Errors
    /// If it shards gradients in a pipeline, shards nothing in groups or experts in them,
    /// recomputes parts of layers, offloads to disks, or tiles without ZeRO-3.
    pub fn ensure_trainable(&self) -> Result<(), BadInput> {
        let (what, help) = match self {
            _ if self.zero >= Stage::Two && self.pipeline > 1 => (
                "a pipeline adds up the gradients of several micro-batches, and ZeRO's stages 2 and 3 shard them in each".to_string(),
                "give zero=0 or zero=1 with pp".to_string(),
            ),
            _ if self.replicas > 1 && self.zero == Stage::Ddp => (
                format!("shard={}: ZeRO's stage 0 shards nothing", self.shard_ranks()),
                "give zero=1, zero=2 or zero=3, or leave shard out".to_string(),
            ),
            _ if self.replicas > 1 && self.expert > 1 => (
                format!(
                    "shard={} with ep={}: the trainer shards experts over all ranks that hold them",
                    self.shard_ranks(),
                    self.expert
                ),
                "leave shard out, or ep".to_string(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Experts, Groups, Selection};

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
            let error = read("dp=2")
                .check(&ModelShape { experts: Some(experts), ..MIXTURE })
                .unwrap_err();
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
            ("dp=8,shard=4", "zero=3, or leave shard out"),
            ("dp=8,zero=3,ep=2,shard=4", "leave shard out, or ep"),
            ("recompute=norms", "recompute=full"),
            ("tiles=2", "give zero=3"),
            ("zero=1,offload=parameters", "stage 3 offloads parameters"),
        ] {
            let error = read(text).ensure_trainable().unwrap_err();
            assert!(error.help.contains(says), "{text}: {error}");
        }
        for text in [
            "dp=2,pp=2,zero=1,recompute=full",
            "zero=3,tiles=2,offload=parameters",
            "dp=8,zero=3,shard=4",
            "dp=4,cp=2,tp=2,zero=1,shard=2",
        ] {
            read(text).ensure_trainable().unwrap();
        }
    }
}
