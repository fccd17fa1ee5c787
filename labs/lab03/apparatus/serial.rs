//! The ranks' training beside that of one rank, which does the work of all.

use crate::flags::Args;
use anyhow::Result;
use kit::parity::{self, Replica, Trained};
use kit::report;
use kit::show::Screen;
use shardlab::comm::Comm;
use shardlab::tensor::Precision;
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
    const STEPS: usize = 3;
    let config = config.parity_check();
    let replica = |comm: &Comm| Replica::ddp(&config, text, comm);
    let by = args.all_reduce;
    let ours = parity::parallel(comm, replica(comm)?.all_reduce_by(by), STEPS)?;
    let serial = || parity::serial(replica(&Comm::alone())?, comm.size(), STEPS);
    let bound = Precision::F32.loss_bound();
    let Trained { losses, values, .. } = &ours;
    // The rounds of an algorithm add in an order of their own.
    let values = if by.is_none() { Some(&values[..]) } else { None };
    let same = parity::compare(comm, comm, screen, bound, losses, values, serial)?;
    if comm.rank() == 0 && args.log.all {
        report::legend(screen);
    }
    Ok(same)
}
