//! The job around this process: its nodes, how many ranks each node takes, and how many CPUs each
//! rank gets.
//!
//! [`Job::discover`] depends on its arguments alone (environment, files, CPUs of a node), so that a
//! laptop can test it on the environment of a supercomputer. A job is only room for ranks: a shell
//! inside an allocation has a job around it, and still runs threads as long as no launcher starts
//! processes.

use super::hosts::{Form, Host, HostFile, MOST, host_file, slurm_counts, slurm_hosts};
use kit::flags::whole;
use kit::help;
use shardlab::error::{BadInput, printable};
use shardlab::{files, launch};
use std::io;
use std::path::{Path, PathBuf};

/// The program that gave us the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// PBS Professional, OpenPBS or Torque.
    Pbs,
    Slurm,
}

impl Scheduler {
    /// Its name, as messages print it.
    pub fn name(self) -> &'static str {
        match self {
            Scheduler::Pbs => "PBS",
            Scheduler::Slurm => "Slurm",
        }
    }
}

/// The CPUs of a node.
///
/// A job counts cores, not hardware threads: the two threads of a core share its arithmetic units,
/// which one training rank fills. Linux also numbers all second threads after the first ones. So on
/// a Polaris node (32 cores, 64 threads, 4 ranks) a depth of 8 gives each rank 8 cores, while a
/// depth of 16 binds ranks 0 and 2 to the same cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// Cores, each with its own arithmetic units.
    pub cores: usize,
    /// Hardware threads: CPUs as the operating system counts them.
    pub threads: usize,
}

impl Cpus {
    /// The CPUs of this node that this process may use.
    pub fn here() -> Cpus {
        let threads = launch::cores();
        let cores = sysinfo::System::physical_core_count().unwrap_or(threads);
        // A container sees all cores of the machine, and may use fewer threads.
        Cpus { cores: cores.clamp(1, threads), threads }
    }
}

/// What the user says of the job: flags of every program that looks for one.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = help::RANKS)]
pub struct JobFlags {
    /// Ranks on each node [default: the scheduler's number, the machine's, or one per core]
    #[arg(long, visible_alias = "ppn", value_name = "P", value_parser = whole(1..=MOST))]
    pub per_node: Option<usize>,
    /// CPUs for each rank [default: the scheduler's number, or the node's cores / ranks]
    #[arg(long, value_name = "D", value_parser = whole(1..=MOST))]
    pub depth: Option<usize>,
    /// The nodes, one per line [default: the scheduler's]
    #[arg(long = "hostfile", value_name = "FILE")]
    pub host_file: Option<PathBuf>,
}

/// The environment, files and CPUs in which a search for the job looks.
pub struct Environment<'a> {
    /// Returns a variable of the environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Returns the text of a file.
    pub read: &'a dyn Fn(&Path) -> io::Result<String>,
    /// This node's name.
    pub host: String,
    /// This node's CPUs. All nodes count as equal.
    pub cpus: Cpus,
}

/// A job: nodes, and how to fill them with ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The scheduler that gave us the nodes; none on a laptop.
    pub scheduler: Option<Scheduler>,
    /// The machine's name, or the name of its first node.
    pub machine: String,
    /// The nodes; there is at least one.
    pub hosts: Vec<Host>,
    /// Ranks per node: the most of any node if nodes differ.
    pub per_node: usize,
    /// The source of `per_node`, in words.
    pub per_node_from: String,
    /// CPUs for each rank.
    pub depth: usize,
    /// The source of `depth`, in words.
    pub depth_from: String,
    /// Cores of this node. All nodes count as equal.
    pub cores: usize,
    /// The host file and its form, if the nodes come from one.
    pub host_file: Option<(PathBuf, Form)>,
    /// Whether the user named the nodes (`--hostfile`), rather than the scheduler.
    pub hosts_given: bool,
}

/// A machine whose users want one rank per accelerator. No variable of its scheduler has this
/// number.
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

/// The nodes, before the numbers of their ranks are known.
struct Nodes {
    names: Vec<String>,
    file: Option<(PathBuf, HostFile)>,
}

impl Job {
    /// The job around this process.
    pub fn here(flags: &JobFlags) -> Result<Job, BadInput> {
        let environment = Environment {
            env: &|name| std::env::var(name).ok(),
            read: &|path| files::text(path, files::LIST),
            host: launch::host_name(),
            cpus: Cpus::here(),
        };
        Job::discover(flags, &environment)
    }

