//! Copies blocks of the factors into the order in which the kernels read them, rounded to bf16 and
//! in pairs of inner positions.
//!
//! A factor's inner positions lie side by side, or its rows (of the left factor) or columns (of the
//! right one) do. A kernel reads 32 columns of the right factor at once, so those stand side by
//! side in a packed block. Of the left factor it reads one number at a time: there the order of
//! memory may stay.

use crate::matrix::Matrix;
use crate::number::{Number, pair};
use crate::tile::{COLS, ROWS, Strides};

/// Columns of the right factor that are packed at a time.
pub const PACKED_COLS: usize = 48 * COLS;

/// The calling thread's packed blocks.
#[derive(Default)]
pub struct Packed {
    pub left: Vec<u32>,
    pub wide: Vec<[f32; 2]>,
    pub squares: Vec<Square>,
    pub right: Vec<u32>,
}

/// Room for so many pairs, which may hold anything, from the start of a cache line on: a tile's
/// row is as long.
fn room(packed: &mut Vec<u32>, pairs: usize) -> &mut [u32] {
    packed.resize(packed.len().max(pairs + SIDE), 0);
    let start = packed.as_ptr().align_offset(size_of::<[u32; SIDE]>()).min(SIDE);
    &mut packed[start..][..pairs]
}

/// `0..length` in ranges of at most `step`.
pub fn ranges(length: usize, step: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..length).step_by(step).map(move |start| start..length.min(start + step))
}

/// Packs the left factor `[rows, inner]`: `[row][pair]` if its rows are contiguous, else
/// `[pair][row]`. There are rows for whole tiles; no one reads the sums of the last few.
#[inline(always)]
pub fn left<T: Number>(a: Matrix<T>, packed: &mut Vec<u32>) -> Strides {
    let pairs = a.cols.div_ceil(2);
    let rows = a.rows.next_multiple_of(ROWS);
    packed.resize(rows * pairs, 0);
    if a.col_stride == 1 {
        for (row, packed) in packed.chunks_exact_mut(pairs).take(a.rows).enumerate() {
            pair_neighbours::<InLoops, T>(a.row(row), packed);
        }
        return Strides { row: pairs, pair: 1 };
    }
    for (p, packed) in packed.chunks_exact_mut(rows).enumerate() {
        let [even, odd] = pair_of_rows(a.t(), p);
        pair_rows::<InLoops, T>(even, odd, packed);
    }
    Strides { row: 1, pair: rows }
}

/// Packs the right factor `[inner, cols]` as `[panel of COLS columns][pair][column]`, in a multiple
/// of `step` pairs: the last ones are zeros. No one reads the sums of the columns that the last
/// panel has too many.
#[inline(always)]
pub fn right<'p, P: Pairing, T: Number>(
    b: Matrix<T>,
    step: usize,
    packed: &'p mut Vec<u32>,
) -> &'p [u32] {
    let filled = b.rows.div_ceil(2);
    let pairs = filled.next_multiple_of(step);
    let packed = room(packed, b.cols.next_multiple_of(COLS) * pairs);
    if b.col_stride != 1 {
        for (panel, packed) in packed.chunks_exact_mut(pairs * COLS).enumerate() {
            let cols = panel * COLS..b.cols.min((panel + 1) * COLS);
            pack_turned::<P, T>(b.cols(cols).t(), packed.as_chunks_mut().0);
        }
        return packed;
    }
    for p in 0..filled {
        let [even, odd] = pair_of_rows(b, p);
        let mut odd = odd.chunks(COLS);
        for (panel, even) in even.chunks(COLS).enumerate() {
            let odd = odd.next().unwrap_or_default();
            pair_rows::<P, T>(even, odd, &mut packed[(panel * pairs + p) * COLS..][..COLS]);
        }
    }
    if filled < pairs {
        packed
            .chunks_exact_mut(pairs * COLS)
            .for_each(|panel| panel[filled * COLS..].fill(0));
    }
    packed
}

/// Packs rows of the left factor, from `first` on, as squares: those of [`SIDE`] rows' pairs in
/// order, then those of the next rows. What is no row or no pair is zero.
#[inline(always)]
pub fn squares<P: Pairing, T: Number>(a: Matrix<T>, first: usize, squares: &mut [Square]) {
    let steps = a.cols.div_ceil(2 * SIDE);
    for (at, square) in squares.iter_mut().enumerate() {
        let first = first + at / steps * SIDE;
        let inner = at % steps * 2 * SIDE;
        if a.col_stride == 1 {
            square_of::<P, T>(a, first, inner, square);
            continue;
        }
        for (p, packed) in square.0.iter_mut().enumerate() {
            let [even, odd] = pair_of_rows(a.t(), inner / 2 + p);
            // The next rows of the left factor are the next columns here, far apart in memory.
            P::will_read(even.get(first + 2 * SIDE));
            P::will_read(odd.get(first + 2 * SIDE));
            let even = even.get(first..).unwrap_or_default();
            let odd = odd.get(first..).unwrap_or_default();
            if even.len() < SIDE {
                *packed = [0; SIDE];
            }
            pair_rows::<P, T>(even, odd, packed);
        }
        P::transpose(square);
    }
}

/// Rows `2 p` and `2 p + 1` of a row-major matrix; the second one is empty if there is none.
#[inline(always)]
fn pair_of_rows<T>(x: Matrix<'_, T>, p: usize) -> [&[T]; 2] {
    [2 * p, 2 * p + 1].map(|row| match row < x.rows {
        true => x.row(row),
        false => &[],
    })
}

