//! Each algorithm run once: is its result the collective's, and what did it send?

use super::call::Way;
use super::formula::{Formula, formula};
use kit::show::{Screen, bytes_decimal, table, thousands};
use shardlab::comm::{Comm, Reduce, Result};

/// One run of an algorithm on an array of 64-bit numbers.
pub struct Count {
    pub way: Way,
    /// Whether every rank ended with the result of the transport's own collective.
    pub right: bool,
    /// The most of any rank: rounds, messages, bytes.
    pub most: [u64; 3],
    /// The formula's figures, where a short formula exists.
    pub formula: Option<Formula>,
}

impl Count {
    /// Whether the counts are the formula's. If parts differ in length, bytes may differ by one
    /// element for each message.
    pub fn matches_formula(&self) -> bool {
        self.formula.is_none_or(|formula| {
            let off = (self.most[2] as f64 - formula.bytes).abs();
            self.most[..2] == [formula.rounds, formula.messages] && off <= 8.0 * self.most[1] as f64
        })
    }
}

/// Elements of the array. Up to eight ranks get parts of equal length.
pub const ELEMENTS: usize = 1680;

/// Runs `way`, which is an algorithm, and the transport's own collective on the same whole numbers.
pub fn count(comm: &Comm, way: Way) -> Result<Count> {
    let array = way.array(comm.size(), ELEMENTS);
    let bring = |len: usize| -> Vec<u64> {
        (0..len).map(|i| ((comm.rank() + 1) * 1009 + i * i) as u64).collect()
    };
    let (given, got) = way.lengths(comm, array);
    let give = bring(given);
    let mut expected = bring(got);
    let mut is = expected.clone();
    Way { algorithm: None, ..way }.run(comm, &give, &mut expected)?;
    let before = comm.traffic();
    way.run(comm, &give, &mut is)?;
    let traffic = comm.traffic() - before;

    let mut most = [traffic.rounds, traffic.messages, traffic.bytes, u64::from(is != expected)];
    comm.all_reduce(&mut most, Reduce::Max)?;
    let [rounds, messages, bytes, wrong] = most;
    let formula = way
        .task(comm.size(), array, size_of::<u64>())?
        .and_then(|task| formula(&task, size_of::<u64>()));
    Ok(Count {
        way,
        right: wrong == 0,
        most: [rounds, messages, bytes],
        formula,
    })
}

/// Counts beside formulas, one row per algorithm: the most that any rank does.
pub fn show(screen: &Screen, counts: &[&Count]) -> String {
    let row = |count: &&Count| {
        let [rounds, messages, bytes] = count.most;
        let mark = count.formula.map(|_| screen.verdict(count.matches_formula()));
        let words = count.formula.map_or("no short formula for this n", |formula| formula.words);
        vec![
            count.way.name().to_owned(),
            thousands(rounds),
            thousands(messages),
            bytes_decimal(bytes as f64),
            format!("{words} {}", mark.unwrap_or_default()),
        ]
    };
    table(
        screen,
        &["algorithm", "rounds", "messages", "sent", "formula"],
        counts.iter().map(row),
    )
}
