//! Pretrained models from the hub: a model's name becomes a local folder with its files.
//!
//! The crate hf-hub downloads them, to the folder that other programs of the hub use too. It reads
//! `HF_HOME` and `HF_ENDPOINT`. An interrupted download continues where it ended.

use super::pretrained::{INDEX, ONE, weight_files};
use hf_hub::api::sync::{ApiBuilder, ApiError};
use hf_hub::{Cache, CacheRepo};
use kit::show::complain;
use shardlab::error::BadInput;
use std::env;
use std::path::PathBuf;

/// What the hub's own programs read, and hf-hub does not.
const IGNORED: [&str; 2] = ["HF_HUB_CACHE", "HF_HUB_OFFLINE"];

/// The folder with the files of a model of the hub, `OWNER/NAME`.
pub fn fetch(model: &str) -> Result<PathBuf, BadInput> {
    if env::var_os("HF_HOME").is_none() && env::home_dir().is_none() {
        let what = "there is no home folder for models of the hub";
        return Err(BadInput::new(what, "set HF_HOME to a folder"));
    }
    let mut hub = ApiBuilder::from_env();
    if let Ok(token) = env::var("HF_TOKEN") {
        hub = hub.with_token(Some(token));
    }
    fetch_with(model, &Cache::from_env(), hub)
}

/// Looks in the folder of all models first: a model that is complete there needs no hub.
fn fetch_with(model: &str, cache: &Cache, hub: ApiBuilder) -> Result<PathBuf, BadInput> {
    let here = cache.model(model.to_string());
    if let Some(folder) = complete(&here) {
        return Ok(folder);
    }
    for variable in IGNORED.into_iter().filter(|name| env::var_os(name).is_some()) {
        let what =
            "a model is looked for in HF_HOME/hub, and downloaded if it is not complete there";
        complain(&format!("note: {variable} is not read here: {what}"));
    }
    complain(&format!("downloading {model} to {}", cache.path().display()));
    download(model, hub)?;
    complete(&here).ok_or_else(|| {
        let what = format!("{model} is here in parts of more than one commit: it has changed on the hub since its first file came");
        BadInput::new(what, "run again; if that does not help, remove the model's folder below HF_HOME")
    })
}

/// The folder of a model's files, if all of them are here.
fn complete(here: &CacheRepo) -> Option<PathBuf> {
    let folder = here.get("config.json")?.parent()?.to_path_buf();
    here.get("tokenizer.json")?;
    let weights = weight_files(&folder).ok()?;
    weights.iter().all(|name| folder.join(name).exists()).then_some(folder)
}

