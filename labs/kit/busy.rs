//! Whether other programs have used the processors that a run needed: then its times say more about
//! them than about the run.
//!
//! Two readings of the operating system's counters, before and after, give the processor seconds of
//! everything on the cores that this process may use. What its own threads and its children have
//! used is subtracted. Linux has these counters; elsewhere nothing is measured, and nothing is
//! said.

use super::Resources;
use crate::show::Screen;
use shardlab::launch;
use std::fs;
use std::time::Instant;

/// Times count as disturbed from this part on: ranks that could have used 2 cores, and had to
/// leave 0.3 of one to others. An idle Linux machine's own programs use about 0.02 of a core.
const DISTURBED: f64 = 0.15;

/// This variable says how many cores other programs use, and nothing is measured: for those who
/// know, and for tests.
const VARIABLE: &str = "SHARDLAB_OTHERS";

/// Processor seconds that were used, and by whom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// The cores that this job may use on this node.
    pub cores: f64,
    /// The ranks that run here at the same time.
    pub ranks: usize,
    /// Seconds that these ranks' processes have used.
    pub own: f64,
    /// Seconds that all programs have used on these cores.
    pub all: f64,
    /// Seconds that have passed.
    pub wall: f64,
}

impl Usage {
    /// How many cores other programs have used, on average.
    pub fn others(&self) -> f64 {
        // The two counters are not read at the same moment, and one of them counts in hundredths of
        // a second.
        ((self.all - self.own) / self.wall.max(1e-3)).clamp(0.0, self.cores)
    }

    /// Whether the ranks had to share their cores: whether other programs used more than 15% of the
    /// cores that the ranks need, beyond those that were free. Ranks that take turns need all
    /// cores. A run of less than a fifth of a second is not judged.
    pub fn is_disturbed(&self) -> bool {
        let needed = (self.ranks as f64).min(self.cores);
        let taken = needed + self.others() - self.cores;
        self.wall >= 0.2 && taken > DISTURBED * needed
    }

    /// The remark beside times that other programs made; none if they did not.
    pub fn remark(&self) -> Option<String> {
        let cores = self.cores;
        let others = self.others();
        self.is_disturbed().then(|| {
            format!("other work took {others:.1} of this machine's {cores:.0} cores meanwhile")
        })
    }
}

/// A measurement that has begun.
pub struct Watch {
    begun: Instant,
    own: f64,
    machine: Option<Machine>,
}

impl Watch {
    pub fn start() -> Watch {
        Watch {
            begun: Instant::now(),
            own: own_seconds(),
            machine: Machine::read(),
        }
    }

    /// What has been used since the start, while `ranks` ranks of this process have run. None where
    /// the system does not say.
    pub fn usage(&self, ranks: usize) -> Option<Usage> {
        let cores = launch::cores() as f64;
        if let Some(others) = given() {
            return Some(Usage { cores, ranks, own: 0.0, all: others, wall: 1.0 });
        }
        let wall = self.begun.elapsed().as_secs_f64();
        let own = own_seconds() - self.own;
        let now = Machine::read()?;
        let begun = self.machine.as_ref()?;
        let usage = |cores, all| Usage { cores, ranks, own, all, wall };
        // Each limit on its own: a container may have many cores of which it may use the time of
        // two.
        let mut worst = usage(now.cores as f64, now.seconds - begun.seconds);
        if let (Some((cores, after)), Some((_, before))) = (now.group, begun.group) {
            let group = usage(cores, after - before);
            if group.is_disturbed() {
                worst = group;
            }
        }
        Some(worst)
    }

    /// The remark beside the times of `ranks` ranks of this process; none if no others have
    /// disturbed them. None for processes of a launcher, either: a process does not know what the
    /// other ranks of its node have used.
    pub fn remark(&self, ranks: usize) -> Option<String> {
        if launch::is_mpi() {
            return None;
        }
        self.usage(ranks)?.remark()
    }

    /// The row beside times, if there is something to remark.
    pub fn row(&self, screen: &Screen, ranks: usize) -> Option<String> {
        let remark = self.remark(ranks)?;
        Some(screen.row("busy", &format!("{remark}: it made these times longer")))
    }
}

/// The seconds that this process has used, and its children that have ended.
fn own_seconds() -> f64 {
    let sum = |used: Resources| used.seconds.iter().sum::<f64>();
    sum(Resources::here()) + sum(Resources::of_children())
}

fn given() -> Option<f64> {
    std::env::var(VARIABLE).ok()?.parse().ok().filter(|others: &f64| *others >= 0.0)
}

/// The counters of this machine.
struct Machine {
    /// The cores that this process may run on.
    cores: usize,
    /// Seconds that programs have used on them.
    seconds: f64,
    /// The cores whose time the process's control group may use, where it has a limit, and the
    /// seconds that the group has used.
    group: Option<(f64, f64)>,
}

impl Machine {
    /// None where the system has no such counters.
    fn read() -> Option<Machine> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mine = allowed(&status);
        // SAFETY: it only returns a number.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        let (cores, used) = used_ticks(&stat, mine.as_deref());
        let group = || {
            let limit = fs::read_to_string("/sys/fs/cgroup/cpu.max").ok()?;
            let stat = fs::read_to_string("/sys/fs/cgroup/cpu.stat").ok()?;
            Some((quota(&limit)?, group_seconds(&stat)?))
        };
        (cores > 0 && ticks > 0).then(|| Machine {
            cores,
            seconds: used as f64 / ticks as f64,
            group: group(),
        })
    }
}

