//! What the reader's program costs, beside ours.

use super::Judge;
use crate::picture::track;
use crate::{Rung, Score, run};
use anyhow::Result;
use kit::check::Evidence;
use kit::show::thousands;
use std::fmt::Display;
use std::sync::Arc;

impl Judge {
    /// The score of the reader's program on the rung's job.
    ///
    /// # Errors
    /// Those of the program.
    pub fn scored(&self) -> Result<Score> {
        Ok(self.run(self.rung()?.job)?.score())
    }

    /// The score of our solution of a rung. Empty: that of the program for one rank.
    ///
    /// # Errors
    /// Those of the program.
    pub fn ours(&self, name: &str) -> Result<Score> {
        let Some(rung) = Rung::of(name) else {
            return Ok(self.rung()?.on_one_rank()?.score());
        };
        Ok(run(rung.job, rung.ours)?.score())
    }

    /// Compares the reader's time of a step with that of our solution of the rung before. Empty:
    /// with the program for one rank.
    ///
    /// # Errors
    /// Those of the program.
    pub fn less_time(&self, evidence: &mut Evidence, before: &str) -> Result<bool> {
        let yours = self.run(self.rung()?.job)?;
        let other = match Rung::of(before) {
            Some(rung) => run(rung.job, rung.ours)?,
            None => self.rung()?.on_one_rank()?,
        };
        let [got, most] = [&yours, &other].map(|run| run.score().micros());
        let whose = if before.is_empty() { "one rank" } else { before };
        let less = evidence.row(
            got < most,
            Score::FIGURES[Score::TIME],
            format!("less than {} ({whose})", thousands(most)),
            thousands(got),
        );
        if !less {
            evidence.draw(vec![track("yours", &yours), track(whose, &other)]);
        }
        Ok(less)
    }

    /// [`Judge::score`], with what to look at if the time, which the rung is about, could be less.
    ///
    /// # Errors
    /// Those of the program.
    pub fn score_of_time(&self, evidence: &mut Evidence, advice: impl Display) -> Result<()> {
        if self.scored()?.micros() > self.ours(self.name)?.micros() {
            evidence.advise(advice);
        }
        self.score(evidence)
    }

    /// Tells the reader's three scores, and ours.
    ///
    /// # Errors
    /// Those of the program.
    pub fn score(&self, evidence: &mut Evidence) -> Result<()> {
        let rung = self.rung()?;
        let [yours, ours] = [self.run(rung.job)?, Arc::new(run(rung.job, rung.ours)?)];
        evidence.draw(vec![track("yours", &yours), track("ours", &ours)]);
        let [got, ours] = [yours.score(), ours.score()];
        // An empty list more or less does not matter.
        let more = [ours.peak / 100, 0, 0];
        let pairs = got.figures().into_iter().zip(ours.figures());
        for (i, (got, ours)) in pairs.enumerate() {
            let as_good = (ours..=ours + more[i]).contains(&got);
            evidence.figure(Score::FIGURES[i], got, if as_good { got } else { ours });
        }
        Ok(())
    }
}
