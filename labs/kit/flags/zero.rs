//! The flags of ZeRO, as DeepSpeed names its settings.

use super::{one_of, positive};
use crate::help;
use shardlab::error::BadInput;
use shardlab::parallel::strategy::Offloaded;
use shardlab::parallel::zero::{Offload, OffloadFolder, Stage, Wrap};
use shardlab::parallel::{Strategy, ZeroConfig};
use shardlab::train::Config;
use std::path::PathBuf;

/// The state that ranks shard, and where they keep it.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = help::STRATEGY)]
pub struct ZeroFlags {
    /// The stage. Ranks shard: 0 nothing, 1 the optimizer state, 2 also gradients, 3 also
    /// parameters
    #[arg(long, value_parser = one_of::<Stage>(), value_name = "STAGE", group = "stage")]
    pub zero: Option<Stage>,
    /// Elements of gradients that are reduced together, in stages 0 to 2 [default: 65536]
    #[arg(long, value_name = "ELEMENTS", value_parser = positive(), hide_short_help = true)]
    pub reduce_bucket: Option<usize>,
    /// Elements of parameters that may be gathered ahead, in stage 3 [default: 262144; 65536 where
    /// lab04 compares stages]
    #[arg(long, value_name = "ELEMENTS", hide_short_help = true)]
    pub prefetch_bucket: Option<usize>,
    /// Gather parameters of up to this many elements once per step and keep them to its end, in
    /// stage 3 [default: 1000]
    #[arg(long, value_name = "ELEMENTS", hide_short_help = true)]
    pub persistence_threshold: Option<usize>,
    /// The parameters that are gathered together, in stage 3 [default: blocks]
    #[arg(long, value_parser = one_of::<Wrap>(), hide_short_help = true)]
    pub wrap: Option<Wrap>,
    /// Cut each matrix of the MLPs into this many tiles, each gathered alone, in stage 3 [default:
    /// 1]
    #[arg(long, hide_short_help = true)]
    pub tiles: Option<usize>,
    /// Keep the optimizer state, and in stage 3 parameters, in the host's memory (cpu), or in files
    /// in this folder with a small window in memory
    #[arg(long, value_name = "cpu|DIR")]
    pub offload: Option<PathBuf>,
    /// Stop the backward pass during each reduction of gradients
    #[arg(long, hide_short_help = true)]
    pub no_overlap: bool,
}

impl ZeroFlags {
    /// Takes what a strategy says of ZeRO. A flag that says the same was refused.
    pub fn take(&mut self, strategy: &Strategy) {
        self.zero = Some(strategy.zero);
        if strategy.offload != Offloaded::None {
            self.offload = Some(PathBuf::from("cpu"));
        }
        if strategy.tiles > 1 {
            self.tiles = Some(strategy.tiles);
        }
    }

    /// Checks the flags. Without a stage, the stage is 0 and the flags of all stages count.
    pub fn resolve(&self, config: &Config) -> Result<ZeroConfig, BadInput> {
        let default = config.zero(self.zero.unwrap_or_default());
        let of_stage_3 = [
            ("prefetch-bucket", self.prefetch_bucket.is_some()),
            ("persistence-threshold", self.persistence_threshold.is_some()),
            ("wrap", self.wrap.is_some()),
            ("tiles", self.tiles.is_some()),
        ];
        let given = of_stage_3.into_iter().find(|(_, given)| *given);
        if let (Some((flag, _)), Some(stage)) =
            (given, self.zero.filter(|&stage| stage != Stage::Three))
        {
            let what = format!(
                "--{flag} is for gathered parameters, and stage {} gathers none",
                stage.number()
            );
            return Err(BadInput::new(what, format!("give --zero 3, or leave --{flag} out")));
        }
        if self.zero == Some(Stage::Three) && self.reduce_bucket.is_some() {
            let what = "--reduce-bucket is not for stage 3, which reduces the gradients of a unit together";
            return Err(BadInput::new(what, "give --wrap to change what a unit is"));
        }
        let offload = match self.offload.clone() {
            None => None,
            // DeepSpeed's name for this device. A folder of this name is ./cpu.
            Some(device) if device.as_os_str() == "cpu" => Some(Offload::Host),
            Some(folder) => {
                let folder = OffloadFolder::to(folder);
                folder.file()?;
                Some(Offload::Files(folder))
            }
        };
        Ok(ZeroConfig {
            offload,
            reduce_bucket: self.reduce_bucket.unwrap_or(default.reduce_bucket),
            prefetch_bucket: self.prefetch_bucket.unwrap_or(default.prefetch_bucket),
            persistence_threshold: self
                .persistence_threshold
                .unwrap_or(default.persistence_threshold),
            wrap: self.wrap.unwrap_or(default.wrap),
            overlap: !self.no_overlap,
            ..default
        })
    }

    /// The number of tiles into which stage 3 cuts the matrices of MLPs that are `embd` wide.
    pub fn tiles(&self, embd: usize) -> Result<usize, BadInput> {
        let tiles = self.tiles.unwrap_or(1);
        if tiles == 0 || !embd.is_multiple_of(tiles) {
            let what = format!("--tiles {tiles} does not divide --embd {embd}");
            return Err(BadInput::new(
                what,
                "give 2, 4 or 8: tiles are equal parts of a matrix's rows",
            ));
        }
        Ok(tiles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use shardlab::data::Corpus;
    use shardlab::tensor::Precision;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        zero: ZeroFlags,
    }

    #[test]
    fn every_flag_arrives() {
        let run = Config {
            precision: Precision::Bf16,
            ..Config::small(2, &Corpus::embedded().unwrap())
        };
        let config = |flags: &str| {
            let words = format!("program {flags}");
            Program::parse_from(words.split_whitespace()).zero.resolve(&run).unwrap()
        };
        let three = config(
            "--zero 3 --prefetch-bucket 7 --persistence-threshold 8 --wrap model --offload .",
        );
        assert_eq!(
            (three.stage, three.precision, three.wrap),
            (Stage::Three, Precision::Bf16, Wrap::Model)
        );
        assert_eq!(
            (three.prefetch_bucket, three.persistence_threshold, three.overlap),
            (7, 8, true)
        );
        let Some(Offload::Files(folder)) = three.offload else {
            panic!("--offload . names a folder");
        };
        assert_eq!(folder.dir, PathBuf::from("."));
        let host = config("--offload cpu").offload;
        assert!(matches!(host, Some(Offload::Host)));
        let one = config("--zero 1 --reduce-bucket 9 --no-overlap");
        assert_eq!((one.stage, one.reduce_bucket, one.overlap), (Stage::One, 9, false));
        assert_eq!(
            (one.precision, one.reduce, one.offload.is_none(), one.adamw),
            (Precision::Bf16, Precision::F32, true, run.adamw)
        );
    }
}
