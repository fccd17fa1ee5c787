//! labNN-first · TODO: a title
//!
//! TODO: the task. After an all-reduce, each rank has what all ranks brought, added up. What is
//! that here?
//!
//! ```text
//! rank 0 brings 10
//! rank 1 brings 20
//! rank 2 brings 30
//! ```

pub fn sum() -> usize {
    todo!("TODO: each rank has this")
}
