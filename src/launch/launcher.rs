//! Did a launcher start this process? Launchers set variables for each process, which show it. A
//! batch job's allocation does not: in the shell of an allocation that launches nothing, ranks are
//! threads as anywhere else.

use crate::error::BadInput;

/// A launcher's variables for this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// The launcher, or those that set the same variables.
    pub who: &'static str,
    /// The variable that shows that there is a launcher.
    pub variable: &'static str,
    /// Processes in the job. None if no variable has their number.
    pub size: Option<usize>,
    /// This process's number.
    pub rank: usize,
    /// Whether MPI can connect its processes.
    pub connects: bool,
}

impl Launched {
    /// The error of its processes if they cannot connect. Without it they would train N separate
    /// copies of the model.
    pub(super) fn unconnected(&self, but: &str, help: &str) -> BadInput {
        let many = match (self.size, self.rank) {
            (Some(size), _) => format!("{size} processes"),
            // No variable has the number, which may be one.
            (None, 0) => "one process or several".to_string(),
            (None, _) => "several processes".to_string(),
        };
        let Launched { who, variable: sign, .. } = self;
        let inherited = variables(variable).join(" ");
        BadInput::new(
            format!("{who} started {many} ({sign} is set), but {but}"),
            format!(
                "{help}\n      for one process alone, or in a shell that only inherited the variables:  unset {inherited}"
            ),
        )
    }

    /// The error of a process that MPI finds alone in its world: a different MPI's launcher started
    /// it. The sentence names the library that the program runs with, as it names itself.
    #[cfg(any(feature = "mpi", test))]
    pub(super) fn other_mpi(&self, library: &str) -> BadInput {
        self.unconnected(
            &format!("MPI's own world has 1; the program runs with {library}"),
            "use that MPI's own mpirun, or build in a new target folder with the MPI of this one (cargo clean -p mpi-sys); under Slurm, srun --mpi=pmix for Open MPI, --mpi=pmi2 for MPICH and Intel MPI (srun --mpi=list has what there is)",
        )
    }
}

/// A variable of this process's environment.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What a launcher's numbers mean.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counts {
    /// The processes of the job.
    Job,
    /// The processes of this node. The job may have more.
    Node,
    /// The tasks of Slurm's step. Launchers inside a step, which know better, inherit its
    /// variables, and so do shells, which are a step of one task.
    Step,
    /// The processes of a job that MPI knows nothing of, if this variable is set, too: shells of
    /// notebooks have the others.
    Apart(&'static str),
}
use Counts::{Apart, Job, Node, Step};

