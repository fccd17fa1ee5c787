//! From whole parameters to the ranks of a new job, which may be a different number and share the
//! model in other ways.

use super::folder::{Parameter, Universal};
use crate::checkpoint::agree::agree;
use crate::comm::Comm;
use crate::error::BadInput;
use crate::parallel::Zero;
use anyhow::Result;
use serde::de::DeserializeOwned;

impl Universal {
    /// Puts the state into a training that has just begun: each rank takes its own elements of
    /// every parameter. Returns the trainer's own record. All ranks call it. If a rank cannot read
    /// its part, no rank's training continues.
    ///
    /// # Errors
    /// On every rank, if the checkpoint is of a different model, its record of a different program,
    /// or a file cannot be read or is damaged on any of them.
    pub fn restore<R: DeserializeOwned>(&self, comm: &Comm, zero: &mut Zero) -> Result<R> {
        let record = agree(comm, self.check(zero).and_then(|()| self.own_record()))??;
        let mut failed = None;
        let mut read = (String::new(), [const { Vec::new() }; 3]);
        zero.restore(self.optimizer_steps, |fragment, elements, state| {
            let spec = &fragment.spec;
            // State in files comes in chunks: a parameter is read once for all chunks that follow
            // each other.
            if read.0 != spec.whole.name {
                match self.read(&spec.whole.name) {
                    Ok(whole) => read = (spec.whole.name.clone(), whole),
                    Err(error) => {
                        failed.get_or_insert(error);
                        return;
                    }
                }
            }
            let first = elements.start;
            for (whole, mine) in read.1.iter().zip([state.values, state.exp_avg, state.exp_avg_sq])
            {
                if mine.is_empty() {
                    continue; // Muon has no second moment
                }
                mine.fill(0.0); // padding, such as a vocabulary's, is in no checkpoint
                spec.runs(elements.clone(), |run, at| {
                    mine[run.start - first..run.end - first]
                        .copy_from_slice(&whole[at..at + run.len()]);
                });
            }
        })?;
        let read = match failed {
            Some(error) => Err(error),
            None => Ok(()),
        };
        agree(comm, read)??;
        Ok(record)
    }

    /// Refuses a checkpoint of a different model, before anything changes.
    fn check(&self, zero: &Zero) -> Result<(), BadInput> {
        for spec in zero.params().specs() {
            let whole = &spec.whole;
            let found = self.parameters.get(&whole.name).map(|parameter| &parameter.shape);
            if found != Some(&whole.shape) {
                let found =
                    found.map_or("no such parameter".to_string(), |shape| format!("{shape:?}"));
                let what = format!(
                    "{} has {found} for {}, and this model {:?}",
                    self.dir.display(),
                    whole.name,
                    whole.shape
                );
                return Err(BadInput::new(what, "give the settings of the run that saved it"));
            }
            let muons = zero.has_muon() && spec.is_hidden_matrix();
            let saved = self.parameters.get(&whole.name).is_some_and(Parameter::is_muons);
            if saved != muons {
                let [has, needs] =
                    [saved, muons].map(|muon| if muon { "one moment" } else { "two" });
                let what = format!(
                    "{} has {has} of {}, and this optimizer needs {needs}",
                    self.dir.display(),
                    whole.name
                );
                let help = "resume with the optimizer of the run that saved it";
                return Err(BadInput::new(what, help));
            }
        }
        Ok(())
    }

    fn own_record<R: DeserializeOwned>(&self) -> Result<R, BadInput> {
        serde_json::from_value(self.record.clone()).map_err(|error| {
            let what =
                format!("{}: this training cannot use its record: {error}", self.dir.display());
            BadInput::new(what, "resume with the program that saved it")
        })
    }
}
