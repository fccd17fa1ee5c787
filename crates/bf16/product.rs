//! The loops around the kernels.

use crate::kernel::{Kernel, Way, Work};
use crate::matrix::{Matrix, Write, ends_inside};
use crate::number::{Factor, Number};
use crate::pack::{self, InLoops, PACKED_COLS, Packed, ranges};
use crate::tile::{COLS, Destination, ROWS, written};
use crate::tiles;
use std::cell::RefCell;

/// Inner positions whose products have a sum of their own. It is a part of the result's definition,
/// and does not follow from a cache's size.
pub const BLOCK: usize = 512;

/// Rows of the left factor that are packed at a time: with [`BLOCK`] positions they fit into a
/// second-level cache beside a panel of the right factor.
const PACKED_ROWS: usize = 24 * ROWS;
thread_local! {
    static PACKED: RefCell<Packed> = RefCell::default();
}

/// `c = a · b`, or `c += a · b`. `c` is row-major with `stride` elements from one row's start to
/// the next row's. The crate's documentation says what is rounded where.
///
/// # Panics
///
/// If the inner dimensions differ, or the product ends outside `c`.
pub fn matmul<A: Number, B: Number>(
    c: &mut [f32],
    stride: usize,
    write: Write,
    a: Matrix<A>,
    b: Matrix<B>,
    way: Way,
) {
    assert_eq!(a.cols, b.rows, "the inner dimensions of a matrix product must agree");
    if a.rows == 0 || b.cols == 0 {
        return;
    }
    assert!(
        stride >= b.cols && ends_inside(c.len(), [a.rows, b.cols], stride),
        "the product ends outside its slice"
    );
    if a.cols == 0 && write == Write::Replace {
        c.chunks_mut(stride).take(a.rows).for_each(|row| row[..b.cols].fill(0.0));
    }
    let c = written(c);
    multiply(Destination { c, stride, write }, A::factor(a), B::factor(b), way);
}

/// `a · b` in a vector of its own, whose memory need not be zeroed first.
///
/// # Panics
///
/// If the inner dimensions differ.
pub fn product<A: Number, B: Number>(a: Matrix<A>, b: Matrix<B>, way: Way) -> Vec<f32> {
    assert_eq!(a.cols, b.rows, "the inner dimensions of a matrix product must agree");
    let numbers = a.rows.checked_mul(b.cols).expect("a product that fits into memory");
    if a.cols == 0 {
        return vec![0.0; numbers];
    }
    let mut c = Vec::with_capacity(numbers);
    let into = Destination {
        c: &mut c.spare_capacity_mut()[..numbers],
        stride: b.cols,
        write: Write::Replace,
    };
    multiply(into, A::factor(a), B::factor(b), way);
    // SAFETY: the first block of inner positions has written all of them.
    unsafe { c.set_len(numbers) };
    c
}

/// The product of two factors that fit together. It has no type parameters, so the loops are
/// compiled here, as this package is optimized, and not where someone calls them.
fn multiply(into: Destination, a: Factor, b: Factor, way: Way) {
    PACKED.with_borrow_mut(|packed| match (a, b) {
        _ if way == Way::Tiles => tiles::multiply(into, a, b, packed),
        (Factor::F32(a), Factor::F32(b)) => way.run(Product { into, a, b, packed }),
        (Factor::F32(a), Factor::Bf16(b)) => way.run(Product { into, a, b, packed }),
        (Factor::Bf16(a), Factor::F32(b)) => way.run(Product { into, a, b, packed }),
        (Factor::Bf16(a), Factor::Bf16(b)) => way.run(Product { into, a, b, packed }),
    });
}

/// One call.
struct Product<'a, A, B> {
    into: Destination<'a>,
    a: Matrix<'a, A>,
    b: Matrix<'a, B>,
    packed: &'a mut Packed,
}

impl<A: Number, B: Number> Work for Product<'_, A, B> {
    #[inline(always)]
    fn with<K: Kernel>(self) {
        let Product { into: Destination { c, stride, write }, a, b, packed } = self;
        for inner in ranges(a.cols, BLOCK) {
            let write = if inner.start == 0 { write } else { Write::Add };
            let pairs = inner.len().div_ceil(2);
            for cols in ranges(b.cols, PACKED_COLS) {
                let b = b.rows(inner.clone()).cols(cols.clone());
                let right = pack::right::<InLoops, B>(b, 1, &mut packed.right);
                let right_seen = K::look(right);
                for rows in ranges(a.rows, PACKED_ROWS) {
                    let strides =
                        pack::left(a.rows(rows.clone()).cols(inner.clone()), &mut packed.left);
                    let kernel = K::of(K::look(&packed.left), right_seen);
                    let left = K::left(&packed.left, &mut packed.wide);
                    for (panel, right) in right.chunks_exact(pairs * COLS).enumerate() {
                        let right = right.as_chunks().0;
                        let col = cols.start + panel * COLS;
                        let width = COLS.min(cols.end - col);
                        for row in (0..rows.len()).step_by(ROWS) {
                            let left = &left[row * strides.row..];
                            let height = ROWS.min(rows.len() - row);
                            let c = &mut c[(rows.start + row) * stride + col..];
                            let into = Destination { c, stride, write };
                            if height == ROWS && width == COLS {
                                kernel.tile(left, strides, right, into);
                                continue;
                            }
                            let mut whole = [[0.0; COLS]; ROWS];
                            let c = written(whole.as_flattened_mut());
                            let all = Destination { c, stride: COLS, write: Write::Replace };
                            kernel.tile(left, strides, right, all);
                            into.put(&whole[..height], width);
                        }
                    }
                }
            }
        }
    }
}
