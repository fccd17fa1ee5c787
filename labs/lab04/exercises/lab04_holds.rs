//! lab04-holds · What one rank holds
//!
//! Four ranks train a model of 12 million parameters with AdamW, all in f32, as the lab does. How many MB does each rank hold in
//! ZeRO's stages? Leave out activations and padding. 1 MB is a million bytes.
//!
//! ```text
//! 12 million parameters        stage 0     stage 1     stage 2     stage 3
//!
//! parameters                     48 MB
//! gradients                      48 MB
//! optimizer: two moments         96 MB
//!                              ───────
//! one of 4 ranks holds          192 MB        ?           ?           ?
//! ```
//!
//! Paper is enough. `cargo run --bin lab04 -- --show holdings` shows who holds what.

/// What one rank holds in each stage, in MB.
pub struct Answers {
    pub stage_1: u64,
    pub stage_2: u64,
    pub stage_3: u64,
}

pub fn answers() -> Answers {
    todo!("Answers {{ stage_1: 0, stage_2: 0, stage_3: 0 }}, with your numbers")
}
