//! One parameter from the parts that ranks of tensor parallelism have.

use super::part::Part;
use super::rules::{Inner, Rule, Size};
use crate::torch::Dtype;
use std::ops::Range;

/// Joins the parts of one state, of which there is at least one. Errors say what contradicts the
/// rule.
pub(crate) fn join(rule: &Rule, dtype: Dtype, mut parts: Vec<Part>) -> Result<Part, String> {
    let whole = |range: usize| (0..range).map(|part| (part, 0..usize::MAX));
    match rule {
        Rule::Replicated => {
            let mut parts = parts.into_iter();
            let first = parts.next().ok_or("it has no part")?;
            for (rank, part) in parts.enumerate() {
                let size = dtype.size();
                if let Some(at) =
                    first.bytes.chunks(size).zip(part.bytes.chunks(size)).position(|(a, b)| a != b)
                {
                    return Err(format!(
                        "it is replicated, but tp ranks 0 and {} differ at element {at}",
                        rank + 1
                    ));
                }
                if first.shape != part.shape {
                    return Err(format!(
                        "it is replicated, but has shapes {:?} and {:?}",
                        first.shape, part.shape
                    ));
                }
            }
            Ok(first)
        }
        Rule::Average => average(dtype, parts),
        Rule::Joined(_) if parts.len() == 1 => Ok(parts.remove(0)),
        Rule::Joined(dim) => concatenate(*dim, dtype, &parts, whole(parts.len())),
        Rule::Halves => {
            let middles: Vec<usize> = parts
                .iter()
                .map(|part| part.shape.first().map_or(0, |rows| rows.div_ceil(2)))
                .collect();
            let first = middles.iter().enumerate().map(|(part, middle)| (part, 0..*middle));
            let second =
                middles.iter().enumerate().map(|(part, middle)| (part, *middle..usize::MAX));
            concatenate(0, dtype, &parts, first.chain(second))
        }
        Rule::Inner(inner) => join_inner(inner, dtype, parts),
        Rule::Map(map) => map.join(dtype, &parts),
    }
}

/// Joins ranges of parts along a dimension.
fn concatenate(
    dim: usize,
    dtype: Dtype,
    parts: &[Part],
    pieces: impl Iterator<Item = (usize, Range<usize>)>,
) -> Result<Part, String> {
    let first = &parts[0];
    if dim >= first.shape.len() {
        return Err(format!(
            "it is joined along dimension {dim}, but its shape is {:?}",
            first.shape
        ));
    }
    for part in parts {
        let same = |at: usize| at == dim || first.shape.get(at) == part.shape.get(at);
        if part.shape.len() != first.shape.len() || !(0..first.shape.len()).all(same) {
            return Err(format!("its parts have shapes {:?} and {:?}", first.shape, part.shape));
        }
    }
    let clip = |(part, range): (usize, Range<usize>)| {
        let size = parts[part].shape[dim];
        (part, range.start.min(size)..range.end.min(size))
    };
    let pieces: Vec<(usize, Range<usize>)> = pieces.map(clip).collect();
    let mut shape = first.shape.clone();
    shape[dim] = pieces.iter().map(|(_, range)| range.len()).sum();
    let outer: usize = first.shape[..dim].iter().product();
    let inner: usize = first.shape[dim + 1..].iter().product::<usize>() * dtype.size();
    let mut bytes = Vec::with_capacity(shape.iter().product::<usize>() * dtype.size());
    // Without elements there may still be very many rows.
    for row in 0..if bytes.capacity() == 0 { 0 } else { outer } {
        for (part, range) in &pieces {
            let Part { shape, bytes: from } = &parts[*part];
            let begin = row * shape[dim] * inner;
            bytes.extend_from_slice(&from[begin + range.start * inner..begin + range.end * inner]);
        }
    }
    Ok(Part { shape, bytes })
}