/// Who sets which variables: of the size and of the rank. The first that shows several processes
/// names them. Slurm's rank says less, because a batch script has it, too.
const LAUNCHERS: [(&str, &str, &str, Counts); 16] = [
    ("Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", Job),
    ("MVAPICH", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", Job),
    ("MVAPICH", "MVP_COMM_WORLD_SIZE", "MVP_COMM_WORLD_RANK", Job),
    ("Flux", "FLUX_JOB_SIZE", "FLUX_TASK_RANK", Job),
    ("JSM (jsrun)", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", Job),
    ("PALS", "PALS_LOCAL_SIZE", "PALS_RANKID", Node),
    ("ALPS (aprun)", "", "ALPS_APP_PE", Job),
    ("MPICH-GM", "GMPI_SIZE", "GMPI_ID", Job),
    ("POE", "", "MP_CHILD", Job),
    ("MPICH, Intel MPI or srun", "PMI_SIZE", "PMI_RANK", Job),
    ("Intel MPI or MPICH", "MPI_LOCALNRANKS", "MPI_LOCALRANKID", Node),
    ("Horovod", "HOROVOD_SIZE", "HOROVOD_RANK", Apart("")),
    ("torchrun", "WORLD_SIZE", "RANK", Apart("TORCHELASTIC_RUN_ID")),
    ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", Step),
    ("a launcher with PMIx", "", "PMIX_RANK", Job),
    ("a launcher of PyTorch's kind", "WORLD_SIZE", "RANK", Apart("LOCAL_RANK")),
];

/// Reads the launcher's variables from an environment.
pub fn launched(variable: impl Fn(&str) -> Option<String>) -> Option<Launched> {
    let number = |name: &str| number_of(&variable, name);
    let is_set = |name: &str| variable(name).is_some_and(|text| !text.trim().is_empty());
    let of_the_job = LAUNCHERS.iter().filter(|row| row.3 == Job);
    let size_of_job = of_the_job.filter_map(|row| number(row.1)).max();
    let rank_of_any = LAUNCHERS.iter().find_map(|row| number(row.2));
    // A step of one task has a rank for PMIx, and is one process.
    let step_of_one = number("SLURM_STEP_NUM_TASKS") == Some(1);
    let mut single: Option<Launched> = None;
    for &(who, size_name, rank_name, counts) in &LAUNCHERS {
        let size = number(size_name);
        let rank = number(rank_name);
        let several = size > Some(1) || rank > Some(0);
        let shown = match counts {
            Job | Node => several || size.is_some() || rank.is_some() && !step_of_one,
            // A launcher inside the step counts its own processes.
            Step => several && size_of_job.is_none(),
            Apart(proof) => several && (proof.is_empty() || is_set(proof)),
        };
        let size_of_all = match counts {
            Node => size_of_job.or(size.filter(|&size| size == 1)),
            _ => size,
        };
        let launched = Launched {
            who,
            variable: if size.is_some() { size_name } else { rank_name },
            size: size_of_all.filter(|&size| !several || size > 1),
            rank: rank.or(rank_of_any).unwrap_or(0),
            connects: !matches!(counts, Apart(_)),
        };
        if shown && several {
            return Some(launched);
        }
        // A size says more than a rank.
        if shown && single.as_ref().is_none_or(|before| before.size.is_none() && size.is_some()) {
            single = Some(launched);
        }
    }
    single
}

/// The rank and the number of processes that PyTorch's variables name, where nothing shows that a
/// launcher set them. They also stay set in the shells of notebooks.
pub(super) fn unproven(variable: impl Fn(&str) -> Option<String>) -> Option<(usize, usize)> {
    let size = number_of(&variable, "WORLD_SIZE").filter(|&size| size > 1)?;
    let rank = number_of(&variable, "RANK")?;
    launched(variable).is_none().then_some((rank, size))
}

/// The variables of launchers that are set.
fn variables(variable: impl Fn(&str) -> Option<String>) -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for name in LAUNCHERS.iter().flat_map(|&(_, size, rank, _)| [size, rank]) {
        if number_of(&variable, name).is_some() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn number_of(variable: impl Fn(&str) -> Option<String>, name: &str) -> Option<usize> {
    variable(name).and_then(|text| text.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(environment: &[(&str, &str)], name: &str) -> Option<String> {
        environment.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string())
    }

    fn of(environment: &[(&str, &str)]) -> Option<Launched> {
        launched(|name| value(environment, name))
    }

    #[test]
    fn launchers_are_recognised() {
        let found =
            |environment: &[(&str, &str)]| of(environment).map(|l| (l.variable, l.size, l.rank));
        let open_mpi =
            [("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_RANK", "3"), ("PMIX_RANK", "3")];
        assert_eq!(found(&open_mpi), Some(("OMPI_COMM_WORLD_SIZE", Some(4), 3)));
        let hydra = [("PMI_SIZE", "2"), ("PMI_RANK", "1")];
        assert_eq!(found(&hydra), Some(("PMI_SIZE", Some(2), 1)));
        assert_eq!(found(&[("PALS_RANKID", "5")]), Some(("PALS_RANKID", None, 5)));
        let srun_pmix = [("PMIX_RANK", "1"), ("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_PROCID", "1")];
        assert_eq!(found(&srun_pmix), Some(("SLURM_STEP_NUM_TASKS", Some(8), 1)));
        let srun = [("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_PROCID", "7")];
        assert_eq!(found(&srun), Some(("SLURM_STEP_NUM_TASKS", Some(8), 7)));
    }

    /// A reader learns which MPI the program has, and which launcher is not that MPI's.
    #[test]
    fn the_error_of_another_mpis_launcher_names_the_programs_mpi() {
        let error = of(&[("PMI_SIZE", "2"), ("PMI_RANK", "1")]).unwrap().other_mpi("Open MPI 4.1");
        let says = "MPICH, Intel MPI or srun started 2 processes (PMI_SIZE is set), but MPI's own \
                    world has 1; the program runs with Open MPI 4.1";
        assert_eq!(error.what, says);
        for part in ["that MPI's own mpirun", "cargo clean -p mpi-sys"] {
            assert!(error.help.contains(part), "{part}: {}", error.help);
        }
    }

    /// Of each row of the table its size, its rank, or both show who started several processes.
    #[test]
    fn every_launcher_is_named_by_its_size_and_by_its_rank() {
        for &(who, size, rank, counts) in &LAUNCHERS {
            let proof = if let Apart(proof) = counts { proof } else { "" };
            let row = |environment: &[(&str, &str)]| {
                let set = environment.iter().filter(|(name, _)| !name.is_empty()).copied();
                of(&set.collect::<Vec<_>>())
            };
            let both = row(&[(size, "4"), (rank, "3"), (proof, "0")]).unwrap();
            assert_eq!((both.who, both.rank), (who, 3));
            let known = counts != Node && !size.is_empty();
            assert_eq!(both.size, known.then_some(4), "{who}");
            assert_eq!(both.connects, !matches!(counts, Apart(_)), "{who}");
            let second = row(&[(rank, "1"), (proof, "0")]).unwrap();
            assert_eq!((second.who, second.size, second.rank), (who, None, 1));
            if !size.is_empty() {
                assert_eq!(row(&[(size, "2"), (proof, "0")]).unwrap().who, who);
                // One process is no several; and nothing says that PyTorch's are a launcher's.
                let one = row(&[(size, "1"), (rank, "0"), (proof, "0")]);
                assert!(one.is_none_or(|launched| launched.size == Some(1)), "{who}");
            }
        }
        let torch = [("RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "127.0.0.1")];
        assert_eq!(of(&torch), None);
        let stray = |environment: &[(&str, &str)]| unproven(|name| value(environment, name));
        assert_eq!(stray(&torch), Some((1, 4)));
        assert_eq!(stray(&torch[1..]), None);
        assert_eq!(stray(&[("RANK", "0"), ("WORLD_SIZE", "1")]), None);
        assert_eq!(stray(&[torch[0], torch[1], ("PMI_SIZE", "4")]), None);
        assert_eq!(stray(&[torch[0], torch[1], ("LOCAL_RANK", "1")]), None);
    }

    /// A launcher inside a launcher's process: the inner one counts.
    #[test]
    fn the_most_processes_count_and_slurms_step_only_where_no_launcher_counts() {
        let who = |environment: &[(&str, &str)]| of(environment).map(|l| (l.who, l.size));
        let torch = [
            ("RANK", "5"),
            ("WORLD_SIZE", "8"),
            ("TORCHELASTIC_RUN_ID", "none"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_PROCID", "1"),
        ];
        assert_eq!(who(&torch), Some(("torchrun", Some(8))));
        let hydra = [("OMPI_COMM_WORLD_SIZE", "1"), ("PMI_SIZE", "4"), ("PMI_RANK", "0")];
        assert_eq!(who(&hydra), Some(("MPICH, Intel MPI or srun", Some(4))));
        let pals = [("PALS_LOCAL_SIZE", "4"), ("PALS_RANKID", "0"), ("PMI_SIZE", "8")];
        assert_eq!(who(&pals), Some(("PALS", Some(8))));
        // mpirun's daemons are a step of all nodes, of which this process is the only one.
        let one = [
            ("OMPI_COMM_WORLD_SIZE", "1"),
            ("SLURM_STEP_NUM_TASKS", "4"),
            ("SLURM_PROCID", "3"),
        ];
        assert_eq!(who(&one), Some(("Open MPI", Some(1))));
    }

    #[test]
    fn an_allocation_is_not_a_launcher() {
        let sbatch = [
            ("SLURM_JOB_ID", "1"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_PROCID", "0"),
            ("SLURM_NNODES", "2"),
        ];
        let interactive = [("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_PROCID", "0")];
        let with_pmix = [interactive[0], interactive[1], ("PMIX_RANK", "0")];
        let pbs = [("PBS_NODEFILE", "/var/spool/pbs/aux/1"), ("PBS_NP", "8"), ("NCPUS", "8")];
        for environment in [&sbatch[..], &interactive, &with_pmix, &pbs, &[]] {
            assert_eq!(of(environment), None, "{environment:?}");
        }
        assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "many")]), None);
    }

    #[test]
    fn a_launch_of_one_is_one_process() {
        for environment in [
            &[("OMPI_COMM_WORLD_SIZE", "1"), ("PMIX_RANK", "0")][..],
            &[("PMI_SIZE", "1"), ("PMI_RANK", "0"), ("SLURM_STEP_NUM_TASKS", "1")],
            &[("PALS_LOCAL_SIZE", "1"), ("PALS_RANKID", "0")],
            &[("JSM_NAMESPACE_SIZE", "1"), ("PMIX_RANK", "0")],
            &[("FLUX_JOB_SIZE", "1"), ("FLUX_TASK_RANK", "0")],
        ] {
            let launched = of(environment).unwrap();
            assert_eq!((launched.size, launched.rank), (Some(1), 0), "{environment:?}");
        }
        // The second of two nodes with one process each.
        let second = of(&[("PALS_LOCAL_SIZE", "1"), ("PALS_RANKID", "1")]).unwrap();
        assert_eq!((second.size, second.rank), (None, 1));
    }

    #[test]
    fn the_variables_to_unset_are_those_that_are_set() {
        let environment = [("PMI_RANK", "3"), ("PMI_SIZE", "4"), ("RANK", "gold")];
        let names = variables(|name| value(&environment, name));
        assert_eq!(names, ["PMI_SIZE", "PMI_RANK"]);
    }
}
