//! Downloads: a model's files, in the layout that all programs of the hub share. An interrupted
//! download continues.
//!
//! ```text
//! models--OWNER--NAME/refs/main            the commit
//! models--OWNER--NAME/snapshots/COMMIT/…   the files' names, as links to
//! models--OWNER--NAME/blobs/…              their bytes, by checksum; `….part`: so far
//! ```
//!
//! Checksum and commit become names of files. They are the server's words, so they are looked at
//! once, and what was looked at is used. The crate hf-hub knows the layout. Its own downloads ask
//! about a file a second time and use that answer as it comes, so a hostile server could name a
//! path outside of the folder (0.5.0).

use super::check::{self, Sum};
use super::client::{About, Client, Failed, HUB};
use super::{News, Source, Watch};
use hf_hub::{Cache, CacheRepo, Repo, RepoType};
use shardlab::error::BadInput;
use shardlab::files;
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// One model, at one revision.
struct Hub<'a> {
    endpoint: String,
    model: String,
    revision: String,
    /// The model and its revision, for errors.
    asked: String,
    /// The folder of all models, and what lies there of this one.
    folder: PathBuf,
    repo: Repo,
    cache: CacheRepo,
    client: Arc<Client>,
    /// What to say where access is denied.
    help: String,
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
    let folder = source
        .cache
        .clone()
        .or_else(variables)
        .and_then(|folder| std::path::absolute(folder).ok());
    folder.ok_or_else(|| {
        BadInput::new("there is no home folder for downloads", "set HF_HOME to a folder")
    })
}

/// The user's token: from the environment, or from the file that the hub's own program writes.
fn token(folder: &Path) -> Option<String> {
    let file = || files::text(&folder.parent()?.join("token"), 1 << 16).ok();
    let token = variable("HF_TOKEN").or_else(file)?.trim().to_string();
    (!token.is_empty()).then_some(token)
}

pub fn download(
    model: &str,
    revision: &str,
    source: &Source,
    watch: Watch,
) -> Result<PathBuf, BadInput> {
    let folder = folder(source)?;
    let endpoint = source.endpoint.clone().or_else(|| variable("HF_ENDPOINT"));
    let endpoint = endpoint.as_deref().unwrap_or(HUB).trim_end_matches('/').to_string();
    let seconds = variable("HF_HUB_DOWNLOAD_TIMEOUT").and_then(|seconds| seconds.parse().ok());
    let patience = source.patience.unwrap_or(Duration::from_secs(seconds.unwrap_or(30)));
    let token = token(&folder);
    let kept = token.is_some() && !super::client::may_have_token(&endpoint, source.send_token);
    let help = if kept {
        format!(
            "your token was not sent, because {endpoint} is not {HUB}: --send-token sends it there"
        )
    } else {
        "accept the model's terms on its page and put a token in HF_TOKEN; or check the model's name".to_string()
    };
    let client = Arc::new(Client::new(endpoint.clone(), token, source.send_token));
    let model = model.to_string();
    let revision = revision.to_string();
    let asked = format!("{model} ({revision})");
    let repo = Repo::with_revision(model.clone(), RepoType::Model, revision.clone());
    let cache = Cache::new(folder.clone()).repo(repo.clone());
    let hub = Hub {
        endpoint,
        model,
        revision,
        asked,
        folder,
        repo,
        cache,
        client,
        help,
        patience,
        watch,
    };
    if let Some(folder) = hub.complete() {
        return Ok(folder);
    }
    if source.offline || variable("HF_HUB_OFFLINE").is_some_and(|value| value != "0") {
        let what = format!(
            "{} is not complete in {}, and downloads are switched off",
            hub.asked,
            hub.folder.display()
        );
        return Err(BadInput::new(
            what,
            "run once without --offline and HF_HUB_OFFLINE, or set a different HF_HOME",
        ));
    }
    let _one_at_a_time = hub.lock()?;
    if let Some(folder) = hub.complete() {
        return Ok(folder);
    }
    hub.files()?.iter().try_for_each(|name| hub.file(name))?;
    hub.complete()
        .ok_or_else(|| hub.wrong("its revision has changed during the download"))
}

