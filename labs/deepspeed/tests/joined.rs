//! Parts of one state, joined: what an average divides by, where halves are cut, which replicas
//! differ.

use super::super::know::{Part, Rule, join};
use crate::torch::Dtype;

fn part(numbers: &[f32]) -> Part {
    Part {
        shape: vec![numbers.len()],
        bytes: bytemuck::cast_slice(numbers).to_vec(),
    }
}

fn joined(rule: &Rule, parts: &[&[f32]]) -> Result<Part, String> {
    join(rule, Dtype::F32, parts.iter().map(|numbers| part(numbers)).collect())
}

#[test]
fn an_average_is_over_all_ranks() {
    let parts: [&[f32]; 3] = [&[1.0, 2.0], &[2.0, 2.0], &[6.0, 5.0]];
    assert_eq!(joined(&Rule::Average, &parts), Ok(part(&[3.0, 3.0])));
}

/// Of an odd number of rows, the first half has one more, as `torch.chunk` cuts it.
#[test]
fn the_first_of_two_halves_has_the_odd_row() {
    let parts: [&[f32]; 2] = [&[1.0, 2.0, 5.0], &[3.0, 4.0, 6.0]];
    assert_eq!(joined(&Rule::Halves, &parts), Ok(part(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])));
}

#[test]
fn a_replica_that_is_the_beginning_of_another_is_refused() {
    let (short, long): (&[f32], &[f32]) = (&[1.0, 2.0], &[1.0, 2.0, 3.0]);
    for parts in [[short, long], [long, short]] {
        let error = joined(&Rule::Replicated, &parts).unwrap_err();
        assert!(error.starts_with("it is replicated, but has shapes"), "{error}");
    }
}
