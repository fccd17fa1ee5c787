//! lab07-where · Who sends it activations?

pub fn sender() -> usize {
    110 - 8 * 5
}
