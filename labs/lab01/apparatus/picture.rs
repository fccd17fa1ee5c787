//! Collectives as pictures: the numbers that each rank holds before, after, and between the rounds
//! of an algorithm.
//!
//! Every picture is of real data. Rank 0 brings ones, rank 1 tens, rank 2 hundreds, so the digits
//! of a sum show whose numbers it contains.

use super::call::Way;
use super::grid::{Cell, before_and_after};
use kit::show::Screen;
use shardlab::comm::algorithms::{self, Algorithm, Collective, Task};
use shardlab::comm::{Comm, CommError, Reduce, Result};

/// This rank's group of ranks. A group has as many ranks as a picture of `collective` has room for;
/// the first is shown.
pub fn few(comm: &Comm, collective: Collective) -> Result<Comm> {
    // An all-to-all works on twice as many numbers.
    let most = if collective == Collective::AllToAll { 3 } else { 5 };
    comm.split((comm.rank() / most) as u64, comm.rank() as i64)
}

/// The numbers of rank `rank`: (i+1)·10^rank at index i.
fn brings(rank: usize, parts: usize) -> Vec<u64> {
    (1..=parts as u64).map(|i| i * 10u64.pow(rank as u32)).collect()
}

/// The effect of a collective, in a few words.
pub fn in_words(collective: Collective) -> &'static str {
    match collective {
        Collective::AllReduce => "every rank gets the sum of all ranks' numbers",
        Collective::Reduce => "one rank gets the sum; the other ranks keep what they have",
        Collective::Broadcast => "every rank gets what one rank has",
        Collective::AllGather => "every rank gets the parts of all ranks",
        Collective::Scatter => "one rank hands out its parts, one to each rank",
        Collective::Gather => "one rank gets the parts of all ranks",
        Collective::ReduceScatter => "each rank gets one part of the sum",
        Collective::AllToAll => "each rank hands out its parts: rows become columns",
    }
}

/// The buffer of an algorithm for `collective` at the start, with one element for each rank's part.
/// A 0 is nothing.
fn start(comm: &Comm, collective: Collective) -> Vec<u64> {
    let rank = comm.rank();
    let n = comm.size();
    let whole = brings(rank, n);
    let only = |keep: bool| whole.iter().map(|&x| if keep { x } else { 0 }).collect();
    let own_part = (0..n).map(|i| if i == rank { whole[i] } else { 0 }).collect();
    match collective {
        Collective::AllReduce | Collective::Reduce | Collective::ReduceScatter => whole,
        Collective::Broadcast | Collective::Scatter => only(rank == 0),
        Collective::AllGather | Collective::Gather => own_part,
        // The first half is sent. The second half receives; at first it holds the part that stays.
        Collective::AllToAll => [whole, own_part].concat(),
    }
}

/// This rank's data before and after the transport's own collective on one element for each part.
fn run(comm: &Comm, collective: Collective) -> Result<(Vec<u64>, Vec<u64>)> {
    let rank = comm.rank();
    let n = comm.size();
    let way = Way { collective, algorithm: None };
    let mut before = start(comm, collective);
    before.truncate(n);
    let (given, got) = way.lengths(comm, n);
    let give = if given == n {
        before.clone()
    } else {
        vec![before[rank]; given]
    };
    let mut get = if way.in_place() { before.clone() } else { vec![0; got] };
    way.run(comm, &give, &mut get)?;
    let after = match get.len() {
        1 => (0..n).map(|i| if i == rank { get[0] } else { 0 }).collect(),
        0 => vec![0; n],
        _ => get,
    };
    Ok((before, after))
}

/// The picture of a collective before and after. Only rank 0 returns it.
pub fn collective(comm: &Comm, screen: &Screen, collective: Collective) -> Result<Option<String>> {
    let (before, after) = run(comm, collective)?;
    let before = everyone(comm, &before)?;
    let after = everyone(comm, &after)?;
    Ok((comm.rank() == 0).then(|| {
        let cells = |rows: &[Vec<u64>]| draw(screen, rows, |_, _| false);
        let title = format!("  {}: {}", screen.bold(collective.name()), in_words(collective));
        format!("{title}\n{}", before_and_after(screen, &cells(&before), &cells(&after)))
    }))
}

