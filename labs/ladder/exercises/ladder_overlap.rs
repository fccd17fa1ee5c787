//! ladder-overlap · Average while you compute
//!
//! While a rank of ladder-flat computes, its link is idle. While the link works, the rank waits.
//! Train the same model in less time. Begin with your file of ladder-each or ladder-flat.
//!
//! ```text
//! f forward   b backward   a all-reduce   u update                 time →
//!
//! ladder-flat    rank  ffffffffffbbbbbbbbbbbbbbbbbbbbb              uu
//!                link                                 aaaaaaaaaaaaaa
//!
//! your program   rank  as much f, b and u, and sooner done
//!                link  as many bytes
//! ```
//!
//! - `world.start_all_reduce(numbers, Reduce::Mean)?` takes a list, begins its all-reduce, and
//!   returns at once. The rank computes meanwhile. Several calls may be under way: the link carries
//!   one after the other, as they began.
//! - What it returns has the method `wait()?`, which waits for the result and gives the list back,
//!   now with the mean in it.

use ladder::{Adam, Rank, Reduce, Result};

/// Trains the model on all ranks. Returns what this rank has of each layer in the end: its
/// parameters.
pub fn train(rank: &Rank) -> Result<Vec<Vec<f32>>> {
    let world = rank.world();
    todo!(
        "rank {}: an Adam for each layer (the first has {} parameters), and no wait for a {:?} while there is work",
        world.rank(),
        Adam::new(rank.numel(0)).numel(),
        Reduce::Mean
    )
}
