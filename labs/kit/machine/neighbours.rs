//! Which ranks of a mesh are neighbours: whether its groups lie inside a node.

use super::place::{Place, seats};
use crate::show::complain;
use anyhow::Result;
use shardlab::comm::Comm;
use shardlab::mesh::{Axis, Layout};

/// Each group along an axis, in the order of their first ranks.
pub fn groups(layout: &Layout, axis: Axis) -> Vec<Vec<usize>> {
    let group = |rank| Some(layout.group(rank, axis)).filter(|group| group[0] == rank);
    (0..layout.ranks()).filter_map(group).collect()
}

/// A mesh as DeepSpeed prints it: `ProcessCoord(pipe=0, data=1, model=0): 2, …`. It calls the
/// tensor axis `model`. The slowest axis comes first.
pub fn topology(layout: &Layout) -> String {
    let name = |axis| match axis {
        Axis::Data => "data",
        Axis::Pipeline => "pipe",
        Axis::Tensor => "model",
    };
    let shown = |axis: &&Axis| **axis != Axis::Tensor || layout.sizes.tensor > 1;
    let rank = |rank| {
        let at = layout.coordinates(rank);
        let place = |&axis: &Axis| format!("{}={}", name(axis), at.along(axis));
        let place: Vec<String> =
            layout.order.axes().iter().rev().filter(shown).map(place).collect();
        format!("ProcessCoord({}): {rank}", place.join(", "))
    };
    format!("{{{}}}", (0..layout.ranks()).map(rank).collect::<Vec<_>>().join(", "))
}

/// How many nodes a group lies on.
pub fn spans(group: &[usize], nodes: &[usize]) -> usize {
    let mut nodes: Vec<usize> = group.iter().map(|&rank| nodes[rank]).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes.len()
}

/// A warning, if a tensor group does not lie inside one node.
pub fn across_nodes(layout: &Layout, nodes: &[usize]) -> Option<String> {
    let group = groups(layout, Axis::Tensor).into_iter().find(|group| spans(group, nodes) > 1)?;
    let most = (0..=nodes.iter().copied().max()?)
        .map(|node| nodes.iter().filter(|&&n| n == node).count())
        .min()?;
    let ranks: Vec<String> = group.iter().map(usize::to_string).collect();
    Some(format!(
        "tensor ranks {} are on {} nodes: every layer waits for the network between them, four times per block and step. \
         Choose --tp at most {most}, the ranks of a node (TP <= devices per node)",
        ranks.join(", "),
        spans(&group, nodes)
    ))
}

/// Warns, on rank 0, if a tensor group does not lie inside one node. All ranks call it.
pub fn warn(comm: &Comm, layout: &Layout) -> Result<()> {
    let hosts: Vec<String> = Place::gather(comm)?.into_iter().map(|place| place.host).collect();
    let nodes: Vec<usize> = seats(&hosts).into_iter().map(|seat| seat.node).collect();
    if let Some(words) = across_nodes(layout, &nodes).filter(|_| comm.rank() == 0) {
        complain(&format!("warning: {words}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::mesh::{Coordinates, Order};

    #[test]
    fn a_topology_is_printed_as_deepspeed_prints_it() {
        let text = "{ProcessCoord(pipe=0, data=0): 0, ProcessCoord(pipe=0, data=1): 1, \
                    ProcessCoord(pipe=1, data=0): 2, ProcessCoord(pipe=1, data=1): 3}";
        let sizes = Coordinates { data: 2, pipeline: 2, tensor: 1 };
        assert_eq!(topology(&Layout { sizes, order: Order::PipelineSlowest }), text);
    }
}
