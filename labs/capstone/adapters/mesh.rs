//! lab07-mesh as a part of the trainer.

pub fn take(parts: &mut capstone::Parts) {
    parts.mesh = |rank, sizes, order| {
        let place = lab07_mesh::place(rank, sizes, order);
        capstone::parts::Place {
            at: place.at,
            data: place.data,
            pipeline: place.pipeline,
            tensor: place.tensor,
        }
    };
}
