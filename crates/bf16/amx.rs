//! The tiles of Intel's AMX (Sapphire Rapids and later): whether they may be used, and their
//! instructions, as text: Rust's own are not stable yet.

use crate::instructions::Instructions;
use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::sync::OnceLock;

/// Whether this process may use tiles. It asks once, for all of its threads. `SHARDLAB_SIMD=tiles`
/// has to ask for them: what these instructions compute is known from records, and this kernel
/// itself has run in the emulation only.
pub fn is_here() -> bool {
    static IS_HERE: OnceLock<bool> = OnceLock::new();
    *IS_HERE.get_or_init(|| {
        let is_asked_for = std::env::var_os("SHARDLAB_SIMD").is_some_and(|asks| asks == "tiles");
        if !is_asked_for {
            return false;
        }
        // A processor with tiles has these, with which factors are packed. They also say that
        // XGETBV and CPUID's leaf 7 are there.
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
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