/// The rule with all sizes. Files before version 0.4 can have a number of equal parameters in the
/// place of their sizes.
pub(crate) fn resolve<'a>(
    rule: Rule,
    mut parts: impl Iterator<Item = &'a [usize]>,
) -> Result<Rule, String> {
    let Rule::Inner(mut inner) = rule else {
        return Ok(rule);
    };
    if let Size::One(count) = inner.shape[inner.dim] {
        let size = |part: &[usize]| part.get(inner.dim).copied().unwrap_or(0);
        let full: usize =
            parts.try_fold(0usize, |full, part| full.checked_add(size(part))).unwrap_or(0);
        match usize::try_from(count) {
            Ok(count) if count > 0 && full > 0 && full.is_multiple_of(count) => {
                inner.shape[inner.dim] = Size::Several(vec![full / count; count]);
            }
            _ => {
                return Err(format!("{count} parameters cannot share a dimension of {full}"));
            }
        }
    }
    Ok(Rule::Inner(inner))
}

/// A parameter inside, such as the keys of an attention layer, is divided among ranks by itself. So
/// each rank's part begins with its part of the first.
fn join_inner(inner: &Inner, dtype: Dtype, mut parts: Vec<Part>) -> Result<Part, String> {
    let dim = inner.dim;
    let ranks = parts.len();
    let numel: usize = parts.iter().map(|part| part.bytes.len() / dtype.size()).sum();
    let Size::Several(sizes) = inner.shape[dim].clone() else {
        return Err("the sizes of the parameters that it consists of are not known".to_string());
    };
    let widths = match &inner.widths {
        Some(widths) => widths.clone(),
        None if sizes.iter().all(|size| size.is_multiple_of(ranks)) => {
            sizes.iter().map(|size| vec![size / ranks; ranks]).collect()
        }
        None => {
            return Err(format!(
                "it consists of parameters of {sizes:?}, which {ranks} ranks cannot share evenly"
            ));
        }
    };
    let fits = |(size, widths): (&usize, &Vec<usize>)| {
        widths.len() == ranks && widths.iter().sum::<usize>() == *size
    };
    if widths.len() != sizes.len() || !sizes.iter().zip(&widths).all(fits) {
        return Err(format!(
            "it consists of parameters of {sizes:?}, and recorded are widths {widths:?} of {ranks} ranks"
        ));
    }
    let mut logical = Vec::new();
    for size in &inner.shape {
        logical.push(match size {
            Size::Several(sizes) => Some(sizes.iter().sum()),
            Size::One(size) => usize::try_from(*size).ok(),
        });
    }
    logical[dim] = Some(sizes.iter().sum());
    let known = logical
        .iter()
        .flatten()
        .try_fold(1usize, |known, size: &usize| known.checked_mul(*size))
        .unwrap_or(0);
    if logical.iter().filter(|size| size.is_none()).count() > 1
        || known == 0
        || !numel.is_multiple_of(known)
    {
        return Err(format!("its {numel} elements do not have the shape {:?}", inner.shape));
    }
    for (rank, part) in parts.iter_mut().enumerate() {
        let mut shape: Vec<usize> =
            logical.iter().map(|size| size.unwrap_or(numel / known)).collect();
        shape[dim] = widths.iter().map(|widths| widths[rank]).sum();
        let elements = part.bytes.len() / dtype.size();
        let expected = shape.iter().product::<usize>();
        if elements != expected {
            return Err(format!(
                "tp rank {rank} has {elements} elements, and its shape would be {shape:?}"
            ));
        }
        part.shape = shape;
    }
    let mut offsets = vec![0; ranks];
    let mut pieces = Vec::new();
    for widths in &widths {
        for (rank, width) in widths.iter().enumerate() {
            pieces.push((rank, offsets[rank]..offsets[rank] + width));
            offsets[rank] += width;
        }
    }
    concatenate(dim, dtype, &parts, pieces.into_iter())
}

