//! What the checks of short exercises call on the book's pages: each function has the name of
//! a reader's, and returns what the reader has typed there.

use kit::question;
use std::sync::OnceLock;

static TYPED: OnceLock<Vec<String>> = OnceLock::new();

/// Keeps what a reader has typed, for the one check that this process runs. Returns whether it is a
/// `T`: then the check can be run.
pub fn is_typed<T: Answer>(fields: Vec<String>) -> bool {
    T::read(&fields).is_some() && TYPED.set(fields).is_ok()
}

/// An answer that can be typed into a form.
pub trait Answer: Default {
    /// Reads the form's fields. None: they are none.
    fn read(fields: &[String]) -> Option<Self>;
}

impl Answer for f64 {
    fn read(fields: &[String]) -> Option<f64> {
        let [field] = fields else { return None };
        question::Typed { unit: String::new(), within: 0.0 }.read(field)
    }
}

impl Answer for u64 {
    fn read(fields: &[String]) -> Option<u64> {
        // All whole numbers up to here have a float of their own.
        const MOST: f64 = (1u64 << f64::MANTISSA_DIGITS) as f64;
        let number = f64::read(fields)?;
        (number.fract() == 0.0 && (0.0..=MOST).contains(&number)).then_some(number as u64)
    }
}

impl Answer for usize {
    fn read(fields: &[String]) -> Option<usize> {
        u64::read(fields)?.try_into().ok()
    }
}

impl<const N: usize> Answer for [usize; N]
where
    [usize; N]: Default,
{
    fn read(fields: &[String]) -> Option<[usize; N]> {
        let numbers: Option<Vec<usize>> = fields.chunks(1).map(usize::read).collect();
        numbers?.try_into().ok()
    }
}

impl Answer for (usize, usize) {
    fn read(fields: &[String]) -> Option<(usize, usize)> {
        <[usize; 2]>::read(fields).map(Into::into)
    }
}

impl Answer for char {
    fn read(fields: &[String]) -> Option<char> {
        let [field] = fields else { return None };
        field.trim().parse().ok()
    }
}

impl Answer for &'static str {
    fn read(fields: &[String]) -> Option<&'static str> {
        let [field] = fields else { return None };
        (!field.trim().is_empty()).then(|| &*field.clone().leak())
    }
}

fn given<T: Answer>() -> T {
    TYPED.get().and_then(|fields| T::read(fields)).unwrap_or_default()
}

macro_rules! functions {
    ($($(#[$of:meta])* $name:ident -> $answer:ty;)*) => {
        $($(#[$of])* pub fn $name() -> $answer { given() })*
    };
}

functions! {
    /// Of lab01-which.
    call -> &'static str;
    /// Of lab02-divide.
    divisor -> usize;
    /// Of lab03-replicas.
    two_models -> char;
    /// Of lab03-profile.
    read_off -> [usize; 3];
    /// Of lab05-slice.
    slice_of_c -> [usize; 2];
    /// Of lab06-bubble.
    waits -> u64;
    /// Of lab07-where.
    sender -> usize;
    /// Of lab08-after.
    first -> usize;
    /// Of lab09-pieces.
    found_at -> (usize, usize);
    /// Of lab09-control.
    smallest -> usize;
    /// Of lab10-settings.
    sequences -> usize;
    /// Of lab12-zigzag.
    chunks_of_rank_2 -> [usize; 2];
    /// Of lab13-counts.
    copies -> [usize; 4];
}

/// Of lab04-holds, and as a float of lab11-state.
pub fn one_rank<T: Answer>() -> T {
    given()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Answer>(fields: &[&str]) -> Option<T> {
        T::read(&fields.iter().map(|field| field.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn numbers_are_read_as_on_the_pages() {
        assert_eq!(read::<f64>(&["37,5"]), Some(37.5));
        assert_eq!(read::<u64>(&[" 1,600 "]), Some(1600));
        for wrong in ["", "six", "-1", "1.5", "1e300", "nan"] {
            assert_eq!(read::<usize>(&[wrong]), None, "{wrong}");
        }
    }

    #[test]
    fn an_answer_has_as_many_fields_as_its_form() {
        assert_eq!(read(&["1", "2"]), Some([1, 2]));
        assert_eq!(read(&["1", "2"]), Some((1, 2)));
        assert_eq!(read::<[usize; 2]>(&["1"]), None);
        assert_eq!(read::<usize>(&["1", "2"]), None);
        assert_eq!(read::<char>(&[" a "]), Some('a'));
        assert_eq!(read::<char>(&["ab"]), None);
        assert_eq!(read::<&str>(&[" "]), None);
        assert_eq!(read::<&str>(&["all-reduce"]), Some("all-reduce"));
    }
}
