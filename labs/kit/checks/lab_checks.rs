//! The checks at a lab's end, for the screen and for the exit code.

use super::parity::rounds;
use crate::show::{Screen, thousands};
use crate::{Evaluation, Journal, Lesson};
use anyhow::Result;
use shardlab::data::Corpus;
use shardlab::tensor::Precision;
use shardlab::train::Config;

/// The state of all ranks at the end of training.
pub struct End {
    /// The hash of each rank's parameters.
    pub hashes: Vec<String>,
    /// A hash of the data that each rank drew, from [`Symptoms`](crate::Symptoms).
    pub drawn: Vec<u64>,
    /// Whether the comparison before training held.
    pub same_as_one_rank: bool,
}

/// The ends of a hash (hexadecimal digits), for a screen.
pub fn short_hash(hash: &str) -> String {
    format!("{}..{}", &hash[..4], &hash[hash.len() - 4..])
}

/// Prints each check, and keeps the failures.
pub struct Checks<'a> {
    screen: &'a Screen,
    failed: Vec<String>,
    /// Files that could not be written.
    unwritten: Vec<String>,
    /// What the lab's ending names, besides its takeaway.
    more: Option<String>,
}

impl<'a> Checks<'a> {
    pub fn new(screen: &'a Screen) -> Checks<'a> {
        Checks {
            screen,
            failed: Vec::new(),
            unwritten: Vec::new(),
            more: None,
        }
    }

    /// Prints a claim, and what was found. `failure` is the error if the check has not `passed`.
    pub fn check(&mut self, passed: bool, claim: &str, found: &str, failure: &str) {
        self.screen.say(self.screen.check(passed, claim, found));
        if !passed {
            self.failed.push(failure.to_string());
        }
    }

    /// Checks that two values are equal, as the screen shows them.
    pub fn check_equal(&mut self, claim: &str, expected: &str, found: &str, failure: &str) {
        let equal = found == expected;
        let both = format!("expected {expected}, found {found}");
        self.check(equal, claim, if equal { found } else { &both }, failure);
    }

    /// Checks that something is so in `all` cases, of which it was so in `found`.
    pub fn check_all(&mut self, found: usize, all: usize, claim: &str, failure: &str) {
        let of = format!("{} of {}", thousands(found as u64), thousands(all as u64));
        self.check(found == all, claim, &of, failure);
    }

    /// Checks a comparison to the bit.
    pub fn check_bits(&mut self, equal: bool, claim: &str, failure: &str) {
        let found = if equal { "bitwise equal" } else { "different" };
        self.check(equal, claim, found, failure);
    }

    /// Checks that all ranks' parameters have the same hash (hexadecimal digits).
    pub fn one_model(&mut self, hashes: &[String]) {
        let one_model = hashes.iter().all(|hash| hash == &hashes[0]);
        let short: Vec<String> = hashes.iter().take(4).map(|hash| short_hash(hash)).collect();
        let result = match (one_model, hashes.len()) {
            // Three or more equal hashes are counted instead of printed.
            (true, 3..) => format!("{} x {}", hashes.len(), short[0]),
            (true, _) => short.join(" = "),
            (false, _) => short.join(", "),
        };
        self.check(
            one_model,
            "all ranks hold the same model",
            &result,
            "the ranks hold different models",
        );
    }

    /// Checks that no two ranks drew the same data. `drawn` has a hash of each rank's data, which
    /// are `count` samples of the kind `what`. Samples are shared if a rank with a smaller number
    /// drew them in the same steps. Two or three samples can be equal by chance, eight cannot.
    pub fn own_data(&mut self, drawn: &[u64], count: usize, what: &str) {
        let repeated =
            (1..drawn.len()).filter(|&rank| drawn[..rank].contains(&drawn[rank])).count();
        let chance = repeated > 0 && count < 8;
        let check = format!("every rank drew its own {what}");
        let result = match repeated {
            0 => String::new(),
            _ if chance => format!("too few {what} to tell"),
            _ => format!("expected 0 shared, found {}", thousands((repeated * count) as u64)),
        };
        self.check(
            repeated == 0 || chance,
            &check,
            &result,
            &format!("ranks trained on the same {what}"),
        );
    }

    /// The checks for every training of a GPT: all ranks hold one model, every rank drew its own
    /// data, the loss fell, and the ranks trained the same as one rank.
    pub fn training(&mut self, config: &Config, corpus: &Corpus, journal: &Journal, end: &End) {
        self.one_model(&end.hashes);
        self.own_data(&end.drawn, config.steps * config.grad_accum * config.batch, "sequences");
        if let [first, .., last] = journal.evaluations[..] {
            let val = format!("{:.3} to {:.3}", first.val, last.val);
            let train = format!("{:.3} to {:.3}", first.train, last.train);
            match Outcome::of(first, last, corpus.own) {
                fell @ (Outcome::Fell | Outcome::DidNotFall) => self.check(
                    fell == Outcome::Fell,
                    "the validation loss fell",
                    &val,
                    "the validation loss did not fall",
                ),
                Outcome::Rose => self.check(
                    false,
                    "the training loss fell",
                    &train,
                    "the training loss rose: lower --lr",
                ),
                Outcome::ByHeart => {
                    let chars = thousands(corpus.validation.len() as u64);
                    self.note(&format!(
                        "learned by heart: the training loss fell, {train}, and the validation loss \
                         rose, {val}, on {chars} characters; a longer text has more to learn"
                    ));
                }
                Outcome::TooFewSteps => self.note(&format!(
                    "too few steps to tell: training loss {train}, validation loss {val}; give \
                     more --steps"
                )),
            }
        }
        self.parity(end.same_as_one_rank, config.ranks);
    }

    /// Prints what is neither right nor wrong.
    pub fn note(&self, text: &str) {
        self.screen.say(self.screen.row("note", text));
    }

    /// Records whether the comparison before training ([`parity::compare`](super::parity::compare))
    /// held. The comparison has already printed its check.
    pub fn parity(&mut self, held: bool, ranks: usize) {
        if !held {
            self.failed.push(format!("{ranks} ranks did not train what one rank trains"));
        }
    }

    /// What to say of a deliberate mistake that no check has noticed. In bf16 they allow more.
    fn unnoticed(&self, config: &Config) -> Option<String> {
        let why = match rounds(config) {
            Precision::F32 => "here it changes nothing that they look at",
            Precision::Bf16 => {
                "it changes less than bf16 may round. In f32, the default, their bounds are narrower"
            }
        };
        self.failed.is_empty().then(|| format!("no check notices the mistake: {why}"))
    }

    /// Says so if none has noticed a deliberate mistake.
    pub(crate) fn tell_unnoticed(&self, config: &Config) {
        if let Some(unnoticed) = self.unnoticed(config) {
            self.note(&unnoticed);
        }
    }

    /// Lets the run end with its takeaway and the next lab if all checks have passed. `more` are
    /// flags to try, and may be empty.
    pub fn end_with(&mut self, more: &str) {
        self.more = Some(more.to_string());
    }

    /// Takes note of a file that could not be written. The run fails, after the verdict and the
    /// ending: a full disk does not take their place.
    pub fn wrote(&mut self, result: Result<()>) {
        self.unwritten.extend(result.err().map(|error| format!("{error:#}")));
    }

    /// Prints the ending of a run whose checks have passed. Returns an error message for each that
    /// has not, and for each file that could not be written.
    pub(crate) fn ended(self, lesson: &Lesson) -> Vec<String> {
        if let Some(more) = self.more.filter(|_| self.failed.is_empty()) {
            self.screen.say(lesson.ending(self.screen, &more));
        }
        [self.failed, self.unwritten].concat()
    }

    /// An error message for each failed check.
    pub fn failed(self) -> Vec<String> {
        self.failed
    }
}

/// What became of a training's losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The validation loss fell.
    Fell,
    /// It did not, on a text on which it must.
    DidNotFall,
    /// It did not, because the model learned the reader's text by heart, or had too few steps. Both
    /// are no fault of a lab.
    ByHeart,
    TooFewSteps,
    /// Even the loss on what was trained on rose. No text does that, but a learning rate can.
    Rose,
}

