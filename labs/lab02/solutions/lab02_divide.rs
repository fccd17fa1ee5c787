//! lab02-divide · Divided by what?

pub fn divisor() -> usize {
    3 * 2
}
