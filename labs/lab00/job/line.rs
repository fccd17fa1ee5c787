//! The launch line: one job in the flags of each launcher.

use super::discover::{Job, Scheduler};
use super::granted::divided;
use super::hosts::{Form, Host};
use kit::show::only_if;
use shardlab::error::BadInput;
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
        /// Whether root runs it, as in containers. It refuses root without a flag.
        root: bool,
    },
    /// mpiexec of MPICH and its descendants.
    Hydra {
        /// mpiexec, or mpirun where only that is Hydra's.
        program: &'static str,
    },
    /// Slurm's srun.
    Srun {
        /// By what the MPI's ranks find each other, where the site's default may be different.
        mpi: Option<&'static str>,
        /// Whether it must be told to share the CPUs of the step that it is started in. It waits
        /// for others' otherwise, which come when that step has ended.
        overlap: bool,
    },
    /// Flux's own.
    Flux,
    /// Slurm's, which is not here: nothing else starts ranks in its jobs, since other launchers
    /// call it.
    NoSrun,
    /// Slurm's, which cannot start Open MPI's ranks here, nor can that itself.
    NoPmix,
    /// No MPI here: ranks are threads of the program itself.
    Threads,
}

/// Returns a variable of the environment.
type Env<'a> = dyn Fn(&str) -> Option<String> + 'a;
/// Runs a program of PATH and returns its output, or None if there is no such program.
type Ask<'a> = dyn Fn(&str, &[&str]) -> Option<String> + 'a;

/// Whether root runs Open MPI, and has not said that this is meant.
fn is_root(env: &Env, ask: &Ask) -> bool {
    let allowed =
        env("OMPI_ALLOW_RUN_AS_ROOT").is_some() && env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM").is_some();
    !allowed && ask("id", &["-u"]).is_some_and(|id| id.trim() == "0")
}

/// A site's way of starting MPI's ranks, in what `scontrol show config` prints.
fn mpi_default(config: &str) -> Option<String> {
    let value = |line: &str| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "MpiDefault").then(|| value.trim().to_string())
    };
    config.lines().find_map(value)
}

