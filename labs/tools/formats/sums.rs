//! What the sums of many ranks lose: by lab01's algorithms, with numbers of 16 bits and of 32.

use anyhow::Result;
use half::bf16;
use kit::show::{Screen, percent, table as of_rows};
use shardlab::comm::algorithms::{Algorithm, all_reduce};
use shardlab::comm::{Comm, Element, Reduce};
use shardlab::data::Corpus;
use shardlab::launch;
use shardlab::model::Gpt;
use shardlab::tensor::{Precision, Stored};
use shardlab::train::Config;

/// The numbers of ranks.
const RANKS: [usize; 6] = [2, 4, 8, 16, 32, 64];

/// The error of an all-reduce of real gradients, as a share of the sum's norm.
pub fn table(screen: &Screen, corpus: &Corpus) -> Result<String> {
    let all = gradients(corpus)?;
    let mut rows = Vec::new();
    for (what, algorithm, precision) in [
        ("ring, added in bf16", Algorithm::Ring, Precision::Bf16),
        ("tree, added in bf16", Algorithm::RecursiveDoubling, Precision::Bf16),
        ("ring, added in f32", Algorithm::Ring, Precision::F32),
    ] {
        let mut row = vec![what.to_string()];
        for ranks in RANKS {
            let error = match precision {
                Precision::F32 => error::<f32>(&all[..ranks], algorithm)?,
                Precision::Bf16 => error::<bf16>(&all[..ranks], algorithm)?,
            };
            row.push(if error < 1e-6 {
                format!("{error:.0e}")
            } else {
                percent(error)
            });
        }
        rows.push(row);
    }
    let names = RANKS.map(|ranks| ranks.to_string());
    let mut head = vec!["error of a sum over ranks"];
    head.extend(names.iter().map(String::as_str));
    Ok(of_rows(screen, &head, &rows) + "\n")
}

/// The gradients that as many ranks have in a first step, as bf16 has them.
fn gradients(corpus: &Corpus) -> Result<Vec<Vec<f32>>> {
    let ranks = RANKS.into_iter().max().unwrap_or(1);
    let config = Config::small(ranks, corpus);
    let gpt = Gpt::new(&config.shape)?;
    gpt.params.allocate(config.seed);
    (0..ranks)
        .map(|rank| {
            gpt.params.zero_gradients();
            let batch = config.sampler(rank).batch(&corpus.train, 0, 0);
            gpt.loss(&batch, &config.pass(0, &batch.sequences))?.backward()?;
            Ok(Precision::Bf16.rounded(&gpt.params.gradients()))
        })
        .collect()
}

/// The error of the sum that ranks compute with numbers of type `T`, which all their parts have.
fn error<T: Stored + Element>(parts: &[Vec<f32>], algorithm: Algorithm) -> Result<f64> {
    let sums = launch::run(parts.len(), |comm: Comm| {
        let mut sum = T::narrowed(&parts[comm.rank()]);
        all_reduce(&comm, &mut sum, Reduce::Sum, algorithm)?;
        Ok(T::widened(sum))
    })?;
    let mut apart = 0.0;
    let mut whole = 0.0;
    for (i, sum) in sums[0].iter().enumerate() {
        let exact: f64 = parts.iter().map(|part| f64::from(part[i])).sum();
        apart += (f64::from(*sum) - exact).powi(2);
        whole += exact.powi(2);
    }
    Ok((apart / whole).sqrt())
}
