//! The ranks' training beside that of one rank, which does the work of all.

use crate::flags::Args;
use anyhow::Result;
use kit::parity::{self, Trained};
use kit::report;
use kit::show::Screen;
use shardlab::comm::Comm;
use shardlab::parallel::zero::Stage;
use shardlab::parallel::{Strategy, ZeroConfig};
use shardlab::train::{Config, Setup, Training};

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
    let by = args.all_reduce;
    let zero = ZeroConfig { algorithm: by, ..config.zero(Stage::Ddp) };
    let strategy = Strategy::data(config.ranks, Stage::Ddp);
    let training = Setup::new(&config, &strategy).zero(zero).begin(comm)?;
    let ours = parity::parallel(training, text, STEPS)?;
    let serial = || {
        let one = Config { ranks: 1, ..config.clone() };
        let alone = Training::new(&one, &Strategy::SINGLE, &Comm::alone())?;
        parity::serial(alone, &config, text, STEPS)
    };
    let bound = parity::loss_bound(parity::rounds(&config));
    let Trained { losses, values, .. } = &ours;
    // The rounds of an algorithm add in an order of their own.
    let values = if by.is_none() { Some(&values[..]) } else { None };
    let same = parity::compare(comm, comm, screen, bound, losses, values, serial)?;
    if comm.rank() == 0 && args.log.all {
        report::legend(screen);
    }
    Ok(same)
}