    /// The job that this environment describes.
    pub fn discover(flags: &JobFlags, environment: &Environment) -> Result<Job, BadInput> {
        let search = Search { flags, environment, scheduler: scheduler(environment) };
        let nodes = search.nodes()?;
        let machine = search.machine(&nodes);
        let (slots, per_node_from) = search.slots(&nodes, machine)?;
        let per_node = slots.iter().copied().max().unwrap_or(1);
        let (depth, depth_from) = search.depth(per_node)?;
        let cluster = environment
            .variable("SLURM_CLUSTER_NAME")
            .filter(|_| search.scheduler == Some(Scheduler::Slurm))
            .map(|name| printable(&name));
        let first = nodes.names[0].split('.').next().unwrap_or_default();
        Ok(Job {
            scheduler: search.scheduler,
            machine: machine
                .map(|machine| machine.name.into())
                .or(cluster)
                .unwrap_or_else(|| first.to_string()),
            hosts: nodes
                .names
                .into_iter()
                .zip(slots)
                .map(|(name, slots)| Host { name, slots })
                .collect(),
            per_node,
            per_node_from,
            depth,
            depth_from,
            cores: environment.cpus.cores,
            host_file: nodes.file.map(|(path, file)| (path, file.form)),
            hosts_given: flags.host_file.is_some(),
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

    /// Whether the job is this node alone, because neither a scheduler nor the user gave us nodes.
    pub fn is_local(&self) -> bool {
        self.scheduler.is_none() && !self.hosts_given
    }
}

fn scheduler(environment: &Environment) -> Option<Scheduler> {
    let any = |names: &[&str]| names.iter().any(|name| environment.variable(name).is_some());
    // Slurm first: it can set PBS's variables as well, for old scripts. PBS never sets Slurm's.
    if any(&["SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NODELIST"]) {
        Some(Scheduler::Slurm)
    } else {
        any(&["PBS_JOBID", "PBS_NODEFILE"]).then_some(Scheduler::Pbs)
    }
}

impl Environment<'_> {
    /// The value of a variable that is not empty: schedulers and scripts leave empty variables
    /// behind.
    fn variable(&self, name: &str) -> Option<String> {
        (self.env)(name)
            .map(|value| value.trim().to_string())
            .filter(|value| !value.is_empty())
    }
}

/// A search for the job around this process.
struct Search<'a> {
    flags: &'a JobFlags,
    environment: &'a Environment<'a>,
    scheduler: Option<Scheduler>,
}

impl Search<'_> {
    /// The value of a variable that must be a positive number if it is set.
    fn number(&self, name: &str) -> Result<Option<usize>, BadInput> {
        let Some(text) = self.environment.variable(name) else {
            return Ok(None);
        };
        match text.parse() {
            Ok(number) if (1..=MOST).contains(&number) => Ok(Some(number)),
            _ => Err(BadInput::new(
                format!("{name}={text} is no number from 1 to {MOST}"),
                format!("set it right, or unset {name}"),
            )),
        }
    }

    fn nodes(&self) -> Result<Nodes, BadInput> {
        if let Some(path) = &self.flags.host_file {
            return self.nodes_of_file(path, "give --hostfile a file with one host per line");
        }
        let missing = |job: &str, set: &str, name: &str| {
            BadInput::new(
                format!("this is a {job} job ({set} is set), but {name} is not set"),
                "start from the job's own script or shell, or give --hostfile",
            )
        };
        // The nodes, the source of their names, and the variable with their number.
        let (nodes, whence, size) = match self.scheduler {
            None => {
                return Ok(Nodes { names: vec![self.environment.host.clone()], file: None });
            }
            Some(Scheduler::Pbs) => {
                let path = self.environment.variable("PBS_NODEFILE");
                let path = path.ok_or_else(|| missing("PBS", "PBS_JOBID", "PBS_NODEFILE"))?;
                let help = "PBS keeps this file on the job's first node while the job runs; start from there, or give --hostfile";
                (self.nodes_of_file(Path::new(&path), help)?, path, "PBS_NUM_NODES")
            }
            Some(Scheduler::Slurm) => {
                // The names without JOB are older.
                let names = [
                    ("SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES"),
                    ("SLURM_NODELIST", "SLURM_NNODES"),
                ];
                let list = names
                    .into_iter()
                    .find_map(|(name, size)| Some((name, self.environment.variable(name)?, size)));
                let (name, list, size) =
                    list.ok_or_else(|| missing("Slurm", "SLURM_JOB_ID", "SLURM_JOB_NODELIST"))?;
                (Nodes { names: slurm_hosts(&list)?, file: None }, name.to_string(), size)
            }
        };
        match self.number(size)? {
            Some(number) if number != nodes.names.len() => Err(BadInput::new(
                format!(
                    "{whence} has {} nodes, and {size}={number} contradicts it",
                    nodes.names.len()
                ),
                format!("one of them is from a different job; unset {size}, or give --hostfile"),
            )),
            _ => Ok(nodes),
        }
    }

