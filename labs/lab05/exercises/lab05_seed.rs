//! lab05-seed · Larger, and no better
//!
//! Broken on purpose: it trains, and the loss looks healthy. A team trains a model of 3 billion
//! parameters on two tensor ranks. After 1 of 11 trillion tokens it answers worse than their last
//! model did by then, which has 1.7 billion and was not cut.
//!
//! `begin` fills one rank's part of each matrix with random numbers, before the first step. With
//! seed 5, and one matrix of 2 rows and 4 columns, cut by columns:
//!
//! ```text
//!                          1 rank               rank 0 of 2     rank 1 of 2
//!
//! it should be   -0.23  0.50 -0.53 -0.80       -0.23  0.50     -0.53 -0.80
//!                -0.62 -0.24  0.97  0.02       -0.62 -0.24      0.97  0.02
//!
//! it is          the same                      -0.23  0.50     -0.23  0.50
//!                                              -0.53 -0.80     -0.53 -0.80
//! ```
//!
//! Repair it:
//!
//! - On any number of ranks the parts, put together, are one rank's matrices, to the bit.
//! - So what every rank holds whole is the same on all ranks.
//! - On one rank nothing changes.

use std::ops::Range;

/// How tensor ranks divide a matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cut {
    /// Every rank holds it whole, as a table of positions.
    Whole,
    /// Each rank has some rows that lie side by side.
    Rows,
    /// Each rank has some columns that lie side by side.
    Columns,
}

/// A matrix of the model. The number of ranks divides what is cut.
pub struct Matrix {
    pub rows: usize,
    pub columns: usize,
    pub cut: Cut,
}

/// A rank of the tensor group.
#[derive(Clone, Copy)]
pub struct Place {
    pub rank: usize,
    pub ranks: usize,
}

impl Matrix {
    /// The rows and the columns that a rank holds.
    pub fn part(&self, place: Place) -> (Range<usize>, Range<usize>) {
        let share = |all: usize| {
            let each = all / place.ranks;
            place.rank * each..(place.rank + 1) * each
        };
        match self.cut {
            Cut::Whole => (0..self.rows, 0..self.columns),
            Cut::Rows => (share(self.rows), 0..self.columns),
            Cut::Columns => (0..self.rows, share(self.columns)),
        }
    }
}

/// A generator of random numbers. Each changes its state, from which the next one follows.
pub struct Generator {
    state: u64,
}

impl Generator {
    pub fn new(seed: u64) -> Generator {
        Generator { state: seed }
    }

    /// The next number, between -1 and 1.
    pub fn draw(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x >> 33) as f64 / (1u64 << 30) as f64 - 1.0
    }
}

/// A rank's part of each matrix, row by row, before the first step. All ranks get the same seed.
pub fn begin(seed: u64, model: &[Matrix], place: Place) -> Vec<Vec<f64>> {
    let mut generator = Generator::new(seed);
    let mut parts = Vec::new();
    for matrix in model {
        let (rows, columns) = matrix.part(place);
        let mut part = Vec::new();
        for _ in 0..rows.len() * columns.len() {
            part.push(generator.draw());
        }
        parts.push(part);
    }
    parts
}
