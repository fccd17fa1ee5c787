//! The ranks' training beside that of one rank, which does the work of all.

use anyhow::Result;
use kit::parity::{self, Trained};
use kit::report;
use kit::show::Screen;
use shardlab::comm::Comm;
use shardlab::parallel::zero::Stage;
use shardlab::parallel::{Strategy, ZeroConfig};
use shardlab::train::{Config, Setup};

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
    let strategy = Strategy::data(config.ranks, zero.stage);
    let training = Setup::new(&config, &strategy).zero(zero.clone()).begin(comm)?;
    let ours = parity::parallel(training, text, STEPS)?;
    let serial = || {
        let one = Config { ranks: 1, ..config.clone() };
        let zero = config.zero(Stage::Ddp);
        let alone = Setup::new(&one, &Strategy::SINGLE).zero(zero).begin(&Comm::alone())?;
        parity::serial(alone, &config, text, STEPS)
    };
    let bound = parity::loss_bound(parity::rounds(&config));
    let Trained { losses, values, .. } = &ours;
    let same = parity::compare(comm, comm, screen, bound, losses, Some(values), serial)?;
    if comm.rank() == 0 {
        report::legend(screen);
    }
    Ok(same)
}