/// Files that a model may lack.
const OPTIONAL: [&str; 2] = ["generation_config.json", "tokenizer_config.json"];
const INDEX: &str = "model.safetensors.index.json";

/// The files of weights that an index names.
fn named(index: &Path) -> Option<BTreeSet<String>> {
    let index: serde_json::Value =
        serde_json::from_slice(&files::read(index, files::LIST).ok()?).ok()?;
    let names = index.get("weight_map")?.as_object()?.values();
    names
        .map(|name| name.as_str().filter(|name| plain(name)).map(str::to_string))
        .collect()
}

/// Whether a text is the name of a file, in a folder that is chosen here.
fn plain(name: &str) -> bool {
    let allowed = |c: char| !c.is_control() && !['/', '\\', ':'].contains(&c);
    (1..=200).contains(&name.len()) && !name.starts_with('.') && name.chars().all(allowed)
}

/// A request's reports: bytes of a file, and its end.
enum Step<T> {
    Bytes(u64),
    Ended(Result<T, Failed>),
}

impl Hub<'_> {
    /// The folder of this model.
    fn own(&self) -> PathBuf {
        self.folder.join(self.repo.folder_name())
    }

    fn reference(&self) -> PathBuf {
        self.own().join("refs").join(&self.revision)
    }

    /// The name of a file that is here.
    fn here(&self, name: &str) -> Option<PathBuf> {
        let commit = files::text(&self.reference(), 1000).ok()?;
        let commit = Some(commit.trim()).filter(|commit| plain(commit))?;
        let path = self.cache.pointer_path(commit).join(name);
        path.exists().then_some(path)
    }

    /// The folder of the model's files, if all of them are here.
    fn complete(&self) -> Option<PathBuf> {
        let config = self.here("config.json")?;
        self.here("tokenizer.json")?;
        let weights = match self.here(INDEX) {
            Some(index) => named(&index)?,
            None => BTreeSet::from(["model.safetensors".to_string()]),
        };
        weights
            .iter()
            .all(|name| self.here(name).is_some())
            .then(|| config.parent().map(Path::to_path_buf))?
    }

    /// Waits while a different process of a job downloads the same model. It ends with that
    /// process.
    fn lock(&self) -> Result<File, BadInput> {
        let name = format!("{}.lock", self.repo.folder_name());
        let path = self.folder.join(".locks").join(name);
        let open = || {
            std::fs::create_dir_all(path.parent().unwrap_or(&self.folder))?;
            let file = File::create(&path)?;
            // Some network file systems have no locks.
            file.lock().ok();
            Ok(file)
        };
        open().map_err(|error| self.disk(&path, &error))
    }

    /// The names of the files to download, the large ones last.
    fn files(&self) -> Result<Vec<String>, BadInput> {
        let path =
            format!("api/models/{}/revision/{}", self.model, self.revision.replace('/', "%2F"));
        let info = self.request("its list of files", 0, move |client, _| {
            let info: Result<serde_json::Value, _> = serde_json::from_str(&client.text(&path)?);
            info.map_err(|error| Failed::Answer(format!("its list of files is none: {error}")))
        })?;
        let siblings = info
            .get("siblings")
            .and_then(|files| files.as_array())
            .map_or(&[][..], Vec::as_slice);
        let there = |name: &str| {
            siblings
                .iter()
                .any(|file| file.get("rfilename").is_some_and(|file| file == name))
        };
        let mut names = vec!["config.json".to_string(), "tokenizer.json".to_string()];
        names.extend(OPTIONAL.into_iter().filter(|name| there(name)).map(str::to_string));
        if there(INDEX) {
            self.file(INDEX)?;
            let index = self.here(INDEX).and_then(|index| named(&index));
            names.extend(index.ok_or_else(|| self.wrong(&format!("its {INDEX} names no files")))?);
        } else {
            names.push("model.safetensors".to_string());
        }
        let Some(name) = names.iter().find(|name| !there(name)) else {
            return Ok(names);
        };
        let what = format!("{} on {} has no {name}", self.asked, self.endpoint);
        Err(BadInput::new(
            what,
            "give a model with config.json, tokenizer.json and weights as safetensors",
        ))
    }

    /// Downloads a file, unless it is here, compares it with its checksum, and makes it visible.
    fn file(&self, name: &str) -> Result<(), BadInput> {
        if self.here(name).is_some() {
            return Ok(());
        }
        let address =
            format!("{}/resolve/{}/{name}", self.model, self.revision.replace('/', "%2F"));
        let path = address.clone();
        let About { etag, commit, size } =
            self.request(name, 0, move |client, _| client.about(&path))?;
        if !plain(&etag) || !plain(&commit) {
            return Err(
                self.wrong(&format!("{name} has the checksum {etag:?}, and the commit {commit:?}"))
            );
        }
        let blob = self.own().join("blobs").join(&etag);
        let sum = Sum::of(&etag);
        // A different revision may have the same file.
        if !check::difference(&blob, size, sum).is_ok_and(|difference| difference.is_none()) {
            let part = self.own().join("blobs").join(format!("{etag}.part"));
            let to = part.clone();
            let lock = self.own().join("blobs").join(format!("{etag}.lock"));
            let _locked = self.request(name, size, move |client, news| {
                let locked = lock_for_others(&lock)?;
                fetch(client, &address, &to, size, news)?;
                Ok(locked)
            })?;
            let wrong =
                check::difference(&part, size, sum).map_err(|error| self.disk(&part, &error))?;
            if let Some(wrong) = wrong {
                // The next download starts from the first byte.
                std::fs::remove_file(&part).map_err(|error| self.disk(&part, &error))?;
                return Err(self.wrong(&format!("{name} is damaged: {wrong}")));
            }
            std::fs::rename(&part, &blob).map_err(|error| self.disk(&blob, &error))?;
        }
        if sum == Sum::Unknown {
            (self.watch)(News::Unchecked { name, etag: &etag });
        }
        let link = self.cache.pointer_path(&commit).join(name);
        self.publish(&etag, &link, &commit).map_err(|error| self.disk(&link, &error))
    }

    /// Gives a blob its name in the commit's folder, and the revision its commit.
    fn publish(&self, etag: &str, link: &Path, commit: &str) -> io::Result<()> {
        std::fs::create_dir_all(link.parent().unwrap_or(link))?;
        if !link.exists() {
            std::fs::remove_file(link).ok();
            #[cfg(unix)]
            std::os::unix::fs::symlink(Path::new("../../blobs").join(etag), link)?;
            #[cfg(not(unix))]
            std::fs::hard_link(self.own().join("blobs").join(etag), link)?;
        }
        self.cache.create_ref(commit)
    }

    /// Makes a request, which may wait for a silent server without end. So a thread makes it.
    /// Without news for too long, this returns and the thread stays behind, and ends when it next
    /// has news.
    fn request<T: Send + 'static>(
        &self,
        name: &str,
        size: u64,
        make: impl FnOnce(&Client, &Sender<Step<T>>) -> Result<T, Failed> + Send + 'static,
    ) -> Result<T, BadInput> {
        let (sender, news) = mpsc::channel();
        let client = self.client.clone();
        std::thread::spawn(move || sender.send(Step::Ended(make(&client, &sender))).ok());
        let mut next = 0;
        loop {
            match news.recv_timeout(self.patience) {
                Ok(Step::Bytes(here)) if here >= next || here == size => {
                    next = here + size / 100;
                    (self.watch)(News::Bytes { name, here, size });
                }
                Ok(Step::Bytes(_)) => (),
                Ok(Step::Ended(result)) => return result.map_err(|error| self.failed(name, error)),
                Err(RecvTimeoutError::Timeout) => {
                    let what = format!("{}: {name} from {}", self.asked, self.endpoint);
                    let what = format!("{what}: nothing has come for {:?}", self.patience);
                    return Err(BadInput::new(
                        what,
                        format!("{NETWORK}; HF_HUB_DOWNLOAD_TIMEOUT=60 waits for 60 seconds"),
                    ));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.wrong(&format!("the answer about {name} could not be read")));
                }
            }
        }
    }

    fn wrong(&self, how: &str) -> BadInput {
        let what = format!("{} from {}: {how}", self.asked, self.endpoint);
        BadInput::new(what, "run again; if it stays so, give a different --endpoint or revision")
    }

    fn disk(&self, path: &Path, error: &io::Error) -> BadInput {
        let help = "make room on the disk, or set HF_HOME to a folder on a different one; a download continues where it ended";
        BadInput::new(format!("cannot write {}: {error}", path.display()), help)
    }

    /// A failure in words: what was asked for, what happened, what to do.
    fn failed(&self, file: &str, failed: Failed) -> BadInput {
        let asked = format!("{}: {file} from {}", self.asked, self.endpoint);
        let bad = |what: String, help: &str| BadInput::new(format!("{asked}: {what}"), help);
        match failed {
            Failed::Disk(path, error) => self.disk(&path, &error),
            Failed::Early(error) => bad(format!("the download ended early: {error}"), AGAIN),
            Failed::Busy(path) => {
                let path = path.display();
                bad(
                    format!("a different program is downloading it ({path} is locked)"),
                    "wait until it has ended",
                )
            }
            Failed::Status(code @ (401 | 403)) => {
                bad(format!("access is denied (HTTP {code})"), &self.help)
            }
            Failed::Status(404) => {
                bad("not found (HTTP 404)".to_string(), "check the model's name and revision")
            }
            Failed::Status(code) => bad(format!("the hub answers HTTP {code}"), AGAIN),
            Failed::Network(error) => bad(error, NETWORK),
            Failed::Answer(what) => self.wrong(&format!("{file}: {what}")),
            Failed::GivenUp => bad("the download was given up".to_string(), AGAIN),
        }
    }
}

