//! lab00-hostfile · Which rank sits where

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

    let either = |names: [&str; 2]| names.into_iter().find_map(number);
    let Some(rank) = either(["OMPI_COMM_WORLD_RANK", "PMI_RANK"]) else {
        return Place { rank: 0, size: 1, node: 0, local_rank: 0 };
    };
    let size = either(["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"]).unwrap_or(hosts.len());

    let before = &hosts[..rank];
    let mine = hosts[rank];
    let mut nodes: Vec<&str> = Vec::new();
    for host in &hosts[..=rank] {
        if !nodes.contains(host) {
            nodes.push(host);
        }
    }
    let node = nodes.iter().position(|host| *host == mine).unwrap_or(0);
    let local_rank = before.iter().filter(|host| **host == mine).count();
    Place { rank, size, node, local_rank }
}
