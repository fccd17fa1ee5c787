//! What a question is: its text, its choices, and the thought that leads to each wrong one. Each
//! lab has some: the first is asked before its run, the others inside pages, and the workbook's
//! quiz asks all.

use crate::show::{Screen, significant};
use anyhow::Result;
use serde::Serialize;

/// Computes a question, with its answer and what certain mistakes would give.
pub type Ask = fn() -> Result<Question>;

/// A question about an idea of a lab.
#[derive(Clone, Debug, Serialize)]
pub struct Question {
    pub lab: String,
    /// The page of the book on which its answer is explained, and the section there.
    pub page: String,
    pub section: String,
    pub asks: String,
    /// By size, or else by letters: their order says nothing about the answer.
    pub choices: Vec<Choice>,
    /// Why the answer is right, in a sentence.
    pub why: String,
    /// How the answer is typed, if it is a number that nobody can choose from a list.
    pub typed: Option<Typed>,
    /// What the lab's run shows if the answer is right.
    pub shown: String,
    /// The flags of that run on a page of the book.
    pub flags: String,
}

/// A number that a reader types.
#[derive(Clone, Debug, Serialize)]
pub struct Typed {
    /// It follows the number: ` MB`.
    pub unit: String,
    /// How far a number may be from a choice's, relative to that, to be the same.
    pub within: f64,
}

/// An answer that someone may give.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    pub text: String,
    /// Its number, in the unit in which it is typed.
    pub value: Option<f64>,
    /// What someone has thought who gives this answer. Empty if it is right.
    pub mistake: String,
}

impl Question {
    /// A question whose answer is an amount, which `shown` writes: `wrong` has what other thoughts
    /// lead to, and the thoughts.
    pub fn amount(
        names: [&str; 2],
        asks: impl Into<String>,
        shown: impl Fn(f64) -> String,
        right: f64,
        wrong: &[(f64, &str)],
        why: impl Into<String>,
    ) -> Question {
        let choice = |size: f64, mistake| Choice::new(shown(size), Some(size), mistake);
        let wrong = wrong.iter().map(|(size, mistake)| choice(*size, mistake));
        Question::new(names, asks.into(), choice(right, ""), wrong, why.into())
    }

    /// A question whose answer is in words.
    pub fn words(
        names: [&str; 2],
        asks: impl Into<String>,
        right: impl Into<String>,
        wrong: &[(impl AsRef<str>, impl AsRef<str>)],
        why: impl Into<String>,
    ) -> Question {
        let wrong = wrong
            .iter()
            .map(|(text, mistake)| Choice::new(text.as_ref().into(), None, mistake.as_ref()));
        Question::new(names, asks.into(), Choice::new(right.into(), None, ""), wrong, why.into())
    }

    fn new(
        [lab, section]: [&str; 2],
        asks: String,
        right: Choice,
        wrong: impl Iterator<Item = Choice>,
        why: String,
    ) -> Question {
        let mut choices: Vec<Choice> = wrong.chain([right]).collect();
        let size = |choice: &Choice| choice.value.unwrap_or(0.0);
        choices.sort_by(|a, b| size(a).total_cmp(&size(b)).then_with(|| a.text.cmp(&b.text)));
        Question {
            lab: lab.into(),
            page: lab.into(),
            section: section.into(),
            asks,
            choices,
            why,
            typed: None,
            shown: String::new(),
            flags: String::new(),
        }
    }

    /// The same question, whose answer is typed as a number with this unit. A share that is typed
    /// where percent are asked is told so.
    pub fn typed(mut self, unit: &str, within: f64) -> Question {
        let right = self.right().value;
        if let Some(percent) = right.filter(|_| unit.trim() == "%") {
            let share = percent / 100.0;
            let mistake = "That is the factor; asked is percent, a number 100 times as large.";
            self.choices.insert(0, Choice::new(significant(share, 3), Some(share), mistake));
        }
        Question { typed: Some(Typed { unit: unit.into(), within }), ..self }
    }

    /// The same question, whose answer a lab's run shows with these words.
    pub fn shown(self, words: impl Into<String>) -> Question {
        Question { shown: words.into(), ..self }
    }

    /// The same question, for a run with these flags on a page.
    pub fn with_flags(self, flags: &str) -> Question {
        Question { flags: flags.into(), ..self }
    }

    /// The same question, which a page beside the lab's explains.
    pub fn on_page(self, page: &str) -> Question {
        Question { page: page.into(), ..self }
    }

    /// The question beside `label`, and its choices, if the answer is one of them.
    pub fn in_rows(&self, screen: &Screen, label: &str) -> String {
        let mut lines = vec![screen.row(label, &self.asks)];
        if self.typed.is_none() {
            for (place, choice) in self.choices.iter().enumerate() {
                let line = format!("{}  {}", Choice::letter(place), choice.text);
                lines.push(screen.row("", &line));
            }
        }
        lines.join("\n")
    }

    /// The right choice.
    pub fn right(&self) -> &Choice {
        &self.choices[self.answer()]
    }

    /// The right choice's place.
    pub fn answer(&self) -> usize {
        let is_right = |choice: &Choice| choice.mistake.is_empty();
        self.choices.iter().position(is_right).unwrap_or(0)
    }

