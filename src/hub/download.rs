//! Downloads, by the crate hf-hub. It continues what was interrupted, and leaves checksums and deadlines to its caller.

use super::check::{self, Sum};
use super::{Source, Watch};
use crate::error::BadInput;
use hf_hub::api::Progress;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, CacheRepo, Repo, RepoType};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// One model, at one revision.
struct Hub<'a> {
    endpoint: String,
    /// The model and its revision, for errors.
    asked: String,
    folder: PathBuf,
    cache: CacheRepo,
    api: Api,
    repo: Repo,
    patience: Duration,
    watch: Watch<'a>,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The folder of all models.
fn folder(source: &Source) -> Result<PathBuf, BadInput> {
    let variables = || {
        let home = || variable("HF_HOME").map(|home| Path::new(&home).join("hub"));
        let user = || std::env::home_dir().map(|home| home.join(".cache/huggingface/hub"));
        variable("HF_HUB_CACHE").map(PathBuf::from).or_else(home).or_else(user)
    };
    let folder = source.cache.clone().or_else(variables).and_then(|folder| std::path::absolute(folder).ok());
    folder.ok_or_else(|| BadInput::new("there is no home folder for downloads", "set HF_HOME to a folder"))
}

pub fn download(model: &str, revision: &str, source: &Source, watch: Watch) -> Result<PathBuf, BadInput> {
    let folder = folder(source)?;
    let cache = Cache::new(folder.clone());
    let endpoint = source.endpoint.clone().or_else(|| variable("HF_ENDPOINT"));
    let endpoint = endpoint.as_deref().unwrap_or("https://huggingface.co").trim_end_matches('/').to_string();
    let seconds = variable("HF_HUB_DOWNLOAD_TIMEOUT").and_then(|seconds| seconds.parse().ok());
    let patience = source.patience.unwrap_or(Duration::from_secs(seconds.unwrap_or(30)));
    let repo = Repo::with_revision(model.to_string(), RepoType::Model, revision.to_string());
    let token = variable("HF_TOKEN").or_else(|| cache.token());
    let api = ApiBuilder::from_cache(cache.clone()).with_endpoint(endpoint.clone()).with_token(token).build();
    let api = api.map_err(|error| BadInput::new(format!("cannot prepare downloads: {error}"), "try --offline"))?;
    let (cache, asked) = (cache.repo(repo.clone()), format!("{model} ({revision})"));
    let hub = Hub { endpoint, asked, folder, cache, api, repo, patience, watch };
    if let Some(folder) = hub.complete() {
        return Ok(folder);
    }
    if source.offline || variable("HF_HUB_OFFLINE").is_some_and(|value| value != "0") {
        let what = format!("{} is not complete in {}, and downloads are switched off", hub.asked, hub.folder.display());
        return Err(BadInput::new(what, "run once without --offline and HF_HUB_OFFLINE, or set a different HF_HOME"));
    }
    let _one_at_a_time = hub.lock()?;
    if let Some(folder) = hub.complete() {
        return Ok(folder);
    }
    hub.files()?.iter().try_for_each(|name| hub.file(name))?;
    hub.complete().ok_or_else(|| hub.wrong("its revision has changed during the download"))
}

/// Files that a model may lack.
const OPTIONAL: [&str; 2] = ["generation_config.json", "tokenizer_config.json"];
const INDEX: &str = "model.safetensors.index.json";

/// The files of weights that an index names.
fn named(index: &Path) -> Option<BTreeSet<String>> {
    let index: serde_json::Value = serde_json::from_slice(&std::fs::read(index).ok()?).ok()?;
    let names = index.get("weight_map")?.as_object()?.values();
    names.map(|name| name.as_str().filter(|name| plain(name)).map(str::to_string)).collect()
}

/// Whether a file is in the model's own folder.
fn plain(name: &str) -> bool {
    !name.contains(['/', '\\', ':', '\0']) && !name.starts_with('.')
}

/// A request's reports: bytes of a file, and its end.
enum News<T> {
    Bytes(u64),
    Ended(Result<T, ApiError>),
}

