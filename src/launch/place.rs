//! Where each rank is: its node, and its number among the ranks there.
//!
//! Found by asking the ranks, not a scheduler's variables: ranks on hosts of the same name share a node. So it holds for
//! threads of one process and for processes on many machines alike.

use crate::comm::{Comm, Result};

/// A rank's seat among the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The rank's node, counted in the order in which ranks name them.
    pub node: usize,
    /// Nodes with ranks on them.
    pub nodes: usize,
    /// The rank's number among those of its node.
    pub local_rank: usize,
    /// Ranks on its node.
    pub local_size: usize,
}

/// The seats of ranks on these hosts, given in rank order.
pub fn seats(hosts: &[String]) -> Vec<Seat> {
    let mut nodes: Vec<(&str, usize)> = Vec::new();
    let mut seats: Vec<Seat> = Vec::with_capacity(hosts.len());
    for host in hosts {
        let node = nodes.iter().position(|(name, _)| name == host).unwrap_or_else(|| {
            nodes.push((host, 0));
            nodes.len() - 1
        });
        seats.push(Seat { node, nodes: 0, local_rank: nodes[node].1, local_size: 0 });
        nodes[node].1 += 1;
    }
    for seat in &mut seats {
        (seat.nodes, seat.local_size) = (nodes.len(), nodes[seat.node].1);
    }
    seats
}

/// A rank, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The name of its host.
    pub host: String,
    /// Its process's number on that host.
    pub process: u32,
    /// The name of its thread.
    pub thread: String,
}

/// Bytes of a name that travel; longer ones are cut. Host names have at most 253.
const NAME: usize = 256;

impl Place {
    /// That of the calling thread.
    pub fn here() -> Place {
        Place {
            host: super::host_name(),
            process: std::process::id(),
            thread: std::thread::current().name().unwrap_or_default().to_string(),
        }
    }

    /// Every rank's, in rank order; all ranks call this together.
    #[track_caller]
    pub fn gather(comm: &Comm) -> Result<Vec<Place>> {
        let here = Place::here();
        let mut names = vec![0u8; 2 * NAME * comm.size()];
        let mine = [name_bytes(&here.host), name_bytes(&here.thread)].concat();
        comm.all_gather(&mine, &mut names)?;
        let mut processes = vec![0u64; comm.size()];
        comm.all_gather(&[u64::from(here.process)], &mut processes)?;
        let place = |(names, process): (&[u8], u64)| Place {
            host: name(&names[..NAME]),
            thread: name(&names[NAME..]),
            process: process as u32,
        };
        Ok(names.chunks(2 * NAME).zip(processes).map(place).collect())
    }
}

/// Fixed-width bytes of a name, because all ranks must send equally many.
fn name_bytes(name: &str) -> [u8; NAME] {
    let mut bytes = [0; NAME];
    let length = name.floor_char_boundary(NAME);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    bytes
}

fn name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_string()
}
