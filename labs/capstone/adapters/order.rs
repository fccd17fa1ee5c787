//! lab06-order as a part of the trainer.

pub fn take(parts: &mut capstone::Parts) {
    parts.order = lab06_order::order;
}
