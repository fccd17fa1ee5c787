//! What lab00 draws: the numbers' way around the ring, and the job in a cluster's words.

pub mod info;
pub mod ring;
