//! A strategy: how ranks divide a job. Its text is
//! `dp=16,tp=8,pp=4,chunks=2,mb=1,zero=1,recompute=norms,sp`.

use serde::{Serialize, Serializer};
use shardlab::error::BadInput;
use std::fmt;
use std::str::FromStr;

/// The activations that the backward pass computes once more, so that the forward pass can discard
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recompute {
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
}

impl Recompute {
    /// The part of the layers that is computed again from its input.
    pub fn whole_layers(self) -> f64 {
        match self {
            Recompute::Full => 1.0,
            Recompute::OneIn(layers) => 1.0 / layers as f64,
            _ => 0.0,
        }
    }

    /// In a column of a table.
    pub fn cell(self) -> String {
        match self {
            Recompute::None => "-".into(),
            Recompute::Selective => "scores".into(),
            Recompute::Norms => "norms".into(),
            Recompute::Mlp => "MLP".into(),
            Recompute::OneIn(layers) => format!("1/{layers}"),
            Recompute::Full => "all".into(),
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
        }
    }
}

impl Serialize for Recompute {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// The state that is kept in the host's memory, or on its disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Offloaded {
    None,
    /// The optimizer's state: ZeRO-Offload (Ren et al., arXiv 2101.06840).
    Optimizer,
    /// Also parameters and gradients, with ZeRO-3: ZeRO-Infinity (Rajbhandari et al.,
    /// arXiv 2104.07857).
    Parameters,
}

/// How ranks divide a job. Tensor ranks are nearest to each other, then data ranks, then pipeline
/// stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Strategy {
    /// Replicas.
    #[serde(rename = "dp")]
    pub data: usize,
    #[serde(rename = "tp")]
    pub tensor: usize,
    #[serde(rename = "pp")]
    pub pipeline: usize,
    /// Chunks of layers (virtual stages) per pipeline rank. 1 is 1F1B, more is interleaved.
    pub chunks: usize,
    /// Sequences of a micro-batch.
    pub micro_batch: usize,
    pub zero: usize,
    /// Groups of data ranks that hold the same. Within a group, neighbours divide with ZeRO;
    /// between groups, ranks average their parts of the gradients (HSDP).
    pub replicas: usize,
    pub recompute: Recompute,
    /// Sequence parallelism: tensor ranks also divide the residual stream.
    pub sequence: bool,
    pub offload: Offloaded,
    /// Whether what is offloaded lies on the host's disks.
    pub nvme: bool,
    /// Parts in which ZeRO-3 gathers a layer: memory-centric tiling.
    pub tiles: usize,
}

impl Strategy {
    /// The micro-batches and the numbers of chunks that are tried.
    pub const MICRO_BATCHES: [usize; 6] = [1, 2, 4, 8, 16, 32];
    const CHUNKS: [usize; 8] = [1, 2, 3, 4, 5, 6, 8, 10];

    /// One device, one sequence at a time.
    pub const SINGLE: Strategy = Strategy {
        data: 1,
        tensor: 1,
        pipeline: 1,
        chunks: 1,
        micro_batch: 1,
        zero: 0,
        replicas: 1,
        recompute: Recompute::None,
        sequence: false,
        offload: Offloaded::None,
        nvme: false,
        tiles: 1,
    };

    /// Data ranks that divide with ZeRO.
    pub fn shard(&self) -> usize {
        self.data / self.replicas
    }

    pub fn devices(&self) -> usize {
        self.data * self.tensor * self.pipeline
    }

    /// Micro-batches per replica and step.
    pub fn micro_batches(&self, batch: usize) -> usize {
        (batch / (self.data * self.micro_batch).max(1)).max(1)
    }

    /// The numbers of chunks that are tried with so many pipeline ranks. A model's token table and
    /// head count as layers.
    pub fn chunks_for(&self, layers: usize) -> impl Iterator<Item = usize> {
        let pipeline = self.pipeline;
        let fit =
            move |chunks: &usize| *chunks == 1 || pipeline > 1 && pipeline * chunks <= layers + 2;
        Strategy::CHUNKS.into_iter().filter(fit)
    }

    /// Layers of a pipeline rank, over all its chunks. Where stages cannot be equal, the last of
    /// all has a layer less than the longest, then the first, and then more of them from the end:
    /// the head and the token table count as layers, as with Megatron-LM's
    /// `--account-for-embedding-in-pipeline-split`.
    pub fn layers_of(&self, layers: usize, rank: usize) -> usize {
        let stages = self.pipeline * self.chunks;
        let longest = layers.div_ceil(stages);
        let short = longest * stages - layers;
        // In the order in which they give a layer away.
        let gives = |stage: usize| match stage {
            0 if stages > 1 => 1,
            stage if stage + 1 == stages => 0,
            stage => stages - stage,
        };
        let of_rank = (0..self.chunks).map(|chunk| chunk * self.pipeline + rank);
        let given = of_rank.filter(|&stage| gives(stage) < short).count();
        longest * self.chunks - given
    }

