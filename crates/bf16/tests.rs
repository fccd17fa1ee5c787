//! All ways of this machine against their definition, number by number, and against what processors
//! with the instructions computed.

use bf16_products::{BLOCK, Matrix, Number, STEP, Way, Write, matmul, pairs_added, product};
use half::bf16;
use proptest::prelude::*;

/// What VDPBF16PS adds to `sum`: the odd product, then the even one.
fn pair_added(sum: f32, a: [f32; 2], b: [f32; 2]) -> f32 {
    [1, 0].into_iter().fold(sum, |sum, i| added(sum, a[i], b[i]))
}

/// One product, with f64's wider range in place of tricks: what has fewer than 24 bits there is
/// rounded as f32 would round it with an unbounded exponent.
fn added(sum: f32, a: f32, b: f32) -> f32 {
    let result = a.mul_add(b, sum);
    if result.abs() > f32::MIN_POSITIVE || result == 0.0 || result.is_nan() {
        return result;
    }
    // Both are far below f64's 53 bits here: the sum next to 2^-126 is exact.
    let exact = f64::from(a) * f64::from(b) + f64::from(sum);
    let unbounded = (exact * 2f64.powi(100)) as f32;
    if f64::from(unbounded.abs()) < 2f64.powi(-26) {
        0f32.copysign(result)
    } else {
        result
    }
}

/// An element of a product by its definition.
fn element(a: &[f32], b: &[f32], before: Option<f32>) -> f32 {
    let [a, b] =
        [a, b].map(|x| -> Vec<f32> { x.iter().map(|x| f32::from_bits(x.rounded())).collect() });
    let blocks = a.chunks(BLOCK).zip(b.chunks(BLOCK)).map(|(a, b)| {
        a.chunks(2).zip(b.chunks(2)).fold(0.0, |sum, (a, b)| {
            let [a, b] = [a, b].map(|x| [x[0], x.get(1).copied().unwrap_or(0.0)]);
            pair_added(sum, a, b)
        })
    });
    before.into_iter().chain(blocks).reduce(|sum, block| sum + block).unwrap_or(0.0)
}

fn turned<T: Copy>(x: &[T], rows: usize, cols: usize) -> Vec<T> {
    (0..rows * cols).map(|i| x[i % rows * cols + i / rows]).collect()
}

/// Bits, with one NaN for all.
fn bits(x: f32) -> u32 {
    if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }
}

/// An element of a product in tiles by its definition.
fn tiles_element(a: &[f32], b: &[f32], before: Option<f32>) -> f32 {
    let pairs = |x: &[f32]| -> Vec<u32> {
        let pair = |x: &[f32]| x[0].rounded() >> 16 | x.get(1).map_or(0, |odd| odd.rounded());
        let mut pairs: Vec<u32> = x.chunks(2).map(pair).collect();
        pairs.resize(x.len().div_ceil(STEP) * STEP / 2, 0);
        pairs
    };
    let [a, b] = [pairs(a), pairs(b)];
    let steps = a.chunks(STEP / 2).zip(b.chunks(STEP / 2));
    steps.fold(before.unwrap_or(0.0), |sum, (a, b)| pairs_added(sum.to_bits(), a, b))
}

/// Checks all ways whose bits are the same.
fn check(sizes: [usize; 3], a: &[f32], b: &[f32]) {
    let ways: Vec<Way> = Way::VECTORS.into_iter().filter(|way| way.is_here()).collect();
    check_ways(&ways, element, sizes, a, b);
}

/// Checks tiles, or their emulation.
fn check_tiles(sizes: [usize; 3], a: &[f32], b: &[f32]) {
    check_ways(&[Way::Tiles], tiles_element, sizes, a, b);
}

