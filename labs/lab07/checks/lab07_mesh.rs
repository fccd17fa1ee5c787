//! The check of lab07-mesh: the coordinates in both orders, then the groups, then sixteen GPUs as
//! Megatron-LM's source lists them.

use exercise::{Place, place};
use kit::check::{Evidence, run};
use shardlab::Result;
use shardlab::mesh::{Axis, Coordinates, Layout, Order};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("8 ranks, two on each axis: the coordinates", |evidence| {
            coordinates(evidence, &EIGHT)
        }),
        ("24 ranks on axes of three lengths: the coordinates", |evidence| {
            coordinates(evidence, &MEGATRON)
        }),
        ("the same with data slowest: the coordinates", |evidence| {
            coordinates(evidence, &PICOTRON)
        }),
        ("8 ranks, two on each axis: the groups", |evidence| groups(evidence, &EIGHT)),
        ("24 ranks on axes of three lengths: the groups", |evidence| {
            groups(evidence, &MEGATRON)
        }),
        ("the same with data slowest: the groups", |evidence| groups(evidence, &PICOTRON)),
        ("16 GPUs, divided as Megatron-LM's source says", published_groups),
        ("a mesh in which some axes have one rank", short_axes),
    ])
}

const EIGHT: Layout = layout(2, 2, 2, Order::PipelineSlowest);
/// No two axes are equally long, so sizes that are taken for one another show.
const MEGATRON: Layout = layout(3, 4, 2, Order::PipelineSlowest);
const PICOTRON: Layout = layout(3, 4, 2, Order::DataSlowest);

const fn layout(data: usize, pipeline: usize, tensor: usize, order: Order) -> Layout {
    let sizes = Coordinates { data, pipeline, tensor };
    Layout { sizes, order }
}

/// The reader's place of each rank.
fn places(evidence: &Evidence, mesh: &Layout) -> Vec<Place> {
    let of_rank = |rank| {
        let Coordinates { data, pipeline, tensor } = mesh.sizes;
        evidence.given(format!(
            "rank {rank}, {data} data x {pipeline} pipeline x {tensor} tensor ranks, {:?}",
            mesh.order
        ));
        place(rank, mesh.sizes, mesh.order)
    };
    (0..mesh.ranks()).map(of_rank).collect()
}

fn shown(at: Coordinates) -> String {
    let Coordinates { data, pipeline, tensor } = at;
    format!("data {data}, pipeline {pipeline}, tensor {tensor}")
}

