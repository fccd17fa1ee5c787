//! A profile of all ranks: a tree of seconds, and a timeline with one row per rank.
//!
//! A rank's time in an all-reduce is its wait for the last rank, plus the reduction itself. The
//! profile separates the two by comparing all ranks. The last rank waited for no other rank, so its
//! time, the shortest, is the reduction's. All other ranks waited for the rest of their time. The
//! comparison needs time stamps with a common origin, but clocks of different processes or hosts
//! have none. So every iteration begins with a barrier, and each rank counts from the moment when
//! it left the barrier. If ranks outnumber cores, a rank may also wait for a core after the
//! reduction. The profile counts this as waiting too, and draws it before the reduction.

use super::tree::{Branch, tree};
use anyhow::Result;
use kit::show::{Activity, Interval, Screen, Timeline, counted, only_if, seconds};
use kit::{Clock, StepTimes};
use shardlab::comm::Comm;
use shardlab::parallel::Averaged;
use std::ops::Range;

/// One iteration of one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stamps {
    /// Seconds of each part. The parts follow each other in the order data, forward, backward,
    /// optimizer.
    pub times: StepTimes,
    /// Start and end of each all-reduce in the backward pass, in seconds since the iteration's
    /// barrier.
    pub all_reduces: Vec<(f64, f64)>,
}

impl Stamps {
    pub fn new(clock: &Clock, averaged: &[Averaged]) -> Stamps {
        let interval = |bucket: &Averaged| (clock.at(bucket.start), clock.at(bucket.end));
        Stamps {
            times: clock.parts,
            all_reduces: averaged.iter().map(interval).collect(),
        }
    }

    fn to_numbers(&self) -> impl Iterator<Item = f64> {
        let StepTimes { data, forward, backward, optimizer } = self.times;
        let all_reduces = self.all_reduces.iter().flat_map(|&(start, end)| [start, end]);
        [data, forward, backward, optimizer].into_iter().chain(all_reduces)
    }

    fn from_numbers(numbers: &[f64]) -> Stamps {
        let [data, forward, backward, optimizer, ref all_reduces @ ..] = *numbers else {
            return Stamps::default();
        };
        Stamps {
            times: StepTimes { data, forward, backward, optimizer },
            all_reduces: all_reduces.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect(),
        }
    }
}

/// All ranks' time stamps of a run.
#[derive(Clone, Debug)]
pub struct Profile {
    /// `[rank][iteration]`
    ranks: Vec<Vec<Stamps>>,
    /// The number of the first iteration.
    first: usize,
}

impl Profile {
    /// Gathers the stamps of all ranks on every rank. All ranks need stamps of the same iterations,
    /// from number `first` on, with the same number of all-reduces in each.
    pub fn gather(comm: &Comm, mine: &[Stamps], first: usize) -> Result<Profile> {
        let numbers: Vec<f64> = mine.iter().flat_map(Stamps::to_numbers).collect();
        let all = comm.gathered(&numbers)?;
        let each = numbers.len() / mine.len().max(1);
        let stamps =
            |rank: &[f64]| rank.chunks_exact(each.max(1)).map(Stamps::from_numbers).collect();
        Ok(Profile {
            ranks: all.chunks_exact(numbers.len().max(1)).map(stamps).collect(),
            first,
        })
    }

    fn iterations(&self) -> usize {
        self.ranks.first().map_or(0, Vec::len)
    }

    /// For each all-reduce of an iteration: the seconds that `rank` waited, and the seconds that it
    /// reduced.
    fn waits(&self, rank: usize, iteration: usize) -> Vec<(f64, f64)> {
        let took = |rank: &[Stamps], bucket: usize| -> Option<f64> {
            rank[iteration].all_reduces.get(bucket).map(|(start, end)| end - start)
        };
        let split = |(bucket, (start, end)): (usize, &(f64, f64))| {
            let all = self.ranks.iter().filter_map(|rank| took(rank, bucket));
            let shortest = all.fold(f64::INFINITY, f64::min);
            (end - start - shortest, shortest)
        };
        self.ranks[rank][iteration].all_reduces.iter().enumerate().map(split).collect()
    }

    /// The time of all iterations together, as a tree: means over the ranks.
    pub fn tree(&self) -> Branch {
        let ranks = self.ranks.len() as f64;
        let mut times = StepTimes::default();
        let mut waiting = 0.0;
        let mut reducing = 0.0;
        for (rank, iterations) in self.ranks.iter().enumerate() {
            for (i, stamps) in iterations.iter().enumerate() {
                times.add(&stamps.times);
                for (waited, reduced) in self.waits(rank, i) {
                    waiting += waited;
                    reducing += reduced;
                }
            }
        }
        let mean = |name: &str, seconds: f64| Branch::new(name, seconds / ranks);
        let parts = vec![mean("waiting for other ranks", waiting), mean("reducing", reducing)];
        let all_reduce = mean("all-reduce", waiting + reducing).with(parts);
        let computing = mean("computing", times.backward - waiting - reducing);
        let name = counted(self.iterations(), "iteration", "iterations");
        mean(&name, times.total()).with(vec![
            mean("data", times.data),
            mean("forward", times.forward),
            // Without an all-reduce, the backward pass has no parts.
            mean("backward", times.backward).with(if reducing > 0.0 {
                vec![computing, all_reduce]
            } else {
                vec![]
            }),
            mean("optimizer", times.optimizer),
        ])
    }