const AGAIN: &str = "run again later: a download continues where it ended";
const NETWORK: &str =
    "check the network and --endpoint; without a network, give --offline or the folder of a model";

/// Keeps other programs from downloading the same bytes at the same time. Those that use the crate
/// hf-hub lock this file, too.
fn lock_for_others(path: &Path) -> Result<File, Failed> {
    let create = || {
        std::fs::create_dir_all(path.parent().unwrap_or(path))?;
        File::create(path)
    };
    let file = create().map_err(|error| Failed::Disk(path.to_path_buf(), error))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(Failed::Busy(path.to_path_buf())),
        // Some network file systems have no locks.
        _ => Ok(file),
    }
}

/// Downloads what `part` lacks of a file's bytes.
fn fetch<T>(
    client: &Client,
    address: &str,
    part: &Path,
    size: u64,
    news: &Sender<Step<T>>,
) -> Result<(), Failed> {
    let disk = |error| Failed::Disk(part.to_path_buf(), error);
    let mut file = File::options().create(true).append(true).open(part).map_err(disk)?;
    let mut here = file.metadata().map_err(disk)?.len();
    if here == size {
        return Ok(());
    }
    let (from, mut bytes) = client.bytes(address, if here > size { 0 } else { here })?;
    if from != here {
        file.set_len(from).map_err(disk)?;
        here = from;
    }
    let mut buffer = vec![0; 1 << 14];
    loop {
        let count = bytes.read(&mut buffer).map_err(Failed::Early)?;
        here += count as u64;
        if here > size {
            return Err(Failed::Answer(format!("it does not end after its {size} bytes")));
        }
        if count == 0 && here < size {
            let what = format!("{here} of {size} bytes have come");
            return Err(Failed::Early(io::Error::new(io::ErrorKind::UnexpectedEof, what)));
        }
        if count == 0 {
            return file.sync_all().map_err(disk);
        }
        file.write_all(&buffer[..count]).map_err(disk)?;
        news.send(Step::Bytes(here)).map_err(|_| Failed::GivenUp)?;
    }
}
