//! The steps that every lab takes, in one order. A lab fills in its settings, what it says of them,
//! what a rank does, and what it compares.
//!
//! 1. Its screen, and its lines in `labs/labs.toml`: [`LabRun::of`].
//! 2. Its settings, from its flags. What does not fit together is refused.
//! 3. What the run takes: said, with `--dry-run`, or refused if the machine has less
//!    ([`LabRun::goes_on`]).
//! 4. The files that it will write, opened before any work; then its heading and its rows
//!    ([`LabRun::heading`]).
//! 5. Its ranks, their checks, and the ending if all of them passed ([`LabRun::on_ranks`],
//!    [`LabRun::train`]).

use crate::Checks;
use crate::course::{self, Lesson, ensure_passed};
use crate::flags::{CommFlags, RunFlags, explain};
use crate::machine::Footprint;
use crate::record::report;
use crate::show::Screen;
use anyhow::Result;
use shardlab::checkpoint::{self, Claim};
use shardlab::comm::{Comm, Options};
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::train::Config;
use std::path::PathBuf;

/// One run of a lab.
pub struct LabRun {
    pub screen: Screen,
    pub lesson: Lesson,
    /// The folder for the run's files.
    pub folder: PathBuf,
    /// How its ranks communicate.
    pub options: Options,
    /// Whether the run only says what it would take.
    pub is_dry: bool,
    /// How many ranks it starts.
    pub ranks: usize,
    /// Whether it makes a mistake on purpose.
    pub is_broken: bool,
    /// Whether it saves weights in its folder. No other job may do so meanwhile.
    pub saves: bool,
}

impl LabRun {
    /// A run of the lab called `lab`, as these flags say: on one rank, until the lab says more.
    ///
    /// # Errors
    /// If `labs/labs.toml` has no such lab.
    pub fn of(lab: &str, flags: &RunFlags) -> Result<LabRun, BadInput> {
        let run = LabRun::plain(lab, flags.ascii, flags.folder(lab), &flags.comm)?;
        Ok(LabRun { is_dry: flags.dry_run, ..run })
    }

    /// The same for a lab without [`RunFlags`], and so without `--dry-run`.
    ///
    /// # Errors
    /// If `labs/labs.toml` has no such lab.
    pub fn plain(
        lab: &str,
        ascii: bool,
        folder: PathBuf,
        comm: &CommFlags,
    ) -> Result<LabRun, BadInput> {
        Ok(LabRun {
            screen: Screen::detect(ascii),
            lesson: Lesson::of(lab)?,
            options: comm.options(&folder),
            folder,
            is_dry: false,
            ranks: 1,
            is_broken: false,
            saves: false,
        })
    }

    /// The folder for weights, of a run that saves them.
    pub fn save_to(&self) -> Option<PathBuf> {
        self.saves.then(|| self.folder.clone())
    }

    /// Prints the lab's title and question. A run of an unusual `time` says it there.
    pub fn heading(&self, time: Option<&str>) {
        self.screen.say(self.lesson.heading(&self.screen, time));
    }

    /// Prints a labelled row.
    pub fn row(&self, label: &str, text: &str) {
        self.screen.say(self.screen.row(label, text));
    }

    /// Refuses ranks that do not fit into this machine's memory.
    ///
    /// # Errors
    /// If they take more than is free.
    pub fn ensure_fits(&self, footprint: &Footprint) -> Result<(), BadInput> {
        footprint.ensure_fits(self.free_memory())
    }

    /// Bytes of memory that the run's ranks on this machine may take, if it says how many.
    pub fn free_memory(&self) -> Option<u64> {
        launch::free_memory(launch::ranks_here(self.ranks))
    }

    /// Whether the run goes on. With `--dry-run` it does not: it introduces itself, and says what
    /// it would take, with a `peak` of one thread's matmuls in FLOP/s.
    ///
    /// # Errors
    /// If the ranks take more memory than is free, or the run's folder cannot be written.
    pub fn goes_on(
        &self,
        footprint: &Footprint,
        peak: impl FnOnce() -> f64,
        introduce: impl FnOnce(),
    ) -> Result<bool> {
        if self.is_dry {
            if launch::is_first_process() {
                introduce();
                report::dry_run(&self.screen, footprint, self.free_memory(), peak());
            }
            return Ok(false);
        }
        self.ensure_fits(footprint)?;
        if self.saves {
            checkpoint::ensure_writable(&self.folder)?;
        }
        Ok(true)
    }

