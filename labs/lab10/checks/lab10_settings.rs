//! The check of lab10-settings: 24 ranks form the mesh that is left without a key, and count.

use exercise::sequences;
use kit::check::{Evidence, run};
use shardlab::comm::Reduce;
use shardlab::mesh::{Axis, Coordinates, Layout, Mesh, Order};
use shardlab::{Result, launch};
use std::process::ExitCode;

const RANKS: usize = 24;
const TENSOR: usize = 4;
const STAGES: usize = 2;
const MICRO_BATCH: usize = 3;
const ACCUMULATION: usize = 5;

pub fn main() -> ExitCode {
    run(&[("a step's sequences, without tensor ranks", step)])
}

/// Replicas and sequences per step, as ranks find them: one rank of each replica counts its
/// sequences.
fn counted(tensor: usize, stages: usize) -> Result<[usize; 2]> {
    let sizes = Coordinates { data: RANKS / (tensor * stages), pipeline: stages, tensor };
    let found = launch::run(RANKS, |comm| {
        let order = Order::PipelineSlowest;
        let mesh = Mesh::new(&comm, Layout { sizes, order })?;
        let first = [Axis::Pipeline, Axis::Tensor].iter().all(|&axis| mesh.group(axis).rank() == 0);
        let own = if first { MICRO_BATCH * ACCUMULATION } else { 0 };
        let mut sequences = [own as u64];
        comm.all_reduce(&mut sequences, Reduce::Sum)?;
        Ok([mesh.group(Axis::Data).size(), sequences[0] as usize])
    })?;
    Ok(found[0])
}

fn step(evidence: &mut Evidence) -> Result<()> {
    let got = sequences();
    let [replicas, right] = counted(1, STAGES)?;
    evidence.answer("sequences per step", right, got);
    evidence.means_if(
        got == counted(TENSOR, STAGES)?[1],
        "This would be right if the library read all keys. The ranks that the key should have used are not idle: they become \
         further replicas, with sequences of their own.",
    );
    evidence.means_if(
        got == counted(TENSOR, 1)?[1],
        "Here the tensor ranks are counted, and the stages are not. It is the other key that nobody reads.",
    );
    evidence.means_if(
        got == RANKS * MICRO_BATCH * ACCUMULATION,
        "This counts the sequences of every rank. The stages of a replica work on the same ones.",
    );
    evidence.means_if(
        got == MICRO_BATCH * ACCUMULATION,
        "These are the sequences of one replica. Every replica has as many, different ones.",
    );
    evidence.means_if(
        got == replicas * MICRO_BATCH,
        "This is one micro-batch of each replica. `accumulation` says how many of them a step has.",
    );
    evidence.means_if(
        got == replicas * ACCUMULATION,
        "These are micro-batches. Each has several sequences.",
    );
    evidence.means_if(got == replicas, "These are the replicas, not their sequences.");
    evidence.means("A step has the sequences of all replicas. How many ranks does one replica take, if nobody reads the key?");
    Ok(())
}
