//! The ranks' training beside that of one rank, which does the work of all.

use crate::flags::Args;
use anyhow::Result;
use kit::show::Screen;
use kit::{parity, report};
use shardlab::comm::Comm;
use shardlab::parallel::zero::Stage;
use shardlab::parallel::{Strategy, ZeroConfig};
use shardlab::train::Config;

/// Trains the small model for three steps on all ranks, and again on one rank that processes all
/// their batches.
pub fn compare(
    comm: &Comm,
    screen: &Screen,
    args: &Args,
    config: &Config,
    text: &[u32],
) -> Result<bool> {
    let by = args.all_reduce;
    let zero = ZeroConfig { algorithm: by, ..config.zero(Stage::Ddp) };
    let strategy = Strategy::data(config.ranks, Stage::Ddp);
    // The rounds of an algorithm add in an order of their own.
    let to_the_bit = by.is_none();
    let same =
        parity::same_as_one_rank(comm, screen, config, text, (&strategy, &zero), to_the_bit)?;
    if comm.rank() == 0 && args.log.all {
        report::legend(screen);
    }
    Ok(same)
}
