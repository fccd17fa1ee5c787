//! The numbers' way around the ring, round by round.

use anyhow::Result;
use kit::show::{Screen, table};
use shardlab::comm::Comm;

/// The numbers that each rank has seen, round by round. All ranks send them, and rank 0 prints
/// those of the first ranks and rounds.
pub fn show(screen: &Screen, comm: &Comm, seen: &[u64]) -> Result<()> {
    const SHOWN: usize = 8;
    let mut all = Vec::new();
    if comm.rank() == 0 {
        all.resize(comm.size() * comm.size(), 0);
    }
    comm.gather(seen, &mut all, 0)?;
    if comm.rank() != 0 || comm.size() == 1 {
        return Ok(());
    }
    let rounds = comm.size() - 1;
    let title =
        format!("A ring: in {rounds} rounds, each rank passes on what its left neighbour sent");
    let mut header = vec!["rank".to_string(), "starts with".to_string()];
    header.extend((1..SHOWN.min(comm.size())).map(|round| format!("round {round}")));
    let mut rows = Vec::new();
    for (rank, seen) in all.chunks(comm.size()).enumerate().take(SHOWN) {
        let mut row = vec![screen.rank(rank, format!("rank {rank}"))];
        for &number in seen.iter().take(SHOWN) {
            row.push(screen.rank(number as usize, number));
        }
        rows.push(row);
    }
    screen.say(format!("\n{}\n{}", screen.title(&title, 0), table(screen, &header, &rows)));
    Ok(())
}
