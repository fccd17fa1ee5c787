//! Requests to the hub: who gets the user's token, and where redirections lead.
//!
//! The token opens the user's private models to anyone who has it. So only the hub itself gets it,
//! and only over https: not a mirror, not a server that the hub redirects to, unless the user says
//! so.

use std::io::{self, Read};
use std::path::PathBuf;
use ureq::http::Response;
use ureq::{Agent, Body};

pub(super) const HUB: &str = "https://huggingface.co";

/// Redirections of one request. The hub makes one or two.
const REDIRECTIONS: usize = 10;

pub(super) struct Client {
    agent: Agent,
    endpoint: String,
    /// The token, if the endpoint may have it.
    token: Option<String>,
}

/// How a request failed.
pub(super) enum Failed {
    Status(u16),
    Network(String),
    /// An answer that is no hub's.
    Answer(String),
    /// The file ended early.
    Early(io::Error),
    Disk(PathBuf, io::Error),
    /// A different program has locked the file.
    Busy(PathBuf),
    /// Nobody waits for this request any more.
    GivenUp,
}

/// What the hub says about a file.
#[derive(Debug)]
pub(super) struct About {
    pub etag: String,
    pub commit: String,
    pub size: u64,
}

/// Whether an endpoint gets the token.
pub(super) fn may_have_token(endpoint: &str, send_token: bool) -> bool {
    send_token || origin(endpoint).as_deref() == Some(HUB)
}

impl Client {
    pub fn new(endpoint: String, token: Option<String>, send_token: bool) -> Client {
        let agent = Agent::config_builder()
            .max_redirects(0)
            .http_status_as_error(false)
            .build()
            .into();
        let token = token.filter(|_| may_have_token(&endpoint, send_token));
        Client { agent, endpoint, token }
    }

    /// The hub's answer to a question, below its address.
    pub fn text(&self, path: &str) -> Result<String, Failed> {
        let mut answer = self.get(&format!("{}/{path}", self.endpoint), None, |_, _| ())?;
        answer
            .body_mut()
            .read_to_string()
            .map_err(|error| Failed::Network(error.to_string()))
    }

    /// Asks for a file's first byte: the answers say the rest.
    pub fn about(&self, path: &str) -> Result<About, Failed> {
        let mut etag = None;
        let mut commit = None;
        // The file may lie elsewhere. Only the hub knows its checksum.
        let answer =
            self.get(&format!("{}/{path}", self.endpoint), Some(0..=0), |answer, from_hub| {
                if from_hub && header(answer, "x-repo-commit").is_some() {
                    commit = header(answer, "x-repo-commit");
                    etag = header(answer, "x-linked-etag").or_else(|| header(answer, "etag"));
                }
            })?;
        let lacks = |what: &str| Failed::Answer(format!("the answer has no {what}"));
        let size = match header(&answer, "content-range") {
            Some(range) => range.rsplit('/').next().and_then(|size| size.parse().ok()),
            None => header(&answer, "content-length").and_then(|size| size.parse().ok()),
        };
        Ok(About {
            etag: etag.ok_or_else(|| lacks("checksum"))?.replace('"', ""),
            commit: commit.ok_or_else(|| lacks("commit"))?,
            size: size.ok_or_else(|| lacks("size"))?,
        })
    }

    /// A file's bytes from one on, or from the first if the server cannot continue. Returns where
    /// they begin.
    pub fn bytes(&self, path: &str, from: u64) -> Result<(u64, impl Read + use<>), Failed> {
        let answer =
            self.get(&format!("{}/{path}", self.endpoint), Some(from..=u64::MAX), |_, _| ())?;
        let continues = answer.status() == 206;
        let begins = header(&answer, "content-range")
            .is_none_or(|range| range.starts_with(&format!("bytes {from}-")));
        if continues && !begins {
            return Err(Failed::Answer(format!(
                "asked for the bytes from {from} on, it sends others"
            )));
        }
        Ok((if continues { from } else { 0 }, answer.into_body().into_reader()))
    }

    /// Makes a request and follows redirections. `look` sees every answer, and whether it is the
    /// hub's.
    fn get(
        &self,
        url: &str,
        range: Option<std::ops::RangeInclusive<u64>>,
        mut look: impl FnMut(&Response<Body>, bool),
    ) -> Result<Response<Body>, Failed> {
        let mut url = url.to_string();
        let own = origin(&self.endpoint);
        for _ in 0..=REDIRECTIONS {
            // Compressed, a file would have a different size.
            let mut request = self.agent.get(&url).header("Accept-Encoding", "identity");
            if let Some(range) = &range {
                let end = if *range.end() == u64::MAX {
                    String::new()
                } else {
                    range.end().to_string()
                };
                request = request.header("Range", format!("bytes={}-{end}", range.start()));
            }
            let from_hub = own.is_some() && origin(&url) == own;
            if let Some(token) = self.token.as_ref().filter(|_| from_hub) {
                request = request.header("Authorization", format!("Bearer {token}"));
            }
            let answer = request.call().map_err(|error| Failed::Network(error.to_string()))?;
            let status = answer.status();
            if status.is_client_error() || status.is_server_error() {
                return Err(Failed::Status(status.as_u16()));
            }
            look(&answer, from_hub);
            if !status.is_redirection() {
                return Ok(answer);
            }
            let to = header(&answer, "location").and_then(|to| joined(&url, &to));
            url = to.ok_or_else(|| Failed::Answer("a redirection leads nowhere".to_string()))?;
        }
        Err(Failed::Answer(format!("more than {REDIRECTIONS} redirections")))
    }
}

fn header(answer: &Response<Body>, name: &str) -> Option<String> {
    Some(answer.headers().get(name)?.to_str().ok()?.to_string())
}

/// Protocol, host and port of an address, in lower case.
fn origin(url: &str) -> Option<String> {
    let (protocol, rest) = url.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next()?;
    Some(format!("{protocol}://{host}").to_lowercase())
}

/// The address to which `url` redirects.
fn joined(url: &str, to: &str) -> Option<String> {
    match to {
        to if to.starts_with("https://") || to.starts_with("http://") => Some(to.to_string()),
        to if to.starts_with('/') && !to.starts_with("//") => Some(origin(url)? + to),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hub_gets_the_token_and_only_over_https() {
        for endpoint in [HUB, "https://huggingface.co/", "https://HuggingFace.co"] {
            assert!(may_have_token(endpoint, false), "{endpoint}");
        }
        for endpoint in [
            "http://huggingface.co",
            "https://huggingface.co.evil.example",
            "https://huggingface.co@evil.example",
            "https://huggingface.co:8443",
            "https://evil.example/https://huggingface.co",
            "https://evil.example\\@huggingface.co",
            "https://huggingface.co\\.evil.example",
            "huggingface.co",
            "",
        ] {
            assert!(
                !may_have_token(endpoint, false) && may_have_token(endpoint, true),
                "{endpoint}"
            );
        }
    }

    #[test]
    fn redirections_stay_addresses() {
        let joined = |to| joined("https://a.example/b/c?d=https://x.example/", to);
        assert_eq!(joined("/e?f").as_deref(), Some("https://a.example/e?f"));
        assert_eq!(joined("http://c.example/e").as_deref(), Some("http://c.example/e"));
        for nowhere in ["", "e", "//c.example/e", "file:///etc/passwd"] {
            assert_eq!(joined(nowhere), None);
        }
    }
}
