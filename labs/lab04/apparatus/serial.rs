//! The ranks' training beside that of one rank, which does the work of all.

use anyhow::Result;
use kit::parity::{self, Replica, Trained};
use kit::report;
use kit::show::Screen;
use shardlab::comm::Comm;
use shardlab::parallel::ZeroConfig;
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
    const STEPS: usize = 3;
    let config = config.parity_check();
    let precision = zero.precision;
    let replica = Replica::zero(&config, text, comm, zero.clone())?;
    let ours = parity::parallel(comm, replica, STEPS)?;
    let serial = || {
        let one = Replica::alone(&config, text, precision)?;
        parity::serial(one, comm.size(), STEPS)
    };
    let bound = precision.loss_bound();
    let Trained { losses, values, .. } = &ours;
    let same = parity::compare(comm, comm, screen, bound, losses, Some(values), serial)?;
    if comm.rank() == 0 {
        report::legend(screen);
    }
    Ok(same)
}
