//! A tile of the result, in the four ways that give the same bits.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::amx;
use crate::number::unpaired;
use crate::tile::{COLS, Destination, ROWS, Strides};

/// Which instructions compute products. [`Way::Tiles`] gives bits of its own, all others the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// TDPBF16PS of AMX: 16 rows by 16 columns of 16 pairs of products at a time. Where there is
    /// none, an emulation gives its bits, slowly.
    Tiles,
    /// VDPBF16PS of AVX512-BF16: 16 pairs of products at a time.
    Instruction,
    /// Fused multiply-adds of f32, in vectors of 512 bits.
    Wide,
    /// Fused multiply-adds of f32, in vectors.
    Fused,
    /// A multiplication and an addition. A product of two bf16 is exact in f32, so together they
    /// round as the fused form does.
    Plain,
}

impl Way {
    /// The ways that give the same bits. After the first two, whose order depends on the machine,
    /// the fastest is first.
    pub const VECTORS: [Way; 4] = [Way::Instruction, Way::Wide, Way::Fused, Way::Plain];

    /// Whether this machine has the instructions, and this process may use them.
    pub fn is_here(self) -> bool {
        match self {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Way::Tiles => amx::is_here(),
            #[cfg(target_arch = "x86_64")]
            Way::Instruction => {
                is_x86_feature_detected!("avx512bf16")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "x86_64")]
            Way::Wide => is_x86_feature_detected!("avx512f"),
            #[cfg(target_arch = "x86_64")]
            Way::Fused => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "aarch64")]
            Way::Fused => true,
            #[allow(unreachable_patterns)]
            Way::Tiles | Way::Instruction | Way::Wide | Way::Fused => false,
            Way::Plain => true,
        }
    }

    /// Does the work this way, or in the plain way where this machine has no such instructions.
    pub(crate) fn run(self, work: impl Work) {
        match self {
            _ if !self.is_here() => work.with::<Plain>(),
            // SAFETY: this machine has the instructions.
            #[cfg(target_arch = "x86_64")]
            Way::Instruction => unsafe { x86::with_instruction(work) },
            // SAFETY: the same.
            #[cfg(target_arch = "x86_64")]
            Way::Wide => unsafe { x86::with_wide(work) },
            // SAFETY: the same.
            #[cfg(target_arch = "x86_64")]
            Way::Fused => unsafe { x86::with_fused(work) },
            #[cfg(target_arch = "aarch64")]
            Way::Fused => work.with::<Fused>(),
            _ => work.with::<Plain>(),
        }
    }
}

/// What is compiled once for each kernel.
pub trait Work {
    /// Does it with kernel `K`. Inlined, so that all of it is compiled for the kernel's
    /// instructions.
    fn with<K: Kernel>(self);
}

/// Computes tiles of one packed block of each factor.
pub trait Kernel: Sized {
    /// A pair of the left factor's numbers, as the kernel reads it.
    type Left;
    /// What the kernel has to know of a packed block.
    type Seen: Copy;

    /// A packed left block's pairs, which `wide` has room for.
    fn left<'a>(packed: &'a [u32], wide: &'a mut Vec<[f32; 2]>) -> &'a [Self::Left];

    /// Looks at a packed block.
    fn look(packed: &[u32]) -> Self::Seen;

    /// The kernel for a left and a right block.
    fn of(left: Self::Seen, right: Self::Seen) -> Self;

    /// Puts the sums of a tile's products `into` the result: of [`ROWS`] rows of the left factor,
    /// at `strides`, with the right one's panel.
    fn tile(&self, left: &[Self::Left], strides: Strides, right: &[[u32; COLS]], into: Destination);
}

/// How much care sums need. The instruction turns results below the normal range into zeros; where
/// there can be none, the portable loops need not look for them.
struct Portable<const FUSED: bool, const HEIGHT: usize, const WIDTH: usize> {
    is_simple: bool,
}

