//! lab04-holds · What one rank holds

/// What one rank holds in each stage, in MB.
pub struct Answers {
    pub stage_1: u64,
    pub stage_2: u64,
    pub stage_3: u64,
}

pub fn answers() -> Answers {
    Answers {
        stage_1: 48 + 48 + 96 / 4,
        stage_2: 48 + 48 / 4 + 96 / 4,
        stage_3: 48 / 4 + 48 / 4 + 96 / 4,
    }
}
