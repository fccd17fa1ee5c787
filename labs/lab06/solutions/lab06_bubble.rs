//! lab06-bubble · A rank's waits, on paper

pub fn waits() -> u64 {
    (9 - 1) * (2 + 3)
}