/// The launcher that prints this text for `--version`: PALS, Open MPI or Hydra, if we know it.
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
    /// The launcher of this machine for this job.
    pub fn here(job: &Job) -> Launcher {
        let ask = |program: &str, args: &[&str]| {
            let output = Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
            // Some answer on stderr.
            let text = [output.stdout, output.stderr].concat();
            Some(String::from_utf8_lossy(&text).into_owned())
        };
        Launcher::find(job, &|name| std::env::var(name).ok(), &ask)
    }

    /// The launcher for this job.
    pub fn find(job: &Job, env: &Env, ask: &Ask) -> Launcher {
        if job.scheduler == Some(Scheduler::Flux) {
            return Launcher::Flux;
        }
        let has = |text: Option<String>, what| {
            text.is_some_and(|text| text.to_lowercase().contains(what))
        };
        let said = ["mpiexec", "mpirun"].map(|program| (program, ask(program, &["--version"])));
        let known: Vec<Launcher> = said
            .iter()
            .filter_map(|(program, text)| recognise(text.as_deref()?, program))
            .collect();
        // Both names are usually the same program. This takes the name that each MPI's manual uses.
        let open_mpi =
            known.iter().rev().find(|launcher| matches!(launcher, Launcher::OpenMpi { .. }));
        if job.scheduler == Some(Scheduler::Slurm) {
            if !has(ask("srun", &["--version"]), "slurm") {
                return if known.is_empty() {
                    Launcher::Threads
                } else {
                    Launcher::NoSrun
                };
            }
            let of_site = || ask("scontrol", &["show", "config"]).as_deref().and_then(mpi_default);
            // Nobody chose none: Slurm itself sets it in salloc's shell, where it is the default.
            // srun sets the default in each step as well. Anything else is the user's own choice.
            let by_variable = env("SLURM_MPI_TYPE");
            let is_default = |name: &String| {
                name == "none"
                    || env("SLURM_STEP_ID").is_some()
                        && of_site().is_some_and(|site| name.starts_with(&site))
            };
            let chosen = by_variable.as_ref().is_some_and(|name| !is_default(name));
            // Before Slurm 20.11 all steps shared their CPUs, and there was no such flag.
            let overlap = job.is_step && has(ask("srun", &["--help"]), "--overlap");
            if chosen || known.is_empty() {
                return Launcher::Srun { mpi: None, overlap };
            }
            let listed = ask("srun", &["--mpi=list"]);
            let lists = |name: &'static str| has(listed.clone(), name);
            if let Some(Launcher::OpenMpi { program, .. }) = open_mpi {
                return match &listed {
                    // Slurm cannot start Open MPI's ranks, but Open MPI itself can by its daemons.
                    Some(text) if !text.trim().is_empty() && !lists("pmix") => {
                        Launcher::without_pmix(job, program, env, ask)
                    }
                    _ => Launcher::Srun { mpi: Some("pmix").filter(|name| lists(name)), overlap },
                };
            }
            // MPICH's descendants work with the site's default, but for none and for pmix: each
            // rank is then alone. The variable goes before the default.
            let default = by_variable.or_else(of_site);
            let needed = default.is_some_and(|name| name == "none" || name.starts_with("pmix"));
            let mpi = Some("pmi2").filter(|name| needed && lists(name));
            return Launcher::Srun { mpi, overlap };
        }
        let first = match known.first() {
            Some(Launcher::OpenMpi { .. }) => open_mpi,
            first => first,
        };
        match first {
            // PALS starts nothing outside a job.
            Some(Launcher::Pals) if job.is_local() => Launcher::Threads,
            Some(&Launcher::OpenMpi { program, .. }) => {
                Launcher::OpenMpi { program, root: is_root(env, ask) }
            }
            Some(launcher) => *launcher,
            // Not every version of PALS prints its name, but these machines have no different
            // mpiexec.
            None if said[0].1.is_some()
                && ["Polaris", "Aurora"].contains(&job.machine.as_str()) =>
            {
                Launcher::Pals
            }
            None => Launcher::Threads,
        }
    }

    /// Open MPI's own launcher, in a job of Slurm that has no plugin for its ranks. From inside of
    /// a step it would wait for the step's own CPUs on other nodes.
    fn without_pmix(job: &Job, program: &'static str, env: &Env, ask: &Ask) -> Launcher {
        if job.is_step && job.hosts.len() > 1 {
            return Launcher::NoPmix;
        }
        Launcher::OpenMpi { program, root: is_root(env, ask) }
    }

    /// The launch line for `ranks` ranks. It is empty for threads.
    pub fn line(self, job: &Job, ranks: usize) -> Result<Line, BadInput> {
        if ranks == 0 {
            return Err(BadInput::new("-n 0 is out of range", "give 1 or more"));
        }
        let room = job.room();
        if !job.is_local() && self != Launcher::Threads && ranks > room {
            let nodes = job.hosts.len();
            return Err(BadInput::new(
                format!("{ranks} ranks do not fit: {nodes} nodes take {room} ranks"),
                "give fewer ranks with -n, more ranks per node with --per-node, or ask the scheduler for more nodes",
            ));
        }
        let words = match self {
            Launcher::Pals => pals(job, ranks)?,
            Launcher::OpenMpi { program, root } => open_mpi(job, ranks, program, root),
            Launcher::Hydra { program } => hydra(job, ranks, program),
            Launcher::Srun { mpi, overlap } => srun(job, ranks, mpi, overlap),
            Launcher::Flux => flux(job, ranks)?,
            Launcher::NoSrun => {
                return Err(BadInput::new(
                    "this is a job of Slurm, and srun, which starts ranks there, is not on PATH",
                    "in a container, bind Slurm's programs and its folders (its site says how), or start the container by srun; --threads starts ranks on this node alone",
                ));
            }
            Launcher::NoPmix => {
                return Err(BadInput::new(
                    "this Slurm has no pmix (srun --mpi=list), by which Open MPI's ranks find each other, and inside of a step mpirun would wait for other nodes",
                    "start from the job's own script, or from salloc's shell: launch takes mpirun there; --threads starts ranks on this node alone",
                ));
            }
            Launcher::Threads => Vec::new(),
        };
        Ok(Line { launcher: self, words, ranks, hosts: self.places(job, ranks) })
    }

    /// How many ranks come to which node.
    fn places(self, job: &Job, ranks: usize) -> Vec<Host> {
        let mut hosts = job.hosts[..nodes_for(job, ranks)].to_vec();
        let room: Vec<usize> = hosts.iter().map(|host| host.slots).collect();
        let slots = match self {
            Launcher::Threads => vec![ranks],
            Launcher::Srun { .. } | Launcher::Flux => divided(ranks, &room),
            _ => {
                let mut left = ranks;
                let full = |room| {
                    let here = left.min(room);
                    left -= here;
                    here
                };
                room.into_iter().map(full).collect()
            }
        };
        hosts.truncate(slots.len());
        hosts.iter_mut().zip(slots).for_each(|(host, slots)| host.slots = slots);
        hosts
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(String::from).collect()
}

