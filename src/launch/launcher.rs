//! Did an MPI launcher start this process? Launchers set variables for each process, which show it.
//! A batch job's allocation does not: in the shell of an allocation that launches nothing, ranks
//! are threads as anywhere else.

/// An MPI launcher's variables for this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// The variable that shows that there is a launcher.
    pub variable: &'static str,
    /// Processes in the job. None if no variable has their number.
    pub size: Option<usize>,
    /// This process's number.
    pub rank: usize,
}

/// Reads the launcher's variables from an environment.
pub fn launched(variable: impl Fn(&str) -> Option<String>) -> Option<Launched> {
    let number = |name: &str| variable(name).and_then(|text| text.trim().parse::<usize>().ok());
    let ranks = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "PALS_RANKID", "SLURM_PROCID"];
    let rank = ranks.into_iter().find_map(number).unwrap_or(0);
    // Sizes first: they show whether there is more than one process.
    for name in ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"] {
        if let Some(size) = number(name) {
            return Some(Launched { variable: name, size: Some(size), rank });
        }
    }
    // Slurm sets this variable in the shell of some allocations too, but there it is 1.
    if let Some(size) = number("SLURM_STEP_NUM_TASKS").filter(|&size| size > 1) {
        return Some(Launched { variable: "SLURM_STEP_NUM_TASKS", size: Some(size), rank });
    }
    let names = ["PMIX_RANK", "PALS_RANKID"];
    let named = names.into_iter().find(|name| number(name).is_some())?;
    Some(Launched { variable: named, size: None, rank })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(environment: &[(&str, &str)]) -> Option<Launched> {
        launched(|name| {
            environment.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string())
        })
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

    #[test]
    fn an_allocation_is_not_a_launcher() {
        let sbatch = [
            ("SLURM_JOB_ID", "1"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_PROCID", "0"),
            ("SLURM_NNODES", "2"),
        ];
        let interactive = [("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_PROCID", "0")];
        let pbs = [("PBS_NODEFILE", "/var/spool/pbs/aux/1"), ("PBS_NP", "8"), ("NCPUS", "8")];
        for environment in [&sbatch[..], &interactive, &pbs, &[]] {
            assert_eq!(of(environment), None, "{environment:?}");
        }
        assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "many")]), None);
    }
}
