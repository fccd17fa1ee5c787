//! lab04 · Who holds what
//!
//! What does each rank have to hold, and what does it cost to hold less?

fn main() {}
