//! lab00-hostfile · Which rank sits where
//!
//! A launcher starts one process for each rank, on all nodes of the job. All processes run the same
//! program. A process learns from its environment which rank it is. The job's host file says on
//! which node each rank runs.
//!
//! The environment: Open MPI's mpirun sets OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE for each
//! process, MPICH's sets PMI_RANK and PMI_SIZE. A process that was started without a launcher has
//! none of these: it is rank 0 of 1, on its only node, and its host file may be empty, or have
//! lines of other ranks.
//!
//! The host file, as PBS writes it: one line per rank, in rank order, with the name of the rank's
//! host. (The host file in lab00's chapter has one line per node instead.) Nodes are numbered in
//! the order in which the file first names them. On each node, ranks are numbered from 0 again, in
//! rank order.
//!
//! ```text
//! host file      the environment              rank   size   node   local_rank
//! nid7           OMPI_COMM_WORLD_RANK=0          0      4      0            0
//! nid3           OMPI_COMM_WORLD_RANK=1          1      4      1            0
//! nid3           OMPI_COMM_WORLD_RANK=2          2      4      1            1
//! nid7           OMPI_COMM_WORLD_RANK=3          3      4      0            1
//! ```

/// One process's place in a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    pub rank: usize,
    /// Ranks in the whole job.
    pub size: usize,
    /// The number of the rank's node.
    pub node: usize,
    /// The rank's number on its own node. On a node with several GPUs, this number picks the GPU.
    pub local_rank: usize,
}

/// The place of the process with this environment, in the job with this host file.
pub fn place(env: &dyn Fn(&str) -> Option<String>, host_file: &str) -> Place {
    let number = |name: &str| env(name).and_then(|text| text.parse::<usize>().ok());
    let hosts: Vec<&str> = host_file.lines().collect();
    todo!("where is rank {:?} among the hosts {hosts:?}?", number("OMPI_COMM_WORLD_RANK"))
}
