//! The ranks' training beside that of one rank, which does the work of all.

use anyhow::Result;
use kit::show::Screen;
use kit::{parity, report};
use shardlab::comm::Comm;
use shardlab::parallel::{Strategy, ZeroConfig};
use shardlab::train::Config;

/// Trains the small model for three steps on all ranks, sharded, and on one rank that takes their
/// batches in turn. Returns whether both trained the same model.
pub fn compare(
    comm: &Comm,
    screen: &Screen,
    config: &Config,
    text: &[u32],
    zero: &ZeroConfig,
) -> Result<bool> {
    let strategy = Strategy::data(config.ranks, zero.stage);
    let same = parity::same_as_one_rank(comm, screen, config, text, (&strategy, zero), true)?;
    if comm.rank() == 0 {
        report::legend(screen);
    }
    Ok(same)
}
