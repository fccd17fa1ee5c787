//! Memory that a step frees stays with the process.

use crate::alone;
use shardlab::data::{Corpus, Sampler, Sampling};
use shardlab::launch;
use shardlab::model::{Gpt, Pass};
use shardlab::plan::{Family, ModelShape};

/// Pages that this thread had to fetch from the kernel so far.
fn page_faults() -> i64 {
    // SAFETY: getrusage fills the structure it is handed, of which all zeros are a valid value.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
        usage.ru_minflt
    }
}

#[test]
fn a_step_takes_the_memory_that_the_one_before_freed() {
    if !alone("page_faults::a_step_takes_the_memory_that_the_one_before_freed") {
        return;
    }
    let shape = ModelShape {
        vocabulary: 65,
        block: 64,
        layers: 4,
        heads: 4,
        embd: 128,
        family: Family::Gpt,
        experts: None,
    };
    let faults = launch::run(2, |comm| {
        let corpus = Corpus::embedded()?;
        let gpt = Gpt::new(&shape)?;
        gpt.params.allocate(0);
        let sampler = Sampler {
            sampling: Sampling::Seeds,
            seed: 1,
            rank: comm.rank(),
            ranks: 2,
            batch: 12,
            block: 64,
        };
        let mut before = 0;
        for step in 0..6 {
            if step == 3 {
                before = page_faults();
            }
            let batch = sampler.batch(&corpus.train, step, 0);
            gpt.loss(&batch, &Pass::training(None))?.backward()?;
        }
        Ok((page_faults() - before) / 3)
    })
    .unwrap();
    // A step allocates some 28 MB, which is 7,000 pages.
    assert!(faults.iter().all(|&faults| faults < 500), "{faults:?} page faults a step");
}
