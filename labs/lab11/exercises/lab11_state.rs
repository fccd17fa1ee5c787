//! lab11-state · 24 billion parameters on 96 devices
//!
//! A parameter takes 2 bytes, its gradient 4, its optimizer 12. What does a rank hold of these
//! under this plan?
//!
//! ```text
//! parameters        24 billion
//! data ranks        12, with ZeRO-1
//! tensor ranks       4
//! stages             2
//! ```

/// In GB: 1 GB is 10^9 bytes.
pub fn one_rank() -> f64 {
    todo!("a number of GB, with a point: 1.5")
}
