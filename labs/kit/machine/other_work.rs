//! Whether other programs have used the processors that a run needed: then its times say more about
//! them than about the run.
//!
//! Two readings of `/proc/stat`, before and after, give the processor seconds of everything on this
//! machine. What this process and its children have used is subtracted. Where the system has no
//! such counters, and where this process may use a part of the cores alone (a container, a job
//! beside others), nothing is measured, and nothing is said.

use crate::Resources;
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

/// The processor seconds of a machine and of this process, at one moment.
pub struct OtherWork {
    begun: Instant,
    own: f64,
    /// None where they are not counted, or not for this process.
    all: Option<f64>,
}

impl OtherWork {
    /// Begins a measurement.
    pub fn watch() -> OtherWork {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        OtherWork {
            begun: Instant::now(),
            own: own_seconds(),
            all: all_seconds(&stat, launch::cores()),
        }
    }

    /// The remark beside the times of `ranks` ranks of this process; none if no others have
    /// disturbed them. None for processes of a launcher, either: a process does not know what the
    /// other ranks of its node have used.
    pub fn remark(&self, ranks: usize) -> Option<String> {
        if launch::is_mpi() {
            return None;
        }
        let cores = launch::cores();
        let given = std::env::var(VARIABLE).ok().and_then(|others| others.parse::<f64>().ok());
        let others = given.or_else(|| self.others())?.clamp(0.0, cores as f64);
        is_disturbed(cores, ranks, others).then(|| {
            format!("other work took {others:.1} of this machine's {cores} cores meanwhile")
        })
    }

    /// The row beside times, if there is something to remark.
    pub fn row(&self, screen: &Screen, ranks: usize) -> Option<String> {
        let remark = self.remark(ranks)?;
        Some(screen.row("busy", &format!("{remark}: it made these times longer")))
    }

    /// How many cores other programs have used since the beginning, on average. None for less than
    /// a fifth of a second: the system counts in hundredths of one.
    fn others(&self) -> Option<f64> {
        let now = OtherWork::watch();
        let wall = (now.begun - self.begun).as_secs_f64();
        let all = now.all? - self.all?;
        (wall >= 0.2).then(|| (all - (now.own - self.own)) / wall)
    }
}

/// Whether `ranks` ranks had to share their cores: whether other programs used more than 15% of the
/// cores that the ranks need, beyond those that were free. Ranks that take turns need all cores.
fn is_disturbed(cores: usize, ranks: usize, others: f64) -> bool {
    let needed = ranks.min(cores) as f64;
    needed + others - cores as f64 > DISTURBED * needed
}

/// The seconds that this process has used, and its children that have ended.
fn own_seconds() -> f64 {
    let sum = |used: Resources| used.seconds.iter().sum::<f64>();
    sum(Resources::here()) + sum(Resources::of_children())
}

/// The seconds that the machine's cores have worked, from `/proc/stat`. What a hypervisor has given
/// to others (steal) is work, too, and it is not this process's. None if the machine has other than
/// these `cores`.
fn all_seconds(stat: &str, cores: usize) -> Option<f64> {
    let is_core = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    // user nice system idle iowait irq softirq steal; the guests after them are within user and
    // nice.
    let counts = stat.lines().next()?.split_whitespace().skip(1);
    let counts: Vec<u64> = counts.map_while(|count| count.parse().ok()).collect();
    let ticks: u64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|&i| counts.get(i)).sum();
    // SAFETY: it only returns a number.
    let second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    (stat.lines().filter(is_core).count() == cores).then(|| ticks as f64 / second as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let found = is_disturbed(cores, ranks, others);
            assert_eq!(found, disturbed, "{cores} {ranks} {others}");
        }
    }

    #[test]
    fn the_counters_are_read_as_linux_writes_them() {
        let stat = "cpu  30 0 12 900 5 1 2 7 0 0\ncpu0 10 1 2 400 3 4 5 6 9 9\ncpu1 20 0 10 500 2 0 0 0 0 0\nintr 5 1\n";
        // SAFETY: it only returns a number.
        let second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        assert_eq!(all_seconds(stat, 2), Some(52.0 / second));
        // A part of the machine's cores, and no counters.
        assert_eq!((all_seconds(stat, 1), all_seconds("", 2)), (None, None));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_s_own_work_is_not_others() {
        let before = OtherWork::watch();
        let mut sum = 0u64;
        while before.begun.elapsed().as_millis() < 50 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(own_seconds() > before.own);
        assert_eq!(before.others(), None, "too short to be judged");
    }
}