impl Hub<'_> {
    /// The folder of the model's files, if all of them are here.
    fn complete(&self) -> Option<PathBuf> {
        let config = self.cache.get("config.json")?;
        self.cache.get("tokenizer.json")?;
        let weights = match self.cache.get(INDEX) {
            Some(index) => named(&index)?,
            None => BTreeSet::from(["model.safetensors".to_string()]),
        };
        weights.iter().all(|name| self.cache.get(name).is_some()).then(|| config.parent().map(Path::to_path_buf))?
    }

    /// Waits while a different process of a job downloads the same model. It ends with that process.
    fn lock(&self) -> Result<File, BadInput> {
        let path = self.folder.join(".locks").join(format!("{}.lock", self.repo.folder_name()));
        let open = || {
            std::fs::create_dir_all(path.parent().unwrap_or(&self.folder))?;
            let file = File::create(&path)?;
            // Some network file systems have no locks. hf-hub then refuses two downloads at the same time.
            file.lock().ok();
            Ok(file)
        };
        open().map_err(|error| self.disk(&path, &error))
    }

    /// The names of the files to download, the large ones last.
    fn files(&self) -> Result<Vec<String>, BadInput> {
        let info = self.request("its list of files", 0, |repo, _| repo.info())?;
        let there = |name: &str| info.siblings.iter().any(|file| file.rfilename == name);
        let mut names = vec!["config.json".to_string(), "tokenizer.json".to_string()];
        names.extend(OPTIONAL.into_iter().filter(|name| there(name)).map(str::to_string));
        if there(INDEX) {
            self.file(INDEX)?;
            let index = self.cache.get(INDEX).and_then(|index| named(&index));
            names.extend(index.ok_or_else(|| self.wrong(&format!("its {INDEX} names no files")))?);
        } else {
            names.push("model.safetensors".to_string());
        }
        let Some(name) = names.iter().find(|name| !there(name)) else { return Ok(names) };
        let what = format!("{} on {} has no {name}", self.asked, self.endpoint);
        Err(BadInput::new(what, "give a model with config.json, tokenizer.json and weights as safetensors"))
    }

    /// Downloads a file, unless it is here, and compares it with its checksum.
    fn file(&self, name: &str) -> Result<(), BadInput> {
        if self.cache.get(name).is_some() {
            return Ok(());
        }
        let (file, api) = (name.to_string(), self.api.clone());
        let about = self.request(name, 0, move |repo, _| api.metadata(&repo.url(&file)))?;
        let (etag, commit, size) = (about.etag(), about.commit_hash(), about.size() as u64);
        if !plain(etag) || !plain(commit) {
            return Err(self.wrong(&format!("{name} has the checksum {etag:?}, and the commit {commit:?}")));
        }
        let blob = self.cache.blob_path(etag);
        make_resumable(&blob, size).map_err(|error| self.disk(&blob, &error))?;
        let file = name.to_string();
        let path = self.request(name, size, move |repo, news| {
            repo.download_with_progress(&file, Told { here: 0, news: news.clone() })
        })?;
        let wrong = check::difference(&blob, size, Sum::of(etag)).map_err(|error| self.disk(&blob, &error))?;
        let Some(wrong) = wrong else { return Ok(()) };
        // Neither the bytes nor the link to them stay: the next download starts from the first byte.
        for path in [&path, &blob] {
            std::fs::remove_file(path).map_err(|error| self.disk(path, &error))?;
        }
        Err(self.wrong(&format!("{name} is damaged: {wrong}")))
    }

    /// Makes a request with hf-hub, which waits for a silent server without end. So a thread makes it. Without news for
    /// too long, this returns and the thread stays behind, and ends when it next has news.
    fn request<T: Send + 'static>(
        &self,
        name: &str,
        size: u64,
        make: impl FnOnce(&ApiRepo, &Sender<News<T>>) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, BadInput> {
        let (sender, news) = mpsc::channel();
        let repo = self.api.repo(self.repo.clone());
        std::thread::spawn(move || sender.send(News::Ended(make(&repo, &sender))).ok());
        let mut next = 0;
        loop {
            match news.recv_timeout(self.patience) {
                Ok(News::Bytes(here)) if here > size => {
                    return Err(self.wrong(&format!("{name} does not end after its {size} bytes")));
                }
                Ok(News::Bytes(here)) if here >= next || here == size => {
                    next = here + size / 100;
                    (self.watch)(name, here, size);
                }
                Ok(News::Bytes(_)) => (),
                Ok(News::Ended(result)) => return result.map_err(|error| self.failed(name, error)),
                Err(RecvTimeoutError::Timeout) => {
                    let what = format!("{}: {name} from {}", self.asked, self.endpoint);
                    let what = format!("{what}: nothing has come for {:?}", self.patience);
                    return Err(BadInput::new(
                        what,
                        format!("{NETWORK}; HF_HUB_DOWNLOAD_TIMEOUT=60 waits for 60 seconds"),
                    ));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.wrong(&format!("hf-hub could not read the answer about {name}")));
                }
            }
        }
    }

    fn wrong(&self, how: &str) -> BadInput {
        let what = format!("{} from {}: {how}", self.asked, self.endpoint);
        BadInput::new(what, "run again; if it stays so, give a different --endpoint or revision")
    }

    fn disk(&self, path: &Path, error: &io::Error) -> BadInput {
        let help =
            "make room on the disk, or set HF_HOME to a folder on a different one; a download continues where it ended";
        BadInput::new(format!("cannot write {}: {error}", path.display()), help)
    }

    /// An error of hf-hub, in words: what was asked for, what happened, what to do.
    fn failed(&self, file: &str, error: ApiError) -> BadInput {
        let asked = format!("{}: {file} from {}", self.asked, self.endpoint);
        let bad = |what: String, help: &str| BadInput::new(format!("{asked}: {what}"), help);
        match error {
            ApiError::IoError(error) if is_of_disk(error.kind()) => self.disk(&self.folder, &error),
            ApiError::IoError(error) => bad(format!("the download ended early: {error}"), AGAIN),
            ApiError::LockAcquisition(path) => {
                let path = path.display();
                bad(format!("a different program is downloading it ({path} is locked)"), "wait until it has ended")
            }
            ApiError::RequestError(error) => match *error {
                ureq::Error::StatusCode(code @ (401 | 403)) => {
                    let help =
                        "accept the model's terms on its page and put a token in HF_TOKEN; or check the model's name";
                    bad(format!("access is denied (HTTP {code})"), help)
                }
                ureq::Error::StatusCode(404) => {
                    bad("not found (HTTP 404)".to_string(), "check the model's name and revision")
                }
                ureq::Error::StatusCode(code) => bad(format!("the hub answers HTTP {code}"), AGAIN),
                error => bad(error.to_string(), NETWORK),
            },
            error => bad(error.to_string(), AGAIN),
        }
    }
}