    /// What `said` would have been right for: a letter, or a number if the answer is typed. None if
    /// it is neither.
    pub fn judged(&self, said: &str) -> Option<Judged<'_>> {
        let Some(typed) = &self.typed else {
            return self.chosen(&said.to_lowercase()).map(Judged::Choice);
        };
        let number = typed.read(said)?;
        let apart = |choice: &Choice| {
            let value = choice.value.unwrap_or(f64::NAN);
            (number - value).abs() / value.abs().max(f64::MIN_POSITIVE)
        };
        let near = self.choices.iter().filter(|choice| apart(choice) <= typed.within);
        let nearest = near.min_by(|a, b| apart(a).total_cmp(&apart(b)));
        let right = self.right().value.unwrap_or(f64::NAN);
        Some(match nearest {
            Some(choice) => Judged::Choice(choice),
            None if number < right => Judged::TooLow,
            None => Judged::TooHigh,
        })
    }

    /// The choice with a letter.
    fn chosen(&self, letter: &str) -> Option<&Choice> {
        let place = (0..self.choices.len()).find(|&place| Choice::letter(place) == letter)?;
        Some(&self.choices[place])
    }
}

/// What an answer is.
#[derive(Clone, Copy, Debug)]
pub enum Judged<'a> {
    /// One of the choices: the right one has no mistake.
    Choice(&'a Choice),
    TooLow,
    TooHigh,
}

impl Judged<'_> {
    pub fn is_right(&self) -> bool {
        matches!(self, Judged::Choice(choice) if choice.mistake.is_empty())
    }

    /// What to tell a reader whose answer is wrong.
    pub fn mistake(&self) -> &str {
        match self {
            Judged::Choice(choice) => &choice.mistake,
            Judged::TooLow => "That is too low.",
            Judged::TooHigh => "That is too high.",
        }
    }
}

impl Typed {
    /// The number that a reader has typed, with or without its unit. `read` in
    /// `book/run/predict.js` is this function for the book's pages, and `book/browse.py` compares
    /// what the two read.
    pub fn read(&self, said: &str) -> Option<f64> {
        let number = pointed(said.trim().trim_end_matches(self.unit.trim()).trim());
        number.parse().ok().filter(|number: &f64| number.is_finite())
    }
}

impl Choice {
    fn new(text: String, value: Option<f64>, mistake: &str) -> Choice {
        Choice { text, value, mistake: mistake.into() }
    }

    /// The letter of the choice at a place: `a`.
    pub fn letter(place: usize) -> String {
        char::from(b'a' + place as u8).to_string()
    }
}

/// A number in Rust's form. Of points and commas the last one is the point where the other comes
/// before it (`1.234,5`) or it parts no thousands (`1,5`): half of Europe writes so.
fn pointed(text: &str) -> String {
    let Some(at) = text.rfind(',') else {
        // Two points cannot both be one.
        let parts = text.matches('.').count() > 1;
        return if parts { text.replace('.', "") } else { text.to_string() };
    };
    let (whole, rest) = (&text[..at], &text[at + 1..]);
    let parts_thousands = rest.len() == 3 && whole.contains(|c| ('1'..='9').contains(&c));
    let is_point = if whole.contains('.') {
        !rest.contains('.')
    } else {
        !whole.contains(',') && !rest.contains('.') && !parts_thousands
    };
    if is_point {
        return format!("{}.{rest}", whole.replace(['.', ','], ""));
    }
    text.replace(',', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_is_a_point_or_parts_thousands() {
        let read =
            ["1,5", "1,50", "0,125", ",5", "1,500", "12,000", "1,000,000", "1,000.5", "-2,5"];
        let right = ["1.5", "1.50", "0.125", ".5", "1500", "12000", "1000000", "1000.5", "-2.5"];
        assert_eq!(read.map(pointed), right);
        let both = ["1.234,5", "1.234.567,8", "1.234.567", "12.345,678", "1,234.5", "1.5", "1e-3"];
        let right = ["1234.5", "1234567.8", "1234567", "12345.678", "1234.5", "1.5", "1e-3"];
        assert_eq!(both.map(pointed), right);
    }

    #[test]
    fn a_typed_number_is_the_nearest_choice_or_too_low_or_too_high() {
        let wrong = [(20.0, "twice"), (10.4, "with its header")];
        let question = Question::amount(
            ["lab01", "The idea"],
            "how many?",
            |kb| format!("{kb} kB"),
            10.0,
            &wrong,
            "why",
        );
        let question = question.typed(" kB", 0.03);
        let said = |text: &str| match question.judged(text) {
            Some(judged) if judged.is_right() => "right".to_string(),
            Some(judged) => judged.mistake().to_string(),
            None => "no number".to_string(),
        };
        assert_eq!([said("10"), said(" 10.1 kB"), said("1e1")], ["right"; 3]);
        assert_eq!([said("10.3"), said("20.5")], ["with its header", "twice"]);
        assert_eq!([said("9"), said("-10")], ["That is too low."; 2]);
        assert_eq!(said("1,000"), "That is too high.");
        assert_eq!([said("ten"), said(""), said("nan"), said("inf")], ["no number"; 4]);
    }

    #[test]
    fn a_factor_is_no_percentage_and_is_told_so() {
        let names = ["lab12", "The run"];
        let question =
            Question::amount(names, "?", |x| format!("{x}%"), 175.0, &[(75.0, "more")], "why");
        let question = question.typed(" %", 0.03);
        let factor = question.judged("1.75").unwrap();
        assert!(!factor.is_right() && factor.mistake().starts_with("That is the factor"));
        assert!(question.judged("175 %").unwrap().is_right());
        assert_eq!(question.judged("75").unwrap().mistake(), "more");
        // Other units have no such factor.
        let tokens =
            Question::amount(names, "?", |x| format!("{x}"), 175.0, &[], "why").typed(" MB", 0.03);
        assert_eq!(tokens.judged("1.75").unwrap().mistake(), "That is too low.");
    }
}
