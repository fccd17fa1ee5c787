//! Which stages a rank has room for, and which models are too small for the formulas.

use super::job::Job;
use kit::show::bytes_decimal;
use shardlab::error::BadInput;
use shardlab::parallel::ZeroConfig;
use shardlab::parallel::zero::Stage;
use shardlab::plan::zero_memory_offloaded;
use shardlab::train::Config;

/// The stages in which one rank holds at most `limit` bytes of parameters, gradients and optimizer
/// state; an error if `wanted` does not fit, or none does. Offloaded bytes do not count.
pub fn within(
    limit: Option<f64>,
    wanted: Option<Stage>,
    config: &Config,
    zero: &ZeroConfig,
) -> Result<Vec<Stage>, BadInput> {
    let numel = config.shape.parameters();
    let ranks = config.ranks;
    let takes = |stage: Stage, ranks: usize| {
        let bytes = if zero.offload.is_some() {
            zero_memory_offloaded(stage.number(), numel, ranks as u64, zero.bytes_each())
        } else {
            let job = Job { ranks, ..Job::of(config, zero) };
            job.holds(stage, job.muons.div_ceil(ranks as u64))
        };
        bytes.iter().sum::<u64>() as f64
    };
    let fits = |stage: &Stage| limit.is_none_or(|limit| takes(*stage, ranks) <= limit);
    let fitting: Vec<Stage> = Stage::ALL.into_iter().filter(fits).collect();
    let asked = wanted.unwrap_or(Stage::Three);
    if fits(&asked) && !fitting.is_empty() {
        return Ok(fitting);
    }
    let limit = limit.unwrap_or(f64::INFINITY);
    let what = format!(
        "--zero {} takes {} per rank, and --memory-limit is {}",
        asked.number(),
        bytes_decimal(takes(asked, ranks)),
        bytes_decimal(limit)
    );
    let help = match fitting.first() {
        Some(stage) => {
            let bytes = bytes_decimal(takes(*stage, ranks));
            format!("--zero {} takes {bytes} and fits", stage.number())
        }
        None => {
            let enough = (ranks..=1 << 20).find(|&ranks| takes(Stage::Three, ranks) <= limit);
            let would =
                enough.map_or(String::new(), |ranks| format!("; --zero 3 would on {ranks} ranks"));
            format!("no stage fits on {ranks} ranks{would}")
        }
    };
    Err(BadInput::new(what, help))
}

/// Refuses a model so small that padding could be more than 1% of a rank's share. Padding is at
/// most one element per tensor and rank, and the formulas leave it out.
pub fn ensure_padding_is_little(config: &Config) -> Result<(), BadInput> {
    let shape = &config.shape;
    let ranks = config.ranks;
    let numel = shape.parameters();
    let tensors = shape.decayed().0 + shape.not_decayed().0;
    if (100 * tensors * ranks) as u64 <= numel {
        return Ok(());
    }
    let what = format!(
        "{numel} parameters in {tensors} tensors are too few for {ranks} ranks: padding could be more than 1%, and the \
         formulas leave it out"
    );
    Err(BadInput::new(
        what,
        "give fewer --ranks or a larger model; --zero trains this one with one stage",
    ))
}
