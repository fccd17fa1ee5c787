//! How many ranks each node takes, by the scheduler's word. What was granted goes before what was
//! asked for; where two variables contradict each other, a sentence says which of them won.

use super::environment::Environment;
use super::hosts::{Form, HostFile, in_nodes, slurm_counts};
use shardlab::error::BadInput;
use std::path::Path;

/// Slurm's variables of a step or of a job. A step overwrites those of its job that have no JOB in
/// their names, so one is never read by the other's. An empty name is not read.
#[derive(Clone, Copy)]
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

pub(super) const JOB: Scope = Scope {
    list: "SLURM_JOB_NODELIST",
    nodes: "SLURM_JOB_NUM_NODES",
    counts: "SLURM_TASKS_PER_NODE",
    total: "SLURM_NTASKS",
};

/// From before 2013.
pub(super) const OLD: Scope = Scope { list: "SLURM_NODELIST", nodes: "SLURM_NNODES", ..JOB };

/// Whether this is the shell of salloc, which is a step of one task. No srun gets its number
/// (Slurm's SLURM_MAX_NORMAL_STEP_ID).
pub(super) fn is_shell(environment: &Environment) -> bool {
    let id = environment.variable("SLURM_STEP_ID");
    id.is_some_and(|id| !id.parse().is_ok_and(|id: u32| id <= 0xffff_fff0))
}

/// Numbers of ranks, one for each node, and their source.
pub(super) type Slots = (Vec<usize>, String);

/// Those that the scheduler's variables give, if they do.
pub(super) type Granted = Result<Option<Slots>, BadInput>;

/// A number if it is not the right one.
fn unlike(number: Option<usize>, right: usize) -> Option<usize> {
    number.filter(|&number| number != right)
}

/// The scheduler's numbers.
pub(super) struct Numbers<'a> {
    pub environment: &'a Environment<'a>,
    /// Which of two variables won.
    pub said: Vec<String>,
}

