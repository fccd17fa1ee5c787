//! The check of lab07-where: a rank's number, beside that of the library's mesh.

use exercise::sender;
use kit::check::{Evidence, run};
use shardlab::Result;
use shardlab::mesh::{Axis, Coordinates, Layout, Order};
use std::process::ExitCode;

const MEGATRON: Layout = Layout {
    sizes: Coordinates { data: 5, pipeline: 4, tensor: 8 },
    order: Order::PipelineSlowest,
};
const PICOTRON: Layout = Layout { order: Order::DataSlowest, ..MEGATRON };
/// The rank that gets activations.
const RANK: usize = 110;

pub fn main() -> ExitCode {
    run(&[("which rank sends activations to rank 110", sends)])
}

fn shown(rank: usize) -> String {
    if rank >= MEGATRON.ranks() {
        return format!("rank {rank}: not in the mesh");
    }
    let at = MEGATRON.coordinates(rank);
    format!("rank {rank}: tensor {}, data {}, pipeline {}", at.tensor, at.data, at.pipeline)
}

/// The rank one stage before rank 110, in an order.
fn before(mesh: &Layout) -> usize {
    let mut place = mesh.coordinates(RANK);
    place.pipeline -= 1;
    mesh.rank(place)
}

fn sends(evidence: &mut Evidence) -> Result<()> {
    let got = sender();
    if evidence.answer("the sender", shown(before(&MEGATRON)), shown(got)) {
        return Ok(());
    }
    if got >= MEGATRON.ranks() {
        let last = MEGATRON.ranks() - 1;
        evidence.means(format!("Ranks count from 0, so the last one is {last}."));
        return Ok(());
    }
    let [here, there] = [RANK, got].map(|rank| MEGATRON.coordinates(rank).pipeline);
    let along = |axis: Axis| MEGATRON.group(RANK, axis).contains(&got);
    evidence.means_if(got == RANK, "This is rank 110 itself.");
    evidence.means_if(
        got == before(&PICOTRON),
        "In picotron it would be this rank: there, pipeline ranks come right after tensor ranks. In Megatron-LM's order it holds \
         the same layers as rank 110, and takes other sequences.",
    );
    evidence.means_if(
        along(Axis::Tensor),
        "This rank shares the layers of the same stage. Activations come from the stage before.",
    );
    evidence.means_if(
        along(Axis::Data),
        "This rank holds the same layers, and takes other sequences. Data ranks send each other no activations.",
    );
    evidence.means_if(
        along(Axis::Pipeline) && there > here,
        "This rank holds a later stage of the same pipeline. What comes from there are gradients.",
    );
    evidence.means_if(
        along(Axis::Pipeline),
        "This rank holds an earlier stage of the same pipeline, but not the one right before.",
    );
    evidence.means_if(
        there + 1 == here,
        "This rank holds the stage before, but it is another replica's, or another tensor rank. Only one coordinate may differ.",
    );
    evidence.means("Activations come from the stage before. How many ranks hold one stage?");
    Ok(())
}
