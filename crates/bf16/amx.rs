//! The tiles of Intel's AMX (Sapphire Rapids and later): whether they may be used, and their
//! instructions, as text: Rust's own are not stable yet.

use crate::instructions::{Instructions, PAIRS, STEP};
use crate::pack::{InLoops, Pairing, Square};
use std::arch::asm;
use std::arch::x86_64::*;
use std::sync::OnceLock;

/// Whether this process may use tiles. It asks once, for all of its threads.
pub fn is_here() -> bool {
    static IS_HERE: OnceLock<bool> = OnceLock::new();
    *IS_HERE.get_or_init(|| {
        // A processor with tiles has these, with which factors are packed. They also say that
        // XGETBV and CPUID's leaf 7 are there.
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bf16")
            && has_tiles()
            && are_permitted()
    })
}

/// Whether the processor has tiles and products of bf16, and the kernel keeps a thread's tiles.
fn has_tiles() -> bool {
    const BF16_AND_TILES: u32 = 1 << 22 | 1 << 24;
    const CONFIGURATION_AND_DATA: u64 = 1 << 17 | 1 << 18;
    let features = __cpuid_count(7, 0).edx;
    // SAFETY: AVX-512 is here, and with it XGETBV.
    let kept = unsafe { _xgetbv(0) };
    features & BF16_AND_TILES == BF16_AND_TILES
        && kept & CONFIGURATION_AND_DATA == CONFIGURATION_AND_DATA
}

/// Asks Linux, which reserves room in every signal's frame. It refuses if a thread's stack for
/// signals is too small for that; then other instructions compute.
fn are_permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST_PERMISSION: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    let result: i64;
    // SAFETY: the call reads and writes no memory of this process.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result == 0
}

/// How a thread's tiles are divided, as LDTILECFG reads it.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_of_a_row: [u16; 16],
    rows: [u8; 16],
}

static ALL_WHOLE: Configuration = Configuration {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    bytes_of_a_row: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// One instruction. The compiler itself uses no tiles, so they keep their contents from one to the
/// next.
macro_rules! instruction {
    ($text:literal $(, $($operands:tt)+)?) => {
        asm!(
            $text,
            $($($operands)+,)?
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack, preserves_flags),
        )
    };
}

/// The calling thread's tiles, from their configuration to their release.
pub struct Amx(());

/// VCVTNE2PS2BF16 rounds 32 numbers as this package does, whatever the processor's flags say.
impl Pairing for Amx {
    #[inline(always)]
    fn neighbours(row: &[f32], packed: &mut [u32]) {
        let (rows, rest) = row.as_chunks::<STEP>();
        let (to, to_rest) = packed.split_at_mut(rows.len() * PAIRS);
        for (x, to) in rows.iter().zip(to.as_chunks_mut::<PAIRS>().0) {
            // SAFETY: whoever has tiles has these instructions, and the arrays are that long.
            unsafe {
                let low = _mm512_loadu_ps(x.as_ptr());
                let high = _mm512_loadu_ps(x.as_ptr().add(PAIRS));
                let both: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
                _mm512_storeu_si512(to.as_mut_ptr().cast(), both);
            }
        }
        InLoops::neighbours(rest, to_rest);
    }

    #[inline(always)]
    fn of_rows(even: &[f32], odd: &[f32], packed: &mut [u32]) {
        let whole = packed.len().min(even.len()).min(odd.len()) / PAIRS * PAIRS;
        // SAFETY: as above.
        unsafe {
            let order = _mm512_loadu_si512(INTERLEAVED.as_ptr().cast());
            for at in (0..whole).step_by(PAIRS) {
                let even = _mm512_loadu_ps(even[at..].as_ptr());
                let odd = _mm512_loadu_ps(odd[at..].as_ptr());
                let both: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(odd, even));
                let pairs = _mm512_permutexvar_epi16(order, both);
                _mm512_storeu_si512(packed[at..].as_mut_ptr().cast(), pairs);
            }
        }
        let odd = if odd.is_empty() { odd } else { &odd[whole..] };
        InLoops::of_rows(&even[whole..], odd, &mut packed[whole..]);
    }

    #[inline(always)]
    fn transpose(square: &mut Square) {
        // SAFETY: as above.
        unsafe {
            let mut rows = [_mm512_setzero_si512(); PAIRS];
            for (row, from) in rows.iter_mut().zip(&square.0) {
                *row = _mm512_loadu_si512(from.as_ptr().cast());
            }
            exchange::<8>(&mut rows);
            exchange::<4>(&mut rows);
            exchange::<2>(&mut rows);
            exchange::<1>(&mut rows);
            for (row, to) in rows.into_iter().zip(&mut square.0) {
                _mm512_storeu_si512(to.as_mut_ptr().cast(), row);
            }
        }
    }

    #[inline(always)]
    fn will_read<T>(number: Option<&T>) {
        if let Some(number) = number {
            // SAFETY: this reads nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T1>((&raw const *number).cast()) };
        }
    }
}

