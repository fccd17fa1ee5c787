//! The order of a lab's run, which is the same in every lab: `lab_run.rs`.

mod lab_run;

pub use lab_run::LabRun;