/// Rows and columns whose sums fit into the registers of most machines.
type Plain = Portable<false, 4, 16>;
#[cfg_attr(target_family = "wasm", allow(dead_code))]
type Fused = Portable<true, 4, 16>;
/// All of a tile: in vectors of 512 bits its sums take 16 of 32 registers.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
type Wide = Portable<true, ROWS, COLS>;

impl<const FUSED: bool, const HEIGHT: usize, const WIDTH: usize> Kernel
    for Portable<FUSED, HEIGHT, WIDTH>
{
    /// As two f32: they are read once for each panel of the right factor.
    type Left = [f32; 2];
    /// The smallest and the largest exponent of numbers other than zeros.
    type Seen = [i32; 2];

    #[inline(always)]
    fn left<'a>(packed: &'a [u32], wide: &'a mut Vec<[f32; 2]>) -> &'a [[f32; 2]] {
        wide.clear();
        wide.extend(packed.iter().map(|&pair| unpaired(pair)));
        wide
    }

    #[inline(always)]
    fn look(packed: &[u32]) -> [i32; 2] {
        let mut least = 255;
        let mut most = 0;
        for &pair in packed {
            for bits in [pair >> 7 & 0xff, pair >> 23 & 0xff] {
                least = least.min(if bits == 0 { 255 } else { bits });
                most = most.max(bits);
            }
        }
        [least as i32 - 127, most as i32 - 127]
    }

    /// If the smallest exponents of both factors are e and f, all products, and with them all sums,
    /// are multiples of 2^(e + f - 14): a bf16 has 7 bits behind the point. From 2⁻¹²⁶ on, no sum
    /// but 0 is below the normal range, and all products are exact. If the largest are below 128
    /// together, no product is infinite whose sum would not be.
    #[inline(always)]
    fn of(left: [i32; 2], right: [i32; 2]) -> Self {
        let least = left[0] + right[0];
        let most = left[1] + right[1];
        Portable { is_simple: least - 14 >= -126 && most < 126 }
    }

    #[inline(always)]
    fn tile(&self, left: &[[f32; 2]], strides: Strides, right: &[[u32; COLS]], into: Destination) {
        let sums = if self.is_simple {
            in_parts::<HEIGHT, WIDTH>(left, strides, right, |a, b, sum| {
                if FUSED { a.mul_add(b, sum) } else { a * b + sum }
            })
        } else {
            in_parts::<HEIGHT, WIDTH>(left, strides, right, careful)
        };
        into.put(&sums, COLS);
    }
}

#[inline(always)]
fn in_parts<const HEIGHT: usize, const WIDTH: usize>(
    left: &[[f32; 2]],
    strides: Strides,
    right: &[[u32; COLS]],
    add: impl Fn(f32, f32, f32) -> f32,
) -> [[f32; COLS]; ROWS] {
    let mut tile = [[0.0; COLS]; ROWS];
    for row in (0..ROWS).step_by(HEIGHT) {
        for col in (0..COLS).step_by(WIDTH) {
            let mut sums = [[0f32; WIDTH]; HEIGHT];
            for (p, right) in right.iter().enumerate() {
                let mut even = [0.0; WIDTH];
                let mut odd = [0.0; WIDTH];
                for i in 0..WIDTH {
                    [even[i], odd[i]] = unpaired(right[col + i]);
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let [a_even, a_odd] = left[(row + r) * strides.row + p * strides.pair];
                    for i in 0..WIDTH {
                        sums[i] = add(a_even, even[i], add(a_odd, odd[i], sums[i]));
                    }
                }
            }
            for (r, sums) in sums.iter().enumerate() {
                tile[row + r][col..col + WIDTH].copy_from_slice(sums);
            }
        }
    }
    tile
}

