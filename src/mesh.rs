//! A mesh of ranks, with a group of ranks along each axis.
//!
//! A rank has one coordinate on each axis. Ranks that differ in only one coordinate form a group.
//! Tensor ranks share one layer, pipeline ranks hold different layers of one replica, and data
//! ranks hold the same parameters. A strategy gets the group that it communicates in.
//!
//! Ranks with neighbouring numbers mostly share a node, where links are fast. Tensor parallelism
//! communicates in each layer, so its ranks are always nearest. Libraries differ in the next axis:
//! see [`Order`].

use crate::comm::{self, Comm};
use anyhow::Result;
pub use shapes::strategy::{Axis, Coordinates, Layout, Order};

/// One rank's coordinates in a mesh, and its three groups.
///
/// Eight ranks are two replicas of two stages of two tensor ranks. Replicas average their
/// gradients:
///
/// ```
/// use shardlab::comm::Reduce;
/// use shardlab::launch;
/// use shardlab::mesh::{Axis, Coordinates, Layout, Mesh, Order};
///
/// let sizes = Coordinates { data: 2, pipeline: 2, tensor: 2 };
/// let layout = Layout { sizes, order: Order::PipelineSlowest };
/// let means = launch::run(8, |comm| {
///     let mesh = Mesh::new(&comm, layout)?;
///     let mut gradient = [comm.rank() as f32];
///     mesh.group(Axis::Data).all_reduce(&mut gradient, Reduce::Mean)?;
///     Ok(gradient[0])
/// })?;
/// assert_eq!(layout.group(5, Axis::Data), [5, 7]);
/// assert_eq!(means, [1.0, 2.0, 1.0, 2.0, 5.0, 6.0, 5.0, 6.0]);
/// # anyhow::Ok(())
/// ```
#[derive(Clone)]
pub struct Mesh {
    pub layout: Layout,
    pub at: Coordinates,
    world: Comm,
    /// One per axis.
    groups: Vec<Comm>,
}

impl Mesh {
    /// Divides the world into groups. All ranks call this together, with the same layout.
    ///
    /// # Errors
    /// If the sizes do not make a mesh of all ranks, or a rank does not call it.
    #[track_caller]
    pub fn new(world: &Comm, layout: Layout) -> Result<Mesh> {
        layout.check(world.size())?;
        let at = layout.coordinates(world.rank());
        let group = |axis: Axis| {
            let first = layout.group(world.rank(), axis)[0];
            world
                .split(first as u64, at.along(axis) as i64)
                .map(|group| group.named(axis.name()))
        };
        let groups = Axis::ALL.into_iter().map(group).collect::<comm::Result<_>>()?;
        Ok(Mesh { layout, at, world: world.clone(), groups })
    }

    /// The group of all ranks.
    pub fn world(&self) -> &Comm {
        &self.world
    }

    /// The ranks that differ from this one only along `axis`. A rank's number there is its
    /// coordinate.
    pub fn group(&self, axis: Axis) -> &Comm {
        &self.groups[axis as usize]
    }
}
