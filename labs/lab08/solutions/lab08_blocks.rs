//! lab08-blocks · One scale for many numbers

/// The numbers that share a scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Group {
    Tensor,
    Row,
    Block(usize),
}

/// The nearest number of fp8 e4m3: NaN beyond 448.
pub fn e4m3(x: f32) -> f32 {
    let exponent = (x.to_bits() >> 23 & 0xff) as i32 - 127;
    let apart = 2f32.powi(exponent.max(-6) - 3);
    let rounded = (x / apart).round_ties_even() * apart;
    if rounded.abs() > 448.0 { f32::NAN } else { rounded }
}

/// What comes back of `x`, rows of `cols` numbers.
pub fn stored(x: &[f32], cols: usize, group: Group) -> Vec<f32> {
    let mut all = Vec::new();
    match group {
        Group::Tensor => scaled(x, &mut all),
        Group::Row => x.chunks(cols).for_each(|row| scaled(row, &mut all)),
        Group::Block(length) => {
            for row in x.chunks(cols) {
                row.chunks(length).for_each(|block| scaled(block, &mut all));
            }
        }
    }
    all
}

/// Adds what comes back of numbers that share a scale.
fn scaled(x: &[f32], all: &mut Vec<f32>) {
    let largest = x.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    if largest == 0.0 {
        all.extend(x);
        return;
    }
    let scale = largest / 448.0;
    all.extend(x.iter().map(|x| e4m3(x / scale) * scale));
}

/// One number of 1,024 rows of 4,096 becomes a million times as large: how many others lose digits
/// with a scale per tensor, per row, per 128 numbers and per 32?
pub fn ruined() -> [usize; 4] {
    [1024 * 4096 - 1, 4096 - 1, 128 - 1, 32 - 1]
}