/// Checks all transpositions and types of the factors `a [m, k]` and `b [k, n]`.
fn check_ways(
    ways: &[Way],
    element: impl Fn(&[f32], &[f32], Option<f32>) -> f32,
    [m, n, k]: [usize; 3],
    a: &[f32],
    b: &[f32],
) {
    let at = turned(a, m, k);
    let bt = turned(b, k, n);
    let narrow = |x: &[f32]| -> Vec<bf16> {
        x.iter().map(|x| bf16::from_bits((x.rounded() >> 16) as u16)).collect()
    };
    let [stored, stored_t] = [narrow(b), narrow(&bt)];
    let stride = n + 3;
    for write in [Write::Replace, Write::Add] {
        let before = 0.375;
        let expected: Vec<u32> = (0..m * n)
            .map(|i| {
                let column = &bt[i % n * k..][..k];
                let row = &a[i / n * k..][..k];
                bits(element(row, column, (write == Write::Add).then_some(before)))
            })
            .collect();
        for &way in ways {
            for (a_is_turned, right) in (0..8).map(|i| (i % 2 == 1, i / 2)) {
                let left = if a_is_turned {
                    Matrix::new(&at, k, m).t()
                } else {
                    Matrix::new(a, m, k)
                };
                let mut c = vec![before; m * stride];
                match right {
                    0 => matmul(&mut c, stride, write, left, Matrix::new(b, k, n), way),
                    1 => matmul(&mut c, stride, write, left, Matrix::new(&bt, n, k).t(), way),
                    2 => matmul(&mut c, stride, write, left, Matrix::new(&stored, k, n), way),
                    _ => matmul(&mut c, stride, write, left, Matrix::new(&stored_t, n, k).t(), way),
                }
                for (row, expected) in c.chunks(stride).zip(expected.chunks(n)) {
                    let got: Vec<u32> = row[..n].iter().map(|&c| bits(c)).collect();
                    assert_eq!(got, expected, "{way:?} {m} x {n} x {k} {a_is_turned} {right}");
                    assert!(row[n..].iter().all(|&c| c == before), "written outside");
                }
            }
        }
    }
}

/// Numbers of a training step; of the whole range; and those next to the ends of the range.
fn number() -> impl Strategy<Value = f32> {
    let near = |exponent: i32| (-2.0f32..2.0).prop_map(move |x| x * 2f32.powi(exponent));
    prop_oneof![
        4 => near(0),
        2 => near(-62),
        2 => near(-64),
        1 => near(-75),
        1 => near(63),
        1 => any::<u32>().prop_map(f32::from_bits),
        1 => Just(0.0),
    ]
}

