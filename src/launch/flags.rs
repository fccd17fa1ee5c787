//! The flags about communication that every lab has.

use crate::comm::{Link, Options};

/// How ranks communicate.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct CommFlags {
    /// Let threads communicate as over a network link, for example 50us,1GB/s
    #[arg(long, value_name = "LATENCY,BANDWIDTH")]
    pub link: Option<Link>,
    /// Over MPI: do not ask before each collective whether all ranks mean the same one
    #[arg(long)]
    pub no_check: bool,
}

impl CommFlags {
    /// For [`run_with`](super::run_with).
    pub fn options(&self) -> Options {
        Options { link: self.link, no_check: self.no_check }
    }
}
