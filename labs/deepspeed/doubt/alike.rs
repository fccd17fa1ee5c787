//! Whether all ranks have as many flat buffers, of the same types.

use crate::broken;
use crate::read::{Group, Source};
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
            let how = format!(
                "it has {} groups, and {} lists the parameters of {}",
                first.groups.len(),
                model.path.display(),
                model.groups.len()
            );
            return Err(broken(&first.path, how));
        }
        let there: Vec<String> = first.groups.iter().map(described).collect();
        for shard in shards {
            let here: Vec<String> = shard.groups.iter().map(described).collect();
            let groups = 0..here.len().max(there.len());
            if let Some(at) = groups.into_iter().find(|at| here.get(*at) != there.get(*at)) {
                let how = format!(
                    "group {at} of rank {} is {}, and that of rank {} {}",
                    shard.rank.dp,
                    here.get(at).map_or("missing", String::as_str),
                    first.rank.dp,
                    there.get(at).map_or("missing", String::as_str)
                );
                return Err(broken(&shard.path, how));
            }
            let mut names = shard.groups.iter().flat_map(|group| group.fragments.keys());
            if let Some(name) = names.find(|name| !listed.contains(name.as_str())) {
                let model = model.path.display();
                let how = format!("it has elements of {name}, which {model} does not list");
                return Err(broken(&shard.path, how));
            }
        }
        Ok(())
    }
}

/// What all ranks have in common in a group: the types of its states, and its step.
fn described(group: &Group) -> String {
    let types: Vec<&str> = group.states.iter().map(|state| state.dtype.name()).collect();
    let step = group
        .step
        .as_ref()
        .map_or("no step".into(), |step| format!("step {}", step.value));
    format!("{} at {step}", types.join(", "))
}
