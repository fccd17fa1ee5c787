//! The launch line: one job, in the flags of each launcher.

use super::hosts::Form;
use super::job::{Job, Scheduler};
use crate::error::BadInput;
use std::fmt;
use std::process::{Command, Stdio};

/// A program that starts the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// mpiexec of Cray's PALS, as on Polaris and Aurora.
    Pals,
    /// Open MPI's mpirun.
    OpenMpi {
        /// mpirun, or mpiexec where only that is Open MPI's.
        program: &'static str,
        /// Run by root, as in containers, which it refuses unless told that it is meant.
        root: bool,
    },
    /// mpiexec of MPICH and its descendants.
    Hydra {
        /// mpiexec, or mpirun where only that is Hydra's.
        program: &'static str,
    },
    /// Slurm's own.
    Srun {
        /// Whether to name the way in which Open MPI's ranks find each other, because the site's default is another.
        pmix: bool,
    },
    /// No MPI here: ranks are threads of the program itself.
    Threads,
}

/// Whose `--version` this text is: [`Launcher::Pals`], [`Launcher::OpenMpi`], [`Launcher::Hydra`], or nobody's we know.
pub fn recognise(version: &str, program: &'static str) -> Option<Launcher> {
    let has = |what: &str| version.to_lowercase().contains(what);
    if has("open mpi") || has("open-mpi") || has("openrte") || has("prrte") {
        Some(Launcher::OpenMpi { program, root: false })
    } else if has("pals") {
        Some(Launcher::Pals)
    } else if has("hydra") || has("mpich") || has("intel(r) mpi") {
        Some(Launcher::Hydra { program })
    } else {
        None
    }
}

impl Launcher {
    /// The one to start this job with, on this machine.
    pub fn here(job: &Job) -> Launcher {
        let ask = |program: &str, args: &[&str]| {
            let output = Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
            // Some answer on stderr.
            Some(format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
        };
        Launcher::find(job, &|name| std::env::var(name).ok(), &ask)
    }

    /// The one to start this job with: `ask` runs a program of PATH and returns what it says, or None if there is no such
    /// program.
    pub fn find(
        job: &Job,
        env: &dyn Fn(&str) -> Option<String>,
        ask: &dyn Fn(&str, &[&str]) -> Option<String>,
    ) -> Launcher {
        let has = |text: Option<String>, what| text.is_some_and(|text| text.to_lowercase().contains(what));
        let said = ["mpiexec", "mpirun"].map(|program| (program, ask(program, &["--version"])));
        let known: Vec<Launcher> =
            said.iter().filter_map(|(program, text)| recognise(text.as_deref()?, program)).collect();
        // Both names are usually the same program: take each MPI by the name that its manual uses.
        let open_mpi = known.iter().rev().find(|launcher| matches!(launcher, Launcher::OpenMpi { .. }));
        if job.scheduler == Some(Scheduler::Slurm) && has(ask("srun", &["--version"]), "slurm") {
            // MPICH's descendants work with the site's default. The user's own choice stands.
            let choose = open_mpi.is_some() && env("SLURM_MPI_TYPE").is_none();
            return Launcher::Srun { pmix: choose && has(ask("srun", &["--mpi=list"]), "pmix") };
        }
        match known.first() {
            // PALS starts nothing outside a job.
            Some(Launcher::Pals) if job.is_local() => Launcher::Threads,
            Some(Launcher::OpenMpi { program, .. }) => {
                let program = if let Some(Launcher::OpenMpi { program, .. }) = open_mpi { program } else { program };
                let allowed =
                    env("OMPI_ALLOW_RUN_AS_ROOT").is_some() && env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM").is_some();
                let root = !allowed && ask("id", &["-u"]).is_some_and(|id| id.trim() == "0");
                Launcher::OpenMpi { program, root }
            }
            Some(launcher) => *launcher,
            // Versions of PALS differ in what they say about themselves; these machines have no other mpiexec.
            None if said[0].1.is_some() && ["Polaris", "Aurora"].contains(&job.machine.as_str()) => Launcher::Pals,
            None => Launcher::Threads,
        }
    }

    /// The words before the program that start `ranks` ranks of it; none for threads.
    pub fn line(self, job: &Job, ranks: usize) -> Result<Line, BadInput> {
        if ranks == 0 {
            return Err(BadInput::new("-n 0 is out of range", "give 1 or more"));
        }
        if !job.is_local() && self != Launcher::Threads && ranks > job.room() {
            return Err(BadInput::new(
                format!("{ranks} ranks do not fit: {} nodes take {} ranks", job.hosts.len(), job.room()),
                "give fewer ranks with -n, more ranks a node with --per-node, or ask the scheduler for more nodes",
            ));
        }
        let mut words = Words(Vec::new());
        match self {
            Launcher::Pals => pals(&mut words, job, ranks)?,
            Launcher::OpenMpi { program, root } => open_mpi(&mut words, job, ranks, program, root),
            Launcher::Hydra { program } => hydra(&mut words, job, ranks, program),
            Launcher::Srun { pmix } => srun(&mut words, job, ranks, pmix),
            Launcher::Threads => {}
        }
        Ok(Line { launcher: self, words: words.0, ranks })
    }
}

/// Words of a command, collected.
struct Words(Vec<String>);

impl Words {
    fn add(&mut self, words: &str) {
        self.0.extend(words.split(' ').map(String::from));
    }