/// `a · b + sum` as the instruction computes it: rounded once to 24 bits, then a zero if that is
/// below the normal range.
#[inline(always)]
fn careful(a: f32, b: f32, sum: f32) -> f32 {
    // A power of two that keeps what is next to the normal range's end in the range.
    const SCALE: f32 = 18_446_744_073_709_551_616.0;
    let result = a.mul_add(b, sum);
    let is_small = match result.abs() {
        small if small < f32::MIN_POSITIVE => true,
        // Fewer than 24 bits may have been rounded up to this.
        f32::MIN_POSITIVE => (a * SCALE).mul_add(b, sum * SCALE).abs() < SCALE * f32::MIN_POSITIVE,
        _ => false,
    };
    if is_small { 0f32.copysign(result) } else { result }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{COLS, Destination, Fused, Kernel, ROWS, Strides, Wide, Work};
    use crate::matrix::{Write, ends_inside};
    use std::arch::x86_64::{
        __m512bh, _mm512_add_ps, _mm512_dpbf16_ps, _mm512_loadu_ps, _mm512_loadu_si512,
        _mm512_set1_epi32, _mm512_setzero_ps, _mm512_storeu_ps,
    };
    use std::mem::transmute;

    #[target_feature(enable = "avx512bf16,avx512bw,avx512dq,avx512vl")]
    pub fn with_instruction(work: impl Work) {
        work.with::<Instruction>();
    }

    #[target_feature(enable = "avx512f")]
    pub fn with_wide(work: impl Work) {
        work.with::<Wide>();
    }

    #[target_feature(enable = "avx2,fma")]
    pub fn with_fused(work: impl Work) {
        work.with::<Fused>();
    }

    struct Instruction;

    impl Kernel for Instruction {
        type Left = u32;
        type Seen = ();

        #[inline(always)]
        fn left<'a>(packed: &'a [u32], _wide: &'a mut Vec<[f32; 2]>) -> &'a [u32] {
            packed
        }

        #[inline(always)]
        fn look(_packed: &[u32]) {}

        #[inline(always)]
        fn of(_left: (), _right: ()) -> Instruction {
            Instruction
        }

        #[inline(always)]
        fn tile(&self, left: &[u32], strides: Strides, right: &[[u32; COLS]], into: Destination) {
            // SAFETY: only `with_instruction` uses this kernel.
            unsafe { tile(left, strides, right, into) }
        }
    }

    const VECTORS: usize = COLS / 16;

    #[target_feature(enable = "avx512bf16,avx512bw,avx512dq,avx512vl")]
    fn tile(left: &[u32], strides: Strides, right: &[[u32; COLS]], into: Destination) {
        let Destination { c, stride, write } = into;
        let end = (ROWS - 1) * strides.row + right.len().saturating_sub(1) * strides.pair;
        assert!(end < left.len(), "a tile begins or ends outside its packed factor");
        assert!(ends_inside(c.len(), [ROWS, COLS], stride), "a tile ends outside the result");
        let mut sums = [[_mm512_setzero_ps(); VECTORS]; ROWS];
        for (p, right) in right.iter().enumerate() {
            // SAFETY: a panel's row has 32 numbers; vectors of bf16 are vectors of bits.
            let right: [__m512bh; VECTORS] = std::array::from_fn(|v| unsafe {
                transmute(_mm512_loadu_si512(right.as_ptr().add(16 * v).cast()))
            });
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: below `end`.
                let one = unsafe { left.get_unchecked(r * strides.row + p * strides.pair) };
                // SAFETY: vectors of bf16 are vectors of bits.
                let left: __m512bh = unsafe { transmute(_mm512_set1_epi32(one.cast_signed())) };
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = _mm512_dpbf16_ps(*sum, left, right);
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (v, sum) in sums.into_iter().enumerate() {
                // SAFETY: the second assertion.
                unsafe {
                    let to = c.as_mut_ptr().add(r * stride + 16 * v).cast::<f32>();
                    let sum = match write {
                        Write::Replace => sum,
                        Write::Add => _mm512_add_ps(_mm512_loadu_ps(to), sum),
                    };
                    _mm512_storeu_ps(to, sum);
                }
            }
        }
    }
}
