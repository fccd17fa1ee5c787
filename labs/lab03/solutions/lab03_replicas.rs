//! lab03-replicas · One model, or two?

/// A letter of the picture.
pub fn two_models() -> char {
    'C'
}
