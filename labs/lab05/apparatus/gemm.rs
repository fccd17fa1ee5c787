//! The product Y = X·A with the columns of A on two ranks, and with its rows: which rank holds
//! which elements.

use super::matrices::{Matrices, Matrix};
use kit::show::Screen;

const X: [[i64; 4]; 2] = [[1, 2, 0, 1], [3, 0, 1, 2]];
const A: [[i64; 4]; 4] = [[1, 0, 2, 1], [0, 1, 1, 0], [2, 1, 0, 3], [1, 2, 1, 0]];
const RANKS: usize = 2;

/// The rows of a matrix, with only those columns that are `here`.
fn columns(rows: &[[i64; 4]], here: impl Fn(usize) -> bool) -> Matrix {
    let row = |row: &[i64; 4]| row.iter().enumerate().map(|(j, &x)| here(j).then_some(x)).collect();
    rows.iter().map(row).collect()
}

/// The sum of `X[i][k]·A[k][j]` over those k that are `here`.
fn product(here: impl Fn(usize) -> bool) -> [[i64; 4]; 2] {
    X.map(|row| {
        std::array::from_fn(|j| (0..4).filter(|&k| here(k)).map(|k| row[k] * A[k][j]).sum())
    })
}

/// The product by columns of A, then by rows.
fn drawings() -> [Matrices<'static>; 2] {
    let on = |rank: usize| move |i: usize| i * RANKS / 4 == rank;
    let everywhere = |_| true;
    let y = product(everywhere);
    let by_columns = |rank| {
        vec![
            columns(&X, everywhere),
            columns(&A, on(rank)),
            columns(&y, on(rank)),
            columns(&y, everywhere),
        ]
    };
    let by_rows = |rank| {
        let rows = A
            .iter()
            .enumerate()
            .map(|(k, row)| row.iter().map(|&x| on(rank)(k).then_some(x)).collect());
        vec![
            columns(&X, on(rank)),
            rows.collect(),
            columns(&product(on(rank)), everywhere),
            columns(&y, everywhere),
        ]
    };
    let drawing = |after, by: &dyn Fn(usize) -> Vec<Matrix>| Matrices {
        heads: vec![("X", ""), ("A", "·"), ("Y, computed", "="), (after, "→")],
        ranks: (0..RANKS).map(by).collect(),
    };
    [drawing("all-gather", &by_columns), drawing("all-reduce", &by_rows)]
}

const WORDS: [&str; 2] = [
    "By columns: each rank has all of X and half of A's columns. It computes half of Y's columns, and they are complete.",
    "By rows: each rank has half of X's columns and the same half of A's rows. It computes all of Y, but only one summand.",
];

/// The product by columns of A or by its rows: as text for a screen, and as SVG.
pub fn gemm(screen: &Screen, by_rows: bool) -> (String, String) {
    let words = WORDS[usize::from(by_rows)];
    let drawing = &drawings()[usize::from(by_rows)];
    (
        format!("{}\n\n{}", screen.wrap(words, 2), drawing.render(screen)),
        drawing.svg(words),
    )
}

/// Both, and what an MLP makes of them.
pub fn draw_gemm(screen: &Screen) -> String {
    let words = "An MLP takes both: its first matrix by columns, GELU on the columns that are there, its second matrix by \
                 rows. No rank needs the gathered Y in between, and one all-reduce is left.";
    let [by_columns, by_rows] = [false, true].map(|by_rows| gemm(screen, by_rows).0);
    format!("{by_columns}\n\n{by_rows}\n\n{}", screen.wrap(words, 2))
}
