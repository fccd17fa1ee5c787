//! A conversion that fails at 768 ranks: padding that is longer than one rank's slice, recorded on the last rank alone.
//!
//! Source: "Universal Checkpoint Conversion Bug (with DP=768)", Sam Foreman, December 2024, and DeepSpeed pull request
//! 7426.

use crate::parallel::partition::Flat;
use crate::show::{Plot, Screen, Series, table, thousands};

/// Two ways to record the padding of a group on its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// DeepSpeed's old rule: all of it on the last rank.
    OnTheLast,
    /// The rule that is right: each rank's own.
    OnEach,
}

impl Recorded {
    /// The padding that is recorded on `rank`.
    pub fn on(self, flat: Flat, rank: usize) -> usize {
        match self {
            Recorded::OnEach => flat.padding(rank),
            Recorded::OnTheLast if rank + 1 == flat.ranks => flat.padded() - flat.numel,
            Recorded::OnTheLast => 0,
        }
    }

    /// The length that remains when a converter strips the recorded padding from `rank`'s slice.
    pub fn stripped(self, flat: Flat, rank: usize) -> isize {
        flat.shard_numel() as isize - self.on(flat, rank) as isize
    }
}

/// Whether a converter that strips the padding of the old rule fails on this group.
fn fails(flat: Flat) -> bool {
    Recorded::OnTheLast.stripped(flat, flat.ranks - 1) < 0
}

/// The failure of the source at its real size and in a size that fits on the screen, and all numbers of ranks at which it
/// happens.
pub fn padding(screen: &Screen) -> String {
    let small = Flat { numel: 10, ranks: 4 };
    let rows: Vec<Vec<String>> = (0..small.ranks).map(|rank| row(small, rank)).collect();
    let mut text = format!("  10 elements on 4 ranks: {}\n", in_words(small));
    text += &table(
        screen,
        &["rank\n", "elements\n", "padding\n", "recorded by\nthe old rule", "slice - padding\n(old rule)"],
        &rows,
    );
    let source = Flat { numel: 65 * 4096, ranks: 768 };
    let rows: Vec<Vec<String>> = [0, 764, 765, 766, 767].iter().map(|&rank| row(source, rank)).collect();
    text += &format!("\n\n  65 layer norms x 4,096 on 768 ranks: {}\n", in_words(source));
    text += &table(
        screen,
        &["rank\n", "elements\n", "padding\n", "recorded by\nthe old rule", "slice - padding\n(old rule)"],
        &rows,
    );
    for (numel, model) in [(266_240, "32 layers"), (12_288, "1 layer")] {
        let group = |ranks| Flat { numel, ranks };
        let failing: Vec<usize> = (1..=1024).filter(|&ranks| fails(group(ranks))).collect();
        let point = |ranks: usize, y: usize| (ranks as f64, y as f64);
        let padding = (1..=1024).map(|ranks| point(ranks, group(ranks).padded() - numel));
        let slice = (64..=1024).map(|ranks| point(ranks, group(ranks).shard_numel()));
        let title = format!("{} elements ({model}): all padding, and one rank's slice", thousands(numel as u64));
        let plot =
            Plot::new(&title, "ranks").series(Series::dots("padding", padding)).series(Series::line("slice", slice));
        text += &format!("\n\n{}", plot.height(8).render(screen));
        let first = failing.first().map_or(String::new(), |first| format!(", the first is {first}"));
        let others: Vec<String> = [48, 144, 216, 768]
            .iter()
            .map(|&ranks| format!("{ranks} {}", if fails(group(ranks)) { "fails" } else { "does not" }))
            .collect();
        let counted = format!("{} of 1,024 numbers of ranks fail{first}. {}.", failing.len(), others.join(", "));
        text += &format!("\n{}", screen.wrap(&counted, 2));
    }
    text
}

fn in_words(flat: Flat) -> String {
    let (padded, slice) = (thousands(flat.padded() as u64), thousands(flat.shard_numel() as u64));
    format!("padded to {padded}, {slice} per rank")
}

fn row(flat: Flat, rank: usize) -> Vec<String> {
    let stripped = Recorded::OnTheLast.stripped(flat, rank);
    let verdict = if stripped < 0 { format!("{stripped}: narrow() fails") } else { stripped.to_string() };
    let cells = [flat.range(rank).len(), flat.padding(rank), Recorded::OnTheLast.on(flat, rank)];
    let cells = cells.iter().map(|&count| thousands(count as u64));
    std::iter::once(rank.to_string()).chain(cells).chain([verdict]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The figures of the source's debugger, and its control on 48 ranks.
    #[test]
    fn the_sources_group_fails_on_its_last_rank() {
        let flat = Flat { numel: 266_240, ranks: 768 };
        assert_eq!((flat.padded(), flat.shard_numel()), (267_264, 348));
        assert_eq!((Recorded::OnTheLast.on(flat, 767), Recorded::OnTheLast.stripped(flat, 767)), (1024, -676));
        assert!((0..767).all(|rank| Recorded::OnTheLast.stripped(flat, rank) == 348));
        assert!(fails(flat));
        let control = Flat { numel: 12_288, ranks: 48 };
        assert_eq!((control.padded() - control.numel, control.shard_numel()), (0, 256));
    }

    #[test]
    fn failures_are_counted() {
        let failing = |numel| (1..=1024).filter(|&ranks| fails(Flat { numel, ranks })).collect::<Vec<_>>();
        let large = failing(266_240);
        assert_eq!((large.len(), large[0]), (419, 376));
        assert!(!large.contains(&216) && !large.contains(&144) && large.contains(&768));
        assert!(!failing(12_288).contains(&48));
        let smallest = |ranks| (1..=20).filter(|&numel| fails(Flat { numel, ranks })).collect::<Vec<_>>();
        assert_eq!(smallest(4), [1, 2, 3, 4, 5, 9, 10, 11, 17]);
        assert_eq!(smallest(2), [1]);
    }

    proptest! {
        /// The right rule never strips more than a rank has, and leaves every element once.
        #[test]
        fn each_ranks_own_padding_can_be_stripped(numel in 1usize..5000, ranks in 1usize..300) {
            let flat = Flat { numel, ranks };
            let kept: Vec<isize> = (0..ranks).map(|rank| Recorded::OnEach.stripped(flat, rank)).collect();
            prop_assert!(kept.iter().all(|&kept| kept >= 0));
            prop_assert_eq!(kept.iter().sum::<isize>(), numel as isize);
            let recorded = |rule: Recorded| (0..ranks).map(|rank| rule.on(flat, rank)).sum::<usize>();
            prop_assert_eq!(recorded(Recorded::OnEach), recorded(Recorded::OnTheLast));
        }
    }
}
