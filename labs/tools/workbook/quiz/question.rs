//! What a question is: its text, its choices, and the thought that leads to each wrong one.

/// A question about an idea of a lab.
#[derive(Clone, Debug)]
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
}

/// An answer that someone may give.
#[derive(Clone, Debug)]
pub struct Choice {
    pub text: String,
    /// What someone has thought who gives this answer. Empty if it is right.
    pub mistake: String,
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
        let mut all = vec![(right, "")];
        all.extend_from_slice(wrong);
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let all = all.into_iter().map(|(size, mistake)| (shown(size), mistake));
        Question::new([lab, section], asks.into(), all, why.into())
    }

    /// A question whose answer is in words.
    pub fn words(
        [lab, section]: [&str; 2],
        asks: impl Into<String>,
        right: impl Into<String>,
        wrong: &[(String, &str)],
        why: impl Into<String>,
    ) -> Question {
        let mut all = vec![(right.into(), "")];
        all.extend_from_slice(wrong);
        all.sort();
        Question::new([lab, section], asks.into(), all.into_iter(), why.into())
    }

    fn new<'a>(
        [lab, section]: [&str; 2],
        asks: String,
        choices: impl Iterator<Item = (String, &'a str)>,
        why: String,
    ) -> Question {
        let choice = |(text, mistake): (String, &str)| Choice { text, mistake: mistake.into() };
        Question {
            lab: lab.into(),
            page: lab.into(),
            section: section.into(),
            asks,
            choices: choices.map(choice).collect(),
            why,
        }
    }

    /// The same question, which a page beside the lab's explains.
    pub fn on_page(self, page: &str) -> Question {
        Question { page: page.into(), ..self }
    }

    /// The right choice's place.
    pub fn answer(&self) -> usize {
        let is_right = |choice: &Choice| choice.mistake.is_empty();
        self.choices.iter().position(is_right).unwrap_or(0)
    }

    /// The choice with a letter.
    pub fn chosen(&self, letter: &str) -> Option<&Choice> {
        let place = (0..self.choices.len()).find(|&place| Choice::letter(place) == letter)?;
        Some(&self.choices[place])
    }
}

impl Choice {
    /// The letter of the choice at a place: `a`.
    pub fn letter(place: usize) -> String {
        char::from(b'a' + place as u8).to_string()
    }
}
