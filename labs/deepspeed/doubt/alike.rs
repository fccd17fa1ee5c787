//! Whether all ranks have as many flat buffers, of the same types.

use crate::read::{Group, Rank, Source};
use crate::{STATES, broken};
use shardlab::error::BadInput;
use std::collections::HashSet;

impl Source {
    /// Refuses files that cannot be of the same save, because their flat buffers differ in number,
    /// type, step or parameters.
    pub fn ensure_alike(&self) -> Result<(), BadInput> {
        (0..self.files.mp).try_for_each(|mp| self.alike(mp))
    }

    /// All ranks that share flat buffers have as many, of the same types.
    fn alike(&self, mp: usize) -> Result<(), BadInput> {
        let model = &self.models[mp];
        let shards = &self.shards[mp];
        let first = &shards[0];
        let listed: HashSet<&str> =
            model.groups.iter().flatten().map(|(name, _)| name.as_str()).collect();
        if self.stage < 3 && first.groups.len() != model.groups.len() {
            let groups = first.groups.len();
            let shapes = model.groups.len();
            let how = format!(
                "it has {groups} groups, and {} lists the parameters of {shapes}",
                model.path.display()
            );
            return Err(broken(&first.path, how));
        }
        for shard in shards {
            if shard.groups.len() != first.groups.len() {
                let here = shard.groups.len();
                let there = first.groups.len();
                return Err(broken(
                    &shard.path,
                    format!("it has {here} groups, and rank {}'s {there}", first.rank.dp),
                ));
            }
            for (at, (group, of_first)) in shard.groups.iter().zip(&first.groups).enumerate() {
                if group.states.len() != of_first.states.len() {
                    let here = group.states.len();
                    let there = of_first.states.len();
                    let how = format!(
                        "it has {here} states of group {at}, and rank {}'s {there}",
                        first.rank.dp
                    );
                    return Err(broken(&shard.path, how));
                }
                for (state, (a, b)) in group.states.iter().zip(&of_first.states).enumerate() {
                    if a.dtype != b.dtype {
                        let state = STATES[state];
                        let a = a.dtype.name();
                        let b = b.dtype.name();
                        return Err(broken(
                            &shard.path,
                            format!("{state} of group {at} is {a}, and rank 0's {b}"),
                        ));
                    }
                }
                if let Some(name) =
                    group.fragments.keys().find(|name| !listed.contains(name.as_str()))
                {
                    let how = format!(
                        "it has elements of {name}, which {} does not list",
                        model.path.display()
                    );
                    return Err(broken(&shard.path, how));
                }
                if group.step.as_ref().map(|step| step.value)
                    != of_first.step.as_ref().map(|step| step.value)
                {
                    let step =
                        |group: &Group| group.step.as_ref().map_or(f64::NAN, |step| step.value);
                    let Rank { dp, .. } = shard.rank;
                    let how = format!(
                        "group {at} of rank {dp} is at step {}, and rank 0 at {}",
                        step(group),
                        step(of_first)
                    );
                    return Err(broken(&shard.path, how));
                }
            }
        }
        Ok(())
    }
}