/// A flag with a value, which may have spaces in it.
fn flag(name: &str, value: impl fmt::Display) -> Vec<String> {
    vec![name.to_string(), value.to_string()]
}

fn ensure_even(job: &Job, launcher: &str) -> Result<(), BadInput> {
    if !job.is_uneven() {
        return Ok(());
    }
    let fewest = job.hosts.iter().map(|host| host.slots).min().unwrap_or(1);
    let most = job.per_node;
    Err(BadInput::new(
        format!(
            "{launcher} puts the same number of ranks on every node; here nodes take {fewest} to {most}"
        ),
        format!("give --per-node {fewest}"),
    ))
}

fn flux(job: &Job, ranks: usize) -> Result<Vec<String>, BadInput> {
    ensure_even(job, "Flux")?;
    let nodes = nodes_for(job, ranks);
    let mut line = words(&format!("flux run -N {nodes} -n {ranks} -c {}", job.depth));
    if job.hosts_given {
        let names: Vec<&str> = job.hosts[..nodes].iter().map(|host| host.name.as_str()).collect();
        line.push(format!("--requires=host:{}", names.join(",")));
    }
    Ok(line)
}

fn pals(job: &Job, ranks: usize) -> Result<Vec<String>, BadInput> {
    ensure_even(job, "PALS")?;
    let hosts = match &job.host_file {
        Some((path, Form::Lines)) => flag("--hostfile", path.display()),
        Some((path, _)) => {
            return Err(BadInput::new(
                format!("PALS cannot read host file {}", path.display()),
                "write one host per line and nothing else, and give --per-node",
            ));
        }
        None => Vec::new(),
    };
    let line = words(&format!("mpiexec --verbose --envall -n {ranks} -ppn {}", job.per_node));
    Ok([line, hosts, words(&format!("--cpu-bind depth -d {}", job.depth))].concat())
}

fn open_mpi(job: &Job, ranks: usize, program: &str, root: bool) -> Vec<String> {
    let root = if root { "--allow-run-as-root" } else { "" };
    if job.is_local() {
        // Without this flag it takes as many ranks as the machine has cores.
        let more = if ranks > job.cores { "--oversubscribe" } else { "" };
        return words(&format!("{program} {root} {more} -n {ranks}"));
    }
    let cores = only_if(job.depth > 1, format!(":PE={}", job.depth));
    // On uneven nodes its own count of slots is right, and one number for all nodes is not.
    let unit = if job.is_uneven() {
        "slot".to_string()
    } else {
        format!("ppr:{}:node", job.per_node)
    };
    let hosts = match &job.host_file {
        Some((_, Form::Colon | Form::Short)) => flag("--host", hosts_with_slots(job)),
        Some((path, _)) => flag("--hostfile", path.display()),
        // Open MPI asks Slurm itself.
        None => Vec::new(),
    };
    [words(&format!("{program} {root} -n {ranks} --map-by {unit}{cores}")), hosts].concat()
}