impl Outcome {
    /// `own` means the reader's own text. One percent is more than a few steps change, and five
    /// more than a warm-up.
    pub(super) fn of(first: Evaluation, last: Evaluation, own: bool) -> Outcome {
        match last.train / first.train {
            _ if last.val < first.val => Outcome::Fell,
            _ if !own => Outcome::DidNotFall,
            change if change < 0.99 => Outcome::ByHeart,
            change if change > 1.05 => Outcome::Rose,
            _ => Outcome::TooFewSteps,
        }
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

    /// In either type, and with gradients of the other.
    #[test]
    fn a_mistake_that_no_check_notices_is_told() {
        let config = Config::small(1, &Corpus::embedded().unwrap());
        let narrow = Config { reduce: Precision::Bf16, ..config.clone() };
        assert_eq!((rounds(&config), rounds(&narrow)), (Precision::F32, Precision::Bf16));
        let note = |passed, config: &Config| {
            let screen = Screen::plain();
            let mut checks = Checks::new(&screen);
            checks.check(passed, "a", "b", "c");
            checks.unnoticed(config)
        };
        assert_eq!(note(false, &narrow), None);
        assert!(note(true, &config).unwrap().contains("changes nothing that they look at"));
        assert!(note(true, &narrow).unwrap().contains("less than bf16 may round"));
    }

    #[test]
    fn what_became_of_the_losses_depends_on_whose_text_it_is() {
        let at = |train, val| Evaluation { step: 0, train, val };
        let first = at(3.0, 3.0);
        for (last, ours, own) in [
            (at(2.0, 2.0), Outcome::Fell, Outcome::Fell),
            (at(0.3, 8.0), Outcome::DidNotFall, Outcome::ByHeart),
            (at(2.999, 3.001), Outcome::DidNotFall, Outcome::TooFewSteps),
            (at(3.0, 3.0), Outcome::DidNotFall, Outcome::TooFewSteps),
            (at(9.0, 9.0), Outcome::DidNotFall, Outcome::Rose),
        ] {
            assert_eq!(Outcome::of(first, last, false), ours, "{last:?}");
            assert_eq!(Outcome::of(first, last, true), own, "{last:?}");
        }
    }

    #[test]
    fn values_that_differ_are_noticed() {
        let equal = |found: &str| failures(|checks| checks.check_equal("", "2", found, ""));
        assert_eq!([equal("2"), equal("3"), equal("")], [0, 1, 1]);
        let all = |found| failures(|checks| checks.check_all(found, 2, "", ""));
        assert_eq!([all(0), all(1), all(2)], [1, 1, 0]);
        let bits = |equal| failures(|checks| checks.check_bits(equal, "", ""));
        assert_eq!([bits(true), bits(false)], [0, 1]);
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
