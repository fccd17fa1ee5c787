//! y = x0·W0 + x1·W1 + x2·W2, where each rank holds one W: the sum passed along from rank to rank,
//! and as one all-reduce.

use anyhow::Result;
use kit::show::{Screen, table};
use shardlab::comm::{Comm, Reduce};
use shardlab::launch;

/// The numbers of every rank, at three moments.
pub struct Example {
    /// Its x times its W.
    pub products: Vec<[f32; 2]>,
    /// Its sum, when the sum has been passed along as far as to it.
    pub passed: Vec<[f32; 2]>,
    /// Its sum after an all-reduce.
    pub reduced: Vec<[f32; 2]>,
}

/// Rank r's x, and its W.
fn holds(rank: usize) -> (f32, [f32; 2]) {
    (rank as f32 + 1.0, [2.0 * rank as f32 + 1.0, 2.0 * rank as f32 + 2.0])
}

// ANCHOR: example
/// Adds up all ranks' products in two ways.
pub fn products(comm: &Comm) -> Result<Example> {
    let (x, w) = holds(comm.rank());
    let product = w.map(|w| x * w);

    // Passed along: each rank waits for the one before it, adds its product, and sends the sum on.
    let mut passed = product;
    if comm.rank() > 0 {
        let mut before = [0.0; 2];
        comm.recv(&mut before, comm.rank() - 1)?;
        passed = [passed[0] + before[0], passed[1] + before[1]];
    }
    if comm.rank() + 1 < comm.size() {
        comm.send(&passed, comm.rank() + 1)?;
    }

    // One all-reduce: no rank waits for a different rank's product, and all of them have the sum.
    let mut reduced = product;
    comm.all_reduce(&mut reduced, Reduce::Sum)?;
    let all = |mine: [f32; 2]| -> Result<Vec<[f32; 2]>> {
        let mut all = vec![0.0; 2 * comm.size()];
        comm.all_gather(&mine, &mut all)?;
        Ok(all.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect())
    };
    Ok(Example {
        products: all(product)?,
        passed: all(passed)?,
        reduced: all(reduced)?,
    })
}
// ANCHOR_END: example

/// Runs it on `ranks` ranks, and prints it.
pub fn show_sum(screen: &Screen, ranks: usize) -> Result<()> {
    let example = launch::run(ranks, |comm| products(&comm))?;
    if launch::is_first_process() {
        screen.say(example[0].render(screen));
    }
    Ok(())
}

impl Example {
    /// Both ways, step by step, as a table.
    pub fn render(&self, screen: &Screen) -> String {
        let ranks = self.products.len();
        let (dot, arrow) = if screen.ascii { (" * ", "->") } else { ("·", "→") };
        let sum: Vec<String> = (0..ranks).map(|rank| format!("x{rank}{dot}W{rank}")).collect();
        let row = |rank: usize| {
            let (x, w) = holds(rank);
            let on = match rank + 1 {
                next if next < ranks => format!("{} {arrow} rank {next}", pair(self.passed[rank])),
                _ => format!("{} = y", pair(self.passed[rank])),
            };
            let product = format!("{x}{dot}{} = {}", pair(w), pair(self.products[rank]));
            [format!("rank {rank}"), product, on, format!("{} = y", pair(self.reduced[rank]))]
        };
        let title = format!("y = {}, and each rank holds one W", sum.join(" + "));
        let heads = ["", "computes", "passed along", "or one all-reduce"];
        format!("  {}\n{}", screen.bold(title), table(screen, &heads, (0..ranks).map(row)))
    }
}

fn pair([a, b]: [f32; 2]) -> String {
    format!("[{a} {b}]")
}