fn hydra(job: &Job, ranks: usize, program: &str) -> Vec<String> {
    let line = format!("{program} -n {ranks}");
    if job.is_local() {
        return words(&line);
    }
    if job.is_uneven() {
        return [words(&line), flag("-hosts", hosts_with_slots(job))].concat();
    }
    let hosts = match &job.host_file {
        Some((_, Form::Slots | Form::Short)) => flag("-hosts", hosts_with_slots(job)),
        Some((path, _)) => flag("-f", path.display()),
        None => Vec::new(),
    };
    [words(&format!("{line} -ppn {}", job.per_node)), hosts].concat()
}

fn srun(job: &Job, ranks: usize, mpi: Option<&str>, overlap: bool) -> Vec<String> {
    let nodes = nodes_for(job, ranks);
    let mut line = words(&format!("srun -N {nodes} -n {ranks}"));
    // Where some nodes get fewer, srun ignores a number for all, and warns.
    if !job.is_uneven() && ranks == nodes * job.per_node.min(ranks) {
        line.extend(flag("--ntasks-per-node", job.per_node.min(ranks)));
    }
    line.extend(flag("-c", job.depth));
    line.extend(mpi.map(|mpi| format!("--mpi={mpi}")));
    line.extend(overlap.then(|| "--overlap".to_string()));
    if job.hosts_given || job.is_step {
        let hosts = job.hosts.iter().take(nodes);
        let names: Vec<&str> = hosts.map(|host| host.name.as_str()).collect();
        line.extend(flag("-w", names.join(",")));
    }
    line
}

fn hosts_with_slots(job: &Job) -> String {
    let entry = |Host { name, slots }: &Host| match name.contains(':') {
        // An IPv6 address.
        true => format!("[{name}]:{slots}"),
        false => format!("{name}:{slots}"),
    };
    job.hosts.iter().map(entry).collect::<Vec<_>>().join(",")
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
    /// The program that starts the ranks.
    pub launcher: Launcher,
    /// The launcher and its flags; empty for threads.
    pub words: Vec<String>,
    /// How many ranks it starts.
    pub ranks: usize,
    /// How many of them on which node.
    pub hosts: Vec<Host>,
}

impl Line {
    /// The whole command for `program`, given with its arguments.
    pub fn command(&self, program: &[String]) -> Vec<String> {
        let mut command = [&self.words, program].concat();
        // The user's own number of ranks stays.
        let own = program.iter().any(|word| word == "--ranks" || word.starts_with("--ranks="));
        if self.launcher == Launcher::Threads && !own {
            command.extend(["--ranks".to_string(), self.ranks.to_string()]);
        }
        command
    }

    /// How many ranks come to which node, in words.
    pub fn by_node(&self) -> String {
        const SHOWN: usize = 8;
        let Line { ranks, hosts, .. } = self;
        let each = hosts.first().map_or(0, |host| host.slots);
        if hosts.len() > SHOWN && hosts.iter().all(|host| host.slots == each) {
            return format!("{ranks} ranks, {each} on each of {} nodes", hosts.len());
        }
        let one = |host: &Host| format!("{} {}", host.name, host.slots);
        let mut shown: Vec<String> = hosts.iter().take(SHOWN).map(one).collect();
        if hosts.len() > SHOWN {
            shown.push(format!("and so on, {} nodes", hosts.len()));
        }
        format!("{ranks} ranks: {}", shown.join(", "))
    }

    /// The line that hands ranks a variable of the launcher's environment. Only Open MPI has to be
    /// asked: it starts ranks on other nodes without the variables of this one.
    pub fn with_variable(mut self, name: &str) -> Line {
        if matches!(self.launcher, Launcher::OpenMpi { .. }) {
            self.words.extend(flag("-x", name));
        }
        self
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&quote(&self.words))
    }
}

/// Joins words to one line, which a shell splits into the same words.
pub fn quote(words: &[String]) -> String {
    let is_plain = |word: &str| {
        !word.is_empty()
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c))
    };
    let quote = |word: &String| {
        if is_plain(word) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}