/// The picture of an all-reduce that chooses a number of each column instead of adding them up.
/// Only rank 0 returns it.
pub fn chosen(comm: &Comm, screen: &Screen, op: Reduce, what: &str) -> Result<Option<String>> {
    // No column has a number twice, and the largest and the smallest of columns come from different
    // ranks.
    let mine: Vec<u64> =
        (0..comm.size()).map(|i| (7 * comm.rank() + 3 * i + 3) as u64 % 10).collect();
    let mut result = mine.clone();
    comm.all_reduce(&mut result, op)?;
    let before = everyone(comm, &mine)?;
    let after = everyone(comm, &result)?;
    let cells = |rows: &[Vec<u64>]| {
        let cell = |(column, number): (usize, &u64)| {
            let owner = before.iter().position(|row| row[column] == *number);
            Cell {
                text: owner.map_or(number.to_string(), |rank| screen.rank(rank, number)),
                marked: false,
            }
        };
        let row = |row: &Vec<u64>| row.iter().enumerate().map(cell).collect();
        rows.iter().map(row).collect::<Vec<_>>()
    };
    Ok((comm.rank() == 0).then(|| {
        let name = screen.bold(format!("all-reduce, {}", op.name()));
        let picture = before_and_after(screen, &cells(&before), &cells(&after));
        format!("  {name}: every rank gets the {what} number of each column\n{picture}")
    }))
}

/// The algorithm of `ways` that is the easiest to follow.
pub fn simplest(ways: &[Way]) -> Option<Way> {
    let easy = [Algorithm::Ring, Algorithm::Tree];
    let is_easy = |way: &&Way| way.algorithm.is_some_and(|algorithm| easy.contains(&algorithm));
    ways.iter().find(is_easy).or(ways.first()).copied()
}

/// An algorithm, round by round.
pub struct Rounds {
    pub task: Task,
    /// One picture for each round, on rank 0: before it with what is sent, after it with what was
    /// received.
    pub frames: Vec<String>,
    /// Messages and bytes that this rank sent.
    pub messages: u64,
    pub bytes: u64,
}

/// Runs `way`, an algorithm, on one element for each part, and takes a picture after every round.
pub fn rounds(comm: &Comm, screen: &Screen, way: Way) -> Result<Rounds> {
    let missing = || CommError::Invalid { call: None, why: "only an algorithm has rounds".into() };
    let task = way.task(comm.size(), comm.size(), size_of::<u64>())?.ok_or_else(missing)?;
    let mut rounds = Rounds { task, frames: Vec::new(), messages: 0, bytes: 0 };
    let mut data = start(comm, task.collective);
    let mut before = everyone(comm, &data)?;
    let total = task.total_rounds();
    for number in 0..total {
        let traffic = comm.traffic();
        let this = task.rounds(comm.rank()).filter(|round| round.number == number);
        algorithms::run(comm, this, &mut data, Reduce::Sum)?;
        let traffic = comm.traffic() - traffic;
        rounds.messages += traffic.messages;
        rounds.bytes += traffic.bytes;
        let after = everyone(comm, &data)?;
        if comm.rank() == 0 {
            rounds.frames.push(frame(screen, &task, number, &before, &after));
        }
        before = after;
    }
    Ok(rounds)
}

fn frame(
    screen: &Screen,
    task: &Task,
    number: usize,
    before: &[Vec<u64>],
    after: &[Vec<u64>],
) -> String {
    let round = |rank: usize| task.rounds(rank).find(|round| round.number == number);
    let sent = |rank: usize, i: usize| {
        let send = round(rank).and_then(|round| round.send);
        send.is_some_and(|send| send.range.contains(&i))
    };
    let came = |rank: usize, i: usize| {
        let recv = round(rank).and_then(|round| round.recv);
        recv.is_some_and(|recv| recv.range.contains(&i))
    };
    before_and_after(screen, &draw(screen, before, sent), &draw(screen, after, came))
}

/// All ranks' rows, on rank 0.
fn everyone(comm: &Comm, row: &[u64]) -> Result<Vec<Vec<u64>>> {
    let mut all = vec![0; if comm.rank() == 0 { row.len() * comm.size() } else { 0 }];
    comm.gather(row, &mut all, 0)?;
    Ok(all.chunks(row.len()).map(<[u64]>::to_vec).collect())
}

fn draw(
    screen: &Screen,
    rows: &[Vec<u64>],
    marked: impl Fn(usize, usize) -> bool,
) -> Vec<Vec<Cell>> {
    let cell = |rank: usize, i: usize, value: u64| Cell {
        text: number(screen, value),
        marked: marked(rank, i),
    };
    let row = |(rank, row): (usize, &Vec<u64>)| {
        row.iter().enumerate().map(|(i, &value)| cell(rank, i, value)).collect()
    };
    rows.iter().enumerate().map(row).collect()
}

/// A number with each digit in the colour of the rank that brought it. Nothing is shown as nothing.
fn number(screen: &Screen, value: u64) -> String {
    if value == 0 {
        return String::new();
    }
    let digits = value.to_string();
    let paint = |(i, digit): (usize, char)| match digit {
        '0' => screen.dim(digit),
        _ => screen.rank(digits.len() - 1 - i, digit),
    };
    digits.char_indices().map(paint).collect()
}
