//! The ranks that hold the same parameter and average its gradient: of most parameters all data
//! ranks, of experts those that have the same ones.
//!
//! Expert ranks are neighbours among the data ranks (and the context ranks of each), so a model
//! with experts needs no more devices. An expert's gradient comes from the tokens of all data
//! ranks, because they have sent them: it is summed over the ranks that hold it, and divided by as
//! many as any other gradient, not by fewer. Frameworks have got that wrong, and no curve of losses
//! showed it, because Adam hides a constant factor (DeepSpeed issue 5618, PyTorch issue 160285).

use crate::comm::Comm;
use anyhow::Result;

/// A data group, and how it shares experts.
#[derive(Clone)]
pub struct Replicas {
    all: Comm,
    shared: Option<Shared>,
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
        Ok(Replicas { all: all.clone(), shared: Some(Shared { together, same }) })
    }

    /// All data ranks.
    pub fn all(&self) -> &Comm {
        &self.all
    }

    /// The ranks that hold all experts together, if several do.
    pub fn experts(&self) -> Option<&Comm> {
        self.shared.as_ref().map(|shared| &shared.together)
    }

    /// The ranks that hold the same parameter.
    pub fn of(&self, expert: bool) -> &Comm {
        match &self.shared {
            Some(shared) if expert => &shared.same,
            _ => &self.all,
        }
    }

    /// The factor that makes a mean over the ranks with the same experts the gradient: their sum,
    /// divided by all data ranks. `None` if every rank holds all.
    pub fn expert_factor(&self) -> Option<f32> {
        let Shared { same, .. } = self.shared.as_ref()?;
        Some(same.size() as f32 / self.all.size() as f32)
    }
}

impl From<&Comm> for Replicas {
    /// Every rank holds all experts, if there are any.
    fn from(all: &Comm) -> Replicas {
        Replicas { all: all.clone(), shared: None }
    }
}

impl From<&Replicas> for Replicas {
    fn from(replicas: &Replicas) -> Replicas {
        replicas.clone()
    }
}
