//! The library's own tests that need several files: what must hold on any ranks, which are threads
//! here, and what its operations compute. They know no lab and start no program, so that whoever
//! changes `src` hears of it in a minute: `.ci/run quick`.
//!
//! `cargo test --test library collectives::` runs one file's.

/// Those parts of the suite that know the library alone.
#[allow(dead_code, reason = "each test program uses its part of the suite")]
#[path = "../suite"]
mod suite {
    pub mod algorithms;
    /// lab01's, which know nothing of the lab.
    #[path = "../../labs/lab01/apparatus/by_algorithm.rs"]
    pub mod by_algorithm;
    pub mod collectives;
    #[path = "../../labs/lab01/apparatus/formula.rs"]
    mod formulas;
    pub mod hsdp;
    #[path = "../../labs/lab01/solutions/lab01_ring.rs"]
    pub mod lab01_ring;
    pub mod muon;
    pub mod tensor;
    pub mod trained;
    pub mod training;
    pub mod universal;
    pub mod zero;

    pub use formulas::formula;
}

mod algorithms;
mod collectives;
mod golden;
mod hsdp;
mod late;
mod link;
mod muon;
mod operations;
mod plain;
mod recorded_orders;
mod tensor;
mod training;
mod universal;
mod zero;
