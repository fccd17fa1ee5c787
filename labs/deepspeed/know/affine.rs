//! Maps of parameters. DeepSpeed records one where it divided the parameter itself (AutoTP): for
//! each rank, which elements of the whole its part consists of, as blocks with strides.

use super::part::Part;
use crate::torch::{Dtype, Node, last};
use shardlab::checkpoint::numel;

/// A block of elements, in the whole and in a rank's part.
#[derive(Clone, Debug, PartialEq)]
struct Block {
    shape: Vec<usize>,
    whole: View,
    part: View,
}

/// The first element's offset, and the strides of the dimensions.
#[derive(Clone, Debug, PartialEq)]
struct View {
    first: usize,
    strides: Vec<usize>,
}

/// The ranks that have the elements of one parameter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Map {
    shape: Vec<usize>,
    /// The size of each rank's part, and its blocks.
    ranks: Vec<(usize, Vec<Block>)>,
}

impl View {
    fn read(node: Node) -> Option<View> {
        let first = node.items().next()?.count()?;
        let strides = node.items().nth(1)?.sizes()?;
        Some(View { first, strides })
    }

    /// Whether all elements of a block are among `numel`.
    fn is_inside(&self, shape: &[usize], numel: usize) -> bool {
        if shape.contains(&0) {
            return true;
        }
        let last = last(shape, &self.strides).and_then(|last| last.checked_add(self.first));
        shape.len() == self.strides.len() && last.is_some_and(|last| last < numel)
    }
}

impl Block {
    fn read(node: Node) -> Option<Block> {
        let view = |key| View::read(node.get(key)?);
        Some(Block {
            shape: node.get("shape")?.sizes()?,
            whole: view("source")?,
            part: view("dest")?,
        })
    }

    /// The offsets of element `index`, in the whole and in the part.
    fn element(&self, mut index: usize) -> (usize, usize) {
        let (mut whole, mut part) = (self.whole.first, self.part.first);
        for (dim, size) in self.shape.iter().enumerate().rev() {
            whole += index % size * self.whole.strides[dim];
            part += index % size * self.part.strides[dim];
            index /= size;
        }
        (whole, part)
    }
}

impl Map {
    /// Reads a map. Errors describe it.
    pub fn read(node: Node) -> Result<Map, String> {
        let broken = || "it is incomplete".to_string();
        let shape = node.get("logical_shape").and_then(Node::sizes).ok_or_else(broken)?;
        let whole = numel(&shape).ok_or_else(broken)?;
        let recorded = node.get("ranks").ok_or_else(broken)?;
        let mut ranks = Vec::new();
        for rank in 0..recorded.entries().len() {
            let of = recorded
                .get_at(rank as i64)
                .ok_or_else(|| format!("it has nothing of tp rank {rank}"))?;
            let size = of.get("shard_shape").and_then(Node::sizes).and_then(|shape| numel(&shape));
            let (size, pieces) = size.zip(of.get("pieces")).ok_or_else(broken)?;
            let scaled = |piece: Node| piece.get("scale").is_some_and(|by| by.float() != Some(1.0));
            if pieces.items().any(scaled) {
                return Err("it multiplies elements by a scale, which the optimizer's hyperparameters depend on".into());
            }
            let blocks: Vec<Block> =
                pieces.items().map(Block::read).collect::<Option<_>>().ok_or_else(broken)?;
            let inside = |block: &Block| {
                block.whole.is_inside(&block.shape, whole)
                    && block.part.is_inside(&block.shape, size)
            };
            if !blocks.iter().all(inside) {
                return Err(format!("a block of tp rank {rank} is not inside {shape:?}"));
            }
            let held = blocks
                .iter()
                .try_fold(0usize, |held, block| held.checked_add(numel(&block.shape)?));
            if held != Some(size) {
                return Err(format!(
                    "tp rank {rank} has {size} elements, and not as many in blocks"
                ));
            }
            ranks.push((size, blocks));
        }
        Ok(Map { shape, ranks })
    }

