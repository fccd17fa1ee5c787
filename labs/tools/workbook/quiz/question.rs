//! What a question is: its text, its choices, and the thought that leads to each wrong one.

/// A question about an idea of a lab.
#[derive(Clone, Debug)]
pub struct Question {
    pub lab: String,
    /// The page of the book on which its answer is explained, and the section there.
    pub page: String,
    pub section: String,
    pub asks: String,
    /// Whether readers type a number, and do not see the choices.
    pub typed: bool,
    /// By size, or else by letters: their order says nothing about the answer.
    pub choices: Vec<Choice>,
    /// Why the answer is right, in a sentence.
    pub why: String,
}

/// An answer that someone may give.
#[derive(Clone, Debug)]
pub struct Choice {
    pub text: String,
    /// What someone has thought who gives this answer. Empty if it is right.
    pub mistake: String,
    size: f64,
}

impl Question {
    /// A question whose answer is an amount, which `shown` writes: `wrong` has what other thoughts
    /// lead to, and the thoughts.
    pub fn amount(
        [lab, section]: [&str; 2],
        asks: impl Into<String>,
        shown: impl Fn(f64) -> String,
        right: f64,
        wrong: &[(f64, &str)],
        why: impl Into<String>,
    ) -> Question {
        let choice = |&(size, mistake): &(f64, &str)| Choice {
            text: shown(size),
            mistake: mistake.into(),
            size,
        };
        let all = [(right, "")];
        let choices = all.iter().chain(wrong).map(choice).collect();
        Question::new([lab, section], asks.into(), choices, why.into())
    }

    /// A question whose answer is in words.
    pub fn words(
        [lab, section]: [&str; 2],
        asks: impl Into<String>,
        right: impl Into<String>,
        wrong: &[(String, &str)],
        why: impl Into<String>,
    ) -> Question {
        let choice =
            |(text, mistake): (String, &str)| Choice { text, mistake: mistake.into(), size: 0.0 };
        let right = [(right.into(), "")].into_iter();
        let choices = right.chain(wrong.iter().cloned()).map(choice).collect();
        Question::new([lab, section], asks.into(), choices, why.into())
    }

    fn new(
        [lab, section]: [&str; 2],
        asks: String,
        mut choices: Vec<Choice>,
        why: String,
    ) -> Question {
        choices.sort_by(|a, b| a.size.total_cmp(&b.size).then_with(|| a.text.cmp(&b.text)));
        Question {
            lab: lab.into(),
            page: lab.into(),
            section: section.into(),
            asks,
            typed: false,
            choices,
            why,
        }
    }

    /// The same question, which a page beside the lab's explains.
    pub fn on_page(self, page: &str) -> Question {
        Question { page: page.into(), ..self }
    }

    /// The same question, whose answer readers type.
    pub fn typed(self) -> Question {
        Question { typed: true, ..self }
    }

    /// The right choice's place.
    pub fn answer(&self) -> usize {
        let is_right = |choice: &Choice| choice.mistake.is_empty();
        self.choices.iter().position(is_right).unwrap_or(0)
    }

    pub fn right(&self) -> &Choice {
        &self.choices[self.answer()]
    }

    /// The choice that a reader's line means: its letter, or the number that was asked for.
    pub fn chosen(&self, line: &str) -> Option<&Choice> {
        let line = line.trim();
        if self.typed {
            return self.choices.iter().find(|choice| choice.is(line));
        }
        let letter = line.trim_end_matches([')', '.']).to_lowercase();
        let choices = self.choices.iter().enumerate();
        choices
            .filter(|(i, choice)| {
                letter == Choice::letter(*i) || choice.text.to_lowercase() == letter
            })
            .map(|(_, choice)| choice)
            .next()
    }
}

impl Choice {
    /// The letter of the choice at a place: `a`.
    pub fn letter(place: usize) -> String {
        char::from(b'a' + place as u8).to_string()
    }

    /// Whether a number that a reader has typed is this choice's, within a percent.
    pub fn is(&self, line: &str) -> bool {
        number(line).is_some_and(|given| (given - self.size).abs() <= 0.01 * self.size.abs())
    }
}

/// The number at the beginning of a line: `1,024 ms` is 1024.
pub fn number(line: &str) -> Option<f64> {
    let digits: String = line
        .trim()
        .chars()
        .filter(|c| !matches!(c, ',' | '_'))
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question {
        let wrong = [(1200.0, "All of them?"), (4.0, "One of them?")];
        let shown = |ms: f64| format!("{ms} ms");
        Question::amount(["lab00", "The idea"], "How long?", shown, 85.0, &wrong, "So long.")
    }

    #[test]
    fn a_letter_or_a_number_is_a_choice() {
        let question = question();
        assert_eq!(question.answer(), 1, "by size");
        let chosen =
            |question: &Question, line: &str| question.chosen(line).map(|c| c.text.clone());
        for line in ["b", " B) ", "85 ms"] {
            assert_eq!(chosen(&question, line).as_deref(), Some("85 ms"), "{line}");
        }
        assert_eq!(chosen(&question, "d"), None);
        let typed = question.typed();
        assert_eq!(chosen(&typed, "85.2ms").as_deref(), Some("85 ms"));
        assert_eq!(chosen(&typed, "1,200").as_deref(), Some("1200 ms"));
        for line in ["b", "86", "", "-85"] {
            assert_eq!(chosen(&typed, line), None, "{line}");
        }
    }
}