/// The mean of all parts.
fn average(dtype: Dtype, parts: Vec<Part>) -> Result<Part, String> {
    if dtype != Dtype::F32 {
        return Err(format!("it is averaged, which is not supported for {}", dtype.name()));
    }
    let count = parts.len() as f32;
    let mut parts = parts.into_iter();
    let mut sum = parts.next().ok_or("it has no part")?;
    let number = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
    for part in parts {
        if part.shape != sum.shape {
            return Err(format!(
                "it is averaged, but has shapes {:?} and {:?}",
                sum.shape, part.shape
            ));
        }
        let pairs = sum.bytes.as_chunks_mut().0.iter_mut().zip(part.bytes.as_chunks().0);
        pairs.for_each(|(sum, add)| *sum = (number(sum) + number(add)).to_le_bytes());
    }
    let sums = sum.bytes.as_chunks_mut().0.iter_mut();
    sums.for_each(|sum| *sum = (number(sum) / count).to_le_bytes());
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(shape: &[usize], numbers: &[f32]) -> Part {
        Part {
            shape: shape.to_vec(),
            bytes: bytemuck::cast_slice(numbers).to_vec(),
        }
    }

    fn joined(rule: &Rule, parts: &[Part]) -> Part {
        join(rule, Dtype::F32, parts.to_vec()).unwrap()
    }

    #[test]
    fn along_rows_and_columns() {
        let parts = [part(&[2, 1], &[1.0, 2.0]), part(&[2, 2], &[3.0, 4.0, 5.0, 6.0])];
        assert_eq!(
            joined(&Rule::Joined(1), &parts),
            part(&[2, 3], &[1.0, 3.0, 4.0, 2.0, 5.0, 6.0])
        );
        assert!(
            join(&Rule::Joined(0), Dtype::F32, parts.to_vec())
                .unwrap_err()
                .contains("shapes [2, 1] and [2, 2]")
        );
        assert!(
            join(&Rule::Joined(2), Dtype::F32, parts.to_vec())
                .unwrap_err()
                .contains("dimension 2")
        );
        let parts = [part(&[1, 2], &[1.0, 2.0]), part(&[2, 2], &[3.0, 4.0, 5.0, 6.0])];
        assert_eq!(
            joined(&Rule::Joined(0), &parts),
            part(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        );
    }

    #[test]
    fn replicas_must_be_equal() {
        let parts = [part(&[2], &[1.0, 2.0]), part(&[2], &[1.0, 3.0])];
        let error = join(&Rule::Replicated, Dtype::F32, parts.to_vec()).unwrap_err();
        assert_eq!(error, "it is replicated, but tp ranks 0 and 1 differ at element 1");
        assert_eq!(joined(&Rule::Average, &parts), part(&[2], &[1.0, 2.5]));
        assert_eq!(joined(&Rule::Replicated, &[parts[0].clone(), parts[0].clone()]), parts[0]);
    }

    #[test]
    fn parameters_inside_a_parameter() {
        let parts = [part(&[2], &[1.0, 3.0]), part(&[2], &[2.0, 4.0])];
        assert_eq!(joined(&Rule::Halves, &parts), part(&[4], &[1.0, 2.0, 3.0, 4.0]));
        // Two query heads and one key head: rank 0 has a query and the key, rank 1 a query.
        let widths = Some(vec![vec![1, 1], vec![1, 0]]);
        let inner = Inner {
            patterns: vec![],
            shape: vec![Size::Several(vec![2, 1]), Size::One(-1)],
            dim: 0,
            widths,
        };
        let parts = [part(&[2, 2], &[1.0, 1.5, 9.0, 9.5]), part(&[1, 2], &[2.0, 2.5])];
        let whole = part(&[3, 2], &[1.0, 1.5, 2.0, 2.5, 9.0, 9.5]);
        assert_eq!(joined(&Rule::Inner(inner.clone()), &parts), whole);
        // Widths that are not recorded are even, or nothing is known.
        let uneven = Inner { widths: None, ..inner };
        assert!(
            join(&Rule::Inner(uneven), Dtype::F32, parts.to_vec())
                .unwrap_err()
                .contains("cannot share evenly")
        );
        let count = Inner {
            patterns: vec![],
            shape: vec![Size::One(2), Size::One(-1)],
            dim: 0,
            widths: None,
        };
        let parts = [part(&[2, 1], &[1.0, 3.0]), part(&[2, 1], &[2.0, 4.0])];
        let shapes = || parts.iter().map(|part| &part.shape[..]);
        let rule = resolve(Rule::Inner(count.clone()), shapes()).unwrap();
        assert_eq!(joined(&rule, &parts), part(&[4, 1], &[1.0, 2.0, 3.0, 4.0]));
        let three = Inner { shape: vec![Size::One(3), Size::One(-1)], ..count };
        assert!(
            resolve(Rule::Inner(three), shapes())
                .unwrap_err()
                .contains("3 parameters cannot share")
        );
    }
}
