//! The check of lab10-settings: 16 ranks form both meshes, and count.

use exercise::answers;
use kit::check::{Evidence, run};
use shardlab::comm::Reduce;
use shardlab::mesh::{Axis, Coordinates, Layout, Mesh, Order};
use shardlab::{Result, launch};
use std::process::ExitCode;

const RANKS: usize = 16;
const TENSOR: usize = 2;
const STAGES: usize = 2;
const MICRO_BATCH: usize = 3;
const ACCUMULATION: usize = 5;

fn main() -> ExitCode {
    run(&[
        ("the library reads all keys", |evidence| job(evidence, true)),
        ("it ignores tensor_parallel", |evidence| {
            job(evidence, false)
        }),
    ])
}

/// Replicas and sequences per step, as ranks find them: one rank of each replica counts its sequences.
fn counted(tensor: usize) -> Result<[usize; 2]> {
    let sizes = Coordinates {
        data: RANKS / (tensor * STAGES),
        pipeline: STAGES,
        tensor,
    };
    let found = launch::run(RANKS, |comm| {
        let order = Order::PipelineSlowest;
        let mesh = Mesh::new(&comm, Layout { sizes, order })?;
        let first = [Axis::Pipeline, Axis::Tensor]
            .iter()
            .all(|&axis| mesh.group(axis).rank() == 0);
        let own = if first { MICRO_BATCH * ACCUMULATION } else { 0 };
        let mut sequences = [own as u64];
        comm.all_reduce(&mut sequences, Reduce::Sum)?;
        Ok([mesh.group(Axis::Data).size(), sequences[0] as usize])
    })?;
    Ok(found[0])
}

fn job(evidence: &mut Evidence, reads: bool) -> Result<()> {
    let [all, without] = answers();
    let [replicas, sequences] = if reads { all } else { without };
    let expected = counted(if reads { TENSOR } else { 1 })?;
    let right_replicas = evidence.same("replicas", expected[0], replicas);
    let right_sequences = evidence.same("sequences per step", expected[1], sequences);
    if !right_replicas {
        replicas_mean(evidence, replicas, reads);
    }
    if !right_sequences {
        let of_replica = MICRO_BATCH * ACCUMULATION;
        evidence.means_if(
            !reads && sequences == all[1],
            "The same as with all keys. But each new replica draws sequences of its own: a step has more of them than the settings' author \
             thinks, and nothing in the loss shows it.",
        );
        evidence.means_if(
            sequences == of_replica,
            "These are the sequences of one replica. Every replica has as many, different ones.",
        );
        evidence.means_if(
            sequences == RANKS * of_replica,
            "This counts the sequences of every rank. Tensor ranks and stages of a replica work on the same ones.",
        );
        evidence.means_if(
            sequences == replicas * MICRO_BATCH,
            "This is one micro-batch of each replica. A step has 5 of them before the optimizer runs.",
        );
        evidence.means_if(
            sequences == replicas * ACCUMULATION,
            "These are micro-batches. Each has 3 sequences.",
        );
        evidence.means(
            "A step has replicas x micro-batches of a replica x sequences of a micro-batch.",
        );
    }
    Ok(())
}

fn replicas_mean(evidence: &mut Evidence, replicas: usize, reads: bool) {
    evidence.means_if(
        !reads && replicas == RANKS / (TENSOR * STAGES),
        "The same as with all keys. But nobody says how many replicas there are: the ranks that the key should have used become further \
         replicas. This happened in the lab's incident.",
    );
    evidence.means_if(
        replicas == RANKS,
        "These are all ranks. The stages of a replica share one copy of the model.",
    );
    evidence.means_if(
        reads && replicas == RANKS / TENSOR,
        "One key alone was counted. Tensor ranks and stages multiply: a replica has 2 x 2 ranks.",
    );
    evidence.means_if(
        replicas == RANKS - TENSOR * STAGES || replicas == RANKS - TENSOR - STAGES,
        "The ranks of the first replica are not taken away from the others: every replica needs as many.",
    );
    evidence.means_if(
        replicas == TENSOR * STAGES * 2 || replicas == TENSOR,
        "A replica has this many ranks, or half of them. How often does it fit into 16?",
    );
    evidence
        .means("Tensor ranks and stages take their ranks first. All others are further replicas.");
}