impl Numbers<'_> {
    /// Says that `winner` goes before each variable that has a number.
    fn goes_before(&mut self, winner: &str, others: &[(&str, Option<usize>)]) {
        let value = |&(name, value): &(&str, Option<usize>)| Some(format!("{name}={}", value?));
        let losers: Vec<String> = others.iter().filter_map(value).collect();
        if !losers.is_empty() {
            self.said.push(format!("{winner}, and goes before {}", losers.join(" and ")));
        }
    }

    /// By PBS. Where the lines of its file count, they were granted. A file that names each node
    /// once leaves the number to others, and that of a machine we know is better than a total.
    pub(super) fn by_pbs(&mut self, file: &HostFile, known: bool) -> Granted {
        let nodes = file.hosts.len();
        let total = self.environment.number("PBS_NP")?;
        let each = self.environment.number("PBS_NUM_PPN")?;
        let chunks = self.environment.number("PBS_NUM_NODES")?;
        if !file.counts {
            let total = total.filter(|_| each.is_some() || !known);
            let names = ["PBS_NODEFILE", "PBS_NP", "PBS_NUM_PPN"];
            return Ok(self.by_numbers(names, nodes, total, each));
        }
        let (slots, from) = file.ranks();
        let lines = slots.iter().sum();
        let unit = if file.form == Form::Lines { "lines" } else { "ranks" };
        let winner = format!("PBS_NODEFILE has {lines} {unit} for {}", in_nodes(nodes));
        let of_chunks = each.map(|each| each * chunks.unwrap_or(nodes));
        let others = [
            ("PBS_NP", unlike(total, lines)),
            ("PBS_NUM_PPN", each.filter(|_| of_chunks != Some(lines))),
            ("PBS_NUM_NODES", unlike(chunks, nodes)),
        ];
        self.goes_before(&winner, &others);
        Ok(Some((slots, from)))
    }

    /// By Slurm, for the nodes of a scope.
    pub(super) fn by_slurm(&mut self, scope: &Scope, names: &[String]) -> Granted {
        let nodes = names.len();
        if scope.list != STEP.list
            && let Some(slots) = self.arbitrary(names)
        {
            return Ok(Some((slots, "SLURM_HOSTFILE".into())));
        }
        let shell = is_shell(self.environment);
        let total = self.environment.number(scope.total)?;
        let counts = self.environment.variable(scope.counts);
        // What was asked for each node of the job is not what a step got.
        let got = scope.list == STEP.list && (total.is_some() || counts.is_some());
        let most = self.environment.number("SLURM_NTASKS_PER_NODE")?.filter(|_| !got);
        if let Some(list) = counts {
            let slots = slurm_counts(&list)?;
            let sum = slots.iter().sum();
            let fits = slots.len() == nodes;
            // A grant may have room for more ranks than were asked for: whole nodes, or a number
            // for each node. A step has as many as were asked for, divided evenly.
            if fits && let Some(asked) = total.filter(|asked| (nodes..sum).contains(asked)) {
                let from = format!("{}={asked} on {}", scope.total, in_nodes(nodes));
                self.said.push(format!(
                    "{from}, of which {}={list} has room for {sum} ranks",
                    scope.counts
                ));
                return Ok(Some((divided(asked, &slots), from)));
            }
            // The shell has the job's numbers, or those of its one task.
            if fits && (!shell || total == Some(sum)) {
                // What was asked for each node is a maximum.
                let fewer = most.filter(|most| slots.iter().any(|slots| slots > most));
                let others = [(scope.total, unlike(total, sum)), ("SLURM_NTASKS_PER_NODE", fewer)];
                self.goes_before(&format!("{}={list} has {sum} ranks", scope.counts), &others);
                return Ok(Some((slots, scope.counts.into())));
            }
            if !shell {
                let what = format!("is for {} nodes, and the job has {nodes}", slots.len());
                let help = "one of them is from a different job; give --per-node";
                return Err(BadInput::new(format!("{}={list} {what}", scope.counts), help));
            }
        }
        let total = total.filter(|&total| !shell || total >= nodes);
        // A maximum that leaves some of the nodes room for more.
        if let (Some(all), Some(each)) = (total, most)
            && (nodes..each * nodes).contains(&all)
        {
            let from = format!("{}={all} on {}", scope.total, in_nodes(nodes));
            let from = format!("{from}, at most SLURM_NTASKS_PER_NODE={each}");
            return Ok(Some((divided(all, &vec![each; nodes]), from)));
        }
        let names = [scope.list, scope.total, "SLURM_NTASKS_PER_NODE"];
        Ok(self.by_numbers(names, nodes, total, most))
    }

    /// By the file with a line for each rank, in the distribution that asks for one: Slurm counts
    /// no ranks by node then.
    fn arbitrary(&self, names: &[String]) -> Option<Vec<usize>> {
        let set = |name: &str| self.environment.variable(name);
        set("SLURM_DISTRIBUTION").filter(|name| name == "arbitrary")?;
        let path = set("SLURM_HOSTFILE")?;
        let text = (self.environment.read)(Path::new(&path)).ok()?;
        let of = |name: &String| text.lines().filter(|line| line.trim() == name).count();
        let slots: Vec<usize> = names.iter().map(of).collect();
        slots.iter().all(|&slots| slots > 0).then_some(slots)
    }

    /// By the number of all ranks, divided as evenly as it goes, or else by the number that was
    /// asked for each node of the list. Each node gets one rank at least.
    fn by_numbers(
        &mut self,
        [list, of_all, of_each]: [&str; 3],
        nodes: usize,
        total: Option<usize>,
        each: Option<usize>,
    ) -> Option<Slots> {
        let asked = each.map(|each| (vec![each; nodes], of_each.to_string()));
        let other = total.filter(|_| total != each.map(|each| each * nodes));
        let Some(total) = other else { return asked };
        if total < nodes {
            let winner = format!("{list} has {}", in_nodes(nodes));
            self.goes_before(&winner, &[(of_all, Some(total))]);
            return asked;
        }
        self.goes_before(&format!("{of_all}={total} is for all nodes"), &[(of_each, each)]);
        let from = format!("{of_all}={total} on {}", in_nodes(nodes));
        Some((divided(total, &vec![total; nodes]), from))
    }
}

/// So many ranks among nodes with this room, one for each node in turn: so does a step of Slurm's,
/// in each of its distributions but `arbitrary`.
pub(super) fn divided(ranks: usize, room: &[usize]) -> Vec<usize> {
    let mut slots = vec![0; room.len()];
    let mut left = ranks.min(room.iter().sum());
    while left > 0 {
        let open = slots.iter().zip(room).filter(|(slots, room)| slots < room).count();
        let share = (left / open).max(1);
        for (slots, room) in slots.iter_mut().zip(room) {
            let more = share.min(room - *slots).min(left);
            *slots += more;
            left -= more;
        }
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::divided;

    #[test]
    fn ranks_are_divided_as_a_step_divides_them() {
        assert_eq!(divided(10, &[4, 4, 4]), [4, 3, 3]);
        assert_eq!(divided(3, &[1, 1, 1]), [1, 1, 1]);
        assert_eq!(divided(6, &[1, 4, 2]), [1, 3, 2]);
        assert_eq!(divided(9, &[1, 4, 2]), [1, 4, 2]);
        assert_eq!(divided(1 << 60, &[1 << 60, 5]), [(1 << 60) - 5, 5]);
    }
}
