//! What a checkpoint's reader gets back if padding is recorded on the wrong rank.

use kit::Checks;
use kit::show::{Screen, table};
use shardlab::parallel::partition::Flat;

/// Prints what a checkpoint's reader gets back if all padding is recorded on the last of `ranks`
/// ranks.
pub fn padding_on_last(screen: &Screen, ranks: usize, checks: &mut Checks) {
    let flat = Flat { numel: 2 * ranks + 1, ranks };
    let title = format!(
        "A group of {} elements, {} on each rank with padding",
        flat.numel,
        flat.shard_numel()
    );
    let all_on_last = |rank: usize| {
        if rank + 1 == ranks {
            flat.padded() - flat.numel
        } else {
            0
        }
    };
    let (table, back) = restored(screen, flat, all_on_last);
    screen.say(format!("\n{}\n\n{table}\n", screen.bold(title)));
    let sound = back == (0..flat.numel).collect::<Vec<_>>();
    let result = format!("expected {} elements, found {}", flat.numel, back.len());
    checks.check(
        sound,
        "the reader gets the parameters back",
        &result,
        "padding was taken for parameters",
    );
}

/// Splits a padded group among ranks, then joins it again without the padding that each rank
/// recorded, as a checkpoint's reader does. Returns a table with a line per rank, and the joined
/// elements.
pub fn restored(
    screen: &Screen,
    flat: Flat,
    recorded: impl Fn(usize) -> usize,
) -> (String, Vec<usize>) {
    /// Stands for an element that is padding.
    const PADDING: usize = usize::MAX;
    let mut back = Vec::new();
    let rows = (0..flat.ranks).map(|rank| {
        let held = flat.range(rank);
        let part = flat.shard_numel();
        let recorded = recorded(rank);
        let elements = held.clone().chain(std::iter::repeat_n(PADDING, flat.padding(rank)));
        back.extend(elements.take(part.saturating_sub(recorded)));
        [rank, held.len(), flat.padding(rank), recorded].map(|n| n.to_string())
    });
    (table(screen, &["rank", "elements", "padding", "recorded"], rows), back)
}
