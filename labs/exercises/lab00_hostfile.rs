//! lab00-hostfile · Which rank sits where
//!
//! A launcher starts one process for each rank, on all nodes of the job. All of them run the same program; what makes one
//! of them rank 2 is that its environment says so. Where rank 2 sits, the job's host file tells.
//!
//! The environment: Open MPI's mpirun sets OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE for each process, MPICH's sets
//! PMI_RANK and PMI_SIZE. A process that nobody launched has none of these: it is rank 0 of 1, on its only node,
//! and its host file may be empty.
//!
//! The host file, as PBS writes it: one line for each rank, in rank order, with the name of the host it runs on. (Others name
//! each node once, as the one does that the book gives to lab00.) Nodes are numbered in the order in which the file first
//! names them; the ranks of a node are numbered from 0 again, in rank order.

/// One process's place in a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    pub rank: usize,
    /// Ranks in all.
    pub size: usize,
    /// The number of its node.
    pub node: usize,
    /// Its number among the ranks of its node. On a node with several GPUs, this number picks the GPU.
    pub local_rank: usize,
}

/// The place of the process with this environment, in the job with this host file.
pub fn place(env: &dyn Fn(&str) -> Option<String>, host_file: &str) -> Place {
    let number = |name: &str| env(name).and_then(|text| text.parse::<usize>().ok());
    let hosts: Vec<&str> = host_file.lines().collect();
    todo!("where is rank {:?} among the hosts {hosts:?}?", number("OMPI_COMM_WORLD_RANK"))
}