    /// `count` consecutive iterations of typical length: the median of all such sequences.
    fn typical(&self, count: usize) -> Range<usize> {
        let count = count.min(self.iterations());
        let mut starts: Vec<usize> = (0..=self.iterations() - count).collect();
        let length = |start: &usize| (*start..start + count).map(|i| self.length(i)).sum::<f64>();
        starts.sort_by(|a, b| length(a).total_cmp(&length(b)));
        let start = starts[starts.len() / 2];
        start..start + count
    }

    /// Seconds from an iteration's barrier to the end of its last rank.
    fn length(&self, iteration: usize) -> f64 {
        self.ranks.iter().map(|rank| rank[iteration].times.total()).fold(0.0, f64::max)
    }

    /// Draws `count` typical iterations as a timeline, for at most `most` ranks.
    pub fn timeline(&self, count: usize, most: usize) -> Timeline<'static> {
        let range = self.typical(count);
        let mut rows = vec![Vec::new(); self.ranks.len().min(most)];
        let mut marks = Vec::new();
        let mut begin = 0.0;
        for iteration in range.clone() {
            for (rank, row) in rows.iter_mut().enumerate() {
                row.extend(self.intervals(rank, iteration, begin));
            }
            marks.push((begin, (self.first + iteration).to_string()));
            begin += self.length(iteration);
        }
        let names: Vec<usize> = range.map(|i| self.first + i).collect();
        let which = match names[..] {
            [one] => format!("iteration {one}"),
            [first, .., last] => format!("iterations {first} to {last}"),
            [] => "no iteration".to_string(),
        };
        let some = only_if(
            rows.len() < self.ranks.len(),
            format!(", {} of {} ranks", rows.len(), self.ranks.len()),
        );
        let rows = rows.into_iter().enumerate();
        Timeline {
            title: format!("timeline: {which}, {}{some}", seconds(begin)),
            rows: rows.map(|(rank, row)| (format!("rank {rank}"), row)).collect(),
            marks,
            axis: "iter",
        }
    }

    /// The activities of `rank` in an iteration that begins at `begin` seconds.
    fn intervals(&self, rank: usize, iteration: usize, begin: f64) -> Vec<Interval> {
        let stamps = &self.ranks[rank][iteration];
        let mut row = Vec::new();
        let mut now = begin;
        let mut until = |activity: Activity, end: f64| {
            row.push(Interval { activity, start: now, end });
            now = end;
        };
        let StepTimes { data, forward, backward, optimizer } = stamps.times;
        until(Activity::DATA, begin + data);
        until(Activity::FORWARD, begin + data + forward);
        for ((start, end), (waited, _)) in
            stamps.all_reduces.iter().zip(self.waits(rank, iteration))
        {
            until(Activity::BACKWARD, begin + start);
            until(Activity::WAITING, begin + start + waited);
            until(Activity::ALL_REDUCE, begin + end);
        }
        until(Activity::BACKWARD, begin + data + forward + backward);
        until(Activity::OPTIMIZER, begin + data + forward + backward + optimizer);
        // The rank waits at the next iteration's barrier. Without the barrier it would wait in that
        // iteration's first all-reduce.
        until(Activity::WAITING, begin + self.length(iteration));
        row
    }

    /// Draws the tree and the timeline.
    pub fn render(&self, screen: &Screen) -> (String, String) {
        let ranks = if self.ranks.len() == 1 {
            "1 rank".to_string()
        } else {
            format!("mean of {} ranks", self.ranks.len())
        };
        let title = screen.bold(format!("  where the time went: {ranks}"));
        let tree = format!("{title}\n{}", tree(screen, &self.tree()));
        (tree, self.timeline(2, 16).render(screen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::launch;

    fn stamps(scale: f64, all_reduces: &[(f64, f64)]) -> Stamps {
        let times = StepTimes {
            data: scale,
            forward: 2.0 * scale,
            backward: 6.0 - 3.0 * scale,
            optimizer: 1.0,
        };
        Stamps { times, all_reduces: all_reduces.to_vec() }
    }

    /// Two ranks and two iterations of 7 seconds: rank 1 is as fast as rank 0, but comes later to
    /// the first bucket, and in the second iteration rank 0 comes later.
    fn profile() -> Profile {
        let buckets = [(3.5, 4.75), (5.0, 6.0)];
        let late = [(4.25, 4.75), (5.5, 6.0)];
        let slow = [stamps(1.0, &buckets), stamps(0.5, &late)];
        let fast = [stamps(1.0, &late), stamps(0.5, &buckets)];
        Profile { ranks: vec![slow.to_vec(), fast.to_vec()], first: 1 }
    }

    #[test]
    fn what_took_longer_than_the_shortest_was_waiting() {
        let profile = profile();
        assert_eq!(profile.waits(0, 0), [(0.75, 0.5), (0.5, 0.5)]);
        assert_eq!(profile.waits(1, 0), [(0.0, 0.5), (0.0, 0.5)]);
        assert_eq!(profile.waits(0, 1), [(0.0, 0.5), (0.0, 0.5)]);
        let alone = Profile { ranks: profile.ranks[..1].to_vec(), first: 0 };
        assert_eq!(alone.waits(0, 0), [(0.0, 1.25), (0.0, 1.0)]);
    }

    #[test]
    fn the_tree_is_the_mean_of_the_ranks() {
        let expected = "
  where the time went: mean of 2 ranks
  seconds   share
   14.000  100.0%  2 iterations
    1.500   10.7%  ├─ data
    3.000   21.4%  ├─ forward
    7.500   53.6%  ├─ backward
    4.250   30.4%  │  ├─ computing
    3.250   23.2%  │  └─ all-reduce
    1.250    8.9%  │     ├─ waiting for other ranks
    2.000   14.3%  │     └─ reducing
    2.000   14.3%  └─ optimizer
";
        assert_eq!(profile().render(&Screen::plain()).0, expected.trim_matches('\n'));
        let nothing_averaged = Profile { ranks: vec![vec![stamps(1.0, &[])]], first: 0 };
        assert!(nothing_averaged.tree().parts.iter().all(|part| part.parts.is_empty()));
    }

    #[test]
    fn the_timeline_shows_who_waits() {
        // 14 seconds on 56 columns, four a second.
        let screen = Screen { width: 66, ascii: true, ..Screen::plain() };
        let expected = "
  timeline: iterations 1 to 2, 14.0 s
  d data   F forward   B backward   x all-reduce   O optimizer
  . waiting
  rank 0 |ddddFFFFFFFFBB...xxB..xxOOOOddFFFFBBBBBBBBBBBxxBBBxxOOOO
  rank 1 |ddddFFFFFFFFBBBBBxxBBBxxOOOOddFFFFBBBBBBBB...xxB..xxOOOO
         +---------------------------+----------------------- iter
         1                           2
";
        assert_eq!(profile().render(&screen).1, expected.trim_matches('\n'));
    }

    #[test]
    fn whoever_is_done_first_waits_for_the_next_iteration() {
        let short = Stamps {
            times: StepTimes { optimizer: 0.25, ..stamps(1.0, &[]).times },
            all_reduces: Vec::new(),
        };
        let profile = Profile { ranks: vec![vec![stamps(1.0, &[])], vec![short]], first: 0 };
        let last = profile.intervals(1, 0, 10.0).pop().unwrap();
        assert_eq!(last, Interval { activity: Activity::WAITING, start: 16.25, end: 17.0 });
        assert_eq!(profile.timeline(2, 1).title, "timeline: iteration 0, 7.00 s, 1 of 2 ranks");
    }

    #[test]
    fn a_typical_stretch_is_the_median() {
        let long = |seconds: f64| Stamps {
            times: StepTimes { data: seconds, ..StepTimes::default() },
            all_reduces: vec![],
        };
        let iterations = [9.0, 1.0, 3.0, 2.0, 50.0].map(long).to_vec();
        let profile = Profile { ranks: vec![iterations], first: 0 };
        // Sums of two: 10, 4, 5, 52.
        assert_eq!(profile.typical(2), 0..2);
        // One by one: 1, 2, 3, 9, 50.
        assert_eq!(profile.typical(1), 2..3);
        assert_eq!(profile.typical(9), 0..5);
    }

    #[test]
    fn every_rank_gets_all_ranks_stamps() {
        let all = launch::run(3, |comm| {
            let own = |i: usize| {
                stamps(
                    0.1 * (comm.rank() + i) as f64,
                    &[(1.0, 2.0 + comm.rank() as f64), (3.0, 4.0)],
                )
            };
            Profile::gather(&comm, &[own(0), own(1)], 5)
        });
        for profile in all.unwrap() {
            assert_eq!((profile.ranks.len(), profile.iterations(), profile.first), (3, 2, 5));
            for (rank, iterations) in profile.ranks.iter().enumerate() {
                for (i, stamps) in iterations.iter().enumerate() {
                    assert_eq!(stamps.times.data, 0.1 * (rank + i) as f64);
                    assert_eq!(stamps.all_reduces, [(1.0, 2.0 + rank as f64), (3.0, 4.0)]);
                }
            }
        }
    }
}
