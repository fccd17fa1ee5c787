//! The job this process is part of: its nodes, how many ranks each takes, how many CPUs a rank gets.
//!
//! [`Job::discover`] is a function of what it is handed (environment, files, CPUs of a node), so that a laptop can test it
//! on the environment of a supercomputer. It only says what there is room for: a shell inside an allocation has a job
//! around it, and still runs threads as long as no launcher starts anything.

use super::hosts::{Form, Host, HostFile, MOST, host_file, slurm_counts, slurm_hosts};
use crate::error::BadInput;
use std::io;
use std::path::{Path, PathBuf};

/// The program that gave us the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// PBS Professional, OpenPBS or Torque.
    Pbs,
    /// Slurm.
    Slurm,
}

impl Scheduler {
    /// Its name, as its users write it.
    pub fn name(self) -> &'static str {
        match self {
            Scheduler::Pbs => "PBS",
            Scheduler::Slurm => "Slurm",
        }
    }
}

/// What a node computes with.
///
/// Ranks are counted and given depth in cores, not in hardware threads: the two threads of a core share its arithmetic
/// units, which one training rank fills. Linux also numbers the second threads after all first ones, so on a Polaris node
/// (32 cores, 64 threads, 4 ranks) a depth of 8 gives each rank 8 cores, while 16 binds ranks 0 and 2 to the same cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// Cores with arithmetic units of their own.
    pub cores: usize,
    /// Hardware threads: CPUs as the operating system counts them.
    pub threads: usize,
}

impl Cpus {
    /// Those of this node that this process may use.
    pub fn here() -> Cpus {
        let threads = super::cores();
        let cores = sysinfo::System::physical_core_count().unwrap_or(threads);
        // A container sees all of the machine's cores, and may use fewer threads.
        Cpus { cores: cores.clamp(1, threads), threads }
    }
}

/// What the user asks of the job, before anything is looked up: flags of every program that looks for one.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Wishes {
    /// Ranks on each node [default: the scheduler's number, the machine's, or one a core]
    #[arg(long, visible_alias = "ppn", value_name = "P")]
    pub per_node: Option<usize>,
    /// CPUs for each rank [default: the scheduler's number, or the node's cores / ranks]
    #[arg(long, value_name = "D")]
    pub depth: Option<usize>,
    /// The nodes, one a line [default: the scheduler's]
    #[arg(long = "hostfile", value_name = "FILE")]
    pub host_file: Option<PathBuf>,
}

/// Where the job is looked up.
pub struct Surroundings<'a> {
    /// A variable of the environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// The text of a file.
    pub read: &'a dyn Fn(&Path) -> io::Result<String>,
    /// This node's name.
    pub host: String,
    /// This node's CPUs, taken for every node's.
    pub cpus: Cpus,
}

/// Nodes, and how to fill them with ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Who gave us the nodes; none on a laptop.
    pub scheduler: Option<Scheduler>,
    /// The machine's name, or that of its first node.
    pub machine: String,
    /// The nodes; there is at least one.
    pub hosts: Vec<Host>,
    /// Ranks per node; the most of any node where they differ.
    pub per_node: usize,
    /// Where `per_node` comes from, for people.
    pub per_node_from: String,
    /// CPUs for each rank.
    pub depth: usize,
    /// Where `depth` comes from, for people.
    pub depth_from: String,
    /// Cores of this node, taken for every node's.
    pub cores: usize,
    /// The host file and its form, where there is one.
    pub host_file: Option<(PathBuf, Form)>,
    /// Whether the user named the nodes (`--hostfile`), rather than the scheduler.
    pub hosts_given: bool,
}

/// Machines whose users want one rank for each accelerator, which no variable of their scheduler says.
struct Machine {
    name: &'static str,
    /// Part of the names of its nodes.
    pattern: &'static str,
    per_node: usize,
}

const MACHINES: [Machine; 2] = [
    Machine { name: "Polaris", pattern: "polaris", per_node: 4 },
    // Six GPUs of two tiles each.
    Machine { name: "Aurora", pattern: "aurora", per_node: 12 },
];

/// The nodes before it is known how many ranks they take.
struct Nodes {
    names: Vec<String>,
    file: Option<(PathBuf, HostFile)>,
}

impl Job {
    /// The job around this process.
    pub fn here(wishes: &Wishes) -> Result<Job, BadInput> {
        let surroundings = Surroundings {
            env: &|name| std::env::var(name).ok(),
            read: &|path| std::fs::read_to_string(path),
            host: super::host_name(),
            cpus: Cpus::here(),
        };
        Job::discover(wishes, &surroundings)
    }