fn coordinates(evidence: &mut Evidence, mesh: &Layout) -> Result<()> {
    let got: Vec<Coordinates> = places(evidence, mesh).iter().map(|place| place.at).collect();
    for (rank, at) in got.iter().enumerate() {
        let expected = mesh.coordinates(rank);
        let place = format!("rank {rank}");
        evidence.row(expected == *at, place, shown(expected), shown(*at));
    }
    if evidence.agrees() {
        return Ok(());
    }

    let follows = |rule: &dyn Fn(usize) -> Coordinates| {
        got.iter().enumerate().all(|(rank, at)| *at == rule(rank))
    };
    let from_one = |rank: usize| {
        let Coordinates { data, pipeline, tensor } = mesh.coordinates(rank);
        Coordinates { data: data + 1, pipeline: pipeline + 1, tensor: tensor + 1 }
    };
    evidence.means_if(
        follows(&from_one),
        "These coordinates count from 1. They count from 0, as ranks do: a coordinate is the rank's number in its group.",
    );
    let other = other_order(mesh);
    evidence.means_if(
        follows(&|rank| other.coordinates(rank)),
        format!(
            "These are the coordinates of {:?}, and {:?} is asked for: {}. Two programs that disagree about this take a \
             data rank for a pipeline rank, and so the layers of one stage for those of another.",
            other.order,
            mesh.order,
            match mesh.order {
                Order::PipelineSlowest => "tensor ranks are nearest, then data ranks, then pipeline ranks",
                Order::DataSlowest => "tensor ranks are nearest, then pipeline ranks, then data ranks",
            }
        ),
    );
    for order in TENSOR_IS_NOT_FASTEST {
        evidence.means_if(
            follows(&|rank| filled(rank, mesh.sizes, order)),
            format!(
                "The {} axis runs fastest here, so the ranks of a tensor group are not neighbours. They communicate in \
                 every layer, and neighbours share a node. In both orders the tensor coordinate changes from each rank to \
                 the next.",
                order[0].name()
            ),
        );
    }
    let beyond = got.iter().enumerate().find_map(|(rank, at)| {
        let axis = *Axis::ALL.iter().find(|&&axis| at.along(axis) >= mesh.sizes.along(axis))?;
        Some((rank, axis, at.along(axis)))
    });
    if let Some((rank, axis, at)) = beyond {
        let size = mesh.sizes.along(axis);
        evidence.means(format!(
            "Rank {rank} has {} coordinate {at}, and this axis has {size} rank{}, from 0 on. After the last, an axis begins \
             again at 0, and the next slower axis advances by one. Take the remainder by the axis's own size.",
            axis.name(),
            if size == 1 { "" } else { "s" }
        ));
    }
    let twice = (0..got.len()).find_map(|rank| {
        let before = got[..rank].iter().position(|at| *at == got[rank])?;
        Some((before, rank))
    });
    if let Some((before, rank)) = twice {
        evidence.means(format!(
            "Ranks {before} and {rank} have the same coordinates, so some other place has no rank: a stage or a slice of the \
             layers is on nobody. Before an axis advances by one, all places of the faster axes are used up: divide by both \
             their sizes."
        ));
    }
    evidence.means(
        "Each rank has coordinates of its own, but not those of this order. The table in the exercise says which axis runs \
         fastest, and which comes next.",
    );
    Ok(())
}

fn other_order(mesh: &Layout) -> Layout {
    let order = match mesh.order {
        Order::PipelineSlowest => Order::DataSlowest,
        Order::DataSlowest => Order::PipelineSlowest,
    };
    Layout { order, ..*mesh }
}

/// Axes from the fastest to the slowest: all orders that neither library has.
const TENSOR_IS_NOT_FASTEST: [[Axis; 3]; 4] = [
    [Axis::Data, Axis::Pipeline, Axis::Tensor],
    [Axis::Data, Axis::Tensor, Axis::Pipeline],
    [Axis::Pipeline, Axis::Data, Axis::Tensor],
    [Axis::Pipeline, Axis::Tensor, Axis::Data],
];

/// A rank's coordinates if the axes are filled in this order.
fn filled(rank: usize, sizes: Coordinates, order: [Axis; 3]) -> Coordinates {
    let mut step = 1;
    let mut at = layout(0, 0, 0, Order::PipelineSlowest).sizes;
    for axis in order {
        let size = sizes.along(axis);
        let place = rank / step % size;
        match axis {
            Axis::Data => at.data = place,
            Axis::Pipeline => at.pipeline = place,
            Axis::Tensor => at.tensor = place,
        }
        step *= size;
    }
    at
}

fn group(place: &Place, axis: Axis) -> &[usize] {
    match axis {
        Axis::Data => &place.data,
        Axis::Pipeline => &place.pipeline,
        Axis::Tensor => &place.tensor,
    }
}

/// How far apart neighbours on an axis are.
fn step(mesh: &Layout, axis: Axis) -> usize {
    let faster = mesh.order.axes().into_iter().take_while(|other| *other != axis);
    faster.map(|axis| mesh.sizes.along(axis)).product()
}