    fn nodes_of_file(&self, path: &Path, help: &str) -> Result<Nodes, BadInput> {
        let text = (self.environment.read)(path).map_err(|error| {
            BadInput::new(format!("cannot read host file {}: {error}", path.display()), help)
        })?;
        let file = host_file(&text, path)?;
        let names = file.hosts.iter().map(|host| host.name.clone()).collect();
        Ok(Nodes { names, file: Some((path.to_path_buf(), file)) })
    }

    fn machine(&self, nodes: &Nodes) -> Option<&'static Machine> {
        // Without a scheduler this is a laptop, which may be called aurora too.
        self.scheduler?;
        // Nodes of Aurora are called x4102c5s2b0n0.hostmgmt2102.cm.aurora.alcf.anl.gov, or only the
        // part before the first dot. Then the name of the host where the job was submitted decides.
        let submitted = self.environment.variable("PBS_O_HOST");
        let names = [
            Some(nodes.names[0].as_str()),
            Some(self.environment.host.as_str()),
            submitted.as_deref(),
        ];
        let matches = |name: &str, machine: &Machine| name.to_lowercase().contains(machine.pattern);
        names
            .into_iter()
            .flatten()
            .find_map(|name| MACHINES.iter().find(|machine| matches(name, machine)))
    }

    /// How many ranks each node takes, and the source of these numbers.
    fn slots(
        &self,
        nodes: &Nodes,
        machine: Option<&Machine>,
    ) -> Result<(Vec<usize>, String), BadInput> {
        let each =
            |slots: usize, from: &str| Ok((vec![slots; nodes.names.len()], from.to_string()));
        if let Some(per_node) = self.flags.per_node {
            return each(per_node, "--per-node");
        }
        let counted = nodes.file.as_ref().filter(|(_, file)| file.counts).map(|(_, file)| {
            let from = if file.form == Form::Lines {
                "lines of the host file"
            } else {
                "the host file's counts"
            };
            (file.hosts.iter().map(|host| host.slots).collect(), from.to_string())
        });
        // The user's own file counts as the user's word, as --per-node does.
        let given = self.flags.host_file.is_some();
        if given && let Some(counted) = counted {
            return Ok(counted);
        }
        let uniform = match self.scheduler {
            Some(Scheduler::Pbs) => Some("PBS_NUM_PPN"),
            Some(Scheduler::Slurm) => Some("SLURM_NTASKS_PER_NODE"),
            None => None,
        };
        if let Some(name) = uniform
            && let Some(per_node) = self.number(name)?
        {
            return each(per_node, name);
        }
        if self.scheduler == Some(Scheduler::Slurm)
            && !given
            && let Some(list) = self.environment.variable("SLURM_TASKS_PER_NODE")
        {
            let slots = slurm_counts(&list)?;
            let counts = slots.len();
            let size = nodes.names.len();
            if counts != size {
                return Err(BadInput::new(
                    format!(
                        "SLURM_TASKS_PER_NODE={list} is for {counts} nodes, and the job has {size}"
                    ),
                    "one of them is from a different job; give --per-node",
                ));
            }
            return Ok((slots, "SLURM_TASKS_PER_NODE".into()));
        }
        match (counted, machine) {
            (Some(counted), _) => Ok(counted),
            (None, Some(machine)) => each(
                machine.per_node,
                &format!("one for each accelerator of a {} node", machine.name),
            ),
            (None, None) => each(self.environment.cpus.cores, "one for each core of this node"),
        }
    }

    /// How many CPUs each rank gets, and the source of this number.
    fn depth(&self, per_node: usize) -> Result<(usize, String), BadInput> {
        if let Some(depth) = self.flags.depth {
            return Ok((depth, "--depth".into()));
        }
        // PBS has no such variable: its NCPUS and OMP_NUM_THREADS are the CPUs of a whole chunk,
        // unless the script changes them.
        if self.scheduler == Some(Scheduler::Slurm) {
            if let Some(depth) = self.number("SLURM_CPUS_PER_TASK")? {
                return Ok((depth, "SLURM_CPUS_PER_TASK".into()));
            }
            // srun's -c counts the same CPUs: cores at one site, hardware threads at a different
            // one.
            if let Some(cpus) = self.number("SLURM_CPUS_ON_NODE")? {
                return Ok((
                    (cpus / per_node).max(1),
                    format!("SLURM_CPUS_ON_NODE={cpus} / {per_node} ranks"),
                ));
            }
        }
        let Cpus { cores, threads } = self.environment.cpus;
        let apart = if cores == threads {
            String::new()
        } else {
            format!(" (not {threads} hardware threads)")
        };
        Ok(((cores / per_node).max(1), format!("{cores} cores{apart} / {per_node} ranks")))
    }
}