    /// Layers of the pipeline rank that has most.
    pub fn layers(&self, layers: usize) -> usize {
        let of = |rank| self.layers_of(layers, rank);
        (0..self.pipeline.min(3)).map(of).max().unwrap_or(0)
    }

    /// The pipeline ranks of which one holds most: of those between the ends, the first has most
    /// micro-batches in flight.
    pub fn heaviest_ranks(&self) -> impl Iterator<Item = usize> {
        let last = self.pipeline - 1;
        (0..self.pipeline).filter(move |&rank| rank < 2 || rank == last)
    }

    /// Tensor ranks that share the residual stream.
    pub(super) fn stream(&self) -> usize {
        if self.sequence { self.tensor } else { 1 }
    }

    /// The strategy in the words of the labs: `DDP`, `ZeRO-3`, `TP 8 + PP 4 + ZeRO-1`.
    pub fn words(&self) -> String {
        let mut parts = Vec::new();
        if self.tensor > 1 {
            parts.push(format!("TP {}", self.tensor));
        }
        if self.pipeline > 1 {
            parts.push(format!("PP {}", self.pipeline));
        }
        if self.data > 1 {
            let Strategy { data, replicas, .. } = *self;
            let shard = self.shard();
            parts.push(match self.zero {
                0 => format!("DP {data}"),
                zero if replicas == 1 => format!("ZeRO-{zero} {data}"),
                3 => format!("HSDP {shard} x {replicas}"),
                zero => format!("ZeRO-{zero} {shard} x {replicas}"),
            });
        }
        let place = if self.nvme { " on NVMe" } else { "" };
        match self.offload {
            Offloaded::None => {}
            Offloaded::Optimizer => parts.push(format!("offloaded optimizer{place}")),
            Offloaded::Parameters => parts.push(format!("offloaded parameters{place}")),
        }
        if parts.is_empty() {
            "one device".into()
        } else {
            parts.join(" + ")
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Strategy { data, tensor, pipeline, chunks, micro_batch, zero, .. } = self;
        write!(
            f,
            "dp={data},tp={tensor},pp={pipeline},chunks={chunks},mb={micro_batch},zero={zero}"
        )?;
        if self.replicas > 1 {
            write!(f, ",shard={}", self.shard())?;
        }
        let sequence = if self.sequence { ",sp" } else { "" };
        write!(f, ",recompute={}{sequence}", self.recompute)?;
        match self.offload {
            Offloaded::None => {}
            Offloaded::Optimizer => write!(f, ",offload=optimizer")?,
            Offloaded::Parameters => write!(f, ",offload=parameters")?,
        }
        if self.nvme {
            write!(f, ",nvme")?;
        }
        if self.tiles > 1 {
            write!(f, ",tiles={}", self.tiles)
        } else {
            Ok(())
        }
    }
}

impl FromStr for Strategy {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Strategy, BadInput> {
        const HELP: &str = "write it like dp=8,tp=2,pp=4,chunks=2,mb=1,zero=3,shard=4,recompute=1/2,sp,offload=optimizer,nvme,tiles=2; \
                            what you leave out is 1, none or off, and shard all data ranks";
        let mut strategy = Strategy::SINGLE;
        let mut shard = None;
        let bad = |what: String| BadInput::new(format!("--plan: {what}"), HELP);
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let number = |least: usize, most: usize| match value.parse::<usize>() {
                Ok(number) if (least..=most).contains(&number) => Ok(number),
                _ => Err(bad(format!("{name}={value} is no whole number from {least} to {most}"))),
            };
            match name {
                "dp" => strategy.data = number(1, 1 << 24)?,
                "tp" => strategy.tensor = number(1, 1 << 16)?,
                "pp" => strategy.pipeline = number(1, 1 << 16)?,
                "chunks" => strategy.chunks = number(1, 1 << 10)?,
                "mb" => strategy.micro_batch = number(1, 1 << 20)?,
                "zero" => strategy.zero = number(0, 3)?,
                "shard" => shard = Some(number(1, 1 << 24)?),
                "tiles" => strategy.tiles = number(1, 1 << 10)?,
                "sp" if value.is_empty() => strategy.sequence = true,
                "nvme" if value.is_empty() => strategy.nvme = true,
                "recompute" => {
                    strategy.recompute = match value {
                        "none" => Recompute::None,
                        "selective" => Recompute::Selective,
                        "norms" => Recompute::Norms,
                        "mlp" => Recompute::Mlp,
                        "full" => Recompute::Full,
                        _ => match value.strip_prefix("1/").map(str::parse) {
                            Some(Ok(layers @ 2..=1000)) => Recompute::OneIn(layers),
                            _ => {
                                return Err(bad(format!(
                                    "recompute={value} is neither none, selective, norms, mlp, full nor a part of the layers \
                                     such as 1/2"
                                )));
                            }
                        },
                    }
                }
                "offload" => {
                    strategy.offload = match value {
                        "none" => Offloaded::None,
                        "optimizer" => Offloaded::Optimizer,
                        "parameters" => Offloaded::Parameters,
                        _ => {
                            return Err(bad(format!(
                                "offload={value} is neither none, optimizer nor parameters"
                            )));
                        }
                    }
                }
                _ => return Err(bad(format!("there is no {part:?} in a strategy"))),
            }
        }
        if let Some(shard) = shard {
            if !strategy.data.is_multiple_of(shard) {
                let data = strategy.data;
                return Err(bad(format!("shard={shard} does not divide dp={data}")));
            }
            strategy.replicas = strategy.data / shard;
        }
        Ok(strategy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read() {
        let all = "dp=16,tp=8,pp=4,chunks=2,mb=1,zero=1,recompute=selective,sp";
        let strategy: Strategy = all.parse().unwrap();
        assert_eq!((strategy.devices(), strategy.to_string()), (512, all.to_string()));
        let offloaded = Strategy {
            offload: Offloaded::Parameters,
            zero: 3,
            tiles: 4,
            ..Strategy::SINGLE
        };
        assert_eq!(offloaded.to_string().parse::<Strategy>().unwrap(), offloaded);
        assert_eq!("".parse::<Strategy>().unwrap(), Strategy::SINGLE);
        assert_eq!(strategy.words(), "TP 8 + PP 4 + ZeRO-1 16");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("dp=0", "dp=0 is no whole number"),
            ("tp=two", "tp=two is no whole number"),
            ("zero=4", "zero=4 is no whole number from 0 to 3"),
            ("recompute=some", "neither none, selective, norms"),
            ("recompute=1/1", "neither none, selective, norms"),
            ("recompute=1/0", "neither none, selective, norms"),
            ("shard=0", "shard=0 is no whole number"),
            ("dp=8,shard=3", "shard=3 does not divide dp=8"),
            ("nvme=1", "there is no \"nvme=1\""),
            ("offload=disk", "neither none, optimizer nor parameters"),
            ("cp=2", "there is no \"cp=2\""),
            ("sp=1", "there is no \"sp=1\""),
        ] {
            let error = text.parse::<Strategy>().unwrap_err();
            assert!(error.what.contains(says) && error.help.contains("dp=8"), "{text}: {error}");
        }
    }

