//! The place of each rank: its node, and its number among the ranks of that node.
//!
//! The ranks themselves exchange their hosts' names, without a scheduler's variables. Ranks on
//! hosts of the same name share a node. This works for threads of one process and for processes on
//! many machines.

use shardlab::comm::{Comm, Result};
use shardlab::launch;

/// A rank's numbers among the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The rank's node. Nodes are numbered in the order of their first ranks.
    pub node: usize,
    /// Nodes with ranks on them.
    pub nodes: usize,
    /// The rank's number among the ranks of its node.
    pub local_rank: usize,
    /// Ranks on its node.
    pub local_size: usize,
}

/// The seats of ranks on these hosts. Hosts are in rank order.
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
        seat.nodes = nodes.len();
        seat.local_size = nodes[seat.node].1;
    }
    seats
}

/// The place where a rank runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The name of the rank's host.
    pub host: String,
    /// The number of the rank's process on that host.
    pub process: u32,
    /// The name of the rank's thread.
    pub thread: String,
}

/// Bytes of a name that ranks exchange. Longer names are cut, but host names have at most 253
/// bytes.
const NAME: usize = 256;

impl Place {
    /// The place of the calling thread.
    pub fn here() -> Place {
        Place {
            host: launch::host_name(),
            process: launch::process_id(),
            thread: std::thread::current().name().unwrap_or_default().to_string(),
        }
    }

    /// The places of all ranks, in rank order. All ranks call this together.
    ///
    /// # Errors
    /// Those of every collective (see [`Comm`]).
    #[track_caller]
    pub fn gather(comm: &Comm) -> Result<Vec<Place>> {
        let here = Place::here();
        let mine = [name_bytes(&here.host), name_bytes(&here.thread)].concat();
        let names = comm.gathered(&mine)?;
        let processes = comm.gathered(&[u64::from(here.process)])?;
        let place = |(names, process): (&[u8], u64)| Place {
            host: name(&names[..NAME]),
            thread: name(&names[NAME..]),
            process: process as u32,
        };
        Ok(names.chunks(2 * NAME).zip(processes).map(place).collect())
    }
}

/// The bytes of a name in a fixed width, because all ranks must send equally many bytes.
fn name_bytes(name: &str) -> [u8; NAME] {
    let mut bytes = [0; NAME];
    let length = name.floor_char_boundary(NAME);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    bytes
}

fn name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_string()
}
