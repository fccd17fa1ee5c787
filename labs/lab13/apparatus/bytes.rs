//! What the lesson sends beside what the library sends, for the same tokens.

use super::{Routed, even_copies, even_ranks};
use crate::sample::{Sample, TOKENS, WIDTH};
use anyhow::Result;
use kit::show::{Plot, Screen, Series, bytes_decimal, significant, table};
use shardlab::comm::{Comm, Reduce};
use shardlab::model::{Auxiliary, Balance, Pass};
use shardlab::parallel::ExpertParallel;
use shardlab::plan::Experts;

/// One layer's bytes over all ranks, forward and back, and the choices that they follow from.
pub struct Sent {
    pub rules: Experts,
    pub ranks: usize,
    /// By the lesson, which gathers all tokens.
    pub gathered: u64,
    /// By the library, which dispatches copies.
    pub dispatched: u64,
    pub routed: Routed,
}

/// Counts are numbers of 8 bytes.
const COUNT: u64 = 8;

/// Measures both on the lesson's sample.
///
/// # Errors
/// If a rank has ended.
pub fn gathered(group: &Comm, rules: Experts, seed: u64) -> Result<Sent> {
    let sample = Sample::new(group, rules, seed)?;
    let before = group.traffic().bytes;
    sample.lesson()?;
    let between = group.traffic().bytes;
    let balance = Balance::new(Auxiliary::default());
    sample.library(&Pass { balance: Some(balance.clone()), ..Pass::training(None) })?;
    let after = group.traffic().bytes;
    let here = ExpertParallel::new(group.clone()).share(rules.count);
    let mut routed = Routed::default();
    balance.loads().values().for_each(|load| routed.add(load, &here));
    let mut all = [&[between - before, after - between][..], &routed.to_array()].concat();
    group.all_reduce(&mut all, Reduce::Sum)?;
    let [gathered, dispatched, routed @ ..]: [u64; 6] = all[..].try_into()?;
    Ok(Sent {
        rules,
        ranks: group.size(),
        gathered,
        dispatched,
        routed: Routed::from_array(routed),
    })
}

impl Sent {
    /// By formula, the lesson's bytes: tokens, and beside them tables of weights.
    pub fn expected_gathered(&self) -> [u64; 2] {
        let copies = (self.ranks * (self.ranks - 1) * TOKENS) as u64;
        let tables = 2 * copies * self.rules.count as u64 * 4;
        [ways(1) * copies * WIDTH as u64 * 4, tables]
    }

    /// By formula, the library's bytes: copies, and beside them counts.
    pub fn expected_dispatched(&self) -> [u64; 2] {
        let copies = ways(1) * self.routed.leaving * WIDTH as u64 * 4;
        [copies, bytes_of_counts(self.ranks, self.rules.count, 1)]
    }
}

/// What all of `ranks` that share experts tell each other in a layer's exchanges: how many copies
/// each expert gets, in each of `forwards` passes; and in each exchange what everyone sends and
/// expects, which they compare before it.
pub fn bytes_of_counts(ranks: usize, number: usize, forwards: u64) -> u64 {
    let [ranks, number] = [ranks as u64, number as u64];
    let told = number * (ranks - 1);
    let compared = ranks * (ranks - 1) * 2 * ranks;
    COUNT * (forwards * told + ways(forwards) * compared)
}

/// Exchanges of a layer: two in each forward pass, and two in the backward pass.
pub fn ways(forwards: u64) -> u64 {
    2 * forwards + 2
}

/// A table: copies of a token that leave its rank, and bytes.
pub fn table_of_bytes(screen: &Screen, sent: &Sent) -> String {
    let Sent { rules, ranks, routed, .. } = sent;
    let copies = |x: f64| format!("{x:.2}");
    let each = |of_all: u64| copies(of_all as f64 / routed.tokens as f64);
    let bytes = |bytes: u64| bytes_decimal(bytes as f64);
    let once = ways(1) * routed.ranks * WIDTH as u64 * 4;
    let rows = vec![
        vec![
            "lesson: gathered".to_string(),
            copies(*ranks as f64 - 1.0),
            format!("e-1 = {}", ranks - 1),
            bytes(sent.gathered),
            format!("{} of weights", bytes(sent.expected_gathered()[1])),
        ],
        vec![
            "library: dispatched".to_string(),
            each(routed.leaving),
            format!("k(1-1/e) = {}", significant(even_copies(rules.top_k, *ranks), 3)),
            bytes(sent.dispatched),
            format!("{} of counts", bytes(sent.expected_dispatched()[1])),
        ],
        vec![
            "once to each rank".to_string(),
            each(routed.ranks),
            significant(even_ranks(rules.count, rules.top_k, *ranks), 3),
            bytes(once),
            "nobody sends so here".to_string(),
        ],
    ];
    let heads = ["one layer", "copies", "even load", "bytes", "of them"];
    let words = "A token's copies, one for each of its experts, that leave its rank; all bytes:";
    format!("{}\n{}", screen.wrap(words, 2), table(screen, &heads, &rows))
}

/// Experts and ranks of the picture.
const SHOWN: [(usize, usize); 2] = [(64, 4), (64, 16)];

/// Draws the copies that leave a token's rank, by the experts that it has.
pub fn show_bytes(screen: &Screen) {
    for (number, ranks) in SHOWN {
        let title =
            format!("copies of a token that leave its rank: {number} experts, {ranks} ranks");
        let series = |copies: &dyn Fn(usize) -> f64| -> Vec<(f64, f64)> {
            (1..=2 * ranks).map(|top| (top as f64, copies(top))).collect()
        };
        let plot = Plot::new(&title, "k, experts of each token")
            .height(9)
            .series(Series::line("dispatched", series(&|top| even_copies(top, ranks))))
            .series(Series::line("gathered", series(&|_| ranks as f64 - 1.0)))
            .series(Series::line(
                "once to each rank",
                series(&|top| even_ranks(number, top, ranks)),
            ));
        screen.say(format!("{}\n", plot.render(screen)));
    }
    let words = "An even load. Dispatched copies cross the gathered ones at k = e. A token that goes \
                 to each rank once, with what its experts there need to know, never sends more than \
                 either.";
    screen.say(screen.wrap(words, 2));
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::launch;

    /// What the ranks sent is what follows from their choices, and gathering wins where a token has
    /// more experts than there are ranks.
    #[test]
    fn formulas_say_what_is_sent() {
        for (ranks, top_k, gathering_wins) in
            [(1, 2, false), (2, 1, false), (2, 6, true), (4, 2, false)]
        {
            let rules = Experts { count: 8, top_k, normalized: true, ..Experts::default() };
            let sent = launch::run(ranks, |comm| gathered(&comm, rules, 3)).unwrap();
            for sent in &sent {
                assert_eq!(sent.gathered, sent.expected_gathered().iter().sum::<u64>());
                assert_eq!(sent.dispatched, sent.expected_dispatched().iter().sum::<u64>());
                let [gathered, dispatched] =
                    [sent.expected_gathered()[0], sent.expected_dispatched()[0]];
                assert_eq!(gathered < dispatched, gathering_wins, "{ranks} {top_k}");
            }
        }
    }
}
