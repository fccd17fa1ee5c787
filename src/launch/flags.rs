//! The flags about communication that every lab has.

use crate::comm::{Link, Options};

/// How ranks communicate.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct CommFlags {
    /// Let threads communicate as over a network link, for example 50us,1GB/s
    #[arg(long, value_name = "LATENCY,BANDWIDTH")]
    pub link: Option<Link>,
}

impl CommFlags {
    /// For [`run_with`](super::run_with).
    pub fn options(&self) -> Options {
        Options { link: self.link }
    }
}
