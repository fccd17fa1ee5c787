//! A quiz: one or two questions for most labs, whose answers the labs' own functions
//! compute. Some ask for an amount, and some show what a job did and ask what happened to it.
//!
//! No answer is written down. A right one is what the library computes, and a wrong one what it
//! computes after a certain mistake, which the reader is told. Where the answer is a sentence, the
//! library has computed the symptom that it explains. `ask.rs` asks, and the
//! other files have the questions: `ranks.rs` (labs 00 to 02), `replicas.rs` (03 and 04),
//! `model.rs` (05 to 07), `job.rs` (08 to 12).

mod ask;
mod job;
mod model;
mod ranks;
mod replicas;

pub use ask::{ask, list};
pub use kit::question::{Choice, Question};

use anyhow::Result;

/// All questions, in the order of the labs.
///
/// # Errors
/// If the library refuses to compute an answer.
pub fn questions() -> Result<Vec<Question>> {
    Ok(vec![
        ranks::local_rank()?,
        ranks::bytes_of_a_ring()?,
        ranks::few_bytes()?,
        ranks::three_weights()?,
        replicas::exposed_time()?,
        replicas::state_of_a_stage()?,
        model::activations_of_tensor_ranks()?,
        model::bubble()?,
        model::who_averages()?,
        model::two_tables()?,
        job::first_line_of_a_log()?,
        job::whose_slices()?,
        job::cache()?,
        job::equal_losses()?,
        job::fastest_plan()?,
        job::slowest_of_a_sequence()?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all() -> Vec<Question> {
        questions().unwrap()
    }

    /// A new lab need not have one.
    #[test]
    fn questions_go_through_the_labs_in_their_order() {
        let asked: Vec<String> = all().iter().map(|q| q.lab.clone()).collect();
        assert!(asked.is_sorted());
        let labs: BTreeSet<String> =
            kit::Course::read().unwrap().labs.into_iter().map(|lab| lab.name).collect();
        let asked: BTreeSet<String> = asked.into_iter().collect();
        assert!(asked.is_subset(&labs), "{asked:?}");
        assert!(["lab00", "lab06", "lab12"].iter().all(|lab| asked.contains(*lab)), "{asked:?}");
    }

    #[test]
    fn one_choice_is_right_and_all_differ() {
        for question in all() {
            let right = question.choices.iter().filter(|choice| choice.mistake.is_empty());
            assert_eq!(right.count(), 1, "{question:#?}");
            assert!(question.choices.len() >= 3, "{question:#?}");
            let texts: BTreeSet<&str> = question.choices.iter().map(|c| c.text.as_str()).collect();
            assert_eq!(texts.len(), question.choices.len(), "{question:#?}");
            assert!(question.asks.ends_with(['?', ':']), "{question:#?}");
            let sentences = question.choices.iter().map(|choice| &choice.mistake);
            for sentence in sentences.chain([&question.why]).filter(|text| !text.is_empty()) {
                assert!(sentence.ends_with(['.', '?']), "{sentence}");
            }
        }
    }

    /// Readers who look something up again find the page and the section.
    #[test]
    fn every_section_is_in_the_book() {
        let book = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../book/src");
        for Question { page, section, .. } in all() {
            let text = std::fs::read_to_string(book.join(format!("{page}.md"))).unwrap();
            let heading = |line: &str| line.trim_start_matches('#').trim() == section;
            let mut headings = text.lines().filter(|line| line.starts_with("##"));
            assert!(headings.any(heading), "{page}: {section}");
        }
    }

    /// The right choice does not always have the same place.
    #[test]
    fn the_place_of_a_choice_says_nothing() {
        let places: BTreeSet<usize> = all().iter().map(Question::answer).collect();
        assert!(places.len() >= 3, "{places:?}");
    }

    #[track_caller]
    fn answers(question: Result<Question>, by_hand: &str) {
        let question = question.unwrap();
        assert_eq!(question.choices[question.answer()].text, by_hand, "{question:#?}");
    }

    #[test]
    fn answers_are_those_of_paper_and_pencil() {
        // 2 (8-1)/8 of 1 GB.
        answers(ranks::bytes_of_a_ring(), "1.75 GB");
        // 10 - 0.1 x 2, 1 and 6: each rank's own gradient.
        answers(ranks::three_weights(), "nobody has averaged the gradients");
        // The link begins at 25 ms and carries 4 x 40 ms: until 185 ms, and the pass ends at 100.
        answers(replicas::exposed_time(), "85 ms");
        // 13 GB x (2 + 2 + 12/16).
        answers(replicas::state_of_a_stage(), "61.8 GB");
        // 3 of 3 + 8 slots of a forward and a backward pass.
        answers(model::bubble(), "27.3%");
        // 10 - 0.1 x 2 on stage 0 and 10 - 0.1 x 6 on stage 3, where one rank has 10 - 0.1 x 8.
        answers(
            model::two_tables(),
            "the sum of the table's two gradients, before the optimizer's step",
        );
        // 0.001 x 2^32 is 65 times the largest number of fp16, so it takes more than 6 halvings.
        answers(job::first_line_of_a_log(), "nothing");
        // 8 replicas hold 8 whole models.
        answers(
            job::equal_losses(),
            "8 replicas of the whole model: nobody has read the setting",
        );
        // Numbers 400 to 799 of slices of 300.
        answers(job::whose_slices(), "ranks 1 and 2");
    }
}
