//! A mesh as numbers: which ranks form a group along which axis.
//!
//! Ranks with neighbouring numbers mostly share a node, where links are fast. Tensor parallelism
//! communicates in each layer, so its ranks are always nearest. Libraries differ in the next axis:
//! see [`Order`].

use crate::error::BadInput;
use crate::named::named;

named! {
    /// An axis of a mesh: a way to divide the work. Its groups of ranks have the same name.
    pub enum Axis {
        /// Ranks with the same parameters, which average gradients: data ranks, and among them the
        /// context ranks of each (Megatron-LM's data-context group).
        Data = "data",
        Pipeline = "pipeline",
        Tensor = "tensor",
    }
}

named! {
    /// The order in which the ranks' numbers fill the mesh.
    pub enum Order by default PipelineSlowest {
        /// Tensor ranks are nearest, then data, then pipeline, as in Megatron-LM and DeepSpeed.
        PipelineSlowest = "tp-dp-pp",
        /// Tensor ranks are nearest, then pipeline, then data, as in picotron and ezpz.
        DataSlowest = "tp-pp-dp",
    }
}

impl Order {
    /// The axes, from the fastest to the slowest.
    pub fn axes(self) -> [Axis; 3] {
        match self {
            Order::PipelineSlowest => [Axis::Tensor, Axis::Data, Axis::Pipeline],
            Order::DataSlowest => [Axis::Tensor, Axis::Pipeline, Axis::Data],
        }
    }
}

/// A rank's coordinates in a mesh, from 0, or a mesh's size along each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coordinates {
    pub data: usize,
    pub pipeline: usize,
    pub tensor: usize,
}

impl Coordinates {
    pub fn along(&self, axis: Axis) -> usize {
        match axis {
            Axis::Data => self.data,
            Axis::Pipeline => self.pipeline,
            Axis::Tensor => self.tensor,
        }
    }

    fn set(&mut self, axis: Axis, to: usize) {
        *match axis {
            Axis::Data => &mut self.data,
            Axis::Pipeline => &mut self.pipeline,
            Axis::Tensor => &mut self.tensor,
        } = to;
    }
}

/// A mesh as numbers: the coordinates of each rank. It needs no running ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub sizes: Coordinates,
    pub order: Order,
}

impl Layout {
    pub fn ranks(&self) -> usize {
        Axis::ALL.iter().map(|&axis| self.sizes.along(axis)).product()
    }

    /// The coordinates of `rank`.
    pub fn coordinates(&self, rank: usize) -> Coordinates {
        let mut at = Coordinates { data: 0, pipeline: 0, tensor: 0 };
        self.order.axes().iter().fold(rank, |rest, &axis| {
            at.set(axis, rest % self.sizes.along(axis));
            rest / self.sizes.along(axis)
        });
        at
    }

    /// The rank at these coordinates.
    pub fn rank(&self, at: Coordinates) -> usize {
        self.order
            .axes()
            .iter()
            .rev()
            .fold(0, |rank, &axis| rank * self.sizes.along(axis) + at.along(axis))
    }

    /// The ranks of `rank`'s group along an axis, in the order of their coordinates.
    pub fn group(&self, rank: usize, axis: Axis) -> Vec<usize> {
        let mut at = self.coordinates(rank);
        let member = |i| {
            at.set(axis, i);
            self.rank(at)
        };
        (0..self.sizes.along(axis)).map(member).collect()
    }

    /// Refuses sizes that do not make a mesh of all `ranks`.
    ///
    /// # Errors
    /// If data · pipeline · tensor is not `ranks`.
    pub fn check(&self, ranks: usize) -> Result<(), BadInput> {
        let Coordinates { data, pipeline, tensor } = self.sizes;
        let needed = [data, pipeline, tensor].into_iter().try_fold(1usize, usize::checked_mul);
        if needed == Some(ranks) && ranks > 0 {
            return Ok(());
        }
        let needs = match needed {
            None | Some(0) => "is not possible".to_string(),
            Some(needed) => format!("needs {needed} ranks, but there are {ranks}"),
        };
        let replica = pipeline.saturating_mul(tensor).max(1);
        let fit = ranks / replica;
        let help = if ranks > 0 && ranks.is_multiple_of(replica) {
            format!("with these {ranks} ranks, {fit} replicas fit: data {fit}")
        } else {
            format!(
                "pipeline x tensor must divide the number of ranks: start a multiple of {replica} ranks"
            )
        };
        let what = format!("a mesh of {data} data x {pipeline} pipeline x {tensor} tensor {needs}");
        Err(BadInput::new(what, help))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(data: usize, pipeline: usize, tensor: usize, order: Order) -> Layout {
        Layout { sizes: Coordinates { data, pipeline, tensor }, order }
    }

    /// The groups along an axis, by their first ranks.
    fn groups(layout: &Layout, axis: Axis) -> Vec<Vec<usize>> {
        let group = |rank| Some(layout.group(rank, axis)).filter(|group| group[0] == rank);
        (0..layout.ranks()).filter_map(group).collect()
    }

    /// From the comment on `initialize_model_parallel` in Megatron-LM: 16 GPUs, tensor 2,
    /// pipeline 4.
    #[test]
    fn sixteen_ranks_are_divided_as_megatron_divides_them() {
        let mesh = layout(2, 4, 2, Order::PipelineSlowest);
        let pairs: Vec<Vec<usize>> = (0..8).map(|i| vec![2 * i, 2 * i + 1]).collect();
        assert_eq!(groups(&mesh, Axis::Tensor), pairs);
        let data = [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]];
        assert_eq!(groups(&mesh, Axis::Data), data);
        let pipeline = [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]];
        assert_eq!(groups(&mesh, Axis::Pipeline), pipeline);
    }

    #[test]
    fn with_data_slowest_a_replica_is_in_one_piece() {
        let mesh = layout(2, 4, 2, Order::DataSlowest);
        assert_eq!(groups(&mesh, Axis::Data), (0..8).map(|i| [i, i + 8]).collect::<Vec<_>>());
        let pipeline = [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]];
        assert_eq!(groups(&mesh, Axis::Pipeline), pipeline);
    }

    #[test]
    fn a_rank_is_where_its_coordinates_say() {
        for order in [Order::PipelineSlowest, Order::DataSlowest] {
            let mesh = layout(3, 2, 5, order);
            assert!((0..30).all(|rank| mesh.rank(mesh.coordinates(rank)) == rank));
        }
    }

    #[test]
    fn sizes_that_make_no_mesh_are_refused() {
        let refused = |data, pipeline, tensor| {
            let error = layout(data, pipeline, tensor, Order::default()).check(12).unwrap_err();
            format!("{}; {}", error.what, error.help)
        };
        assert_eq!(
            refused(2, 2, 2),
            "a mesh of 2 data x 2 pipeline x 2 tensor needs 8 ranks, but there are 12; \
             with these 12 ranks, 3 replicas fit: data 3"
        );
        assert!(refused(1, 5, 2).ends_with(
            "pipeline x tensor must divide the number of ranks: start a multiple of 10 ranks"
        ));
        assert!(refused(0, 2, 2).contains("2 tensor is not possible"));
        assert!(refused(usize::MAX, 2, 2).contains("is not possible"));
    }
}
