//! The ranks that average a parameter's gradient: of most parameters all data ranks, of experts
//! those that have the same ones.
//!
//! Under HSDP, hybrid sharded data parallelism, data ranks form groups of neighbours. Within a
//! group ZeRO shards the state, so that every group is a replica. Ranks at the same place of their
//! groups hold the same shard, and average its gradient once per step.
//!
//! Expert ranks are neighbours among the data ranks (and the context ranks of each), so a model
//! with experts needs no more devices. An expert's gradient comes from the tokens of all data
//! ranks, because they have sent them: it is summed over the ranks that hold it, and divided by as
//! many as any other gradient, not by fewer. Frameworks have got that wrong, and no curve of losses
//! showed it, because Adam hides a constant factor (DeepSpeed issue 5618, PyTorch issue 160285).

use super::Averaged;
use crate::comm::{self, Comm, Element, Reduce};
use crate::error::BadInput;
use anyhow::Result;
use std::time::Instant;

/// A data group, how it shares experts, and how it divides into groups that shard.
#[derive(Clone)]
pub struct Replicas {
    all: Comm,
    shared: Option<Shared>,
    hybrid: Option<Hybrid>,
}

#[derive(Clone)]
struct Hybrid {
    /// The neighbours that shard one replica.
    within: Comm,
    /// The ranks with the same shard, one of each replica.
    between: Comm,
}

#[derive(Clone)]
struct Shared {
    /// The ranks that hold all experts together: `ep`.
    together: Comm,
    /// The ranks with the same experts: `edp`.
    same: Comm,
}

impl Replicas {
    /// Data ranks of which each `ranks` neighbours share the experts. All of them call it.
    ///
    /// # Errors
    /// If a collective fails.
    pub fn sharing_experts(all: &Comm, ranks: usize) -> Result<Replicas> {
        if ranks == 1 {
            return Ok(all.into());
        }
        let (part, place) = (all.rank() / ranks, all.rank() % ranks);
        let together = all.split(part as u64, 0)?.named("experts");
        let same = all.split(place as u64, 0)?.named("replicas of experts");
        let shared = Some(Shared { together, same });
        Ok(Replicas { shared, ..all.into() })
    }

    /// Data ranks of which each `ranks` neighbours shard a replica (HSDP). All of them call it.
    ///
    /// ```
    /// use shardlab::comm::Reduce;
    /// use shardlab::launch;
    /// use shardlab::parallel::Replicas;
    ///
    /// // Ranks 0 and 1 shard one replica, ranks 2 and 3 the other: rank 1's place is rank 3's.
    /// let sums = launch::run(4, |comm| {
    ///     let replicas = Replicas::sharding_in_groups(&comm, 2)?;
    ///     let between = replicas.between().expect("there are two groups");
    ///     let own = comm.rank() as f32;
    ///     Ok([replicas.of(false).reduced(own, Reduce::Sum)?, between.reduced(own, Reduce::Sum)?])
    /// })?;
    /// assert_eq!(sums, [[1.0, 2.0], [1.0, 4.0], [5.0, 2.0], [5.0, 4.0]]);
    /// # anyhow::Ok(())
    /// ```
    ///
    /// # Errors
    /// If `ranks` do not divide all, or a collective fails.
    pub fn sharding_in_groups(all: &Comm, ranks: usize) -> Result<Replicas> {
        if ranks == 0 || !all.size().is_multiple_of(ranks) {
            let what = format!("groups of {ranks} cannot share {} data ranks", all.size());
            return Err(BadInput::new(what, "give groups whose size divides the ranks").into());
        }
        if ranks == all.size() {
            return Ok(all.into());
        }
        let (replica, place) = (all.rank() / ranks, all.rank() % ranks);
        let within = all.split(replica as u64, 0)?.named("shards");
        let between = all.split(place as u64, 0)?.named("replicas");
        Ok(Replicas { hybrid: Some(Hybrid { within, between }), ..all.into() })
    }

    /// All data ranks.
    pub fn all(&self) -> &Comm {
        &self.all
    }

    /// The ranks that hold all experts together, if several do.
    pub fn experts(&self) -> Option<&Comm> {
        self.shared.as_ref().map(|shared| &shared.together)
    }

    /// The ranks that shard a parameter's state between them; without groups, all that hold it.
    pub fn of(&self, expert: bool) -> &Comm {
        match (&self.shared, &self.hybrid) {
            (Some(shared), _) if expert => &shared.same,
            (_, Some(hybrid)) => &hybrid.within,
            _ => &self.all,
        }
    }

    /// The ranks that begin with the same values of a parameter.
    pub fn equal(&self, expert: bool) -> &Comm {
        match &self.shared {
            Some(shared) if expert => &shared.same,
            _ => &self.all,
        }
    }

    /// The ranks that hold every shard once between them.
    pub fn once(&self) -> &Comm {
        self.hybrid.as_ref().map_or(&self.all, |hybrid| &hybrid.within)
    }

    /// The ranks of other groups that hold the same shard, and this one, if groups shard.
    pub fn between(&self) -> Option<&Comm> {
        self.hybrid.as_ref().map(|hybrid| &hybrid.between)
    }

    /// Averages this rank's shard of the gradients over the groups, if there are several: once per
    /// step, when all micro-batches have added up. Returns when that was.
    pub(super) fn average_between<T: Element>(
        &self,
        shard: &mut [T],
    ) -> comm::Result<Option<Averaged>> {
        let Some(between) = self.between() else {
            return Ok(None);
        };
        let start = Instant::now();
        between.all_reduce(shard, Reduce::Mean)?;
        let end = Instant::now();
        Ok(Some(Averaged { start, end, waited: (start, end) }))
    }

    /// The factor that makes a mean over the ranks with the same experts the gradient: their sum,
    /// divided by all data ranks. `None` if every rank holds all.
    pub fn expert_factor(&self) -> Option<f32> {
        let Shared { same, .. } = self.shared.as_ref()?;
        Some(same.size() as f32 / self.all.size() as f32)
    }
}

impl From<&Comm> for Replicas {
    /// Every rank holds all experts, if there are any, and all ranks shard together.
    fn from(all: &Comm) -> Replicas {
        Replicas { all: all.clone(), shared: None, hybrid: None }
    }
}

impl From<&Replicas> for Replicas {
    fn from(replicas: &Replicas) -> Replicas {
        replicas.clone()
    }
}
