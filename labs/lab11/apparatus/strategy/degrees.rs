//! A strategy: how ranks divide a job. Its text is `dp=16,tp=8,pp=4,chunks=2,mb=1,zero=1,recompute=selective,sp`.

use serde::Serialize;
use shardlab::error::BadInput;
use std::fmt;
use std::str::FromStr;

/// The activations that the backward pass computes once more, so that the forward pass can discard them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Recompute {
    None,
    /// Attention's scores.
    Selective,
    /// Each layer, from its input.
    Full,
}

/// The state that is kept in the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Offloaded {
    None,
    /// The optimizer's state: ZeRO-Offloaded (Ren et al., arXiv 2101.06840).
    Optimizer,
    /// Also parameters and gradients, with ZeRO-3: ZeRO-Infinity (Rajbhandari et al., arXiv 2104.07857).
    Parameters,
}

/// How ranks divide a job. Tensor ranks are nearest to each other, then data ranks, then pipeline stages.
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
    pub recompute: Recompute,
    /// Sequence parallelism: tensor ranks also divide the residual stream.
    pub sequence: bool,
    pub offload: Offloaded,
    /// Parts in which ZeRO-3 gathers a layer: memory-centric tiling.
    pub tiles: usize,
}

impl Strategy {
    /// One device, one sequence at a time.
    pub const SINGLE: Strategy = Strategy {
        data: 1,
        tensor: 1,
        pipeline: 1,
        chunks: 1,
        micro_batch: 1,
        zero: 0,
        recompute: Recompute::None,
        sequence: false,
        offload: Offloaded::None,
        tiles: 1,
    };

    pub fn devices(&self) -> usize {
        self.data * self.tensor * self.pipeline
    }

    /// Micro-batches per replica and step.
    pub fn micro_batches(&self, batch: usize) -> usize {
        (batch / (self.data * self.micro_batch).max(1)).max(1)
    }

    /// Layers of the pipeline rank that has most.
    pub fn layers(&self, layers: usize) -> usize {
        layers.div_ceil(self.pipeline * self.chunks) * self.chunks
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
            parts.push(if self.zero == 0 {
                format!("DP {}", self.data)
            } else {
                format!("ZeRO-{} {}", self.zero, self.data)
            });
        }
        match self.offload {
            Offloaded::None => {}
            Offloaded::Optimizer => parts.push("offloaded optimizer".into()),
            Offloaded::Parameters => parts.push("offloaded parameters".into()),
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
        let Strategy {
            data,
            tensor,
            pipeline,
            chunks,
            micro_batch,
            zero,
            ..
        } = self;
        write!(
            f,
            "dp={data},tp={tensor},pp={pipeline},chunks={chunks},mb={micro_batch},zero={zero}"
        )?;
        let recompute = match self.recompute {
            Recompute::None => "none",
            Recompute::Selective => "selective",
            Recompute::Full => "full",
        };
        write!(
            f,
            ",recompute={recompute}{}",
            if self.sequence { ",sp" } else { "" }
        )?;
        match self.offload {
            Offloaded::None => {}
            Offloaded::Optimizer => write!(f, ",offload=optimizer")?,
            Offloaded::Parameters => write!(f, ",offload=parameters")?,
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
        const HELP: &str = "write it like dp=8,tp=2,pp=4,chunks=2,mb=1,zero=1,recompute=full,sp,offload=optimizer,tiles=2; \
                            what you leave out is 1, none or off";
        let mut strategy = Strategy::SINGLE;
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let bad = |what: String| BadInput::new(format!("--plan: {what}"), HELP);
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let number = |least: usize, most: usize| match value.parse::<usize>() {
                Ok(number) if (least..=most).contains(&number) => Ok(number),
                _ => Err(bad(format!(
                    "{name}={value} is no whole number from {least} to {most}"
                ))),
            };
            match name {
                "dp" => strategy.data = number(1, 1 << 24)?,
                "tp" => strategy.tensor = number(1, 1 << 16)?,
                "pp" => strategy.pipeline = number(1, 1 << 16)?,
                "chunks" => strategy.chunks = number(1, 1 << 10)?,
                "mb" => strategy.micro_batch = number(1, 1 << 20)?,
                "zero" => strategy.zero = number(0, 3)?,
                "tiles" => strategy.tiles = number(1, 1 << 10)?,
                "sp" if value.is_empty() => strategy.sequence = true,
                "recompute" => {
                    strategy.recompute = match value {
                        "none" => Recompute::None,
                        "selective" => Recompute::Selective,
                        "full" => Recompute::Full,
                        _ => {
                            return Err(bad(format!(
                                "recompute={value} is neither none, selective nor full"
                            )));
                        }
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
        assert_eq!(
            (strategy.devices(), strategy.to_string()),
            (512, all.to_string())
        );
        let offloaded = Strategy {
            offload: Offloaded::Parameters,
            zero: 3,
            tiles: 4,
            ..Strategy::SINGLE
        };
        assert_eq!(
            offloaded.to_string().parse::<Strategy>().unwrap(),
            offloaded
        );
        assert_eq!("".parse::<Strategy>().unwrap(), Strategy::SINGLE);
        assert_eq!(strategy.words(), "TP 8 + PP 4 + ZeRO-1 16");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("dp=0", "dp=0 is no whole number"),
            ("tp=two", "tp=two is no whole number"),
            ("zero=4", "zero=4 is no whole number from 0 to 3"),
            ("recompute=some", "neither none, selective nor full"),
            ("offload=disk", "neither none, optimizer nor parameters"),
            ("cp=2", "there is no \"cp=2\""),
            ("sp=1", "there is no \"sp=1\""),
        ] {
            let error = text.parse::<Strategy>().unwrap_err();
            assert!(
                error.what.contains(says) && error.help.contains("dp=8"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn uneven_stages_are_as_long_as_the_longest() {
        let stage = |pipeline, chunks| {
            Strategy {
                pipeline,
                chunks,
                ..Strategy::SINGLE
            }
            .layers(126)
        };
        assert_eq!(
            [stage(1, 1), stage(16, 1), stage(16, 8), stage(126, 1)],
            [126, 8, 8, 1]
        );
    }
}
