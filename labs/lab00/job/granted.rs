//! How many ranks each node takes, by the scheduler's word. What was granted goes before what was
//! asked for; where two variables contradict each other, a sentence says which of them won.

use super::environment::Environment;
use super::hosts::{Form, HostFile, slurm_counts};
use shardlab::error::BadInput;

/// Slurm's variables of a step or of a job. A step overwrites those of the job that have no JOB in
/// their names, so one is never read by the other's.
pub(super) struct Scope {
    pub list: &'static str,
    pub nodes: &'static str,
    pub counts: &'static str,
    pub total: &'static str,
}

pub(super) const STEP: Scope = Scope {
    list: "SLURM_STEP_NODELIST",
    nodes: "SLURM_STEP_NUM_NODES",
    counts: "SLURM_STEP_TASKS_PER_NODE",
    total: "SLURM_STEP_NUM_TASKS",
};

/// The second one is from before 2013.
pub(super) const JOBS: [Scope; 2] = [
    Scope {
        list: "SLURM_JOB_NODELIST",
        nodes: "SLURM_JOB_NUM_NODES",
        counts: "SLURM_TASKS_PER_NODE",
        total: "SLURM_NTASKS",
    },
    Scope {
        list: "SLURM_NODELIST",
        nodes: "SLURM_NNODES",
        counts: "SLURM_TASKS_PER_NODE",
        total: "SLURM_NPROCS",
    },
];

/// Whose a scope's numbers of ranks are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// Its own.
    Own,
    /// Those of a shell that is a step (salloc's), which keeps some of the job's.
    Shells,
    /// Those of a step in the job, which has overwritten the job's.
    Steps,
}

/// Numbers of ranks, one for each node, and their source.
pub(super) type Granted = Option<(Vec<usize>, String)>;

/// Divides `total` ranks among nodes as Slurm does: as evenly as it goes, or, where a node takes at
/// most so many, the first nodes are full. Each node gets one rank at least. None if there are too
/// few or too many.
fn divided(total: usize, nodes: usize, most: Option<usize>) -> Option<Vec<usize>> {
    if total < nodes || most.is_some_and(|most| total > most * nodes) {
        return None;
    }
    let mut left = total;
    let share = |node: usize| {
        let others = nodes - node - 1;
        let share = most.map_or(left.div_ceil(others + 1), |most| most.min(left - others));
        left -= share;
        share
    };
    Some((0..nodes).map(share).collect())
}

/// The scheduler's numbers.
pub(super) struct Numbers<'a> {
    pub environment: &'a Environment<'a>,
    /// Which of two variables won.
    pub said: Vec<String>,
}

