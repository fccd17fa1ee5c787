//! The check of lab07-where: three ranks' numbers, beside those of the library's mesh.

use exercise::answers;
use kit::check::{Evidence, run};
use shardlab::Result;
use shardlab::mesh::{Axis, Coordinates, Layout, Order};
use std::process::ExitCode;

const MEGATRON: Layout = Layout {
    sizes: Coordinates {
        data: 3,
        pipeline: 2,
        tensor: 2,
    },
    order: Order::PipelineSlowest,
};
const PICOTRON: Layout = Layout {
    order: Order::DataSlowest,
    ..MEGATRON
};
/// The place that the exercise asks about.
const PLACE: Coordinates = Coordinates {
    data: 1,
    pipeline: 1,
    tensor: 0,
};

fn main() -> ExitCode {
    run(&[
        ("which rank it is", rank),
        ("which rank sends it activations", before),
        ("which rank it is in picotron", in_picotron),
    ])
}

fn shown(mesh: &Layout, rank: usize) -> String {
    if rank >= mesh.ranks() {
        return format!("rank {rank}: not in the mesh");
    }
    let at = mesh.coordinates(rank);
    format!(
        "rank {rank}: data {}, pipeline {}, tensor {}",
        at.data, at.pipeline, at.tensor
    )
}

/// Compares a rank with the one at `place`, and shows where both are. Explains numbers that are in no mesh, or count from 1.
fn compare(evidence: &mut Evidence, what: &str, mesh: &Layout, place: Coordinates, got: usize) {
    let asked = mesh.rank(place);
    evidence.row(asked == got, what, shown(mesh, asked), shown(mesh, got));
    evidence.means_if(
        got >= mesh.ranks(),
        format!(
            "Ranks count from 0, so the last one is {}.",
            mesh.ranks() - 1
        ),
    );
}

fn rank(evidence: &mut Evidence) -> Result<()> {
    let got = answers().rank;
    compare(evidence, "its number", &MEGATRON, PLACE, got);
    evidence.means_if(
        got == PICOTRON.rank(PLACE),
        "This is its number in picotron, where pipeline ranks come before data ranks. In Megatron-LM all data ranks of a stage \
         come before the next stage.",
    );
    evidence.means_if(
        got == MEGATRON.rank(PLACE) + 1,
        "One too many: ranks count from 0, and so do coordinates.",
    );
    // Data, pipeline and tensor ranks, and the same the other way round.
    evidence.means_if(
        [1 + 3, 1 + 2].contains(&got),
        "Here the tensor axis is the slowest one. In both orders tensor ranks are neighbours: ranks 0 and 1 differ on this \
         axis alone.",
    );
    evidence.means_if(
        MEGATRON.coordinates(got % MEGATRON.ranks()).pipeline == 0,
        "This rank holds the first stage. Stage 1 begins after all ranks of stage 0: 3 data ranks times 2 tensor ranks.",
    );
    evidence.means(
        "One step on the tensor axis is 1 rank. One step on the data axis passes all tensor ranks, and one on the pipeline \
         axis all data and tensor ranks.",
    );
    Ok(())
}

fn before(evidence: &mut Evidence) -> Result<()> {
    let got = answers().before;
    let place = Coordinates {
        pipeline: PLACE.pipeline - 1,
        ..PLACE
    };
    compare(evidence, "the rank before it", &MEGATRON, place, got);
    let rank = MEGATRON.rank(PLACE);
    evidence.means_if(
        got + 1 == rank,
        "This rank has the number before, but the same stage and other data. Activations come from the same replica's stage \
         before: only the pipeline coordinate differs.",
    );
    evidence.means_if(
        MEGATRON.group(rank, Axis::Data).contains(&got),
        "This rank holds the same layers and takes other sequences. The two average gradients, and send each other no \
         activations.",
    );
    evidence.means_if(
        MEGATRON.group(rank, Axis::Tensor).contains(&got),
        "This rank shares the layers of the same stage. Activations for the stage come from the stage before.",
    );
    evidence.means(
        "Activations come from the stage before, with the same data and tensor coordinates. How many ranks has a stage?",
    );
    Ok(())
}

fn in_picotron(evidence: &mut Evidence) -> Result<()> {
    let got = answers().in_picotron;
    compare(evidence, "its number in picotron", &PICOTRON, PLACE, got);
    evidence.means_if(
        got == MEGATRON.rank(PLACE),
        "This is Megatron-LM's number. Two programs that disagree here take a rank with other data for one with other layers.",
    );
    evidence.means("Tensor ranks are still neighbours. Now one step on the pipeline axis passes the tensor ranks, and one on the data axis a whole replica.");
    Ok(())
}
