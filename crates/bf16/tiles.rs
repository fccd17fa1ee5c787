//! Products in a processor's tiles. The loops and the kernel are the same with the instructions of
//! `amx.rs` and with those of `emulated.rs`.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::amx;
use crate::emulated::Emulated;
use crate::instructions::{Instructions, PAIRS, STEP};
use crate::matrix::{Write, ends_inside};
use crate::number::Factor;
use crate::pack::{self, PACKED_COLS, Packed, Square, ranges};
use crate::tile::{COLS, Destination, written};

/// Rows of the result that are computed at a time: two tiles, with as many columns. A load then
/// serves two instructions, and that many rows of the left factor stay in the first-level cache.
const HEIGHT: usize = 2 * PAIRS;
/// Inner positions that are packed at a time. It changes no bit.
const PACKED_INNER: usize = 48 * STEP;

/// Steps from where the kernel is to what it fetches of the right factor.
const AHEAD: usize = 2;

/// A product in tiles, or in emulated ones that give their bits.
pub fn multiply(into: Destination, a: Factor, b: Factor, packed: &mut Packed) {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if amx::is_here() {
        // SAFETY: a processor with tiles has these vectors, and this one was asked.
        return unsafe { in_hardware(into, a, b, packed) };
    }
    loops::<Emulated>(into, a, b, packed);
}

/// Tiles need no feature that the compiler knows. The loops that pack do.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[target_feature(enable = "avx512bf16,avx512bw,avx512dq,avx512vl")]
fn in_hardware(into: Destination, a: Factor, b: Factor, packed: &mut Packed) {
    loops::<amx::Amx>(into, a, b, packed);
}

/// Packs columns of the right factor, and for these a few rows of the left one at a time.
#[inline(always)]
fn loops<I: Instructions>(into: Destination, a: Factor, b: Factor, packed: &mut Packed) {
    let Destination { c, stride, write } = into;
    let [height, length] = a.shape();
    let [_, width] = b.shape();
    let mut tiles = I::begin();
    for inner in ranges(length, PACKED_INNER) {
        let write = if inner.start == 0 { write } else { Write::Add };
        let steps = inner.len().div_ceil(STEP);
        packed.squares.resize(packed.squares.len().max(2 * steps), Square::default());
        for cols in ranges(width, PACKED_COLS) {
            let part = (inner.clone(), cols.clone());
            let right = match b {
                Factor::F32(b) => {
                    pack::right::<I, _>(b.rows(part.0).cols(part.1), PAIRS, &mut packed.right)
                }
                Factor::Bf16(b) => {
                    pack::right::<I, _>(b.rows(part.0).cols(part.1), PAIRS, &mut packed.right)
                }
            };
            for rows in ranges(height, HEIGHT) {
                let squares = &mut packed.squares[..2 * steps];
                match a {
                    Factor::F32(a) => {
                        pack::squares::<I, _>(a.cols(inner.clone()), rows.start, squares)
                    }
                    Factor::Bf16(a) => {
                        pack::squares::<I, _>(a.cols(inner.clone()), rows.start, squares)
                    }
                }
                for (panel, right) in right.chunks_exact(steps * PAIRS * COLS).enumerate() {
                    let right = right.as_chunks().0;
                    let col = cols.start + panel * COLS;
                    let width = COLS.min(cols.end - col);
                    let c = &mut c[rows.start * stride + col..];
                    let mut into = Destination { c, stride, write };
                    if rows.len() == HEIGHT && width == COLS {
                        block(&mut tiles, squares, right, into);
                        continue;
                    }
                    let mut whole = [[0.0; COLS]; HEIGHT];
                    into.get(&mut whole[..rows.len()], width);
                    let c = written(whole.as_flattened_mut());
                    block(&mut tiles, squares, right, Destination { c, stride: COLS, write });
                    into.write = Write::Replace;
                    into.put(&whole[..rows.len()], width);
                }
            }
        }
    }
}

/// [`HEIGHT`] rows and a panel's columns of the result, in tiles 0 to 3. Tiles 4 and 5 are of the
/// left factor, 6 and 7 of the right one.
#[inline(always)]
fn block<I: Instructions>(
    tiles: &mut I,
    left: &[Square],
    right: &[[u32; COLS]],
    Destination { c, stride, write }: Destination,
) {
    let (upper, lower) = left.split_at(left.len() / 2);
    let steps = upper.len();
    assert!(lower.len() == steps && right.len() == steps * PAIRS, "factors of two lengths");
    assert!(ends_inside(c.len(), [HEIGHT, COLS], stride), "a block ends outside the result");
    let c = c.as_mut_ptr().cast::<u32>();
    // SAFETY: the assertions. Sums that are added to have been written.
    unsafe {
        let below = c.add(PAIRS * stride);
        match write {
            Write::Replace => {
                I::fetch_to_write(c, [HEIGHT, COLS], stride);
                tiles.zero::<0>();
                tiles.zero::<1>();
                tiles.zero::<2>();
                tiles.zero::<3>();
            }
            Write::Add => {
                tiles.load::<0>(c, stride);
                tiles.load::<1>(c.add(PAIRS), stride);
                tiles.load::<2>(below, stride);
                tiles.load::<3>(below.add(PAIRS), stride);
            }
        }
        for step in 0..steps {
            let right = right.as_ptr().add(step * PAIRS).cast::<u32>();
            // Panels follow each other, and all together only fit into the second-level cache.
            I::fetch(right.wrapping_add(PAIRS * COLS * AHEAD), PAIRS * COLS);
            tiles.load::<6>(right, COLS);
            tiles.load::<4>(upper.as_ptr().add(step).cast(), PAIRS);
            tiles.load::<7>(right.add(PAIRS), COLS);
            tiles.add::<0, 4, 6>();
            tiles.load::<5>(lower.as_ptr().add(step).cast(), PAIRS);
            tiles.add::<1, 4, 7>();
            tiles.add::<2, 5, 6>();
            tiles.add::<3, 5, 7>();
        }
        tiles.store::<0>(c, stride);
        tiles.store::<1>(c.add(PAIRS), stride);
        tiles.store::<2>(below, stride);
        tiles.store::<3>(below.add(PAIRS), stride);
    }
}