    /// Puts the parameter together. Elements that several ranks have must be equal.
    pub fn join(&self, dtype: Dtype, parts: &[Part]) -> Result<Part, String> {
        let size = dtype.size();
        let numel = self.shape.iter().product::<usize>();
        if parts.len() != self.ranks.len() {
            return Err(format!(
                "its map is one of {} tp ranks, not {}",
                self.ranks.len(),
                parts.len()
            ));
        }
        let held = parts.iter().map(|part| part.bytes.len() / size).sum::<usize>();
        if held < numel {
            return Err(format!("its map has {numel} elements, and all ranks together {held}"));
        }
        let mut bytes = vec![0; numel * size];
        let mut found = vec![false; numel];
        for (rank, (part, (expected, blocks))) in parts.iter().zip(&self.ranks).enumerate() {
            if part.bytes.len() != expected * size {
                let elements = part.bytes.len() / size;
                return Err(format!(
                    "tp rank {rank} has {elements} elements of it, and {expected} by its map"
                ));
            }
            let mut differs = None;
            for block in blocks {
                for index in 0..block.shape.iter().product() {
                    let (whole, at) = block.element(index);
                    let from = &part.bytes[at * size..][..size];
                    let to = &mut bytes[whole * size..][..size];
                    if std::mem::replace(&mut found[whole], true) && from != to {
                        differs = Some(whole);
                    }
                    to.copy_from_slice(from);
                }
            }
            if let Some(element) = differs {
                return Err(format!("tp rank {rank} and a lower one differ at element {element}"));
            }
        }
        match found.iter().position(|found| !found) {
            Some(element) => Err(format!("no rank has its element {element}, by its map")),
            None => Ok(Part { shape: self.shape.clone(), bytes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torch::{Graph, Id, Value};

    fn list(graph: &mut Graph, numbers: &[i64]) -> Id {
        let numbers = numbers.iter().map(|number| graph.push(Value::Int(*number))).collect();
        graph.push(Value::List(numbers))
    }

    fn dict(graph: &mut Graph, entries: &[(&str, Id)]) -> Id {
        let entries = entries.iter().map(|(key, value)| (graph.text(key), *value)).collect();
        graph.push(Value::Dict(entries))
    }

    /// Shape of a block; first element and strides in the whole, and in the part.
    type Numbers = (&'static [i64], (i64, &'static [i64]), (i64, &'static [i64]));

    fn map(shape: &[i64], ranks: &[(&[i64], &[Numbers])]) -> Result<Map, String> {
        let mut graph = Graph::default();
        let mut of_ranks = Vec::new();
        for (rank, (part, blocks)) in ranks.iter().enumerate() {
            let mut pieces = Vec::new();
            for (shape, whole, part) in *blocks {
                let mut view = |(first, strides): &(i64, &[i64])| {
                    let first = graph.push(Value::Int(*first));
                    let strides = list(&mut graph, strides);
                    graph.push(Value::List(vec![first, strides]))
                };
                let whole = view(whole);
                let part = view(part);
                let shape = list(&mut graph, shape);
                pieces
                    .push(dict(&mut graph, &[("shape", shape), ("source", whole), ("dest", part)]));
            }
            let pieces = graph.push(Value::List(pieces));
            let part = list(&mut graph, part);
            let of_rank = dict(&mut graph, &[("shard_shape", part), ("pieces", pieces)]);
            of_ranks.push((graph.push(Value::Int(rank as i64)), of_rank));
        }
        let shape = list(&mut graph, shape);
        let of_ranks = graph.push(Value::Dict(of_ranks));
        graph.root = dict(&mut graph, &[("logical_shape", shape), ("ranks", of_ranks)]);
        Map::read(graph.root())
    }

    fn part(numbers: &[f32]) -> Part {
        Part {
            shape: vec![numbers.len()],
            bytes: bytemuck::cast_slice(numbers).to_vec(),
        }
    }

    /// Two rows of four. Rank 0 has the outer columns, rank 1 the inner ones; the last column is on
    /// both.
    #[test]
    fn blocks_are_put_where_the_map_says() {
        let left: Numbers = (&[2, 1], (0, &[4, 1]), (0, &[2, 1]));
        let right: Numbers = (&[2, 1], (3, &[4, 1]), (1, &[2, 1]));
        let inner: Numbers = (&[2, 2], (1, &[4, 1]), (0, &[3, 1]));
        let again: Numbers = (&[2, 1], (3, &[4, 1]), (2, &[3, 1]));
        let map = map(&[2, 4], &[(&[2, 2], &[left, right]), (&[2, 3], &[inner, again])]).unwrap();
        let parts = [part(&[0.0, 3.0, 4.0, 7.0]), part(&[1.0, 2.0, 3.0, 5.0, 6.0, 7.0])];
        let whole = Part {
            shape: vec![2, 4],
            ..part(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
        };
        assert_eq!(map.join(Dtype::F32, &parts), Ok(whole));
        let parts = [parts[0].clone(), part(&[1.0, 2.0, 3.0, 5.0, 6.0, 9.0])];
        assert!(map.join(Dtype::F32, &parts).unwrap_err().contains("differ at element 7"));
        assert!(map.join(Dtype::F32, &parts[..1]).unwrap_err().contains("of 2 tp ranks, not 1"));
    }

    #[test]
    fn maps_that_miss_or_leave_the_parameter_are_refused() {
        let block: Numbers = (&[2], (0, &[1]), (0, &[1]));
        let short = map(&[3], &[(&[2], &[block])]).unwrap();
        let error = short.join(Dtype::F32, &[part(&[1.0, 2.0])]).unwrap_err();
        assert!(error.contains("3 elements, and all ranks together 2"), "{error}");
        let twice = map(&[3], &[(&[2], &[block]), (&[2], &[block])]).unwrap();
        let parts = [part(&[1.0, 2.0]), part(&[1.0, 2.0])];
        assert!(
            twice
                .join(Dtype::F32, &parts)
                .unwrap_err()
                .contains("no rank has its element 2")
        );
        let outside: Numbers = (&[2], (2, &[1]), (0, &[1]));
        assert!(map(&[3], &[(&[2], &[outside])]).unwrap_err().contains("not inside [3]"));
        let dimensions: Numbers = (&[2], (0, &[1, 1]), (0, &[1]));
        assert!(map(&[3], &[(&[2], &[dimensions])]).unwrap_err().contains("not inside [3]"));
        assert!(map(&[3], &[(&[3], &[block])]).unwrap_err().contains("has 3 elements"));
        let absurd: Numbers = (&[1 << 40, 1 << 40], (0, &[0, 0]), (0, &[0, 0]));
        assert!(map(&[3], &[(&[3], &[absurd])]).is_err());
    }
}

#[cfg(test)]
mod scales {
    use super::*;
    use crate::torch::{Graph, Id, Value};

    /// One rank with two elements, each in a piece of its own.
    fn with_scales(scales: [Option<f64>; 2]) -> Result<Map, String> {
        let mut graph = Graph::default();
        let dict = |graph: &mut Graph, entries: &[(&str, Id)]| {
            let entries = entries.iter().map(|(key, value)| (graph.text(key), *value)).collect();
            graph.push(Value::Dict(entries))
        };
        let list = |graph: &mut Graph, number: i64| {
            let number = graph.push(Value::Int(number));
            graph.push(Value::List(vec![number]))
        };
        let mut pieces = Vec::new();
        for (element, scale) in scales.into_iter().enumerate() {
            let shape = list(&mut graph, 1);
            let first = graph.push(Value::Int(element as i64));
            let strides = list(&mut graph, 1);
            let view = graph.push(Value::List(vec![first, strides]));
            let mut entries = vec![("shape", shape), ("source", view), ("dest", view)];
            if let Some(scale) = scale {
                entries.push(("scale", graph.push(Value::Float(scale))));
            }
            pieces.push(dict(&mut graph, &entries));
        }
        let pieces = graph.push(Value::List(pieces));
        let shape = list(&mut graph, 2);
        let of_rank = dict(&mut graph, &[("shard_shape", shape), ("pieces", pieces)]);
        let rank = graph.push(Value::Int(0));
        let ranks = graph.push(Value::Dict(vec![(rank, of_rank)]));
        graph.root = dict(&mut graph, &[("logical_shape", shape), ("ranks", ranks)]);
        Map::read(graph.root())
    }

    /// A scale of 1 changes nothing.
    #[test]
    fn one_piece_with_a_scale_is_enough_to_refuse_a_map() {
        for right in [[None, None], [Some(1.0), None], [Some(1.0); 2]] {
            assert!(with_scales(right).is_ok(), "{right:?}");
        }
        for wrong in [[Some(2.0), None], [None, Some(0.5)], [Some(1.0), Some(f64::NAN)]] {
            let error = with_scales(wrong).unwrap_err();
            assert!(error.starts_with("it multiplies elements by a scale"), "{error}");
        }
    }
}
