//! The rules of the house, which read its files and run nothing: packages have floors, rooms know
//! those above them, files of a folder form no circle, a lesson is the lesson, one place trains.
//!
//! `cargo test --package rules` compiles in seconds, because it knows no other package.

mod imports;
mod one_trainer;
mod packages;
mod reading;
mod rooms;
mod siblings;
mod sources;
mod width;

/// The checkout.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