/// The cores on which a process may run, from its `/proc/self/status`: `0-3,8`.
fn allowed(status: &str) -> Option<Vec<usize>> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let mut cores = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cores.extend(first.parse().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(cores)
}

/// How many of the cores `mine` (or of all) `/proc/stat` has, and the ticks that they have worked.
/// What a hypervisor has given to others (steal) is work, too, and it is not this process's.
fn used_ticks(stat: &str, mine: Option<&[usize]>) -> (usize, u64) {
    let mut cores = 0;
    let mut ticks = 0;
    for line in stat.lines() {
        let Some((name, counts)) = line.split_once(' ') else {
            continue;
        };
        let Some(core) = name.strip_prefix("cpu").and_then(|n| n.parse().ok()) else {
            continue;
        };
        if mine.is_some_and(|mine| !mine.contains(&core)) {
            continue;
        }
        // user nice system idle iowait irq softirq steal; the guests after them are within user and
        // nice.
        let counts: Vec<u64> =
            counts.split_whitespace().map_while(|count| count.parse().ok()).collect();
        let of = |i: usize| counts.get(i).copied().unwrap_or(0);
        cores += 1;
        ticks += [0, 1, 2, 5, 6, 7].map(of).iter().sum::<u64>();
    }
    (cores, ticks)
}

/// How many cores' time a group may use, from its `cpu.max`: `200000 100000` are two. None if it
/// has no limit.
fn quota(limit: &str) -> Option<f64> {
    let (time, period) = limit.trim().split_once(' ')?;
    let cores = time.parse::<f64>().ok()? / period.parse::<f64>().ok()?;
    (cores > 0.0 && cores.is_finite()).then_some(cores)
}

/// The seconds in a group's `cpu.stat`.
fn group_seconds(stat: &str) -> Option<f64> {
    let used = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    Some(used.trim().parse::<f64>().ok()? / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two seconds of a run in which each rank works all the time that it gets, and others use so
    /// many cores.
    fn run(cores: usize, ranks: usize, others: f64) -> Usage {
        let cores = cores as f64;
        let own = (ranks as f64).min(cores - others.min(cores) / 2.0);
        Usage {
            cores,
            ranks,
            own: 2.0 * own,
            all: 2.0 * (own + others),
            wall: 2.0,
        }
    }

    #[test]
    fn only_what_the_ranks_would_have_used_disturbs_them() {
        for (cores, ranks, others, disturbed) in [
            (2, 2, 0.0, false),
            // An idle machine's own programs.
            (2, 2, 0.05, false),
            (2, 2, 0.25, false),
            (2, 2, 0.35, true),
            (2, 2, 1.5, true),
            // There is room for them.
            (8, 2, 5.0, false),
            (8, 2, 6.2, false),
            (8, 2, 6.5, true),
            (64, 4, 30.0, false),
            (2, 1, 1.0, false),
            (2, 1, 1.4, true),
            // Ranks that take turns need all cores.
            (2, 8, 0.2, false),
            (2, 8, 0.5, true),
            (1, 1, 0.1, false),
            (1, 1, 0.2, true),
        ] {
            let usage = run(cores, ranks, others);
            assert_eq!(usage.is_disturbed(), disturbed, "{usage:?}");
            assert_eq!(usage.remark().is_some(), disturbed, "{usage:?}");
        }
        let words = run(2, 2, 1.25).remark().unwrap();
        assert_eq!(words, "other work took 1.2 of this machine's 2 cores meanwhile");
    }

    #[test]
    fn counters_that_say_little_disturb_nothing() {
        let idle = run(2, 2, 0.0);
        // A hundredth of a second, in which a tick is all; a machine without counters; an own
        // counter that is ahead.
        for usage in [
            Usage { wall: 0.01, own: 0.0, all: 0.02, ..idle },
            Usage { all: 0.0, ..idle },
            Usage { own: idle.all + 1.0, ..idle },
            Usage { wall: 0.0, ..idle },
        ] {
            assert!(!usage.is_disturbed(), "{usage:?}");
        }
    }

    #[test]
    fn the_counters_are_read_as_linux_writes_them() {
        let stat = "cpu  30 0 12 900 5 1 2 7 0 0\ncpu0 10 1 2 400 3 4 5 6 9 9\ncpu1 20 0 10 500 2 0 0 0 0 0\nintr 5 1\n";
        assert_eq!(used_ticks(stat, None), (2, 28 + 30));
        assert_eq!(used_ticks(stat, Some(&[1])), (1, 30));
        assert_eq!(used_ticks("", None), (0, 0));
        let status = "Name:\tlab03\nCpus_allowed:\t10f\nCpus_allowed_list:\t0-3,8\n";
        assert_eq!(allowed(status), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(allowed(""), None);
        assert_eq!(quota("200000 100000\n"), Some(2.0));
        assert_eq!(quota("max 100000\n"), None);
        let stat = "usage_usec 2500000\nuser_usec 2000000\n";
        assert_eq!(group_seconds(stat), Some(2.5));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_has_counters_and_its_own_work_is_not_others() {
        let watch = Watch::start();
        let mut sum = 0u64;
        while watch.begun.elapsed().as_millis() < 50 {
            sum = std::hint::black_box(sum + 1);
        }
        let usage = watch.usage(1).unwrap();
        assert!(usage.cores >= 1.0 && usage.wall >= 0.05, "{usage:?}");
        assert!(usage.own > 0.0, "{usage:?}");
    }
}