    /// A flag with a value that may have spaces in it.
    fn add_value(&mut self, flag: &str, value: impl fmt::Display) {
        self.0.extend([flag.to_string(), value.to_string()]);
    }
}

fn pals(words: &mut Words, job: &Job, ranks: usize) -> Result<(), BadInput> {
    if job.is_uneven() {
        let fewest = job.hosts.iter().map(|host| host.slots).min().unwrap_or(1);
        return Err(BadInput::new(
            format!("PALS puts as many ranks on every node; here nodes take {fewest} to {}", job.per_node),
            format!("give --per-node {fewest}"),
        ));
    }
    words.add(&format!("mpiexec --verbose --envall -n {ranks} -ppn {}", job.per_node));
    match &job.host_file {
        Some((path, Form::Lines)) => words.add_value("--hostfile", path.display()),
        Some((path, _)) => {
            return Err(BadInput::new(
                format!("PALS cannot read host file {}", path.display()),
                "write one host a line and nothing else, and give --per-node",
            ));
        }
        None => {}
    }
    words.add(&format!("--cpu-bind depth -d {}", job.depth));
    Ok(())
}

fn open_mpi(words: &mut Words, job: &Job, ranks: usize, program: &str, root: bool) {
    words.add(program);
    if root {
        words.add("--allow-run-as-root");
    }
    if job.is_local() {
        // It takes as many ranks as the machine has cores, unless told.
        if ranks > job.cores {
            words.add("--oversubscribe");
        }
        return words.add(&format!("-n {ranks}"));
    }
    let cores = if job.depth > 1 { format!(":PE={}", job.depth) } else { String::new() };
    // Of uneven nodes, its own count of slots is right where a number for all nodes is not.
    let unit = if job.is_uneven() { "slot".to_string() } else { format!("ppr:{}:node", job.per_node) };
    words.add(&format!("-n {ranks} --map-by {unit}{cores}"));
    match &job.host_file {
        Some((_, Form::Colon)) => words.add_value("--host", hosts_with_slots(job)),
        Some((path, _)) => words.add_value("--hostfile", path.display()),
        // It asks Slurm itself.
        None => {}
    }
}

fn hydra(words: &mut Words, job: &Job, ranks: usize, program: &str) {
    words.add(&format!("{program} -n {ranks}"));
    if job.is_local() {
        return;
    }
    if !job.is_uneven() {
        words.add(&format!("-ppn {}", job.per_node));
    }
    match &job.host_file {
        Some((path, form)) if *form != Form::Slots && !job.is_uneven() => words.add_value("-f", path.display()),
        None if !job.is_uneven() => {}
        _ => words.add_value("-hosts", hosts_with_slots(job)),
    }
}

fn srun(words: &mut Words, job: &Job, ranks: usize, pmix: bool) {
    words.add(&format!("srun -N {} -n {ranks}", nodes_for(job, ranks)));
    if !job.is_uneven() {
        // More than are started would only make srun warn.
        words.add(&format!("--ntasks-per-node {}", job.per_node.min(ranks)));
    }
    words.add(&format!("-c {}", job.depth));
    if pmix {
        words.add("--mpi=pmix");
    }
    if job.hosts_given {
        let names: Vec<&str> = job.hosts.iter().take(nodes_for(job, ranks)).map(|host| host.name.as_str()).collect();
        words.add_value("-w", names.join(","));
    }
}

fn hosts_with_slots(job: &Job) -> String {
    job.hosts.iter().map(|host| format!("{}:{}", host.name, host.slots)).collect::<Vec<_>>().join(",")
}

/// How many nodes `ranks` ranks fill, in the order of the hosts.
fn nodes_for(job: &Job, ranks: usize) -> usize {
    let mut room = 0;
    let full = job.hosts.iter().take_while(|host| {
        room += host.slots;
        room < ranks
    });
    (full.count() + 1).min(job.hosts.len())
}

/// A launch line that lacks only its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Who starts the ranks.
    pub launcher: Launcher,
    /// The launcher and its flags; empty for threads.
    pub words: Vec<String>,
    /// How many ranks it starts.
    pub ranks: usize,
}

impl Line {
    /// The whole command for `program`, given with its arguments.
    pub fn command(&self, program: &[String]) -> Vec<String> {
        let mut command = [&self.words, program].concat();
        // A number that the user gives the program is the user's.
        let own = program.iter().any(|word| word == "--ranks" || word.starts_with("--ranks="));
        if self.launcher == Launcher::Threads && !own {
            command.extend(["--ranks".to_string(), self.ranks.to_string()]);
        }
        command
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&quote(&self.words))
    }
}

/// Words as one line that a shell reads as these words.
pub fn quote(words: &[String]) -> String {
    let plain =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c));
    let quoted = words.iter().map(|word| match plain(word) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}
