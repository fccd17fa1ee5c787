//! Which exchange sends least: the formulas, beside each other.

use kit::show::{Plot, Screen, Series};
use shardlab::parallel::context::Exchange;

/// What a ring sends for each number of Ulysses, with `group` query heads for each key head: in the
/// forward pass, and over a step.
pub fn ring_beside_ulysses(ranks: usize, group: usize) -> [f64; 2] {
    let sent = |exchange: Exchange| exchange.sent(ranks, 1.0, group as f64, 1.0);
    let ring = sent(Exchange::Ring);
    let ulysses = sent(Exchange::Ulysses);
    [ring[0] / ulysses[0], (ring[0] + ring[1]) / (ulysses[0] + ulysses[1])]
}

/// The query heads for each key head of the models that are drawn.
const GROUPS: [(usize, &str); 3] = [(1, "1 query head"), (8, "8"), (16, "16 for each key head")];

/// Draws what a ring sends for each number of Ulysses.
pub fn show_bytes(screen: &Screen) {
    let titles = [
        "forward pass: bytes of a ring for each byte of Ulysses",
        "whole step: bytes of a ring for each byte of Ulysses",
    ];
    for (i, title) in titles.into_iter().enumerate() {
        let mut plot = Plot::new(title, "context ranks c").height(9).log_x().log_y();
        for (group, name) in GROUPS {
            let points = (1..=5)
                .map(|power| 1 << power)
                .map(|c| (c as f64, ring_beside_ulysses(c, group)[i]));
            plot = plot.series(Series::line(name, points));
        }
        let even = [2.0, 32.0].map(|c| (c, 1.0));
        screen
            .say(format!("{}\n", plot.series(Series::line("as many bytes", even)).render(screen)));
    }
    let words = "One query head for each key head is multi-head attention; Llama 3 70B has 8, 405B has 16. Above 1 Ulysses \
                 sends less. It takes at most as many ranks as each tensor rank has key heads.";
    screen.say(screen.wrap(words, 2));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ring sends fewer bytes up to c = 9 with 8 query heads
    /// for each key head, and up to 17 with 16.
    #[test]
    fn a_ring_sends_c_by_g_plus_one_of_ulysses() {
        for (ranks, group) in [(2, 1), (9, 8), (17, 16), (8, 1)] {
            let [forward, step] = ring_beside_ulysses(ranks, group);
            let expected = ranks as f64 / (group as f64 + 1.0);
            assert!((forward - expected).abs() < 1e-12 && (step - 1.5 * expected).abs() < 1e-12);
        }
        // Four ranks, 8 tokens, queries and keys 2 wide.
        assert_eq!(Exchange::Gather.sent(4, 8.0, 2.0, 2.0), [24.0, 48.0]);
        assert_eq!(Exchange::Ulysses.sent(4, 8.0, 2.0, 2.0), [12.0, 12.0]);
    }
}