    /// Runs `one_rank` on every rank. Rank 0's checks decide: if all have passed, the run ends as
    /// [`Checks::end_with`] was told.
    ///
    /// # Errors
    /// If a rank fails, or one of rank 0's checks has; if another job saves to the run's folder.
    pub fn on_ranks(
        &self,
        one_rank: impl Fn(&Comm, &mut Checks) -> Result<()> + Sync,
    ) -> Result<()> {
        course::run(self.ranks, &self.options, |comm| {
            let _claim = if self.saves {
                Some(Claim::take(&comm, &self.folder)?)
            } else {
                None
            };
            let mut checks = Checks::new(&self.screen);
            one_rank(&comm, &mut checks)?;
            if comm.rank() != 0 {
                return Ok(Vec::new());
            }
            Ok(checks.ended(&self.lesson))
        })
    }

    /// Ends a run whose checks were made without ranks, as [`Checks::end_with`] was told.
    ///
    /// # Errors
    /// If a check has failed.
    pub fn end(&self, checks: Checks) -> Result<()> {
        ensure_passed(&checks.ended(&self.lesson))
    }

    /// The same for ranks that train as `config` says: if the training diverges, the error names
    /// the flags that help, and a mistake that no check has noticed is told.
    ///
    /// # Errors
    /// Those of [`LabRun::on_ranks`].
    pub fn train(
        &self,
        config: &Config,
        one_rank: impl Fn(&Comm, &mut Checks) -> Result<()> + Sync,
    ) -> Result<()> {
        self.on_ranks(|comm, checks| {
            one_rank(comm, checks).map_err(|error| explain(config, error))?;
            if self.is_broken && comm.rank() == 0 {
                checks.tell_unnoticed(config);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        run: RunFlags,
    }

    /// A run of lab03 on two ranks, with these flags.
    fn run(flags: &str) -> LabRun {
        let words = format!("program {flags}");
        let flags = Program::parse_from(words.split_whitespace()).run;
        LabRun { ranks: 2, ..LabRun::of("lab03", &flags).unwrap() }
    }

    fn error(result: Result<()>) -> String {
        result.map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn rank_0s_checks_decide_and_a_file_that_was_not_written_counts_after_them() {
        let failing = |rank: Option<usize>, unwritten: bool| {
            error(run("").on_ranks(|comm, checks| {
                checks.check(rank != Some(comm.rank()), "a", "b", "one is wrong");
                if unwritten {
                    checks.wrote(Err(anyhow!("the disk is full")));
                }
                Ok(())
            }))
        };
        assert_eq!(failing(None, false), "");
        assert_eq!(failing(Some(1), false), "", "it looks at nothing");
        assert_eq!(failing(Some(0), false), "one is wrong");
        assert_eq!(failing(None, true), "the disk is full");
        assert_eq!(failing(Some(0), true), "one is wrong; the disk is full");
    }

    #[test]
    fn a_run_that_saves_has_its_folder_to_itself() {
        let dir = tempfile::tempdir().unwrap();
        let saves = |saves| {
            let run = run(&format!("--out {}", dir.path().display()));
            error(LabRun { saves, ..run }.on_ranks(|_, _| Ok(())))
        };
        let other = Claim::take(&Comm::alone(), dir.path()).unwrap();
        assert!(saves(true).contains(&dir.path().display().to_string()), "{}", saves(true));
        assert_eq!(saves(false), "");
        drop(other);
        assert_eq!(saves(true), "");
    }

    #[test]
    fn a_dry_run_says_what_a_run_refuses() {
        let mut config = Config::small(2, &shardlab::data::Corpus::embedded().unwrap());
        config.shape.block = 1 << 20;
        let footprint = Footprint::new(&config);
        let introduced = std::cell::Cell::new(0);
        let goes_on = |flags: &str| {
            run(flags).goes_on(&footprint, || 1e9, || introduced.set(introduced.get() + 1))
        };
        assert!(!goes_on("--dry-run").unwrap());
        assert_eq!(introduced.get(), 1);
        assert!(goes_on("").unwrap_err().to_string().contains("not even --batch 1 fits"));
        assert_eq!(introduced.get(), 1, "a run is introduced after its files are open");
    }
}