    /// The job that these surroundings describe.
    pub fn discover(wishes: &Wishes, around: &Surroundings) -> Result<Job, BadInput> {
        for (flag, value) in [("--per-node", wishes.per_node), ("--depth", wishes.depth)] {
            if let Some(value) = value.filter(|value| !(1..=MOST).contains(value)) {
                return Err(BadInput::new(format!("{flag} {value} is out of range"), format!("give 1 to {MOST}")));
            }
        }
        let scheduler = scheduler(around);
        let nodes = nodes(wishes, around, scheduler)?;
        // A laptop may be called aurora, too.
        let machine = if scheduler.is_some() { machine(around, &nodes) } else { None };
        let (slots, per_node_from) = slots(wishes, around, scheduler, &nodes, machine)?;
        let per_node = slots.iter().copied().max().unwrap_or(1);
        let (depth, depth_from) = depth(wishes, around, scheduler, per_node)?;
        let name = match (machine, variable(around, "SLURM_CLUSTER_NAME")) {
            (Some(machine), _) => machine.name.to_string(),
            (None, Some(cluster)) if scheduler == Some(Scheduler::Slurm) => cluster,
            (None, _) => nodes.names[0].split('.').next().unwrap_or_default().to_string(),
        };
        Ok(Job {
            scheduler,
            machine: name,
            hosts: nodes.names.into_iter().zip(slots).map(|(name, slots)| Host { name, slots }).collect(),
            per_node,
            per_node_from,
            depth,
            depth_from,
            cores: around.cpus.cores,
            host_file: nodes.file.map(|(path, file)| (path, file.form)),
            hosts_given: wishes.host_file.is_some(),
        })
    }

    /// How many ranks the job has room for.
    pub fn room(&self) -> usize {
        self.hosts.iter().map(|host| host.slots).sum()
    }

    /// Whether nodes take different numbers of ranks.
    pub fn is_uneven(&self) -> bool {
        self.hosts.iter().any(|host| host.slots != self.per_node)
    }

    /// Whether this is this node alone: nobody gave us any.
    pub fn is_local(&self) -> bool {
        self.scheduler.is_none() && !self.hosts_given
    }
}

/// A variable that says something: schedulers and scripts leave empty ones behind.
fn variable(around: &Surroundings, name: &str) -> Option<String> {
    (around.env)(name).map(|value| value.trim().to_string()).filter(|value| !value.is_empty())
}

/// A variable that must be a positive number if it is there.
fn number(around: &Surroundings, name: &str) -> Result<Option<usize>, BadInput> {
    let Some(text) = variable(around, name) else { return Ok(None) };
    match text.parse() {
        Ok(number) if (1..=MOST).contains(&number) => Ok(Some(number)),
        _ => Err(BadInput::new(
            format!("{name}={text} is no number from 1 to {MOST}"),
            format!("set it right, or unset {name}"),
        )),
    }
}

fn scheduler(around: &Surroundings) -> Option<Scheduler> {
    let any = |names: &[&str]| names.iter().any(|name| variable(around, name).is_some());
    // Slurm first: it can set PBS's variables as well, for old scripts. PBS never sets Slurm's.
    if any(&["SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NODELIST"]) {
        Some(Scheduler::Slurm)
    } else if any(&["PBS_JOBID", "PBS_NODEFILE"]) {
        Some(Scheduler::Pbs)
    } else {
        None
    }
}

fn nodes(wishes: &Wishes, around: &Surroundings, scheduler: Option<Scheduler>) -> Result<Nodes, BadInput> {
    if let Some(path) = &wishes.host_file {
        return nodes_of_file(around, path, "give --hostfile a file with one host a line");
    }
    match scheduler {
        None => Ok(Nodes { names: vec![around.host.clone()], file: None }),
        Some(Scheduler::Pbs) => {
            let path = variable(around, "PBS_NODEFILE").ok_or_else(|| {
                BadInput::new(
                    "this is a PBS job (PBS_JOBID is set), but PBS_NODEFILE is not set",
                    "start from the job's own script or shell, or give --hostfile",
                )
            })?;
            let help =
                "PBS keeps this file on the job's first node while the job runs; start from there, or give --hostfile";
            let nodes = nodes_of_file(around, Path::new(&path), help)?;
            agree(&nodes, &path, "PBS_NUM_NODES", number(around, "PBS_NUM_NODES")?)?;
            Ok(nodes)
        }
        Some(Scheduler::Slurm) => {
            // The names without JOB are older.
            let find =
                |names: [&'static str; 2]| names.into_iter().find_map(|name| Some((name, variable(around, name)?)));
            let (name, list) = find(["SLURM_JOB_NODELIST", "SLURM_NODELIST"]).ok_or_else(|| {
                BadInput::new(
                    "this is a Slurm job (SLURM_JOB_ID is set), but SLURM_JOB_NODELIST is not set",
                    "start from the job's own script or shell, or give --hostfile",
                )
            })?;
            let nodes = Nodes { names: slurm_hosts(&list)?, file: None };
            let size = if name == "SLURM_JOB_NODELIST" { "SLURM_JOB_NUM_NODES" } else { "SLURM_NNODES" };
            agree(&nodes, name, size, number(around, size)?)?;
            Ok(nodes)
        }
    }
}

fn nodes_of_file(around: &Surroundings, path: &Path, help: &str) -> Result<Nodes, BadInput> {
    let text = (around.read)(path)
        .map_err(|error| BadInput::new(format!("cannot read host file {}: {error}", path.display()), help))?;
    let file = host_file(&text, path)?;
    let names = file.hosts.iter().map(|host| host.name.clone()).collect();
    Ok(Nodes { names, file: Some((path.to_path_buf(), file)) })
}

/// Refuses a job that is told two sizes.
fn agree(nodes: &Nodes, whence: &str, name: &str, size: Option<usize>) -> Result<(), BadInput> {
    match size {
        Some(size) if size != nodes.names.len() => Err(BadInput::new(
            format!("{whence} has {} nodes, and {name}={size} contradicts it", nodes.names.len()),
            format!("one of them is from another job; unset {name}, or give --hostfile"),
        )),
        _ => Ok(()),
    }
}

fn machine(around: &Surroundings, nodes: &Nodes) -> Option<&'static Machine> {
    // Nodes of Aurora are x4102c5s2b0n0.hostmgmt2102.cm.aurora.alcf.anl.gov, or only the part before the first dot; where
    // the job was submitted tells then.
    let submitted = variable(around, "PBS_O_HOST");
    let names = [Some(nodes.names[0].as_str()), Some(around.host.as_str()), submitted.as_deref()];
    let matches = |name: &str, machine: &Machine| name.to_lowercase().contains(machine.pattern);
    names.into_iter().flatten().find_map(|name| MACHINES.iter().find(|machine| matches(name, machine)))
}