    #[test]
    fn every_part_of_a_plan_is_read_again() {
        for text in [
            "dp=64,tp=8,pp=1,chunks=1,mb=1,zero=3,shard=8,recompute=1/4,sp",
            "dp=1,tp=1,pp=1,chunks=1,mb=1,zero=3,recompute=mlp,offload=parameters,nvme,tiles=4",
            "dp=8,tp=1,pp=1,chunks=1,mb=1,zero=0,recompute=norms",
        ] {
            let strategy: Strategy = text.parse().unwrap();
            assert_eq!(strategy.to_string(), text);
            let json = serde_json::to_value(strategy).unwrap();
            assert_eq!(json["recompute"], strategy.recompute.to_string());
        }
        let hybrid: Strategy = "dp=64,tp=8,zero=3,shard=8".parse().unwrap();
        assert_eq!((hybrid.words(), hybrid.replicas), ("TP 8 + HSDP 8 x 8".into(), 8));
    }

    /// Llama 3's 126 layers on 16 stages: the first and the last have one less (arXiv 2407.21783,
    /// section 3.3.2). BLOOM's 70 on 12 count the token table and the head as layers.
    #[test]
    fn uneven_stages_share_all_layers() {
        let stages = |layers: usize, pipeline: usize, chunks: usize| -> Vec<usize> {
            let strategy = Strategy { pipeline, chunks, ..Strategy::SINGLE };
            let all: Vec<usize> =
                (0..pipeline).map(|rank| strategy.layers_of(layers, rank)).collect();
            assert_eq!(all.iter().sum::<usize>(), layers);
            assert_eq!(all.iter().max(), Some(&strategy.layers(layers)), "{all:?}");
            all
        };
        let llama = stages(126, 16, 1);
        assert_eq!((llama[0], llama[15]), (7, 7));
        assert!(llama[1..15].iter().all(|&layers| layers == 8));
        assert_eq!(stages(126, 16, 8), llama);
        assert_eq!(stages(70, 12, 1)[..2], [5, 6]);
        assert_eq!(stages(61, 16, 1), [3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3, 3]);
        assert_eq!(stages(80, 8, 2), [10; 8]);
        assert_eq!(stages(126, 126, 1), [1; 126]);
        assert_eq!(stages(7, 2, 1), [4, 3]);
        assert_eq!(stages(5, 1, 1), [5]);
    }
}
