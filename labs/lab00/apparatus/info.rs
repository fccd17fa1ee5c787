//! `--info` and `--jobenv`: the job as a cluster's user sees it.

use crate::job::Job;
use crate::job::line::{Launcher, quote};
use crate::job::session;
use anyhow::Result;
use kit::place::{Place, Seat};
use kit::show::Screen;
use shardlab::comm::Comm;
use shardlab::launch;
use std::fmt::Display;
use std::path::Path;

/// A title in brackets, then `NAME=value` lines, as the source's launcher (ezpz) prints them.
fn block(screen: &Screen, title: &str, lines: &[(impl Display, String)]) {
    let bullet = if screen.ascii { "*" } else { "•" };
    screen.say(screen.bold(title));
    for (name, value) in lines {
        screen.say(screen.wrap(&format!("{bullet} {name}{value}"), 2));
    }
    screen.say("");
}

/// Saves the scheduler's variables, and says so.
pub fn save_environment(job: &Job, path: &Path) -> Result<String> {
    let saved = session::save(path, job, std::env::vars_os())?;
    let path = path.display();
    Ok(format!(
        "{path}: {saved} variables of the scheduler. Another shell on its nodes reads them by source {path}"
    ))
}

/// The job in ezpz's blocks, which a cluster's user looks at first.
pub fn show(
    screen: &Screen,
    comm: &Comm,
    job: &Job,
    places: &[Place],
    (seat, saved): (Seat, Option<String>),
) -> Result<()> {
    let launcher = Launcher::here(job);
    let lab = std::env::args().next().unwrap_or_else(|| "lab00".into());
    let line = launcher.line(job, job.room())?;
    let launch = if launcher == Launcher::Threads {
        quote(&line.command(&[lab]))
    } else {
        line.to_string()
    };
    let host_file = job
        .host_file
        .as_ref()
        .map_or("none".into(), |(path, _)| path.display().to_string());
    let names: Vec<String> = job.hosts.iter().map(|host| format!("'{}'", host.name)).collect();
    let numbered = job.hosts.iter().enumerate();
    let hosts: Vec<(String, String)> = numbered
        .map(|(i, host)| (format!("[host:{i}] - "), host.name.clone()))
        .collect();
    let mut session = vec![
        ("USER=", session::user()),
        ("MACHINE=", job.machine.clone()),
        ("HOST=", places[0].host.clone()),
        ("TSTAMP=", session::local_time()),
    ];
    session.extend(saved.map(|saved| ("jobenv_file: ", saved)));
    block(screen, "[JOB]", &session);
    block(screen, "[HOSTS]", &hosts);
    screen.say(screen.wrap(
        "These are the names that a cluster with GPUs uses. Here a rank computes on CPUs: read GPU as \"room for a rank\".",
        0,
    ));
    screen.say("");
    block(
        screen,
        "[DIST INFO]",
        &[
            ("NGPUS=", job.room().to_string()),
            ("NHOSTS=", job.hosts.len().to_string()),
            ("NGPU_PER_HOST=", format!("{} ({})", job.per_node, job.per_node_from)),
            ("HOSTFILE=", host_file.clone()),
            ("DIST_LAUNCH=", launch.clone()),
            ("DEPTH=", format!("{} ({})", job.depth, job.depth_from)),
        ],
    );
    for said in &job.said {
        screen.say(screen.wrap(&format!("note: {said}\n"), 0));
    }
    let bullet = if screen.ascii { "*" } else { "•" };
    screen.say(screen.bold("[LAUNCH]:"));
    screen.say(format!(
        "  {bullet} To launch as many ranks as there is room for, use: launch\n"
    ));
    // One line, however long: it is there to be copied.
    screen.say(format!("launch = {launch}\n"));
    let scheduler = match (job.scheduler, job.unread) {
        (Some(scheduler), _) => scheduler.name().to_string(),
        (None, Some(other)) => format!("{other} (its nodes are not read)"),
        (None, None) => "none".to_string(),
    };
    let fields = [
        ("DEVICE=", "cpu".into()),
        ("DEVICE_ID=", "cpu:0".into()),
        ("DISTRIBUTED_BACKEND=", if launch::is_mpi() { "mpi" } else { "threads" }.into()),
        ("GPUS_PER_NODE=", job.per_node.to_string()),
        ("HOSTS=", format!("[{}]", names.join(", "))),
        ("HOSTFILE=", host_file),
        ("HOSTNAME=", places[0].host.clone()),
        ("LOCAL_RANK=", seat.local_rank.to_string()),
        ("MACHINE=", job.machine.clone()),
        ("NUM_NODES=", job.hosts.len().to_string()),
        ("NGPUS=", job.room().to_string()),
        ("NGPUS_AVAILABLE=", job.room().to_string()),
        ("NODE_ID=", seat.node.to_string()),
        ("RANK=", comm.rank().to_string()),
        ("SCHEDULER=", scheduler),
        ("WORLD_SIZE_TOTAL=", job.room().to_string()),
        ("WORLD_SIZE_IN_USE=", comm.size().to_string()),
        ("LAUNCH_CMD=", launch),
    ];
    block(screen, "[dist_info]:", &fields);
    if comm.size() < job.room() {
        let text =
            format!("Using [{} / {}] available \"cpu\" devices !!\n", comm.size(), job.room());
        screen.say(screen.wrap(&text, 0));
    }
    Ok(())
}
