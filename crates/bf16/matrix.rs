//! Views of slices as matrices.

use std::ops::Range;

/// A view of a slice as a matrix: element (r, c) has the offset `r * row_stride + c * col_stride`.
/// One of the strides is 1.
#[derive(Clone, Copy)]
pub struct Matrix<'a, T = f32> {
    pub(crate) data: &'a [T],
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) row_stride: usize,
    pub(crate) col_stride: usize,
}

/// Whether so many rows and columns are inside of `length` elements, with `stride` from one row's
/// start to the next row's. A sum that overflows is outside.
#[inline]
pub(crate) fn ends_inside(length: usize, [rows, cols]: [usize; 2], stride: usize) -> bool {
    if rows == 0 || cols == 0 {
        return true;
    }
    let last = (rows - 1).checked_mul(stride);
    last.and_then(|last| last.checked_add(cols)).is_some_and(|end| end <= length)
}

impl<'a, T> Matrix<'a, T> {
    /// A row-major matrix with contiguous rows.
    pub fn new(data: &'a [T], rows: usize, cols: usize) -> Matrix<'a, T> {
        Matrix::strided(data, rows, cols, cols)
    }

    /// A row-major matrix with `stride` elements from one row's start to the next row's: a block of
    /// columns of a wider matrix.
    ///
    /// # Panics
    ///
    /// If it ends outside `data`.
    pub fn strided(data: &'a [T], rows: usize, cols: usize, stride: usize) -> Matrix<'a, T> {
        assert!(
            ends_inside(data.len(), [rows, cols], stride),
            "the matrix ends outside its slice"
        );
        Matrix { data, rows, cols, row_stride: stride, col_stride: 1 }
    }

    /// A view of some of the rows.
    ///
    /// # Panics
    ///
    /// If the matrix does not have them.
    pub fn rows(self, rows: Range<usize>) -> Matrix<'a, T> {
        assert!(
            rows.start <= rows.end && rows.end <= self.rows,
            "the matrix has {} rows, not {rows:?}",
            self.rows
        );
        Matrix {
            data: &self.data[rows.start * self.row_stride..],
            rows: rows.len(),
            ..self
        }
    }

    /// A view of some of the columns.
    ///
    /// # Panics
    ///
    /// If the matrix does not have them.
    pub fn cols(self, cols: Range<usize>) -> Matrix<'a, T> {
        self.t().rows(cols).t()
    }

    /// A row of a row-major matrix.
    ///
    /// # Panics
    ///
    /// If the matrix does not have it, or its rows are not contiguous.
    #[inline(always)]
    pub fn row(&self, row: usize) -> &'a [T] {
        assert!(row < self.rows && self.col_stride == 1, "no row {row}");
        &self.data[row * self.row_stride..][..self.cols]
    }

    /// Rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        [self.rows, self.cols]
    }

    /// Elements from a row to the next one, and from a column to the next one.
    pub fn strides(&self) -> [usize; 2] {
        [self.row_stride, self.col_stride]
    }

    /// The first element. All that the strides reach from there are inside the slice.
    pub fn as_ptr(&self) -> *const T {
        self.data.as_ptr()
    }

    /// A view of the transposed matrix.
    pub fn t(self) -> Matrix<'a, T> {
        Matrix {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }
}

/// Whether a product replaces the destination's contents or adds to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    Replace,
    Add,
}
