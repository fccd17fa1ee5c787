//! What a job has used: time, memory, faults and switches, as a launcher counts them at its end.

use shardlab::comm::{Comm, Reduce, Result};
use shardlab::launch;
use std::fmt;

/// The operating system's counts (`man getrusage`), of all processes of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Resources {
    /// Seconds of the processors in the programs.
    pub utime: f64,
    /// Seconds of the processors in the operating system, for them.
    pub stime: f64,
    /// The most memory of any process, in kB (1,024 bytes).
    pub maxrss: u64,
    /// Reads and writes of a disk.
    pub inblock: u64,
    pub oublock: u64,
    /// Pages that came without reading a disk, and with it.
    pub minflt: u64,
    pub majflt: u64,
    /// How often a thread waited, and how often it had to make room for others.
    pub nvcsw: u64,
    pub nivcsw: u64,
}

impl Resources {
    /// What this process has used.
    pub fn here() -> Resources {
        // SAFETY: it is a struct of integers, and the call fills it.
        let used: libc::rusage = unsafe {
            let mut used = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut used);
            used
        };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + 1e-6 * time.tv_usec as f64;
        let count = |count: libc::c_long| count.max(0) as u64;
        // macOS counts bytes.
        let unit = if cfg!(target_os = "macos") { 1024 } else { 1 };
        Resources {
            utime: seconds(used.ru_utime),
            stime: seconds(used.ru_stime),
            maxrss: count(used.ru_maxrss) / unit,
            inblock: count(used.ru_inblock),
            oublock: count(used.ru_oublock),
            minflt: count(used.ru_minflt),
            majflt: count(used.ru_majflt),
            nvcsw: count(used.ru_nvcsw),
            nivcsw: count(used.ru_nivcsw),
        }
    }

    /// What all processes of the job have used. All ranks call it.
    ///
    /// # Errors
    /// If the communication fails.
    pub fn of_job(comm: &Comm) -> Result<Resources> {
        let mine = Resources::here();
        // Threads are one process, which has counted them all.
        if !launch::is_mpi() {
            return Ok(mine);
        }
        let mut seconds = [mine.utime, mine.stime];
        let mut maxrss = [mine.maxrss];
        let mut counts = [
            mine.inblock,
            mine.oublock,
            mine.minflt,
            mine.majflt,
            mine.nvcsw,
            mine.nivcsw,
        ];
        comm.all_reduce(&mut seconds, Reduce::Sum)?;
        comm.all_reduce(&mut maxrss, Reduce::Max)?;
        comm.all_reduce(&mut counts, Reduce::Sum)?;
        let [utime, stime] = seconds;
        let [maxrss] = maxrss;
        let [inblock, oublock, minflt, majflt, nvcsw, nivcsw] = counts;
        Ok(Resources {
            utime,
            stime,
            maxrss,
            inblock,
            oublock,
            minflt,
            majflt,
            nvcsw,
            nivcsw,
        })
    }
}

/// The words of PALS, the launcher of Polaris and Aurora.
impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Resources {
            utime,
            stime,
            maxrss,
            inblock,
            oublock,
            minflt,
            majflt,
            nvcsw,
            nivcsw,
        } = self;
        write!(
            f,
            "resources: utime={utime:.0}s stime={stime:.0}s maxrss={maxrss}KB inblock={inblock} oublock={oublock} \
             minflt={minflt} majflt={majflt} nvcsw={nvcsw} nivcsw={nivcsw}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_the_sources() {
        let used = Resources {
            utime: 25.2,
            stime: 22.9,
            maxrss: 1_434_396,
            inblock: 32,
            oublock: 4320,
            minflt: 670_179,
            majflt: 864,
            nvcsw: 195_893,
            nivcsw: 1_331_214,
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
        assert!(after.minflt > before.minflt, "{before:?} {after:?}");
        assert!(after.maxrss >= 64 << 10, "{after:?}");
        assert!(after.utime + after.stime > before.utime + before.stime);
    }
}
