//! The job around this process: its nodes, how many ranks each node takes, and how many CPUs each
//! rank gets.
//!
//! [`Job::discover`] depends on its arguments alone (environment, files, CPUs of a node), so that a
//! laptop can test it on the environment of a supercomputer. A job is only room for ranks: a shell
//! inside an allocation has a job around it, and still runs threads as long as no launcher starts
//! processes.

use super::elsewhere;
use super::environment::{Cpus, Environment};
use super::granted::{JOB, Numbers, OLD, STEP, Scope, Slots, is_shell};
use super::hosts::{Form, Host, HostFile, MOST, host_file, slurm_counts, slurm_hosts};
use kit::flags::whole;
use kit::help;
use kit::show::only_if;
use shardlab::error::{BadInput, printable};
use shardlab::named::named;
use shardlab::{files, launch};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

named! {
    /// The program that gave us the nodes.
    pub enum Scheduler {
        /// PBS Professional, OpenPBS or Torque.
        Pbs = "PBS",
        Slurm = "Slurm",
        Flux = "Flux",
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
    /// A scheduler whose nodes are not read.
    pub unread: Option<&'static str>,
    /// Whether it is a step of Slurm's job, which may have more nodes.
    pub is_step: bool,
    /// What a reader of the screen should know: which of two variables won, what was not read.
    pub said: Vec<String>,
}

/// PBS's machines whose users want one rank per accelerator, and the beginnings of the names of the
/// hosts where their jobs are submitted. No variable of the scheduler has the number.
const MACHINES: [(&str, &str); 2] = [("Polaris", "polaris-login"), ("Aurora", "aurora-uan")];

/// The nodes, before the numbers of their ranks are known.
struct Nodes {
    names: Vec<String>,
    file: Option<(PathBuf, HostFile)>,
    /// The variables of Slurm that count them and their ranks.
    slurm: Option<Scope>,
}

impl Job {
    /// The job around this process.
    pub fn here(flags: &JobFlags) -> Result<Job, BadInput> {
        let environment = Environment {
            env: &|name| std::env::var(name).ok(),
            read: &|path| files::text(path, files::LIST),
            flux_hosts: &|| {
                let mut ask = Command::new("flux");
                let output = ask.args(["hostlist", "local"]).stdin(Stdio::null()).output().ok()?;
                String::from_utf8(output.stdout).ok().filter(|_| output.status.success())
            },
            host: launch::host_name(),
            cpus: Cpus::here(),
        };
        Job::discover(flags, &environment)
    }

    /// The job that this environment describes.
    pub fn discover(flags: &JobFlags, environment: &Environment) -> Result<Job, BadInput> {
        let scheduler = scheduler(environment);
        let unknown = scheduler.is_none();
        let flux = unknown.then(|| elsewhere::flux_hosts(environment)).flatten();
        let scheduler = scheduler.or(flux.as_ref().map(|_| Scheduler::Flux));
        let named = scheduler.is_some() || flags.host_file.is_some();
        let (unread, sentence) = elsewhere::scheduler(environment).filter(|_| !named).unzip();
        let numbers = Numbers { environment, said: sentence.flatten().into_iter().collect() };
        let mut search = Search { flags, environment, scheduler, flux, numbers };
        let nodes = search.nodes()?;
        let machine = search.machine(&nodes);
        let (slots, per_node_from) = search.slots(&nodes, machine)?;
        let per_node = slots.iter().copied().max().unwrap_or(1);
        let (depth, depth_from) = search.depth(&nodes, &slots)?;
        let cluster = environment
            .variable("SLURM_CLUSTER_NAME")
            .filter(|_| scheduler == Some(Scheduler::Slurm))
            .map(|name| printable(&name));
        let first = nodes.names[0].split('.').next().unwrap_or_default().to_string();
        let hosts = nodes.names.into_iter().zip(slots);
        Ok(Job {
            scheduler,
            machine: machine.map(String::from).or(cluster).unwrap_or(first),
            hosts: hosts.map(|(name, slots)| Host { name, slots }).collect(),
            per_node,
            per_node_from,
            depth,
            depth_from,
            cores: environment.cpus.cores,
            host_file: nodes.file.map(|(path, file)| (path, file.form)),
            hosts_given: flags.host_file.is_some(),
            unread,
            is_step: nodes.slurm.is_some_and(|scope| scope.list == STEP.list),
            said: search.numbers.said,
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
    if any(&["SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NODELIST", HET_GROUP]) {
        return Some(Scheduler::Slurm);
    }
    any(&["PBS_JOBID", "PBS_NODEFILE"]).then_some(Scheduler::Pbs)
}

/// The nodes of a heterogeneous job's first group.
const HET_GROUP: &str = "SLURM_JOB_NODELIST_HET_GROUP_0";

/// The error of a job whose nodes nothing names.
fn missing(job: &str, set: &str, name: &str) -> BadInput {
    BadInput::new(
        format!("this is a {job} job ({set} is set), but {name} is not set"),
        "start from the job's own script or shell, or give --hostfile",
    )
}

/// A search for the job around this process.
struct Search<'a> {
    flags: &'a JobFlags,
    environment: &'a Environment<'a>,
    scheduler: Option<Scheduler>,
    /// The nodes of Flux's job.
    flux: Option<Vec<String>>,
    numbers: Numbers<'a>,
}

impl Search<'_> {
    fn nodes(&mut self) -> Result<Nodes, BadInput> {
        if let Some(path) = &self.flags.host_file {
            return self.nodes_of_file(path, "give --hostfile a file with one host per line");
        }
        match self.scheduler {
            None => {
                let names = vec![self.environment.host.clone()];
                Ok(Nodes { names, file: None, slurm: None })
            }
            Some(Scheduler::Flux) => {
                self.numbers.said.push(
                    "these are the nodes that flux hostlist local names; this follows Flux's manual, and was tried on no machine with Flux".into(),
                );
                let names = self.flux.take().unwrap_or_default();
                Ok(Nodes { names, file: None, slurm: None })
            }
            Some(Scheduler::Pbs) => {
                let path = self.environment.variable("PBS_NODEFILE");
                let path = path.ok_or_else(|| missing("PBS", "PBS_JOBID", "PBS_NODEFILE"))?;
                let help = "PBS keeps this file on the job's first node while the job runs; start from there, or give --hostfile";
                let mut nodes = self.nodes_of_file(Path::new(&path), help)?;
                if let Some((_, file)) = &mut nodes.file {
                    // As many lines as ranks are the ranks, even where no name repeats.
                    let found = nodes.names.len();
                    file.counts |= self.environment.number("PBS_NP")? == Some(found);
                    // Chunks may share a node. Then the lines of the file count.
                    if !file.counts {
                        self.ensure_size(found, &path, "PBS_NUM_NODES")?;
                    }
                }
                Ok(nodes)
            }
            Some(Scheduler::Slurm) => self.slurm_nodes(),
        }
    }

    /// The nodes of the step that this process is in, or else of the job.
    fn slurm_nodes(&mut self) -> Result<Nodes, BadInput> {
        let set = |name: &str| self.environment.variable(name);
        let said = &mut self.numbers.said;
        let shell = is_shell(self.environment);
        let id = set("SLURM_STEP_ID");
        let of_a_step = set(STEP.list).is_some();
        let step = id.as_ref().filter(|_| of_a_step && !shell);
        let job = [JOB, OLD].into_iter().find(|scope| set(scope.list).is_some());
        let groups = set(HET_GROUP).is_some();
        let mut scope = match job {
            _ if step.is_some() => STEP,
            Some(job) => job,
            None if groups => {
                return Err(BadInput::new(
                    "this is a heterogeneous job of Slurm (SLURM_JOB_NODELIST_HET_GROUP_0 is set), whose groups have a list of nodes each",
                    "give --hostfile a file with the nodes of all groups:  for group in ${!SLURM_JOB_NODELIST_HET_GROUP_*}; do scontrol show hostnames ${!group}; done > hosts",
                ));
            }
            None => return Err(missing("Slurm", "SLURM_JOB_ID", JOB.list)),
        };
        let Scope { list, counts, total, .. } = scope;
        if let (Some(id), Some(Scope { list: of_job, .. })) = (step, job)
            && set(of_job) != set(list)
        {
            said.push(format!(
                "these are the nodes of step {id}, by {list}; for the job's, in {of_job}:  unset SLURM_STEP_ID"
            ));
        }
        if groups && step.is_none() {
            said.push(format!(
                "this is a heterogeneous job of Slurm, and {list} has the nodes of one group; the others' are in SLURM_JOB_NODELIST_HET_GROUP_0 and so on: give --hostfile for all"
            ));
        }
        // A step has overwritten those of the job's variables that have no JOB in their names.
        if step.is_none() && !shell && (of_a_step || id.is_some()) {
            if set(counts).or(set(total)).is_some() {
                said.push(format!(
                    "these are the nodes of the job, by {list}; {counts} and {total} are a step's, and do not count"
                ));
            }
            scope = Scope { list, counts: "", total: "", ..JOB };
        }
        let names = slurm_hosts(&set(list).unwrap_or_default())?;
        self.ensure_size(names.len(), list, scope.nodes)?;
        Ok(Nodes { names, file: None, slurm: Some(scope) })
    }

    /// Refuses a number of nodes that is not that of their `list`.
    fn ensure_size(&self, found: usize, list: &str, size: &str) -> Result<(), BadInput> {
        match self.environment.number(size)? {
            Some(number) if number != found => Err(BadInput::new(
                format!("{list} has {found} nodes, and {size}={number} contradicts it"),
                format!("one of them is from a different job; unset {size}, or give --hostfile"),
            )),
            _ => Ok(()),
        }
    }

    fn nodes_of_file(&self, path: &Path, help: &str) -> Result<Nodes, BadInput> {
        let text = (self.environment.read)(path).map_err(|error| {
            BadInput::new(format!("cannot read host file {}: {error}", path.display()), help)
        })?;
        let file = host_file(&text, path)?;
        let names = file.hosts.iter().map(|host| host.name.clone()).collect();
        Ok(Nodes { names, file: Some((path.to_path_buf(), file)), slurm: None })
    }

    fn machine(&self, nodes: &Nodes) -> Option<&'static str> {
        // Without PBS this is a laptop or a different cluster, which may be called aurora too.
        self.scheduler.filter(|&scheduler| scheduler == Scheduler::Pbs)?;
        // Nodes of Aurora are called x4102c5s2b0n0.hostmgmt2102.cm.aurora.alcf.anl.gov, or only the
        // part before the first dot. Then the name of the host where the job was submitted decides.
        let submitted = self.environment.variable("PBS_O_HOST").unwrap_or_default();
        let submitted = submitted.to_lowercase();
        let names = format!("{}.{}.{submitted}", nodes.names[0], self.environment.host);
        let found = MACHINES.iter().find(|(machine, submits)| {
            let of_it = |word: &str| word.eq_ignore_ascii_case(machine);
            names.split('.').any(of_it) || submitted.starts_with(submits)
        });
        found.map(|(machine, _)| *machine)
    }

    /// How many ranks each node takes, and the source of these numbers.
    fn slots(&mut self, nodes: &Nodes, machine: Option<&str>) -> Result<Slots, BadInput> {
        let all = |slots: usize| vec![slots; nodes.names.len()];
        if let Some(per_node) = self.flags.per_node {
            return Ok((all(per_node), "--per-node".into()));
        }
        let given = self.flags.host_file.is_some();
        let asked = match self.scheduler {
            Some(Scheduler::Pbs) => "PBS_NUM_PPN",
            Some(Scheduler::Slurm) => "SLURM_NTASKS_PER_NODE",
            Some(Scheduler::Flux) | None => "",
        };
        let granted = match (&nodes.file, &nodes.slurm) {
            // The user's own file counts as the user's word, as --per-node does.
            (Some((_, file)), _) if given && file.counts => Some(file.ranks()),
            (Some(_), _) if given => match self.of_job("SLURM_TASKS_PER_NODE", nodes) {
                Some((slots, _)) => Some((slots, "SLURM_TASKS_PER_NODE".into())),
                None => {
                    let each = self.environment.number(asked)?;
                    each.map(|each| (all(each), asked.into()))
                }
            },
            (Some((_, file)), _) => self.numbers.by_pbs(file, machine.is_some())?,
            (None, Some(scope)) => self.numbers.by_slurm(scope, &nodes.names)?,
            (None, None) => elsewhere::slots_here(self.environment)?,
        };
        if let Some(granted) = granted {
            return Ok(granted);
        }
        let Some(machine) = machine else {
            return Ok((all(self.environment.cpus.cores), "one for each core of this node".into()));
        };
        let (per_node, node) = match machine {
            "Aurora" => elsewhere::aurora_devices(self.environment)?,
            _ => (4, "a Polaris node".into()),
        };
        let from = format!("one for each accelerator of {node}");
        let total = per_node * nodes.names.len();
        for (name, right) in [("NGPU_PER_HOST", per_node), ("PBS_NP", total)] {
            let other = self.environment.variable(name).filter(|text| *text != right.to_string());
            if let Some(other) = other {
                let ranks = format!("each node takes {per_node} ranks, {from}");
                self.numbers.said.push(format!("{ranks}, whatever {name}={other} says"));
            }
        }
        Ok((all(per_node), from))
    }

    /// How many CPUs each rank gets, on nodes with so many ranks, and the source of this number.
    fn depth(&self, nodes: &Nodes, slots: &[usize]) -> Result<(usize, String), BadInput> {
        if let Some(depth) = self.flags.depth {
            return Ok((depth, "--depth".into()));
        }
        let per_node = slots.iter().copied().max().unwrap_or(1);
        // PBS has no such variable: its NCPUS and OMP_NUM_THREADS are the CPUs of a whole chunk,
        // unless the script changes them.
        if self.scheduler == Some(Scheduler::Slurm) {
            // srun's -c counts the same CPUs: cores at one site, hardware threads at a different
            // one.
            let of_nodes = self.of_job("SLURM_JOB_CPUS_PER_NODE", nodes).map(|(cpus, list)| {
                let each = cpus.iter().zip(slots).map(|(cpus, &slots)| cpus / slots.max(1));
                let depth = each.min().unwrap_or(1).max(1);
                (depth, format!("SLURM_JOB_CPUS_PER_NODE={list} / ranks of a node"))
            });
            // Flags can put more ranks on a node than the job has tasks there.
            let fewer = of_nodes.as_ref().filter(|_| self.flags.per_node.is_some());
            let fits = |depth: &usize| fewer.is_none_or(|(cpus, _)| depth <= cpus);
            if let Some(depth) = self.environment.number("SLURM_CPUS_PER_TASK")?.filter(fits) {
                return Ok((depth, "SLURM_CPUS_PER_TASK".into()));
            }
            if let Some(found) = of_nodes {
                return Ok(found);
            }
            // In a step it counts hardware threads also where the job was given cores.
            if let Some(cpus) = self.environment.number("SLURM_CPUS_ON_NODE")? {
                let from = format!("SLURM_CPUS_ON_NODE={cpus} / {per_node} ranks");
                return Ok(((cpus / per_node).max(1), from));
            }
        }
        let Cpus { cores, threads } = self.environment.cpus;
        let apart = only_if(cores != threads, format!(" (not {threads} hardware threads)"));
        Ok(((cores / per_node).max(1), format!("{cores} cores{apart} / {per_node} ranks")))
    }

    /// What a variable of Slurm's job counts for each of `nodes`, and its value; `None` if it does
    /// not name them all.
    fn of_job(&self, counts: &str, nodes: &Nodes) -> Option<(Vec<usize>, String)> {
        let set = |name: &str| self.environment.variable(name);
        let all = slurm_hosts(&set(JOB.list).or(set(OLD.list))?).ok()?;
        let list = set(counts)?;
        let counts = slurm_counts(&list).ok()?;
        let of = |name: &String| {
            let place = all.iter().position(|other| other == name)?;
            counts.get(place).copied().filter(|_| counts.len() == all.len())
        };
        let found: Option<Vec<usize>> = nodes.names.iter().map(of).collect();
        Some((found?, list))
    }
}
