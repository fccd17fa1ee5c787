//! Training that has diverged: a loss or a gradient is no longer a finite number, and no later step
//! can repair that.

use super::Config;
use crate::optim::NotFinite;

/// Training has diverged: a figure is not finite.
#[derive(Debug, thiserror::Error)]
#[error("at step {step}, {what}: training has diverged")]
pub struct Diverged {
    /// The figure and its value.
    pub what: String,
    /// The step, counted from 1.
    pub step: usize,
}

impl Diverged {
    /// Adds the step to the error of a norm that is not finite. Other errors do not change.
    pub fn at(step: usize, error: anyhow::Error) -> anyhow::Error {
        match error.downcast::<NotFinite>() {
            Ok(NotFinite(norm)) => Diverged {
                what: format!("the gradients' norm is {norm}, so nothing was updated"),
                step,
            }
            .into(),
            Err(error) => error,
        }
    }
}

impl Config {
    /// Adds helpful flags to the error of diverged training. Other errors do not change.
    pub fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        if !error.is::<Diverged>() {
            return error;
        }
        let mut help = format!("lower `lr` (it is {})", self.schedule.lr);
        if self.schedule.warmup < self.steps {
            help += &format!(", or lengthen `warmup` (it is {})", self.schedule.warmup);
        }
        if self.clip == 0.0 || self.clip > 1.0 {
            help += ", or set `clip` 1";
        }
        anyhow::anyhow!("{error}\nhelp: {help}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Corpus;

    #[test]
    fn help_names_only_what_can_be_changed() {
        let small = Config::small(2, &Corpus::embedded().unwrap());
        let said = |clip: f64, warmup: usize| {
            let mut config = Config { clip, ..small.clone() };
            config.schedule.warmup = warmup;
            config
                .explain(Diverged { what: "the loss is NaN".into(), step: 3 }.into())
                .to_string()
        };
        let start =
            "at step 3, the loss is NaN: training has diverged\nhelp: lower `lr` (it is 0.001)";
        assert_eq!(said(1.0, 100), start);
        assert_eq!(said(0.5, 4), format!("{start}, or lengthen `warmup` (it is 4)"));
        assert_eq!(said(0.0, 100), format!("{start}, or set `clip` 1"));
        assert_eq!(small.explain(Diverged::at(3, anyhow::anyhow!("no"))).to_string(), "no");
        let refused = small.explain(Diverged::at(3, NotFinite(f64::NAN).into())).to_string();
        let start = "at step 3, the gradients' norm is NaN, so nothing was updated: training has diverged\nhelp: lower";
        assert!(refused.starts_with(start), "{refused}");
    }
}