/// How f32 are rounded and paired.
pub trait Pairing {
    /// Pairs of a row's neighbours.
    fn neighbours(row: &[f32], packed: &mut [u32]);
    /// Pairs of the numbers of two rows, of which the second one may be empty.
    fn of_rows(even: &[f32], odd: &[f32], packed: &mut [u32]);
    /// Exchanges rows and columns.
    fn transpose(square: &mut Square);
    /// Says that this number, if it is one, will be read later.
    fn will_read<T>(_number: Option<&T>) {}
}

/// In loops that the compiler makes vectors of.
pub struct InLoops;

impl Pairing for InLoops {
    #[inline(always)]
    fn neighbours(row: &[f32], packed: &mut [u32]) {
        neighbours_in_loops(row, packed);
    }

    #[inline(always)]
    fn of_rows(even: &[f32], odd: &[f32], packed: &mut [u32]) {
        rows_in_loops(even, odd, packed);
    }

    #[inline(always)]
    fn transpose(square: &mut Square) {
        transpose(&mut square.0);
    }
}

/// Pairs of a row's neighbours.
#[inline(always)]
fn pair_neighbours<P: Pairing, T: Number>(row: &[T], packed: &mut [u32]) {
    match T::f32s(row) {
        Some(row) => P::neighbours(row, packed),
        None => neighbours_in_loops(row, packed),
    }
}

/// Pairs of the numbers of two rows, of which the second one may be empty.
#[inline(always)]
fn pair_rows<P: Pairing, T: Number>(even: &[T], odd: &[T], packed: &mut [u32]) {
    match (T::f32s(even), T::f32s(odd)) {
        (Some(even), Some(odd)) => P::of_rows(even, odd, packed),
        _ => rows_in_loops(even, odd, packed),
    }
}

#[inline(always)]
fn neighbours_in_loops<T: Number>(row: &[T], packed: &mut [u32]) {
    let (pairs, rest) = row.as_chunks::<2>();
    for (packed, [even, odd]) in packed.iter_mut().zip(pairs) {
        *packed = T::pair(*even, *odd);
    }
    if let ([last], Some(packed)) = (rest, packed.last_mut()) {
        *packed = pair(last.rounded(), 0);
    }
}

#[inline(always)]
fn rows_in_loops<T: Number>(even: &[T], odd: &[T], packed: &mut [u32]) {
    if odd.is_empty() {
        packed.iter_mut().zip(even).for_each(|(to, even)| *to = pair(even.rounded(), 0));
        return;
    }
    for (to, (even, odd)) in packed.iter_mut().zip(even.iter().zip(odd)) {
        *to = T::pair(*even, *odd);
    }
}

/// Side of the squares that are transposed, and of a processor's tile.
pub const SIDE: usize = 16;
/// Pairs, a cache line a row.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub struct Square(pub [[u32; SIDE]; SIDE]);

/// A square of a row-major matrix's pairs of neighbours, with zeros where the matrix ends.
#[inline(always)]
fn square_of<P: Pairing, T: Number>(
    x: Matrix<T>,
    first_row: usize,
    first: usize,
    square: &mut Square,
) {
    let width = (2 * SIDE).min(x.cols - first);
    for (row, packed) in (first_row..).zip(&mut square.0) {
        if width < 2 * SIDE || row >= x.rows {
            *packed = [0; SIDE];
        }
        if row < x.rows {
            let row = &x.row(row)[first..][..width];
            match row.first_chunk::<{ 2 * SIDE }>() {
                Some(row) => pair_neighbours::<P, T>(row, packed),
                None => pair_neighbours::<P, T>(row, &mut packed[..width.div_ceil(2)]),
            }
        }
    }
}

/// Pairs of neighbours of a row-major matrix of at most [`COLS`] rows, transposed.
#[inline(always)]
fn pack_turned<P: Pairing, T: Number>(x: Matrix<T>, packed: &mut [[u32; COLS]]) {
    let mut square = Square::default();
    for (first, packed) in (0..x.cols).step_by(2 * SIDE).zip(packed.chunks_mut(SIDE)) {
        for side in (0..x.rows).step_by(SIDE) {
            square_of::<P, T>(x, side, first, &mut square);
            P::transpose(&mut square);
            for (packed, square) in packed.iter_mut().zip(&square.0) {
                packed[side..side + SIDE].copy_from_slice(square);
            }
        }
    }
}

/// Transposes in four steps, each of which exchanges halves: of the square, then of its quarters,
/// and so on. A step is shuffles of whole rows, which a vector unit has.
#[inline(always)]
fn transpose(square: &mut [[u32; SIDE]; SIDE]) {
    exchange::<8>(square);
    exchange::<4>(square);
    exchange::<2>(square);
    exchange::<1>(square);
}

#[inline(always)]
fn exchange<const STEP: usize>(square: &mut [[u32; SIDE]; SIDE]) {
    for upper in (0..SIDE).filter(|row| row & STEP == 0) {
        let lower = upper + STEP;
        let x = square[upper];
        let y = square[lower];
        for i in 0..SIDE {
            let is_left = i & STEP == 0;
            square[upper][i] = if is_left { x[i] } else { y[i - STEP] };
            square[lower][i] = if is_left { x[i + STEP] } else { y[i] };
        }
    }
}
