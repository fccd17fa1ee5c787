//! lab04-holds · What one rank holds

pub fn one_rank() -> u64 {
    60 + 60 / 10 + 120 / 10
}
