//! What a job has used: time, memory, faults and switches, as a launcher counts them at its end.

use shardlab::comm::{Comm, Reduce, Result};
use shardlab::launch;
use std::fmt;

/// The operating system's counts (`man getrusage`), of all processes of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Resources {
    /// Seconds of the processors: `utime` in the programs, `stime` in the operating system for
    /// them.
    pub seconds: [f64; 2],
    /// The most memory of any process, in kB (1,024 bytes).
    pub maxrss: u64,
    /// Six counts, named by `COUNTS`.
    pub counts: [u64; 6],
}

/// Reads and writes of a disk; pages that came without reading a disk, and with it; how often a
/// thread waited, and how often it had to make room for others.
const COUNTS: [&str; 6] = ["inblock", "oublock", "minflt", "majflt", "nvcsw", "nivcsw"];

impl Resources {
    /// What this process has used. A browser does not count it.
    pub fn here() -> Resources {
        #[cfg(unix)]
        return Resources::of(libc::RUSAGE_SELF);
        #[cfg(not(unix))]
        Resources::default()
    }

    /// What the processes that this one has started have used, as far as they have ended.
    pub fn of_children() -> Resources {
        #[cfg(unix)]
        return Resources::of(libc::RUSAGE_CHILDREN);
        #[cfg(not(unix))]
        Resources::default()
    }

    #[cfg(unix)]
    fn of(whose: libc::c_int) -> Resources {
        // SAFETY: it is a struct of integers, and the call fills it.
        let used: libc::rusage = unsafe {
            let mut used = std::mem::zeroed();
            libc::getrusage(whose, &mut used);
            used
        };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + 1e-6 * time.tv_usec as f64;
        let count = |count: libc::c_long| count.max(0) as u64;
        // macOS counts bytes.
        let unit = if cfg!(target_os = "macos") { 1024 } else { 1 };
        Resources {
            seconds: [used.ru_utime, used.ru_stime].map(seconds),
            maxrss: count(used.ru_maxrss) / unit,
            counts: [
                used.ru_inblock,
                used.ru_oublock,
                used.ru_minflt,
                used.ru_majflt,
                used.ru_nvcsw,
                used.ru_nivcsw,
            ]
            .map(count),
        }
    }

    /// What all processes of the job have used. All ranks call it.
    ///
    /// # Errors
    /// If the communication fails.
    pub fn of_job(comm: &Comm) -> Result<Resources> {
        let mut used = Resources::here();
        // Threads are one process, which has counted them all.
        if launch::is_mpi() {
            comm.all_reduce(&mut used.seconds, Reduce::Sum)?;
            used.maxrss = comm.reduced(used.maxrss, Reduce::Max)?;
            comm.all_reduce(&mut used.counts, Reduce::Sum)?;
        }
        Ok(used)
    }
}

/// The words of PALS, the launcher of Polaris and Aurora.
impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let [utime, stime] = self.seconds;
        let maxrss = self.maxrss;
        write!(f, "resources: utime={utime:.0}s stime={stime:.0}s maxrss={maxrss}KB")?;
        for (name, count) in COUNTS.iter().zip(self.counts) {
            write!(f, " {name}={count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_the_sources() {
        let used = Resources {
            seconds: [25.2, 22.9],
            maxrss: 1_434_396,
            counts: [32, 4320, 670_179, 864, 195_893, 1_331_214],
        };
        assert_eq!(
            format!("Application cff755ee {used}"),
            "Application cff755ee resources: utime=25s stime=23s maxrss=1434396KB inblock=32 oublock=4320 minflt=670179 \
             majflt=864 nvcsw=195893 nivcsw=1331214"
        );
    }

    /// The counts are this process's own: more memory and more work show.
    #[test]
    fn what_a_process_uses_is_counted() {
        let before = Resources::here();
        let mut pages = vec![0u8; 64 << 20];
        for page in pages.chunks_mut(4096) {
            page[0] = std::hint::black_box(1);
        }
        let after = Resources::here();
        let faults = |used: &Resources| used.counts[2];
        assert!(faults(&after) > faults(&before), "{before:?} {after:?}");
        assert!(after.maxrss >= 64 << 10, "{after:?}");
        let seconds = |used: &Resources| used.seconds.iter().sum::<f64>();
        assert!(seconds(&after) > seconds(&before));
    }
}
