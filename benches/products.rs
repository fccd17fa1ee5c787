//! The rate of bf16 products beside the peak of the instruction in registers, and beside `gemm`'s
//! in f32: `cargo bench --bench products`.
//!
//! Shapes are those of a char model's step (width 384, 1,024 tokens) and of one attention head.

use shardlab::tensor::matmul::{self, Matrix, Way, Write};
use std::time::Instant;

fn main() {
    if let Some(peak) = peak() {
        println!("{:34} {:6.0} GFLOP/s", "VDPBF16PS in registers", peak / 1e9);
    }
    print!("{:34}", "");
    for way in here() {
        print!(" {:>12}", format!("{way:?}"));
    }
    println!(" {:>12}", "gemm, f32");
    for (name, [m, n, k], [a_turned, b_turned]) in [
        ("square", [768, 768, 768], [false, false]),
        ("x Wᵀ: 1024 x 1536 x 384", [1024, 1536, 384], [false, true]),
        ("x Wᵀ: 1024 x 384 x 1536", [1024, 384, 1536], [false, true]),
        ("dy W: 1024 x 384 x 1536", [1024, 384, 1536], [false, false]),
        ("dyᵀ x: 1536 x 384 x 1024", [1536, 384, 1024], [true, false]),
        ("x Wᵀ: 768 x 512 x 128", [768, 512, 128], [false, true]),
        ("dyᵀ x: 512 x 128 x 768", [512, 128, 768], [true, false]),
        ("q kᵀ: 64 x 256 x 64", [64, 256, 64], [false, true]),
        ("p v: 64 x 64 x 256", [64, 64, 256], [false, false]),
        ("dpᵀ q: 64 x 64 x 256", [64, 64, 256], [true, false]),
    ] {
        let a: Vec<f32> = (0..m * k).map(|i| ((i * 37) % 19) as f32 - 9.0).collect();
        let b: Vec<f32> = (0..n * k).map(|i| ((i * 41) % 17) as f32 - 8.0).collect();
        let a = if a_turned {
            Matrix::new(&a, k, m).t()
        } else {
            Matrix::new(&a, m, k)
        };
        let b = if b_turned {
            Matrix::new(&b, n, k).t()
        } else {
            Matrix::new(&b, k, n)
        };
        let mut c = vec![0.0; m * n];
        let flops = (2 * m * n * k) as f64;
        print!("{name:34}");
        for way in here() {
            let rate = flops
                / seconds(flops, || bf16_products::matmul(&mut c, n, Write::Replace, a, b, way));
            print!(" {:12.0}", rate / 1e9);
        }
        let rate = flops / seconds(flops, || matmul::matmul(&mut c, n, Write::Replace, a, b));
        println!(" {:12.0}", rate / 1e9);
    }
}

fn here() -> impl Iterator<Item = Way> {
    [Way::Tiles].into_iter().chain(Way::VECTORS).filter(|way| way.is_here())
}

/// The best of enough runs for a tenth of a second and more.
fn seconds(flops: f64, mut run: impl FnMut()) -> f64 {
    let runs = (3e10 / flops) as usize + 3;
    let timed = (0..runs).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    });
    timed.fold(f64::INFINITY, f64::min)
}

/// The instruction's rate with all numbers in registers, in FLOP/s: a pair of multiplications and
/// additions for each of 16 lanes.
#[cfg(target_arch = "x86_64")]
fn peak() -> Option<f64> {
    use std::arch::x86_64::{
        __m512bh, __m512i, _mm512_dpbf16_ps, _mm512_reduce_add_ps, _mm512_set1_epi32,
        _mm512_setzero_ps,
    };
    use std::mem::transmute;

    #[target_feature(enable = "avx512bf16")]
    fn turns(n: usize) -> f32 {
        // SAFETY: vectors of bf16 are vectors of bits.
        let ones = unsafe { transmute::<__m512i, __m512bh>(_mm512_set1_epi32(0x3f80_3f80)) };
        let mut s = [_mm512_setzero_ps(); 12];
        for _ in 0..n {
            for s in &mut s {
                *s = _mm512_dpbf16_ps(*s, ones, ones);
            }
        }
        s.into_iter().map(|s| _mm512_reduce_add_ps(s)).sum()
    }

    if !Way::Instruction.is_here() {
        return None;
    }
    let n = 20_000;
    let flops = (n * 12 * 64) as f64;
    let time = seconds(flops, || {
        // SAFETY: the machine has the instruction.
        std::hint::black_box(unsafe { turns(n) });
    });
    Some(flops / time)
}

#[cfg(not(target_arch = "x86_64"))]
fn peak() -> Option<f64> {
    None
}
