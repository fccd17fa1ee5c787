//! lab04-holds · What one rank holds

pub fn one_rank() -> u64 {
    20 + 20 / 10 + 40 / 10
}