fn groups(evidence: &mut Evidence, mesh: &Layout) -> Result<()> {
    let got = places(evidence, mesh);
    let mut wrong = None;
    for axis in mesh.order.axes() {
        for (rank, place) in got.iter().enumerate() {
            let expected = mesh.group(rank, axis);
            let at = format!("rank {rank}: its {} group", axis.name());
            if !evidence.same(at, expected, group(place, axis).to_vec()) {
                wrong = wrong.or(Some((rank, axis)));
            }
        }
    }
    let Some((rank, axis)) = wrong else {
        return Ok(());
    };

    let name = axis.name();
    let size = mesh.sizes.along(axis);
    let step = step(mesh, axis);
    // Whether a rule gives the reader's groups of all ranks along this axis.
    let follows = |rule: &dyn Fn(usize) -> Vec<usize>| {
        got.iter().enumerate().all(|(rank, place)| group(place, axis) == rule(rank))
    };
    let at = |rank: usize, axis: Axis| mesh.coordinates(rank).along(axis);
    let steps =
        |first: usize, step: usize| -> Vec<usize> { (0..size).map(|i| first + i * step).collect() };
    let mine = group(&got[rank], axis);
    evidence.means_if(
        got.iter().all(|place| Axis::ALL.iter().all(|&axis| group(place, axis).is_empty())),
        "The coordinates are right. Now the groups: a rank's group along an axis has the rank itself, and the ranks that \
         differ from it on this axis only.",
    );
    evidence.means_if(
        mine.is_empty(),
        format!(
            "The {name} group is empty. Even an axis of one rank has a group: the rank itself."
        ),
    );
    let same_coordinate = |rank: usize| -> Vec<usize> {
        (0..mesh.ranks()).filter(|&other| at(other, axis) == at(rank, axis)).collect()
    };
    evidence.means_if(
        follows(&same_coordinate),
        format!(
            "These are the ranks that share rank {rank}'s {name} coordinate. It is the opposite that is asked for: in a \
             {name} group the {name} coordinate differs, and both others are equal."
        ),
    );
    let without_itself = |rank: usize| -> Vec<usize> {
        mesh.group(rank, axis).into_iter().filter(|&other| other != rank).collect()
    };
    evidence.means_if(
        follows(&without_itself),
        "A rank belongs to its own groups: it communicates in them.",
    );
    let other_axis = Axis::ALL
        .into_iter()
        .find(|&other| other != axis && follows(&|rank| mesh.group(rank, other)));
    if let Some(other) = other_axis {
        evidence.means(format!(
            "These are the {} groups. A {name} group has all coordinates of the {name} axis.",
            other.name()
        ));
    }
    let other = other_order(mesh);
    evidence.means_if(
        follows(&|rank| other.group(rank, axis)),
        format!(
            "The coordinates are those of {:?}, and these groups are those of {:?}. Both follow from the same steps.",
            mesh.order, other.order
        ),
    );
    // Coordinates of this order, made into numbers again by the other.
    let renumbered = |rank: usize| -> Vec<usize> {
        let number = |other: usize| {
            let same = |&new: &usize| other_order(mesh).coordinates(new) == mesh.coordinates(other);
            (0..mesh.ranks()).find(same).unwrap_or(other)
        };
        mesh.group(rank, axis).into_iter().map(number).collect()
    };
    let outside = (0..got.len()).find(|rank| !group(&got[*rank], axis).contains(rank));
    let shown = outside.unwrap_or(rank);
    evidence.means_if(
        follows(&renumbered),
        format!(
            "Rank {shown}'s {name} group is {:?}. Its coordinates are those of {:?}, and your groups make numbers of them by the \
             steps of {:?}. A rank belongs to its own groups, and here ranks wait for others that never come.",
            group(&got[shown], axis),
            mesh.order,
            other.order
        ),
    );
    evidence.means_if(
        step > 1 && (follows(&|rank| steps(rank - rank % size, 1)) || follows(&|rank| steps(rank - at(rank, axis), 1))),
        format!(
            "These groups have neighbours in them. Only tensor ranks are neighbours: from one {name} rank to the next all \
             places of the faster axes are passed, here {step}."
        ),
    );
    evidence.means_if(
        follows(&|_| steps(0, step)),
        format!(
            "Every rank gets the group of rank 0. Rank {rank}'s group begins where its {name} coordinate is 0, and both \
             others are its own."
        ),
    );
    evidence.means_if(
        follows(&|rank| steps(rank, step)),
        format!(
            "The group begins with rank {rank} itself, and there are ranks before it: rank {rank} has {name} coordinate {}.",
            at(rank, axis)
        ),
    );
    if let Some(other) = mine.iter().find(|&&other| other >= mesh.ranks()) {
        evidence.means(format!(
            "Rank {other} is in this group, and the mesh has ranks 0 to {}.",
            mesh.ranks() - 1
        ));
    }
    let sorted = |mut of: Vec<usize>| {
        of.sort_unstable();
        of
    };
    let members = got
        .iter()
        .enumerate()
        .all(|(rank, place)| sorted(group(place, axis).to_vec()) == mesh.group(rank, axis));
    evidence.means_if(
        members,
        "The members are right, and their order is not. A rank's number in its group is its coordinate: the first member \
         has coordinate 0.",
    );
    if let Some(rank) = outside {
        evidence.means(format!(
            "Rank {rank} is not in its own {name} group, {:?}. A rank belongs to its own groups: it communicates in them. Where \
             does the group of rank {rank} begin?",
            group(&got[rank], axis)
        ));
    }
    // From the first wrong group on.
    let asymmetric = (rank..got.len()).find_map(|rank| {
        let counts =
            |a: usize, b: usize| got.get(a).is_some_and(|place| group(place, axis).contains(&b));
        let other = *group(&got[rank], axis).iter().find(|&&other| !counts(other, rank))?;
        Some((rank, other))
    });
    if let Some((rank, other)) = asymmetric {
        evidence.means(format!(
            "Rank {rank} counts rank {other} in its {name} group, and rank {other} does not count rank {rank}. In such a \
             job rank {rank} waits in a collective that rank {other} never enters."
        ));
    }
    evidence.means(format!(
        "Rank {rank}'s {name} group has the {size} ranks that have its other two coordinates: one for each {name} \
         coordinate, from 0 on."
    ));
    Ok(())
}

