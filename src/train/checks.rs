//! The checks at a lab's end: for the reader's eyes, and for the exit code.

use super::{Config, Journal};
use crate::show::Screen;

/// What is known of a training's ranks at its end.
pub struct End {
    /// Of each rank's parameters.
    pub hashes: Vec<String>,
    /// What each rank drew, as [`Symptoms`](super::Symptoms) have it.
    pub drawn: Vec<u64>,
    /// Whether the comparison before training held.
    pub same_as_one_rank: bool,
}

/// Prints checks as they are made, and keeps what was found wrong.
pub struct Checks<'a> {
    screen: &'a Screen,
    failed: Vec<String>,
}

impl<'a> Checks<'a> {
    pub fn new(screen: &'a Screen) -> Checks<'a> {
        Checks { screen, failed: Vec::new() }
    }

    /// Prints one check and how it went; `otherwise` is the error that it leads to if it is not `sound`.
    pub fn hold(&mut self, sound: bool, what: &str, result: &str, otherwise: &str) {
        self.screen.say(self.screen.check(sound, what, result));
        if !sound {
            self.failed.push(otherwise.to_string());
        }
    }

    /// Whether all ranks' parameters have the same hash (hexadecimal digits).
    pub fn one_model(&mut self, hashes: &[String]) {
        let one_model = hashes.iter().all(|hash| hash == &hashes[0]);
        let ends = |hash: &String| format!("{}..{}", &hash[..4], &hash[hash.len() - 4..]);
        let short: Vec<String> = hashes.iter().take(4).map(ends).collect();
        let result = match (one_model, hashes.len()) {
            // All of them, or as many as are the same anyway.
            (true, 3..) => format!("{} x {}", hashes.len(), short[0]),
            (true, _) => short.join(" = "),
            (false, _) => short.join(", "),
        };
        self.hold(one_model, "all ranks hold the same model", &result, "the ranks hold different models");
    }

    /// Whether no two ranks drew the same data, by what each rank's [`Symptoms`](super::Symptoms) say was drawn: `count`
    /// pieces of what data consists of. Two or three pieces can be the same by chance, eight are not.
    pub fn own_data(&mut self, drawn: &[u64], count: usize, what: &str) {
        let own = (1..drawn.len()).all(|rank| !drawn[..rank].contains(&drawn[rank]));
        let chance = !own && count < 8;
        let check = format!("every rank drew {what} of its own");
        let result = if chance { format!("too few {what} to tell") } else { String::new() };
        self.hold(own || chance, &check, &result, &format!("ranks trained on the same {what}"));
    }

    /// What every training of a GPT must show at its end: one model, data of its own on every rank, a validation loss that
    /// fell, and what one rank trains.
    pub fn training(&mut self, config: &Config, journal: &Journal, end: &End) {
        self.one_model(&end.hashes);
        self.own_data(&end.drawn, config.steps * config.grad_accum * config.batch, "sequences");
        if let [first, .., last] = journal.evaluations[..] {
            let result = format!("{:.3} to {:.3}", first.val, last.val);
            let fell = last.val < first.val;
            self.hold(fell, "the validation loss fell", &result, "the validation loss did not fall");
        }
        self.parity(end.same_as_one_rank, config.ranks);
    }

    /// Takes in whether the comparison before training ([`parity::compare`](super::parity::compare)) held; it has printed
    /// its check already.
    pub fn parity(&mut self, held: bool, ranks: usize) {
        if !held {
            self.failed.push(format!("{ranks} ranks did not train what one rank trains"));
        }
    }

    /// What was found wrong, an error message each.
    pub fn failed(self) -> Vec<String> {
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(check: impl FnOnce(&mut Checks)) -> usize {
        let screen = Screen::plain();
        let mut checks = Checks::new(&screen);
        check(&mut checks);
        checks.failed().len()
    }

    #[test]
    fn any_two_ranks_with_the_same_data_are_noticed() {
        assert_eq!(failures(|checks| checks.own_data(&[1, 2, 3], 8, "samples")), 0);
        assert_eq!(failures(|checks| checks.own_data(&[1, 2, 2], 8, "samples")), 1);
        assert_eq!(failures(|checks| checks.own_data(&[1, 2, 2], 7, "samples")), 0);
    }

    #[test]
    fn one_other_model_is_noticed() {
        let hashes = |last: &str| ["abcdef", "abcdef", last].map(String::from);
        assert_eq!(failures(|checks| checks.one_model(&hashes("abcdef"))), 0);
        assert_eq!(failures(|checks| checks.one_model(&hashes("abcdee"))), 1);
    }

    #[test]
    fn a_comparison_that_did_not_hold_counts() {
        assert_eq!(failures(|checks| checks.parity(true, 2)), 0);
        assert_eq!(failures(|checks| checks.parity(false, 2)), 1);
    }
}