fn download(model: &str, hub: ApiBuilder) -> Result<(), BadInput> {
    let failed = |error: ApiError| {
        let help = match &error {
            ApiError::LockAcquisition(_) => {
                "a different process downloads it: run again when that has ended"
            }
            ApiError::InvalidResume => "remove that model's folder, and run again",
            ApiError::IoError(_) => {
                "run again, and it continues; HF_HOME names a folder with more room, if the disk is full"
            }
            _ => {
                "is the name right, and the network there? HF_ENDPOINT names a different hub; a private model, or one \
                 with terms to accept, needs your token in HF_TOKEN"
            }
        };
        BadInput::new(format!("cannot download {model} from the hub: {error}"), help)
    };
    let hub = hub.build().map_err(failed)?.model(model.to_string());
    let there = hub.info().map_err(failed)?.siblings;
    let has = |name: &str| there.iter().any(|file| file.rfilename == name);
    let get = |name: &str| {
        if has(name) {
            return hub.get(name).map_err(failed);
        }
        let help = "choose a model with config.json, tokenizer.json and weights as safetensors";
        Err(BadInput::new(format!("{model} has no {name} on the hub"), help))
    };
    if has("generation_config.json") {
        get("generation_config.json")?;
    }
    get("tokenizer.json")?;
    let mut folder = get("config.json")?;
    folder.pop();
    get(if has(INDEX) { INDEX } else { ONE })?;
    for name in weight_files(&folder)? {
        get(&name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::path::Path;

    /// Answers one request as the hub does: a list of all files of `folder`, or a part of one.
    fn answer(mut stream: TcpStream, folder: &Path) {
        let mut request = String::new();
        while !request.contains("\r\n\r\n") {
            let mut bytes = [0; 1024];
            let count = stream.read(&mut bytes).unwrap();
            request += std::str::from_utf8(&bytes[..count]).unwrap();
        }
        let path = request.split(' ').nth(1).unwrap();
        let range = request.to_lowercase();
        let range = range.split("range: bytes=").nth(1).and_then(|text| text.lines().next());
        let (status, headers, body) = if path == "/api/models/some/model/revision/main" {
            let names = std::fs::read_dir(folder).unwrap().map(|file| {
                serde_json::json!({ "rfilename": file.unwrap().file_name().to_str().unwrap() })
            });
            let list = serde_json::json!({ "sha": "c0", "siblings": names.collect::<Vec<_>>() });
            ("200 OK", String::new(), list.to_string().into_bytes())
        } else if let Some(name) = path.strip_prefix("/some/model/resolve/main/") {
            let all = std::fs::read(folder.join(name)).unwrap();
            let (from, to) = range.and_then(|range| range.split_once('-')).expect("a range");
            let from: usize = from.parse().unwrap();
            let to = to.parse().unwrap_or(all.len() - 1);
            let headers = format!(
                "Content-Range: bytes {from}-{to}/{}\r\nETag: \"{}\"\r\nX-Repo-Commit: c0\r\n",
                all.len(),
                name.replace('.', "-")
            );
            ("206 Partial Content", headers, all[from..=to].to_vec())
        } else {
            ("404 Not Found", String::new(), Vec::new())
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
    }

    /// The address of a hub with the model some/model, whose files are those of a folder.
    fn serve(folder: &Path) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let folder = folder.to_path_buf();
        std::thread::spawn(move || {
            listener.incoming().for_each(|stream| answer(stream.unwrap(), &folder))
        });
        address
    }

    /// An address where nothing listens.
    fn nobody() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    }

    fn fetched(name: &str, cache: &Path, endpoint: &str) -> Result<PathBuf, String> {
        let cache = Cache::new(cache.to_path_buf());
        let hub = ApiBuilder::from_cache(cache.clone())
            .with_endpoint(endpoint.to_string())
            .with_progress(false);
        fetch_with(name, &cache, hub).map_err(|error| error.to_string())
    }

    #[test]
    fn a_model_is_downloaded_once() {
        let there = tempfile::tempdir().unwrap();
        let all = ["config.json", "tokenizer.json", "generation_config.json", ONE];
        for name in all {
            std::fs::write(there.path().join(name), name.repeat(9000)).unwrap();
        }
        let cache = tempfile::tempdir().unwrap();
        let folder = fetched("some/model", cache.path(), &serve(there.path())).unwrap();
        for name in all {
            let here = std::fs::read_to_string(folder.join(name)).unwrap();
            assert_eq!(here, name.repeat(9000), "{name}");
        }
        assert_eq!(fetched("some/model", cache.path(), &nobody()).unwrap(), folder);

        // A file that is missing here is downloaded, and the others stay.
        std::fs::remove_file(folder.join("tokenizer.json")).unwrap();
        assert!(fetched("some/model", cache.path(), &nobody()).is_err());
        std::fs::write(there.path().join("config.json"), "a new one").unwrap();
        assert_eq!(fetched("some/model", cache.path(), &serve(there.path())).unwrap(), folder);
        let kept = std::fs::read_to_string(folder.join("config.json")).unwrap();
        assert_eq!(kept, "config.json".repeat(9000));
    }

    /// The index is the hub's words: the files that it names stay in the model's folder.
    #[test]
    fn weights_in_several_files_are_those_of_the_index() {
        let there = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(there.path().join(name), text).unwrap();
        for name in ["config.json", "tokenizer.json", "a.safetensors", "b.safetensors"] {
            put(name, name);
        }
        put(INDEX, r#"{"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}"#);
        let endpoint = serve(there.path());
        let cache = tempfile::tempdir().unwrap();
        let folder = fetched("some/model", cache.path(), &endpoint).unwrap();
        let b = std::fs::read_to_string(folder.join("b.safetensors")).unwrap();
        assert_eq!(b, "b.safetensors");
        put(INDEX, r#"{"weight_map": {"x": "../a.safetensors"}}"#);
        let cache = tempfile::tempdir().unwrap();
        let error = fetched("some/model", cache.path(), &endpoint).unwrap_err();
        assert!(error.contains("\"../a.safetensors\" is not a file of this folder"), "{error}");
    }

    /// A file of an older commit is here, from before: the others come from today's. The hub may
    /// have changed long ago, and not during the download.
    #[test]
    fn a_model_in_parts_of_two_commits_is_refused_once() {
        let there = tempfile::tempdir().unwrap();
        for name in ["config.json", "tokenizer.json", ONE] {
            std::fs::write(there.path().join(name), name).unwrap();
        }
        let cache = tempfile::tempdir().unwrap();
        let here = cache.path().join("models--some--model");
        let older = here.join("snapshots").join("b9");
        for folder in [&here.join("refs"), &older] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::write(here.join("refs").join("main"), "b9").unwrap();
        std::fs::write(older.join("tokenizer.json"), "an older one").unwrap();
        let endpoint = serve(there.path());
        let error = fetched("some/model", cache.path(), &endpoint).unwrap_err();
        let says = "parts of more than one commit: it has changed on the hub since its first file";
        assert!(error.contains(says) && error.contains("\nhelp: run again"), "{error}");
        let folder = fetched("some/model", cache.path(), &endpoint).unwrap();
        let tokenizer = std::fs::read_to_string(folder.join("tokenizer.json")).unwrap();
        assert_eq!(tokenizer, "tokenizer.json");
    }

    #[test]
    fn what_cannot_be_had_is_said() {
        let there = tempfile::tempdir().unwrap();
        let cache = tempfile::tempdir().unwrap();
        let endpoint = serve(there.path());
        for (name, endpoint, says) in [
            ("some/model", &endpoint, "some/model has no tokenizer.json on the hub"),
            (
                "no/model",
                &endpoint,
                "cannot download no/model from the hub: request error: http status: 404",
            ),
            ("some/model", &nobody(), "Connection refused"),
        ] {
            let error = fetched(name, cache.path(), endpoint).unwrap_err();
            assert!(error.contains(says) && error.contains("\nhelp: "), "{error}");
        }
    }
}