/// From the comment on `initialize_model_parallel` in Megatron-LM: tensor 2, pipeline 4.
fn published_groups(evidence: &mut Evidence) -> Result<()> {
    const TENSOR: [[usize; 2]; 8] =
        [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13], [14, 15]];
    const PIPELINE: [[usize; 4]; 4] =
        [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]];
    const DATA: [[usize; 2]; 8] =
        [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]];
    let mesh = layout(2, 4, 2, Order::PipelineSlowest);
    let got = places(evidence, &mesh);
    let mut all: Vec<(Axis, &[usize])> = Vec::new();
    all.extend(TENSOR.iter().map(|group| (Axis::Tensor, group.as_slice())));
    all.extend(PIPELINE.iter().map(|group| (Axis::Pipeline, group.as_slice())));
    all.extend(DATA.iter().map(|group| (Axis::Data, group.as_slice())));
    for (axis, members) in all {
        for &rank in members {
            let at = format!("rank {rank}: its {} group", axis.name());
            evidence.same(at, members, group(&got[rank], axis));
        }
    }
    evidence.means(
        "With 2 tensor, 4 pipeline and 2 data ranks, Megatron-LM's source lists other groups.",
    );
    Ok(())
}

fn short_axes(evidence: &mut Evidence) -> Result<()> {
    for order in [Order::PipelineSlowest, Order::DataSlowest] {
        for (data, pipeline, tensor) in
            [(1, 1, 1), (5, 1, 1), (1, 5, 1), (1, 1, 5), (4, 1, 2), (1, 3, 2)]
        {
            for part in [coordinates, groups] {
                part(evidence, &layout(data, pipeline, tensor, order))?;
                if !evidence.agrees() {
                    let shape = format!("{data} x {pipeline} x {tensor}, {order:?}");
                    evidence.row(false, "wrong first in a mesh of", "none", shape);
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}
