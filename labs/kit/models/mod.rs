//! Published models' numbers.
//!
//! Reading order: `llamas.rs` (known by heart), `config_json.rs` (read from a model's file),
//! `number_format.rs` (what numbers become in 16 and 8 bits).

pub mod config_json;
pub mod llamas;
pub mod number_format;
