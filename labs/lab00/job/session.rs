//! Who runs the job, where and when; and its scheduler's variables, saved for other shells.
//!
//! A scheduler tells only the job's own shell of the job. A second shell on one of its nodes, where
//! someone looks at a run or starts the next one, knows nothing of it until it has read these
//! variables. ezpz, the sources' launcher, saves them so.

use super::discover::Job;
use super::line::{Launcher, quote};
use kit::output;
use shardlab::error::{BadInput, printable};
use std::ffi::OsString;
use std::path::Path;

/// This process's user.
pub fn user() -> String {
    let names = ["USER", "LOGNAME"].map(|name| std::env::var(name).ok());
    let known = names.into_iter().flatten().find(|name| !name.is_empty());
    known.map_or_else(|| "unknown".to_string(), |name| printable(&name))
}

/// Year, month, day, hours with minutes and seconds, in local time: `2024-10-26-094841`.
pub fn local_time() -> String {
    // SAFETY: both calls write only what they are given, and a `tm` of zeros is a valid one.
    let now = unsafe {
        let seconds = libc::time(std::ptr::null_mut());
        let mut now: libc::tm = std::mem::zeroed();
        libc::localtime_r(&seconds, &mut now);
        now
    };
    format!(
        "{}-{:02}-{:02}-{:02}{:02}{:02}",
        now.tm_year + 1900,
        now.tm_mon + 1,
        now.tm_mday,
        now.tm_hour,
        now.tm_min,
        now.tm_sec
    )
}

/// Slurm's variables of one rank or one launch. A program that finds them takes itself for a rank.
const OF_A_RANK: [&str; 8] = [
    "SLURM_STEP",
    "SLURM_SRUN_",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_GTIDS",
    "SLURM_TASK_PID",
    "SLURM_LAUNCH_NODE",
];

/// Makes a step's nodes and ranks those of a job, for a shell that is no step: the step has
/// overwritten some of the job's variables, which then contradict the rest.
fn as_a_job(step: &Job, all: &mut Vec<(String, String)>) {
    let names: Vec<&str> = step.hosts.iter().map(|host| host.name.as_str()).collect();
    let slots: Vec<String> = step.hosts.iter().map(|host| host.slots.to_string()).collect();
    let own = [
        ("SLURM_JOB_NODELIST", names.join(",")),
        ("SLURM_JOB_NUM_NODES", names.len().to_string()),
        ("SLURM_TASKS_PER_NODE", slots.join(",")),
    ];
    // The other numbers of nodes and tasks begin alike: NODELIST, NNODES, NTASKS, NPROCS.
    all.retain(|(name, _)| !name.starts_with("SLURM_N") && own.iter().all(|(own, _)| own != name));
    all.extend(own.map(|(name, value)| (name.to_string(), value)));
}

/// Writes the variables of the job's scheduler to a file that a shell can read (`source FILE`),
/// with what the job is made of. `environment` has all variables of this process. Returns how many
/// variables of the scheduler there were.
///
/// # Errors
/// If no scheduler is around this process, the job has no launch line, or the file cannot be
/// written.
pub fn save(
    path: &Path,
    job: &Job,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<usize, BadInput> {
    let Some(scheduler) = job.scheduler else {
        return Err(BadInput::new(
            "--jobenv saves a scheduler's variables, and neither PBS nor Slurm is around this program",
            "start it in a job, or leave --jobenv out",
        ));
    };
    let prefix = format!("{}_", scheduler.name().to_uppercase());
    // No scheduler has a value that is not text.
    let texts = environment
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let of_the_job = |(name, _): &(String, String)| {
        name.starts_with(&prefix) && !OF_A_RANK.iter().any(|rank| name.starts_with(rank))
    };
    let mut all: Vec<(String, String)> = texts.filter(of_the_job).collect();
    if job.is_step {
        as_a_job(job, &mut all);
    }
    all.sort();
    let count = all.len();
    // The other shell may be in another folder.
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut job = job.clone();
    if let Some((file, _)) = &mut job.host_file {
        *file = absolute(file);
        all.push(("HOSTFILE".into(), file.display().to_string()));
    }
    let launch = Launcher::here(&job).line(&job, job.room())?.to_string();
    let own = [
        ("JOBENV_FILE", absolute(path).display().to_string()),
        ("NHOSTS", job.hosts.len().to_string()),
        ("NGPU_PER_HOST", job.per_node.to_string()),
        ("NGPUS", job.room().to_string()),
        ("DIST_LAUNCH", launch),
    ];
    all.extend(own.map(|(name, value)| (name.to_string(), value)));
    let export = |(name, value): &(String, String)| {
        format!("export {name}={}\n", quote(std::slice::from_ref(value)))
    };
    let text: String = all.iter().map(export).collect();
    std::fs::write(path, text).map_err(|error| {
        BadInput::new(
            format!("cannot write --jobenv {}: {error}", path.display()),
            output::help(&error, "name a file in a folder that exists"),
        )
    })?;
    Ok(count)
}