fn factors() -> impl Strategy<Value = ([usize; 3], Vec<f32>, Vec<f32>)> {
    let size = || prop_oneof![1usize..5, 1usize..70];
    (size(), size(), prop_oneof![1usize..40, 500usize..530]).prop_flat_map(|(m, n, k)| {
        let plain = || (-2.0f32..2.0).boxed();
        let kinds = prop_oneof![Just(true), Just(false)];
        kinds.prop_flat_map(move |is_plain| {
            let one = if is_plain { plain() } else { number().boxed() };
            let all = |length| prop::collection::vec(one.clone(), length);
            (Just([m, n, k]), all(m * k), all(k * n))
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_way_computes_the_definition((sizes, a, b) in factors()) {
        check(sizes, &a, &b);
    }

    #[test]
    fn tiles_compute_their_definition((sizes, a, b) in factors()) {
        check_tiles(sizes, &a, &b);
    }
}

/// Whether care is needed depends on both factors: each is once next to the end of the range, below
/// or above, and the other is not.
#[test]
fn one_factor_may_need_the_care_alone() {
    let [m, n, k] = [9, 33, 6];
    let near = |exponent: i32, length: usize, step: usize| -> Vec<f32> {
        let x = |i: usize| ((i * step) % 23) as f32 / 11.0 - 1.0;
        (0..length).map(|i| x(i) * 2f32.powi(exponent)).collect()
    };
    for exponent in [-124, 127] {
        for [of_a, of_b] in [[exponent, 0], [0, exponent]] {
            check([m, n, k], &near(of_a, m * k, 7), &near(of_b, k * n, 5));
        }
    }
}

/// One pair of products at each end of the range, where the bounds of the simple loops are: a zero
/// that would be 2^-133, and a sum of which one summand alone is infinite.
#[test]
fn a_pair_at_either_end_of_the_range_needs_the_care() {
    let power = |exponent: i32| 2f32.powi(exponent);
    let small = [power(-63) * (1.0 + power(-7)), -power(-63)];
    check([1, 1, 2], &[power(-63); 2], &small);
    check([1, 1, 2], &[-power(64), power(64)], &[power(64), power(63)]);
}

/// More rows and columns than are packed at a time, and three blocks.
#[test]
fn large_products_follow_the_definition() {
    let [m, n, k] = [101, 801, 1100];
    let x = |i: usize| ((i * 7919) % 1009) as f32 / 101.0 - 5.0;
    let a: Vec<f32> = (0..m * k).map(x).collect();
    let b: Vec<f32> = (0..k * n).map(|i| x(i + 5)).collect();
    check([m, n, k], &a, &b);
}

/// More rows, columns and inner positions than are packed at a time, and none a multiple of a
/// tile's.
#[test]
fn tiles_of_large_products_have_their_definition() {
    let x = |i: usize| ((i * 7919) % 1009) as f32 / 101.0 - 5.0;
    for [m, n, k] in [[37, 1555, 45], [50, 35, 1601]] {
        let a: Vec<f32> = (0..m * k).map(x).collect();
        let b: Vec<f32> = (0..k * n).map(|i| x(i + 5)).collect();
        check_tiles([m, n, k], &a, &b);
    }
}

/// Sums of even and of odd positions that leave less than the normal range leave nothing.
#[test]
fn tiles_flush_what_two_sums_leave() {
    let power = |exponent: i32| 2f32.powi(exponent);
    let mut c = [power(-126)];
    let [a, b] = [[1.5 * power(-63), -power(-63)], [power(-63); 2]];
    matmul(&mut c, 1, Write::Add, Matrix::new(&a, 1, 2), Matrix::new(&b, 2, 1), Way::Tiles);
    assert_eq!(c, [power(-126)]);
}

/// What is packed stays in memory. The last step must not be filled up with that.
#[test]
fn tiles_read_nothing_of_an_earlier_product() {
    let [m, n, k] = [33, 65, 64];
    let x = |length: usize| vec![1.5; length];
    let nan = vec![f32::NAN; n * k];
    product(Matrix::new(&nan[..m * k], m, k), Matrix::new(&nan, k, n), Way::Tiles);
    let [a, b] = [x(m * 33), x(33 * n)];
    let c = product(Matrix::new(&a, m, 33), Matrix::new(&b, 33, n), Way::Tiles);
    assert_eq!(c, vec![33.0 * 1.5 * 1.5; m * n]);
}

/// What an Intel Xeon with AMX computed: a start, pairs of a row, as many of a column, and the sum,
/// in hexadecimal bits.
const AMX: &str = include_str!("amx.txt");

#[test]
fn tiles_are_emulated_to_the_recorded_bits() {
    for line in AMX.lines() {
        let bits: Vec<u32> =
            line.split(' ').map(|word| u32::from_str_radix(word, 16).unwrap()).collect();
        let [start, pairs @ .., expected] = &bits[..] else {
            panic!("{line}")
        };
        let (a, b) = pairs.split_at(pairs.len() / 2);
        let steps = a.chunks(STEP / 2).zip(b.chunks(STEP / 2));
        let sum = steps.fold(*start, |sum, (a, b)| pairs_added(sum, a, b).to_bits());
        let [sum, expected] = [sum, *expected].map(|sum| self::bits(f32::from_bits(sum)));
        assert_eq!(sum, expected, "{line}");
    }
    assert_eq!(AMX.lines().count(), 1040);
}

/// Whole products that the same processor computed: rows, columns, inner positions, and the 64-bit
/// FNV-1a of all bytes of the result.
#[test]
fn tiles_multiply_to_the_recorded_bits() {
    for (m, n, k, recorded) in [
        (1, 1, 1, 0x237e_797e_646a_bee8u64),
        (16, 16, 32, 0xc2c0_15c5_5fe3_5eee),
        (9, 33, 31, 0x8985_0c6f_9cc4_4aef),
        (64, 64, 64, 0x5f4f_db57_63e1_2997),
        (101, 801, 1100, 0x77d8_c59a_51ef_e779),
        (256, 384, 384, 0xcf4a_7e47_021a_37ac),
    ] {
        let x = |i: usize| ((i * 7919) % 1009) as f32 / 101.0 - 5.0;
        let a: Vec<f32> = (0..m * k).map(x).collect();
        let b: Vec<f32> = (0..k * n).map(|i| x(i + 5)).collect();
        let c = product(Matrix::new(&a, m, k), Matrix::new(&b, k, n), Way::Tiles);
        let bytes = c.iter().flat_map(|c| c.to_le_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        assert_eq!(hash, recorded, "{m} x {n} x {k}");
    }
}

/// Where tiles are here they multiply, whatever a stopwatch says.
#[test]
fn the_best_way_is_one_of_this_machine() {
    assert!(Way::best().is_here());
    assert_eq!(Way::best() == Way::Tiles, Way::Tiles.is_here());
    assert!(Way::VECTORS.contains(&Way::best_of_vectors()) && Way::best_of_vectors().is_here());
}

#[test]
fn an_empty_inner_dimension_is_a_sum_of_nothing() {
    for way in [Way::Tiles].into_iter().chain(Way::VECTORS) {
        let mut c = [1.0; 6];
        let [a, b] = [Matrix::new(&[0f32; 0], 2, 0), Matrix::new(&[0f32; 0], 0, 2)];
        matmul(&mut c, 3, Write::Add, a, b, way);
        assert_eq!(c, [1.0; 6]);
        matmul(&mut c, 3, Write::Replace, a, b, way);
        assert_eq!(c, [0.0, 0.0, 1.0, 0.0, 0.0, 1.0]);
        matmul(
            &mut c,
            3,
            Write::Replace,
            Matrix::new(&[0f32; 0], 0, 5),
            Matrix::new(&[0f32; 10], 5, 2),
            way,
        );
    }
}

/// What an AMD EPYC with AVX512-BF16 computed: four numbers of a row, four of a column, and their
/// product, in hexadecimal bits. `record_the_instruction` wrote it.
const RECORD: &str = include_str!("record.txt");

#[test]
fn every_way_computes_what_the_instruction_did() {
    let mut rows = 0;
    for line in RECORD.lines() {
        let numbers: Vec<u32> =
            line.split(' ').map(|word| u32::from_str_radix(word, 16).unwrap()).collect();
        let row: Vec<bf16> = numbers[..8].iter().map(|&x| bf16::from_bits(x as u16)).collect();
        for way in Way::VECTORS.into_iter().filter(|way| way.is_here()) {
            let got = of_four(&row, way);
            assert_eq!(bits(got), numbers[8], "{way:?}: {line}");
        }
        rows += 1;
    }
    assert_eq!(rows, RECORDED);
}

const RECORDED: usize = 1200;

fn of_four(row: &[bf16], way: Way) -> f32 {
    let mut c = [0.0];
    let a = Matrix::new(&row[..4], 1, 4);
    matmul(&mut c, 1, Write::Replace, a, Matrix::new(&row[4..8], 4, 1), way);
    c[0]
}

/// Writes `record.txt`: numbers of a step, numbers next to the normal range's end, and any bits.
#[test]
#[ignore = "writes a file; needs a processor with the instruction"]
fn record_the_instruction() {
    assert!(Way::Instruction.is_here());
    let mut state = 1337u64;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut text = String::new();
    let power = |sign: f32, exponent: i32| bf16::from_f32(sign * 2f32.powi(exponent));
    for i in 0..RECORDED {
        let exponents = [(120, 12), (62, 4), (0, 256)][i % 3];
        let row: Vec<bf16> = (0..8)
            .map(|at| {
                // The smallest normal number less 2^-149 to 2^-153: what is left has 23, 24 or, if
                // it is rounded, more bits.
                if let (0..5, 1 | 3 | 5 | 7) = (i, at) {
                    return match at {
                        1 | 5 => power(1.0, -63),
                        3 => power(-1.0, -75),
                        _ => power(1.0, -74 - i as i32),
                    };
                } else if i < 5 {
                    return bf16::ZERO;
                }
                let sign = random(2) << 15;
                let exponent = (exponents.0 + random(exponents.1)).min(255) << 7;
                let fraction = if random(3) == 0 { 0 } else { random(128) };
                bf16::from_bits((sign | exponent | fraction) as u16)
            })
            .collect();
        row.iter().for_each(|x| text.push_str(&format!("{:04x} ", x.to_bits())));
        text.push_str(&format!("{:08x}\n", bits(of_four(&row, Way::Instruction))));
    }
    std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/record.txt"), text).unwrap();
}

/// Sums that wrap round are outside, too: whatever the strides, safe code stays in its slices.
#[test]
fn absurd_strides_are_outside() {
    use std::panic::catch_unwind;
    let data = [0f32; 64];
    let refused = |text: &str, run: Box<dyn FnOnce() + std::panic::UnwindSafe>| {
        let message = *catch_unwind(run).unwrap_err().downcast::<&str>().unwrap();
        assert!(message.ends_with("outside its slice"), "{text}: {message}");
    };
    for (rows, cols, stride) in [
        (1 << 32, 1 << 32, 1),
        (2, 2, usize::MAX),
        (usize::MAX, usize::MAX, usize::MAX),
        (2, usize::MAX, 1),
        (9, 8, 8),
    ] {
        let matrix =
            move || assert_eq!(Matrix::strided(&[0f32; 64], rows, cols, stride).shape(), [0, 0]);
        refused(&format!("{rows} x {cols} by {stride}"), Box::new(matrix));
    }
    // (rows - 1) * stride + cols = 7 * (2^64 + 5) / 7 + 32 = 37 where the sum wraps.
    let stride = ((1u128 << 64) + 5).div_euclid(7) as usize;
    let vectors = Way::VECTORS.into_iter().filter(|way| way.is_here());
    for way in vectors.chain([Way::Tiles]) {
        let product = move || {
            let mut c = [0f32; 64];
            let a = Matrix::new(&data[..16], 8, 2);
            matmul(&mut c, stride, Write::Replace, a, Matrix::new(&data, 2, 32), way);
        };
        refused("a product", Box::new(product));
    }
    // Nothing is inside of anything.
    assert_eq!(Matrix::strided(&[0f32; 0], 0, 1 << 40, 1 << 40).shape(), [0, 1 << 40]);
}

#[test]
#[should_panic(expected = "outside its slice")]
fn a_matrix_larger_than_its_slice_is_refused() {
    Matrix::strided(&[0.0; 11], 3, 4, 4);
}

/// `half` rounds as the instruction does, but keeps numbers below the normal range.
#[test]
fn numbers_are_rounded_to_the_nearest() {
    const SIGN: u32 = 0x8000_0000;
    for bits in (0..u32::MAX).step_by(4099) {
        let x = f32::from_bits(bits);
        let expected = bf16::from_f32(x).to_f32();
        let got = f32::from_bits(x.rounded());
        if x.is_nan() {
            assert!(got.is_nan());
        } else if x.abs() < f32::MIN_POSITIVE {
            assert_eq!(got.to_bits(), bits & SIGN);
        } else {
            assert_eq!(got, expected, "{x}");
            assert_eq!(bf16::from_f32(x).rounded(), got.to_bits());
        }
    }
    // Halfway between two numbers: to the even one.
    assert_eq!(f32::from_bits(0x3f80_8000).rounded(), 0x3f80_0000);
    assert_eq!(f32::from_bits(0x3f81_8000).rounded(), 0x3f82_0000);
    assert_eq!(f32::MAX.rounded(), f32::INFINITY.to_bits());
    assert_eq!(bf16::from_bits(0x8001).rounded(), SIGN);
}
