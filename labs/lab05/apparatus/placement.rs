//! Which ranks are neighbours: the groups of a mesh, and the nodes that they lie on.

use kit::neighbours::{across_nodes, groups, spans, topology};
use kit::show::{Screen, counted, table};
use shardlab::mesh::{Axis, Layout};

/// The node of each rank, if `per_node` ranks are on each.
fn nodes(ranks: usize, per_node: usize) -> Vec<usize> {
    (0..ranks).map(|rank| rank / per_node.max(1)).collect()
}

/// The mesh as DeepSpeed prints it, and the groups along each axis, if `per_node` ranks are on each
/// node.
pub fn draw_mesh(screen: &Screen, layout: &Layout, per_node: usize) -> String {
    let nodes = &nodes(layout.ranks(), per_node);
    let row = |axis: Axis| {
        let groups = groups(layout, axis);
        let most = groups.iter().map(|group| spans(group, nodes)).max().unwrap_or(1);
        let place = if most == 1 {
            "inside a node".to_string()
        } else {
            format!("across {most} nodes")
        };
        let words = |group: &Vec<usize>| {
            let ranks: Vec<String> = group.iter().map(usize::to_string).collect();
            format!("[{}]", ranks.join(" "))
        };
        let shown: Vec<String> = groups.iter().map(words).collect();
        [axis.name().to_string(), shown.join(" "), place]
    };
    let axes = layout.order.axes().into_iter().filter(|&axis| layout.sizes.along(axis) > 1);
    let all = nodes.iter().max().map_or(1, |last| last + 1);
    let on = format!("{} ranks on {}", layout.ranks(), counted(all, "node", "nodes"));
    let head = screen.bold(format!("{on}, from the nearest axis to the farthest"));
    let warning = across_nodes(layout, nodes);
    let warning = warning.map_or(String::new(), |words| {
        format!("\n\n{}", screen.wrap(&format!("warning: {words}"), 2))
    });
    format!(
        "{}\n\n  {head}\n{}{warning}",
        screen.wrap(&format!("Using topology: {}", topology(layout)), 2),
        table(screen, &["axis", "groups of ranks", "each group is"], axes.map(row))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::mesh::{Coordinates, Order};

    #[test]
    fn a_tensor_group_on_two_nodes_is_warned_of() {
        let layout = |tensor| {
            let sizes = Coordinates { data: 8 / tensor, pipeline: 1, tensor };
            Layout { sizes, order: Order::default() }
        };
        assert_eq!(across_nodes(&layout(4), &nodes(8, 4)), None);
        let words = across_nodes(&layout(8), &nodes(8, 4)).unwrap();
        assert!(
            words.starts_with("tensor ranks 0, 1, 2, 3, 4, 5, 6, 7 are on 2 nodes: "),
            "{words}"
        );
        assert!(words.contains("--tp at most 4"), "{words}");
        // Ranks that are dealt out to nodes in turns have no neighbour on their node.
        assert!(
            across_nodes(&layout(2), &[0, 1, 0, 1, 0, 1, 0, 1])
                .unwrap()
                .contains("ranks 0, 1 are on 2 nodes")
        );
    }
}
