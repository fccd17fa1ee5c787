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