const AGAIN: &str = "run again later: a download continues where it ended";
const NETWORK: &str = "check the network and --endpoint; without a network, give --offline or the folder of a model";

/// hf-hub asks for the bytes that a part of a file lacks. It fails if none are lacking, or if there are too many.
fn make_resumable(blob: &Path, size: u64) -> io::Result<()> {
    let part = blob.with_extension("part");
    let Some(here) = part.metadata().ok().map(|metadata| metadata.len()).filter(|here| *here >= size) else {
        return Ok(());
    };
    let keep = if here == size { size.saturating_sub(1) } else { 0 };
    File::options().write(true).open(part)?.set_len(keep)
}

fn is_of_disk(kind: ErrorKind) -> bool {
    use ErrorKind::*;
    matches!(
        kind,
        StorageFull
            | QuotaExceeded
            | FileTooLarge
            | PermissionDenied
            | ReadOnlyFilesystem
            | NotADirectory
            | AlreadyExists
            | IsADirectory
            | NotFound
    )
}

/// Reports the bytes that have come.
struct Told<T> {
    here: u64,
    news: Sender<News<T>>,
}

impl<T: Send + 'static> Progress for Told<T> {
    fn init(&mut self, _: usize, _: &str) {
        self.here = 0;
    }

    fn update(&mut self, bytes: usize) {
        self.here += bytes as u64;
        if self.news.send(News::Bytes(self.here)).is_err() {
            // The request was given up. hf-hub has no other way to end a download.
            std::panic::resume_unwind(Box::new("given up"));
        }
    }

    fn finish(&mut self) {}
}