/// How many ranks each node takes, and who says so.
fn slots(
    wishes: &Wishes,
    around: &Surroundings,
    scheduler: Option<Scheduler>,
    nodes: &Nodes,
    machine: Option<&Machine>,
) -> Result<(Vec<usize>, String), BadInput> {
    let each = |slots: usize, from: &str| Ok((vec![slots; nodes.names.len()], from.to_string()));
    if let Some(per_node) = wishes.per_node {
        return each(per_node, "--per-node");
    }
    let counted = nodes.file.as_ref().filter(|(_, file)| file.counts).map(|(_, file)| {
        let from = if file.form == Form::Lines { "lines of the host file" } else { "the host file's counts" };
        (file.hosts.iter().map(|host| host.slots).collect(), from.to_string())
    });
    // A file that the user hands over is the user's word, as --per-node is.
    if let (Some(counted), Some(_)) = (&counted, &wishes.host_file) {
        return Ok(counted.clone());
    }
    let uniform = match scheduler {
        Some(Scheduler::Pbs) => Some("PBS_NUM_PPN"),
        Some(Scheduler::Slurm) => Some("SLURM_NTASKS_PER_NODE"),
        None => None,
    };
    if let Some(name) = uniform
        && let Some(per_node) = number(around, name)?
    {
        return each(per_node, name);
    }
    if scheduler == Some(Scheduler::Slurm)
        && wishes.host_file.is_none()
        && let Some(list) = variable(around, "SLURM_TASKS_PER_NODE")
    {
        let slots = slurm_counts(&list)?;
        if slots.len() != nodes.names.len() {
            return Err(BadInput::new(
                format!(
                    "SLURM_TASKS_PER_NODE={list} is for {} nodes, and the job has {}",
                    slots.len(),
                    nodes.names.len()
                ),
                "one of them is from another job; give --per-node",
            ));
        }
        return Ok((slots, "SLURM_TASKS_PER_NODE".into()));
    }
    if let Some(counted) = counted {
        return Ok(counted);
    }
    match machine {
        Some(machine) => each(machine.per_node, &format!("one for each accelerator of a {} node", machine.name)),
        None => each(around.cpus.cores, "one for each core of this node"),
    }
}

/// How many CPUs a rank gets, and who says so.
fn depth(
    wishes: &Wishes,
    around: &Surroundings,
    scheduler: Option<Scheduler>,
    per_node: usize,
) -> Result<(usize, String), BadInput> {
    if let Some(depth) = wishes.depth {
        return Ok((depth, "--depth".into()));
    }
    // PBS has no such variable: its NCPUS and OMP_NUM_THREADS are a whole chunk's CPUs unless the script says otherwise.
    if scheduler == Some(Scheduler::Slurm) {
        if let Some(depth) = number(around, "SLURM_CPUS_PER_TASK")? {
            return Ok((depth, "SLURM_CPUS_PER_TASK".into()));
        }
        // What Slurm calls a CPU (a core at one site, a hardware thread at another) is what srun's -c counts.
        if let Some(cpus) = number(around, "SLURM_CPUS_ON_NODE")? {
            return Ok(((cpus / per_node).max(1), format!("SLURM_CPUS_ON_NODE={cpus} / {per_node} ranks")));
        }
    }
    let Cpus { cores, threads } = around.cpus;
    let from = format!("{cores} cores (not {threads} hardware threads) / {per_node} ranks");
    Ok(((cores / per_node).max(1), if cores == threads { format!("{cores} cores / {per_node} ranks") } else { from }))
}
