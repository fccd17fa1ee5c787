//! A conversion that fails at 768 ranks: padding that is longer than one rank's slice, recorded on
//! the last rank alone.
//!
//! Source: "Universal Checkpoint Conversion Bug (with DP=768)", Sam Foreman, December 2024, and
//! DeepSpeed pull request 6974.

use kit::show::{Plot, Screen, Series, table, thousands};
use shardlab::parallel::partition::Flat;

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

/// The failure of the source in a size that fits on the screen, and at its real size.
pub fn tables(screen: &Screen) -> String {
    let small = Flat { numel: 10, ranks: 4 };
    let source = Flat { numel: SOURCES[0].1, ranks: 768 };
    let table = |flat: Flat, ranks: &[usize]| {
        let heads = [
            "rank\n",
            "elements\n",
            "padding\n",
            "recorded by\nthe old rule",
            "slice - recorded\npadding",
        ];
        table(screen, &heads, ranks.iter().map(|&rank| row(flat, rank)))
    };
    format!(
        "  10 elements on 4 ranks: {}\n{}\n\n  65 layer norms x 4,096 on 768 ranks: {}\n{}",
        in_words(small),
        table(small, &[0, 1, 2, 3]),
        in_words(source),
        table(source, &[0, 764, 765, 766, 767])
    )
}

/// The source's two models, and the elements of their layer norms.
const SOURCES: [(&str, usize); 2] = [("32 layers", 65 * 4096), ("1 layer", 3 * 4096)];

/// For each of the source's models: all padding beside one rank's slice, for 1 to 1,024 ranks.
pub fn plots(screen: &Screen) -> String {
    let one = |(model, numel)| {
        let failing: Vec<usize> =
            (1..=1024).filter(|&ranks| fails(Flat { numel, ranks })).collect();
        let first =
            failing.first().map_or(String::new(), |first| format!(", the first is {first}"));
        let verdict = |ranks| {
            let verdict = if fails(Flat { numel, ranks }) {
                "fails"
            } else {
                "does not"
            };
            format!("{ranks} {verdict}")
        };
        let others = [48, 144, 216, 768].map(verdict).join(", ");
        let counted = format!("{} of 1,024 numbers of ranks fail{first}. {others}.", failing.len());
        let title = title(model, numel);
        let plot = plot(&title, numel, 1).height(10).render(screen);
        format!("{plot}\n{}", screen.wrap(&counted, 2))
    };
    SOURCES.map(one).join("\n\n")
}

/// The title of a model's plot.
fn title(model: &str, numel: usize) -> String {
    format!(
        "{model}, {} elements: all padding, and one rank's slice",
        thousands(numel as u64)
    )
}

/// All padding of a group, and one rank's slice, for every number of ranks up to 1,024 that is a
/// multiple of `nodes`.
fn plot(title: &str, numel: usize, nodes: usize) -> Plot<'_> {
    let ranks = || (nodes..=1024).step_by(nodes).map(|ranks| Flat { numel, ranks });
    let padding = |failing: bool| {
        let all = ranks().filter(move |flat| fails(*flat) == failing);
        all.map(|flat| (flat.ranks as f64, (flat.padded() - numel) as f64))
    };
    // Slices on few ranks are long, and would flatten the rest.
    let slice = ranks()
        .map(|flat| (flat.ranks as f64, flat.shard_numel() as f64))
        .filter(|(_, slice)| *slice <= 2048.0);
    Plot::new(title, "ranks")
        .series(Series::line("one rank's slice", slice))
        .series(Series::dots("padding that fits in it", padding(false)))
        .series(Series::dots("padding that does not", padding(true)))
}

/// The plots of both models for a page, each as `draw` draws it: whole nodes of 12 ranks, and the
/// source's 768 ranks once more.
pub fn figures(draw: impl Fn(&Plot) -> String) -> String {
    let one = |(model, numel)| {
        let title = format!("elements; {model} with {} in all", thousands(numel as u64));
        let source = Flat { numel, ranks: 768 };
        let padding = (source.padded() - numel) as f64;
        let plot = plot(&title, numel, 12).round_x();
        draw(&plot.series(Series::dots("padding on 768 ranks", [(768.0, padding)])))
    };
    SOURCES.map(one).join("\n")
}

fn in_words(flat: Flat) -> String {
    let padded = thousands(flat.padded() as u64);
    let slice = thousands(flat.shard_numel() as u64);
    format!("padded to {padded}, {slice} per rank")
}

fn row(flat: Flat, rank: usize) -> Vec<String> {
    let stripped = Recorded::OnTheLast.stripped(flat, rank);
    let verdict = if stripped < 0 {
        format!("{stripped}: narrow() fails")
    } else {
        stripped.to_string()
    };
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
        assert_eq!(
            (Recorded::OnTheLast.on(flat, 767), Recorded::OnTheLast.stripped(flat, 767)),
            (1024, -676)
        );
        assert!((0..767).all(|rank| Recorded::OnTheLast.stripped(flat, rank) == 348));
        assert!(fails(flat));
        let control = Flat { numel: 12_288, ranks: 48 };
        assert_eq!((control.padded() - control.numel, control.shard_numel()), (0, 256));
    }

    #[test]
    fn failures_are_counted() {
        let failing =
            |numel| (1..=1024).filter(|&ranks| fails(Flat { numel, ranks })).collect::<Vec<_>>();
        let large = failing(266_240);
        assert_eq!((large.len(), large[0]), (419, 376));
        assert!(!large.contains(&216) && !large.contains(&144) && large.contains(&768));
        // Of whole nodes with 12 ranks, 36 are the first that fail.
        let first = (1..=85).find(|nodes| large.contains(&(12 * nodes)));
        assert_eq!(first, Some(36));
        for nodes in [37, 38, 39, 50] {
            assert!(!large.contains(&(12 * nodes)), "{nodes}");
        }
        // The control with one layer: no number of ranks below 83 could have shown the failure.
        let control = failing(12_288);
        assert_eq!((control.len(), control[0]), (866, 83));
        // Padding is less than 2n and a slice has at least E/n elements, so n is above the root of
        // half the elements.
        for (numel, failing) in [(266_240, &large), (12_288, &control)] {
            assert!(failing.iter().all(|ranks| 2 * ranks * ranks > numel));
        }
        let author = Flat { numel: 266_240, ranks: 216 };
        assert_eq!((author.padded() - author.numel, author.shard_numel()), (304, 1234));
        let smallest =
            |ranks| (1..=20).filter(|&numel| fails(Flat { numel, ranks })).collect::<Vec<_>>();
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

        /// So a converter that strips the old record either is right or ends with an error.
        #[test]
        fn the_old_record_is_wrong_exactly_if_a_length_is_negative(numel in 1usize..5000, ranks in 1usize..300) {
            let flat = Flat { numel, ranks };
            let wrong = (0..ranks).any(|rank| Recorded::OnTheLast.on(flat, rank) != flat.padding(rank));
            prop_assert_eq!(wrong, fails(flat));
        }

        /// The rule of DeepSpeed's repaired writer, and the rule by which its checkpoints are
        /// converted here.
        #[test]
        fn three_programs_compute_the_same_padding(numel in 1usize..5000, ranks in 1usize..300) {
            let flat = Flat { numel, ranks };
            let part = flat.shard_numel();
            let converter = deepspeed::paddings(numel, part, ranks);
            for (rank, padding) in converter.into_iter().enumerate() {
                let left = rank * part;
                let writer = if numel <= left { part } else { (left + part).saturating_sub(numel) };
                prop_assert_eq!([padding, writer], [flat.padding(rank); 2]);
            }
        }
    }
}