/// A step of a transposition (`pack.rs`).
///
/// # Safety
/// The processor must have AVX-512.
#[inline(always)]
unsafe fn exchange<const STEP: usize>(rows: &mut [__m512i; PAIRS]) {
    // Where the upper and the lower row of two take their numbers, those of the lower one from 16
    // on.
    const { assert!(STEP.is_power_of_two() && STEP < PAIRS) };
    let [mut left, mut right] = [[0u32; PAIRS]; 2];
    for i in 0..PAIRS {
        let is_left = i & STEP == 0;
        left[i] = if is_left { i } else { PAIRS + i - STEP } as u32;
        right[i] = if is_left { i + STEP } else { PAIRS + i } as u32;
    }
    // SAFETY: the caller's.
    unsafe {
        let left = _mm512_loadu_si512(left.as_ptr().cast());
        let right = _mm512_loadu_si512(right.as_ptr().cast());
        for upper in 0..PAIRS {
            if upper & STEP == 0 {
                let x = rows[upper];
                let y = rows[upper + STEP];
                rows[upper] = _mm512_permutex2var_epi32(x, left, y);
                rows[upper + STEP] = _mm512_permutex2var_epi32(x, right, y);
            }
        }
    }
}

/// Where the numbers of pairs stand in two rows one after the other.
const INTERLEAVED: [u16; STEP] = {
    let mut order = [0; STEP];
    let mut i = 0;
    while i < STEP {
        order[i] = (i / 2 + i % 2 * PAIRS) as u16;
        i += 1;
    }
    order
};

impl Instructions for Amx {
    fn begin() -> Amx {
        assert!(is_here(), "no tiles here");
        let from = &raw const ALL_WHOLE;
        // SAFETY: tiles are here, and these are the 64 bytes of a configuration.
        unsafe { instruction!("ldtilecfg [{from}]", from = in(reg) from) };
        Amx(())
    }

    #[inline(always)]
    fn zero<const TO: usize>(&mut self) {
        // SAFETY: all tiles are configured.
        unsafe { instruction!("tilezero tmm{to}", to = const TO) };
    }

    #[inline(always)]
    unsafe fn load<const TO: usize>(&mut self, from: *const u32, stride: usize) {
        // SAFETY: all tiles are configured, and the caller's rows may be read.
        unsafe {
            instruction!(
                "tileloadd tmm{to}, [{from} + {bytes}*1]",
                to = const TO, from = in(reg) from, bytes = in(reg) 4 * stride
            );
        }
    }

    #[inline(always)]
    fn fetch(from: *const u32, numbers: usize) {
        for line in (0..numbers).step_by(PAIRS) {
            // SAFETY: this reads nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(line).cast()) };
        }
    }

    #[inline(always)]
    fn fetch_to_write(to: *mut u32, [rows, cols]: [usize; 2], stride: usize) {
        for row in 0..rows {
            for col in (0..cols).step_by(PAIRS) {
                let line = to.wrapping_add(row * stride + col);
                // SAFETY: this writes nothing.
                unsafe { instruction!("prefetchw [{line}]", line = in(reg) line) };
            }
        }
    }

    #[inline(always)]
    fn add<const SUMS: usize, const LEFT: usize, const RIGHT: usize>(&mut self) {
        // SAFETY: all tiles are configured.
        unsafe {
            instruction!(
                "tdpbf16ps tmm{sums}, tmm{left}, tmm{right}",
                sums = const SUMS, left = const LEFT, right = const RIGHT
            );
        }
    }

    #[inline(always)]
    unsafe fn store<const FROM: usize>(&self, to: *mut u32, stride: usize) {
        // SAFETY: all tiles are configured, and the caller's rows may be written.
        unsafe {
            instruction!(
                "tilestored [{to} + {bytes}*1], tmm{from}",
                from = const FROM, to = in(reg) to, bytes = in(reg) 4 * stride
            );
        }
    }
}

impl Drop for Amx {
    fn drop(&mut self) {
        // SAFETY: tiles are here.
        unsafe { instruction!("tilerelease") };
    }
}
