//! Pretrained models from the hub: a model's name becomes a local folder with its files.
//!
//! A download can be interrupted at any byte, and continues there. Each file is compared with the
//! checksum that the hub gives for it. A server that is silent for too long is given up. The files
//! are where all programs of the hub keep theirs, so that one download serves all of them. The
//! user's token goes to the hub, and to no other server.
//!
//! Downloads need the feature `llm`. Without it, [`fetch`] says how to build with it.
//!
//! Reading order: `download.rs` (a model's files, and what can go wrong), `client.rs` (requests,
//! redirections and the token), `check.rs` (checksums), `tests.rs` (a server that speaks the hub's
//! paths, right and wrong).

#[cfg(feature = "llm")]
mod check;
#[cfg(feature = "llm")]
mod client;
#[cfg(feature = "llm")]
mod download;
#[cfg(test)]
pub(crate) mod tests;

use shardlab::error::BadInput;
use std::path::PathBuf;
use std::time::Duration;

/// Where a model comes from, as flags.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Downloads")]
pub struct Source {
    /// Address of the hub [default: $HF_ENDPOINT, or huggingface.co]
    #[arg(long, value_name = "URL", hide_short_help = true)]
    pub endpoint: Option<String>,
    /// Use only files of the hub that are already here [also: HF_HUB_OFFLINE=1]
    #[arg(long, hide_short_help = true)]
    pub offline: bool,
    /// Send your token (HF_TOKEN) to the endpoint also if it is not the hub (huggingface.co, by
    /// https)
    #[arg(long, hide_short_help = true)]
    pub send_token: bool,
    /// The folder of all models, if it is not $HF_HUB_CACHE, $HF_HOME/hub or
    /// ~/.cache/huggingface/hub.
    #[arg(skip)]
    pub cache: Option<PathBuf>,
    /// How long a silent server is waited for, if not $HF_HUB_DOWNLOAD_TIMEOUT or 30 seconds.
    #[arg(skip)]
    pub patience: Option<Duration>,
}

/// News of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News<'a> {
    /// Its bytes that are here, and all of its bytes.
    Bytes { name: &'a str, here: u64, size: u64 },
    /// Only its size was compared: the server's checksum has a form that is not known here.
    Unchecked { name: &'a str, etag: &'a str },
}

/// Is told of each file.
pub type Watch<'a> = &'a dyn Fn(News);

/// The folder with the files of a model of the hub: `OWNER/NAME`, or `OWNER/NAME@REVISION` with a
/// branch, a tag or a commit.
pub fn fetch(model: &str, source: &Source, watch: Watch) -> Result<PathBuf, BadInput> {
    let part = |part: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !part.is_empty() && !part.starts_with('.') && part.chars().all(plain)
    };
    let (name, revision) = model.split_once('@').unwrap_or((model, "main"));
    let parts = name.split('/').count();
    if parts > 2 || !name.split('/').chain(revision.split('/')).all(part) || name.contains("--") {
        let help = "give OWNER/NAME or OWNER/NAME@REVISION, such as HuggingFaceTB/SmolLM2-135M";
        return Err(BadInput::new(format!("{model:?} is no name of a model of the hub"), help));
    }
    download(name, revision, source, watch)
}

#[cfg(feature = "llm")]
use download::download;

#[cfg(not(feature = "llm"))]
fn download(name: &str, _: &str, _: &Source, _: Watch) -> Result<PathBuf, BadInput> {
    let what = format!("this build downloads no models, so {name} cannot be had from the hub");
    let help = "cargo run --features llm --bin lab10 builds the download in; or give a folder: --model FOLDER";
    Err(BadInput::new(what, help))
}