impl Numbers<'_> {
    /// Says that `winner` goes before each `(name, value)` that is there.
    fn goes_before(&mut self, winner: &str, losers: &[(&str, Option<usize>)]) {
        let value = |&(name, value): &(&str, Option<usize>)| Some(format!("{name}={}", value?));
        let losers: Vec<String> = losers.iter().filter_map(value).collect();
        if !losers.is_empty() {
            self.said.push(format!("{winner}, and goes before {}", losers.join(" and ")));
        }
    }

    /// By PBS. The lines of its file were granted if a name repeats, or if there are as many as
    /// ranks. A file that names each node once leaves the number to others.
    pub(super) fn by_pbs(&mut self, file: &HostFile, known: bool) -> Result<Granted, BadInput> {
        let nodes = file.hosts.len();
        let lines: usize = file.hosts.iter().map(|host| host.slots).sum();
        let all = self.environment.number("PBS_NP")?;
        let each = self.environment.number("PBS_NUM_PPN")?;
        let chunks = self.environment.number("PBS_NUM_NODES")?;
        if self.are_granted(file)? {
            let other = |value: Option<usize>, ranks| value.filter(|&value| value != ranks);
            let of_chunks = each.filter(|each| each * chunks.unwrap_or(nodes) != lines);
            let unit = if file.form == Form::Lines { "lines" } else { "ranks" };
            self.goes_before(
                &format!("PBS_NODEFILE has {lines} {unit} for {}", of_nodes(nodes)),
                &[
                    ("PBS_NP", other(all, lines)),
                    ("PBS_NUM_PPN", of_chunks),
                    ("PBS_NUM_NODES", other(chunks, nodes)),
                ],
            );
            return Ok(Some(file.ranks()));
        }
        match (each, all) {
            (Some(each), all) if all.is_none_or(|all| all == each * nodes) => {
                Ok(Some((vec![each; nodes], "PBS_NUM_PPN".into())))
            }
            // The machine's number is better than a total.
            (None, _) if known => Ok(None),
            (each, Some(all)) => match divided(all, nodes, None) {
                Some(slots) => {
                    self.goes_before(
                        &format!("PBS_NP={all} is for all nodes"),
                        &[("PBS_NUM_PPN", each)],
                    );
                    Ok(Some((slots, format!("PBS_NP={all} on {}", of_nodes(nodes)))))
                }
                None => {
                    self.goes_before(
                        &format!("PBS_NODEFILE has {}", of_nodes(nodes)),
                        &[("PBS_NP", Some(all))],
                    );
                    Ok(each.map(|each| (vec![each; nodes], "PBS_NUM_PPN".into())))
                }
            },
            _ => Ok(None),
        }
    }

    /// Whether the lines of PBS's file are the ranks.
    pub(super) fn are_granted(&self, file: &HostFile) -> Result<bool, BadInput> {
        let lines: usize = file.hosts.iter().map(|host| host.slots).sum();
        Ok(file.counts || self.environment.number("PBS_NP")? == Some(lines))
    }

    /// By Slurm, for the nodes of a scope.
    pub(super) fn by_slurm(
        &mut self,
        scope: &Scope,
        nodes: usize,
        whose: Whose,
    ) -> Result<Granted, BadInput> {
        let mut total = self.environment.number(scope.total)?;
        let mut counts = self.environment.variable(scope.counts);
        let mut most = self.environment.number("SLURM_NTASKS_PER_NODE")?;
        if whose == Whose::Steps && (total.is_some() || counts.is_some()) {
            self.said.push(format!(
                "these are the nodes of the job, by {}; {} and {} are a step's, and do not count",
                scope.list, scope.counts, scope.total
            ));
            (total, counts) = (None, None);
        }
        // What was asked for each node of the job is not what the step got.
        if scope.list == STEP.list && (total.is_some() || counts.is_some()) {
            most = None;
        }
        let foreign = whose == Whose::Shells;
        if let Some(list) = counts {
            let slots = slurm_counts(&list)?;
            let sum: usize = slots.iter().sum();
            let fits = slots.len() == nodes;
            if !fits && !foreign {
                let what = format!(
                    "{}={list} is for {} nodes, and the job has {nodes}",
                    scope.counts,
                    slots.len()
                );
                let help = "one of them is from a different job; give --per-node";
                return Err(BadInput::new(what, help));
            }
            if fits && (!foreign || total == Some(sum)) {
                // It is a maximum.
                let fewer = most.filter(|most| slots.iter().any(|slots| slots > most));
                self.goes_before(
                    &format!("{}={list} has {sum} ranks", scope.counts),
                    &[
                        (scope.total, total.filter(|&total| total != sum)),
                        ("SLURM_NTASKS_PER_NODE", fewer),
                    ],
                );
                return Ok(Some((slots, scope.counts.into())));
            }
        }
        let each = |most| (vec![most; nodes], "SLURM_NTASKS_PER_NODE".to_string());
        let Some(total) = total.filter(|&total| !foreign || total >= nodes) else {
            return Ok(most.map(each));
        };
        let from = format!("{}={total} on {}", scope.total, of_nodes(nodes));
        if let Some(most) = most {
            if total == most * nodes {
                return Ok(Some(each(most)));
            }
            if let Some(slots) = divided(total, nodes, Some(most)) {
                return Ok(Some((slots, format!("{from}, at most SLURM_NTASKS_PER_NODE={most}"))));
            }
        }
        match divided(total, nodes, None) {
            Some(slots) => {
                let winner = format!("{}={total} is for all nodes", scope.total);
                self.goes_before(&winner, &[("SLURM_NTASKS_PER_NODE", most)]);
                Ok(Some((slots, from)))
            }
            None => {
                let winner = format!("{} has {}", scope.list, of_nodes(nodes));
                self.goes_before(&winner, &[(scope.total, Some(total))]);
                Ok(most.map(each))
            }
        }
    }
}

fn of_nodes(nodes: usize) -> String {
    format!("{nodes} node{}", if nodes == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::divided;

    #[test]
    fn ranks_are_divided_as_slurm_divides_them() {
        assert_eq!(divided(10, 3, None), Some(vec![4, 3, 3]));
        assert_eq!(divided(10, 3, Some(4)), Some(vec![4, 4, 2]));
        assert_eq!(divided(4, 3, Some(4)), Some(vec![2, 1, 1]));
        assert_eq!(divided(3, 3, Some(1)), Some(vec![1, 1, 1]));
        assert_eq!((divided(2, 3, None), divided(13, 3, Some(4))), (None, None));
    }
}
