//! Shapes in files that someone else wrote.

/// Dimensions of a tensor.
const DIMENSIONS: usize = 32;

/// The elements of a shape, or `None` if it is absurd: no product of some of its sizes may overflow
/// later, also if a different one is 0.
pub fn numel(shape: &[usize]) -> Option<usize> {
    let product = shape
        .iter()
        .try_fold(1usize, |product, size| product.checked_mul((*size).max(1)));
    let fits = |product: usize| product as u64 <= 1 << 50;
    let sound = shape.len() <= DIMENSIONS && product.is_some_and(fits);
    sound.then(|| shape.iter().product())
}
