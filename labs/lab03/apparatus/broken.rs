//! Data parallelism with a piece left out, as `--break` asks for it.

use kit::{Break, Symptoms};
use shardlab::comm::Comm;
use shardlab::parallel::Strategy;
use shardlab::train::{Config, Setup};

/// A training of these settings from which `broken` is left out, and the ranks that take part.
/// `alone` are the settings of one rank.
pub fn setup<'a>(
    broken: Option<Break>,
    (config, alone): (&'a Config, &'a Config),
    strategy: &Strategy,
    comm: &Comm,
) -> (Setup<'a>, Comm) {
    match broken {
        // Each rank trains as if there were no other.
        Some(Break::NoAverage) => {
            (Setup::new(alone, &Strategy { data: 1, ..*strategy }), Comm::alone())
        }
        Some(Break::NoBroadcast) => {
            let seed = config.seed_of(comm.rank());
            let setup = Setup::new(config, strategy)
                .values(move |spec, elements, out| spec.initial(seed, elements, out));
            (setup, comm.clone())
        }
        Some(Break::SameBatches) | None => (Setup::new(config, strategy), comm.clone()),
    }
}

/// What `rank` of a training of `config` observes, which draws other batches if a mistake does.
pub fn symptoms(broken: Option<Break>, config: &Config, rank: usize) -> Symptoms {
    let mut symptoms = Symptoms::of(broken);
    symptoms.instead = match broken {
        Some(Break::SameBatches) => Some(config.sampler(0)),
        Some(Break::NoAverage) => Some(config.sampler(rank)), // alone, it would draw rank 0's
        Some(Break::NoBroadcast) | None => None,
    };
    symptoms
}
