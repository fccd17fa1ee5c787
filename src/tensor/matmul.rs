//! Matrix products over slices, on the calling thread: in f32 through the `gemm` crate, in bf16
//! through our own package of them.

use super::profile::{self, Products};
use super::stored::Precision;
use crate::simd::{self, vectorized};
pub use bf16_products::{Matrix, Number, Way, Write};

/// `c = a · b`, or `c += a · b`, with factors as `products` has them. In bf16 they are rounded to
/// it, and sums are f32: `bf16-products` says how.
pub fn matmul_in(
    products: Precision,
    c: &mut [f32],
    stride: usize,
    write: Write,
    a: Matrix,
    b: Matrix,
) {
    match products {
        Precision::F32 => matmul(c, stride, write, a, b),
        Precision::Bf16 => matmul_bf16(c, stride, write, a, b),
    }
}

/// `a · b` as [`matmul_in`] computes it, in a vector of its own.
pub fn product_bf16<A: Number, B: Number>(a: Matrix<A>, b: Matrix<B>) -> Vec<f32> {
    let counted = counted(Write::Replace, a, b);
    profile::matmul(counted, || bf16_products::product(a, b, way()))
}

/// [`matmul_in`] bf16, of factors that may be stored in it.
pub fn matmul_bf16<A: Number, B: Number>(
    c: &mut [f32],
    stride: usize,
    write: Write,
    a: Matrix<A>,
    b: Matrix<B>,
) {
    let product = counted(write, a, b);
    profile::matmul(product, || bf16_products::matmul(c, stride, write, a, b, way()));
}

/// Writes the rows of `x` to `copy` as columns. `gemm` copies a view `x.t()` number by number, for
/// every product anew: what several products read is better transposed once.
///
/// # Panics
///
/// If `copy` is too short.
pub fn transposed<'a>(x: Matrix, copy: &'a mut [f32]) -> Matrix<'a> {
    let [rows, cols] = x.shape();
    vectorized!((x, &mut *copy), transpose);
    Matrix::new(copy, cols, rows)
}

/// Side of the squares that [`transpose`] takes: a cache line of f32.
const SIDE: usize = 16;

#[inline(always)]
fn transpose((x, copy): (Matrix, &mut [f32])) {
    let [rows, cols] = x.shape();
    for first in (0..rows).step_by(SIDE) {
        let height = SIDE.min(rows - first);
        for col in (0..cols).step_by(SIDE) {
            let width = SIDE.min(cols - col);
            let mut square = [[0.0; SIDE]; SIDE];
            for (square, row) in square.iter_mut().zip(first..first + height) {
                match x.row(row)[col..].first_chunk() {
                    Some(row) => *square = *row,
                    None => square[..width].copy_from_slice(&x.row(row)[col..]),
                }
            }
            for i in 0..width {
                let to = &mut copy[(col + i) * rows + first..][..height];
                for k in 0..height {
                    to[k] = square[k][i];
                }
            }
        }
    }
}

/// How this machine computes bf16 products: in the processor's tiles if all ranks have them, or in
/// one of the ways that give every machine's bits.
pub fn way() -> Way {
    match simd::is_portable() {
        true => Way::Plain,
        false if simd::use_tiles() => Way::Tiles,
        false => Way::best_of_vectors(),
    }
}

/// What a product computes, and the least that it reads and writes.
fn counted<A, B>(write: Write, a: Matrix<A>, b: Matrix<B>) -> Products {
    let [rows, inner] = a.shape();
    let [_, cols] = b.shape();
    let passes = if write == Write::Add { 2 } else { 1 };
    let bytes = size_of::<A>() * rows * inner
        + size_of::<B>() * inner * cols
        + size_of::<f32>() * rows * cols * passes;
    Products { flops: 2 * (rows * cols * inner) as u64, bytes: bytes as u64 }
}

/// `c = a · b`, or `c += a · b`. `c` is row-major with `stride` elements from one row's start to
/// the next row's.
pub fn matmul(c: &mut [f32], stride: usize, write: Write, a: Matrix, b: Matrix) {
    let [rows, _] = a.shape();
    let [_, cols] = b.shape();
    if rows == 0 || cols == 0 {
        return;
    }
    let last = (rows - 1).checked_mul(stride).and_then(|last| last.checked_add(cols));
    assert!(
        stride >= cols && last.is_some_and(|end| end <= c.len()),
        "the product ends outside its slice"
    );
    // SAFETY: the assertion above.
    unsafe { multiply(c.as_mut_ptr(), stride, write, a, b) }
}

/// `a · b` in a vector of its own, whose memory need not be zeroed first.
pub fn product(a: Matrix, b: Matrix) -> Vec<f32> {
    let [rows, inner] = a.shape();
    let [_, cols] = b.shape();
    let numbers = rows.checked_mul(cols).expect("a product that fits into memory");
    if inner == 0 {
        return vec![0.0; numbers];
    }
    let mut c = Vec::with_capacity(numbers);
    // SAFETY: there is room for all rows, and without `Write::Add` nothing is read. Then all
    // numbers are written.
    unsafe {
        multiply(c.as_mut_ptr(), cols, Write::Replace, a, b);
        c.set_len(numbers);
    }
    c
}

