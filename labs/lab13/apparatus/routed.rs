//! What follows from routers' choices: copies of tokens that leave their rank.

use shardlab::model::Load;
use std::collections::BTreeSet;
use std::ops::Range;

/// Steps after which routers have settled; before, even balanced ones swing.
pub const ENOUGH: usize = 100;

/// What one rank's routers have chosen: sums over layers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Routed {
    pub tokens: u64,
    pub copies: u64,
    /// Copies for experts of other ranks.
    pub leaving: u64,
    /// Other ranks of each token's experts: what would leave if a token went to each rank once.
    pub ranks: u64,
}

impl Routed {
    /// Adds a layer's choices, where the rank holds the experts in `here`.
    pub fn add(&mut self, load: &Load, here: &Range<usize>) {
        self.tokens += load.tokens as u64;
        self.copies += load.chosen.len() as u64;
        let each = load.chosen.len() / load.tokens.max(1);
        let own = here.start / here.len();
        let travels = |choice: usize| {
            let rank = load.chosen[choice] as usize / here.len();
            let kept = load.kept.get(choice).is_none_or(|&kept| kept);
            (kept && rank != own).then_some(rank)
        };
        for token in 0..load.tokens {
            let others: Vec<usize> =
                (token * each..(token + 1) * each).filter_map(travels).collect();
            self.leaving += others.len() as u64;
            self.ranks += others.iter().collect::<BTreeSet<_>>().len() as u64;
        }
    }

    /// The sums, as they travel between ranks.
    pub fn to_array(self) -> [u64; 4] {
        [self.tokens, self.copies, self.leaving, self.ranks]
    }

    pub fn from_array([tokens, copies, leaving, ranks]: [u64; 4]) -> Routed {
        Routed { tokens, copies, leaving, ranks }
    }
}

/// Copies of a token that leave its rank if all of `ranks` get equally many: k(1 - 1/e).
pub fn even_copies(top: usize, ranks: usize) -> f64 {
    top as f64 * (1.0 - 1.0 / ranks as f64)
}

/// Other ranks of a token's experts if `top` of `number` are drawn evenly: (e-1)(1 - C(E-E/e, k) /
/// C(E, k)). The fraction is the probability that none of them is among a rank's E/e.
pub fn even_ranks(number: usize, top: usize, ranks: usize) -> f64 {
    let elsewhere = number - number / ranks;
    let missed = |i: usize| (elsewhere as f64 - i as f64).max(0.0) / (number - i) as f64;
    let none: f64 = (0..top).map(missed).product();
    (ranks as f64 - 1.0) * (1.0 - none)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rank 1 of 2 has experts 2 and 3 of 4.
    #[test]
    fn copies_leave_one_by_one_and_ranks_count_once() {
        let load = Load {
            chosen: vec![0, 1, 2, 3, 1, 3],
            copies: vec![1, 2, 1, 2],
            kept: Vec::new(),
            scores: Vec::new(),
            tokens: 3,
            parts: Vec::new(),
            z: 0.0,
        };
        let mut routed = Routed::default();
        routed.add(&load, &(2..4));
        assert_eq!(routed, Routed { tokens: 3, copies: 6, leaving: 3, ranks: 2 });
        assert_eq!(Routed::from_array(routed.to_array()), routed);
    }

    /// By hand: 1 - (6/8)(5/7) = 13/28 for each of three ranks.
    #[test]
    fn an_even_load_has_a_formula() {
        assert_eq!(even_copies(2, 4), 1.5);
        assert!((even_ranks(8, 2, 4) - 39.0 / 28.0).abs() < 1e-12);
        // All experts: every other rank.
        assert_eq!(even_ranks(8, 8, 4), 3.0);
        assert_eq!([even_ranks(8, 2, 1), even_copies(2, 1)], [0.0, 0.0]);
    }

    /// The formula is the mean over all choices of 2 out of 8 experts on 4 ranks.
    #[test]
    fn all_choices_have_the_formulas_mean() {
        let [mut ranks, mut copies, mut choices] = [0.0; 3];
        for a in 0..8u32 {
            for b in (0..8).filter(|&b| b != a) {
                let load = Load {
                    chosen: vec![a, b],
                    copies: Vec::new(),
                    kept: Vec::new(),
                    scores: Vec::new(),
                    tokens: 1,
                    parts: Vec::new(),
                    z: 0.0,
                };
                let mut routed = Routed::default();
                routed.add(&load, &(2..4));
                ranks += routed.ranks as f64;
                copies += routed.leaving as f64;
                choices += 1.0;
            }
        }
        assert!((ranks / choices - even_ranks(8, 2, 4)).abs() < 1e-12);
        assert!((copies / choices - even_copies(2, 4)).abs() < 1e-12);
    }
}