/// [`matmul`] to rows from `c` on.
///
/// # Safety
/// `c` must be valid for writes of all rows, and with `Write::Add` for reads.
unsafe fn multiply(c: *mut f32, stride: usize, write: Write, a: Matrix, b: Matrix) {
    let [rows, inner] = a.shape();
    let [inner_of_b, cols] = b.shape();
    assert_eq!(inner, inner_of_b, "the inner dimensions of a matrix product must agree");
    if rows == 0 || cols == 0 {
        return;
    }
    let product = counted(write, a, b);
    let [a_row, a_col] = a.strides();
    let [b_row, b_col] = b.strides();
    // SAFETY: the constructors make sure that all elements which the strides reach are inside the
    // slices. The caller says so of `c`. It may be written, so it overlaps neither factor.
    profile::matmul(product, || unsafe {
        gemm::gemm(
            rows,
            cols,
            inner,
            c,
            1,
            stride as isize,
            write == Write::Add,
            a.as_ptr(),
            a_col as isize,
            a_row as isize,
            b.as_ptr(),
            b_col as isize,
            b_row as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A product of 2 x 3 and 3 x 5 numbers: 5 results of 3 products each for each row.
    #[test]
    fn products_are_counted_since_an_earlier_reading() {
        product(Matrix::new(&[1.0; 4], 2, 2), Matrix::new(&[1.0; 4], 2, 2));
        let before = profile::products();
        product_bf16(Matrix::new(&[1f32; 6], 2, 3), Matrix::new(&[1f32; 15], 3, 5));
        let counted = profile::products() - before;
        assert_eq!((counted.flops, counted.bytes), (2 * 2 * 3 * 5, 4 * (6 + 15 + 10)));
    }

    /// Every combination of transposed factors, into a block of a wider matrix, against the
    /// definition.
    #[test]
    fn products_follow_the_definition() {
        let m = 5;
        let n = 7;
        let k = 11;
        let x = |i: usize| ((i * 37) % 19) as f32 - 9.0;
        let (a, b): (Vec<f32>, Vec<f32>) =
            ((0..m * k).map(x).collect(), (0..k * n).map(|i| x(i + 5)).collect());
        let turned = |v: &[f32], rows: usize, cols: usize| -> Vec<f32> {
            (0..rows * cols).map(|i| v[i % rows * cols + i / rows]).collect()
        };
        let at = turned(&a, m, k);
        let bt = turned(&b, k, n);
        for (a_turned, b_turned, write) in [
            (false, false, Write::Replace),
            (true, false, Write::Add),
            (false, true, Write::Add),
            (true, true, Write::Replace),
        ] {
            let left = if a_turned {
                Matrix::new(&at, k, m).t()
            } else {
                Matrix::new(&a, m, k)
            };
            let right = if b_turned {
                Matrix::new(&bt, n, k).t()
            } else {
                Matrix::new(&b, k, n)
            };
            let mut c = vec![1.0; m * 10];
            matmul(&mut c[2..], 10, write, left, right);
            let alone = product(left, right);
            for (i, &c) in c.iter().enumerate() {
                let row = i / 10;
                let col = i % 10;
                let inside = (2..2 + n).contains(&col);
                let product: f32 = if inside {
                    (0..k).map(|l| a[row * k + l] * b[l * n + col - 2]).sum()
                } else {
                    0.0
                };
                let old = if inside && write == Write::Replace { 0.0 } else { 1.0 };
                assert_eq!(c, old + product, "row {row} column {col}");
                if inside {
                    assert_eq!(alone[row * n + col - 2], product, "row {row} column {col}");
                }
            }
        }
    }

    /// A product in a vector of its own begins in memory that may hold anything.
    #[test]
    fn what_is_replaced_is_not_read() {
        for (m, n, k) in [(1, 40, 2), (40, 1, 7), (3, 3, 1), (33, 17, 2), (70, 70, 3), (5, 40, 9)] {
            let a = vec![2.0; m * k];
            let b = vec![0.5; k * n];
            let mut c = vec![f32::NAN; m * n];
            matmul(&mut c, n, Write::Replace, Matrix::new(&a, m, k), Matrix::new(&b, k, n));
            assert_eq!(c, vec![k as f32; m * n], "{m} x {n} x {k}");
        }
    }

    #[test]
    fn copies_are_transposed_to_the_last_number() {
        for (rows, cols) in [(1, 1), (16, 16), (15, 33), (40, 17), (3, 64)] {
            let x: Vec<f32> = (0..rows * (cols + 5)).map(|i| i as f32).collect();
            let mut copy = vec![-1.0; rows * cols];
            let copy = transposed(Matrix::strided(&x, rows, cols, cols + 5), &mut copy);
            assert_eq!(copy.shape(), [cols, rows]);
            for col in 0..cols {
                let column: Vec<f32> = (0..rows).map(|row| x[row * (cols + 5) + col]).collect();
                assert_eq!(copy.row(col), column, "column {col} of {rows} x {cols}");
            }
        }
    }

    /// A sum that wraps round is outside, too.
    #[test]
    #[should_panic(expected = "the product ends outside its slice")]
    fn absurd_strides_are_outside() {
        let a = [0.0; 64];
        let stride = ((1u128 << 64) + 5).div_euclid(7) as usize;
        let (left, right) = (Matrix::new(&a[..16], 8, 2), Matrix::new(&a, 2, 32));
        matmul(&mut [0.0; 64], stride, Write::Replace, left, right);
    }

    /// A product with itself added reads the destination, too.
    #[test]
    fn products_are_counted() {
        let a = [1.0; 2 * 3];
        let b = [1.0; 3 * 5];
        let mut c = [0.0; 2 * 5];
        let before = profile::products();
        matmul(&mut c, 5, Write::Replace, Matrix::new(&a, 2, 3), Matrix::new(&b, 3, 5));
        let once = profile::products() - before;
        assert_eq!(once, Products { flops: 60, bytes: 4 * (6 + 15 + 10) });
        matmul(&mut c, 5, Write::Add, Matrix::new(&a, 2, 3), Matrix::new(&b, 3, 5));
        assert_eq!(
            profile::products() - before,
            Products { flops: 120, bytes: 2 * once.bytes + 4 * 10 }
        );
    }
}
