//! Tests of downloads, against a server that they start.

#[cfg(feature = "llm")]
use super::News;
use super::{Source, fetch};
use std::path::PathBuf;

fn get(source: &Source) -> Result<PathBuf, String> {
    fetch("some/model", source, &|_| ()).map_err(|error| error.to_string())
}

#[test]
fn what_is_no_name_is_refused() {
    for name in [
        "",
        "../model",
        "a/b/c",
        "a b",
        ".hidden/model",
        "a--b",
        "a/",
        "ä",
        "a/b@",
        "a/b@../c",
        "a/b@x//y",
    ] {
        let error = fetch(name, &Source::default(), &|_| ()).unwrap_err();
        assert!(error.what.contains("is no name of a model of the hub"), "{error}");
    }
}

#[cfg(not(feature = "llm"))]
#[test]
fn without_the_feature_the_error_says_how_to_build_with_it() {
    let error = get(&Source::default()).unwrap_err();
    assert!(
        error.contains("this build downloads no models")
            && error.contains("cargo run --features llm"),
        "{error}"
    );
}

#[cfg(feature = "llm")]
pub(crate) mod with_feature {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::path::Path;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    /// A server's ways to answer.
    #[derive(Clone, Copy, Default)]
    pub(crate) enum Answer {
        #[default]
        Right,
        /// Large files are on a different path, as the hub's are.
        Redirected,
        Status(u16),
        /// The connection ends after so many bytes of a file.
        CutAfter(usize),
        /// No more comes after so many bytes of a file.
        SilentAfter(usize),
        /// A large file comes in parts, with pauses.
        Slow,
        /// A file does not end.
        Endless,
        /// Each redirection leads to itself.
        Circular,
        /// A redirection leads nowhere.
        Nowhere,
        /// Large files are on a different server, `Hub::store`.
        Elsewhere,
        /// Only the first answer about a file has its checksum and commit. All later ones have
        /// names outside of the cache.
        Turncoat,
    }

    const OUTSIDE: &str = "../../../../outside";

    /// A server that speaks the hub's paths.
    #[derive(Clone, Default)]
    pub(crate) struct Hub {
        pub(crate) files: Vec<(&'static str, Vec<u8>, String)>,
        answer: Arc<Mutex<Answer>>,
        /// The requests: path, and first byte.
        asked: Arc<Mutex<Vec<(String, usize)>>>,
        /// The requests that had a token, and its text.
        tokens: Arc<Mutex<Vec<(String, String)>>>,
        store: String,
    }

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
    const PAUSE: Duration = Duration::from_millis(500);

    fn sha256(bytes: &[u8]) -> String {
        shardlab::sha256::hex(bytes)
    }

    /// Weights, a configuration with git's checksum, and a tokenizer with one that is not known.
    pub(crate) fn hub(answer: Answer) -> Hub {
        let weights: Vec<u8> = (0..200_000u32).flat_map(|number| number.to_le_bytes()).collect();
        let sum = sha256(&weights);
        let git = "ce013625030ba8dba906f756967f9e9ca394464a".to_string();
        let files = vec![
            ("config.json", b"hello\n".to_vec(), git),
            ("tokenizer.json", b"{}".to_vec(), "5f-0".to_string()),
            ("model.safetensors", weights, sum),
            ("README.md", b"".to_vec(), "1".to_string()),
        ];
        Hub {
            files,
            answer: Arc::new(Mutex::new(answer)),
            ..Hub::default()
        }
    }

    impl Hub {
        /// Starts the server. Returns its address.
        pub(crate) fn start(&self) -> String {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let hub = self.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let hub = hub.clone();
                    std::thread::spawn(move || hub.serve(stream));
                }
            });
            format!("http://{address}")
        }

        fn serve(&self, mut stream: TcpStream) -> Option<()> {
            let mut reader = BufReader::new(stream.try_clone().ok()?);
            loop {
                let mut request = String::new();
                let mut first = 0;
                let mut only_one = false;
                reader.read_line(&mut request).ok()?;
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).ok()? <= 2 {
                        break;
                    }
                    if let Some(range) = line.to_lowercase().strip_prefix("range: bytes=") {
                        let (from, to) = range.trim().split_once('-')?;
                        (first, only_one) = (from.parse().ok()?, to == "0");
                    }
                    if line.to_lowercase().starts_with("authorization:") {
                        let path = request.split(' ').nth(1)?.to_string();
                        self.tokens.lock().unwrap().push((path, line.trim().to_string()));
                    }
                }
                let path = request.split(' ').nth(1)?.to_string();
                self.asked.lock().unwrap().push((path.clone(), first));
                self.respond(&mut stream, &path, first, only_one)?;
            }
        }

        /// Answers one request. Returns nothing if the connection ends.
        fn respond(
            &self,
            stream: &mut TcpStream,
            path: &str,
            first: usize,
            only_one: bool,
        ) -> Option<()> {
            let answer = *self.answer.lock().unwrap();
            let turned = matches!(answer, Answer::Turncoat)
                && self.resolved(path.rsplit('/').next()?).len() > 1;
            let commit = if turned { OUTSIDE } else { COMMIT };
            let mut head = |status: &str, length: usize, more: &str| {
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nX-Repo-Commit: {commit}\r\n"
                );
                write!(stream, "{head}{more}\r\n").ok()
            };
            if let Answer::Status(status) = answer {
                return head(&format!("{status} No"), 0, "");
            }
            if path == "/api/models/some/model/revision/main" {
                let names =
                    self.files.iter().map(|(name, ..)| format!("{{\"rfilename\":\"{name}\"}}"));
                let info = format!(
                    "{{\"sha\":\"{COMMIT}\",\"siblings\":[{}]}}",
                    names.collect::<Vec<_>>().join(",")
                );
                head("200 OK", info.len(), "")?;
                return stream.write_all(info.as_bytes()).ok();
            }
            let name =
                path.strip_prefix("/some/model/resolve/main/").or(path.strip_prefix("/store/"));
            let Some((name, bytes, sum)) = self.files.iter().find(|(file, ..)| Some(*file) == name)
            else {
                return head("404 Not Found", 0, "");
            };
            let size = bytes.len();
            let sum = if turned { OUTSIDE } else { sum.as_str() };
            let tags = format!("X-Linked-Etag: \"{sum}\"\r\nETag: \"of-the-link\"\r\n");
            match answer {
                Answer::Redirected if !path.starts_with("/store/") => {
                    let host = stream.local_addr().ok()?;
                    let location = format!("{tags}Location: http://{host}/store/{name}\r\n");
                    let head = format!(
                        "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nX-Repo-Commit: {COMMIT}\r\n{location}"
                    );
                    return write!(stream, "{head}\r\n").ok();
                }
                Answer::Elsewhere if size > 10 => {
                    let to = format!("{tags}Location: {}/store/{name}\r\n", self.store);
                    return head("302 Found", 0, &to);
                }
                Answer::Circular => {
                    return head("302 Found", 0, &format!("{tags}Location: {path}\r\n"));
                }
                Answer::Nowhere => return head("302 Found", 0, &tags),
                _ => (),
            }
            if first >= size && size > 0 {
                return head("416 Range Not Satisfiable", 0, "");
            }
            let end = if only_one { 1 } else { size };
            let body = &bytes[first..end.max(first)];
            let range = format!(
                "ETag: \"{sum}\"\r\nContent-Range: bytes {first}-{}/{size}\r\n",
                end.saturating_sub(1)
            );
            let endless = matches!(answer, Answer::Endless) && !only_one;
            head("206 Partial Content", if endless { 1 << 40 } else { body.len() }, &range)?;
            match answer {
                Answer::CutAfter(count) if !only_one && count < body.len() => {
                    stream.write_all(&body[..count]).ok()?;
                    None
                }
                Answer::SilentAfter(count) if !only_one && count < body.len() => {
                    stream.write_all(&body[..count]).ok()?;
                    loop {
                        std::thread::park();
                    }
                }
                Answer::Slow if !only_one && size > 10 => {
                    body.chunks(size / 5).try_for_each(|part| {
                        std::thread::sleep(PAUSE);
                        stream.write_all(part).ok()
                    })
                }
                Answer::Endless if !only_one => {
                    stream.write_all(body).ok()?;
                    loop {
                        stream.write_all(&[7; 1000]).ok()?;
                    }
                }
                _ => stream.write_all(body).ok(),
            }
        }

        fn resolved(&self, name: &str) -> Vec<usize> {
            let asked = self.asked.lock().unwrap();
            let of = asked.iter().filter(|(path, _)| path.ends_with(&format!("/{name}")));
            of.map(|(_, first)| *first).collect()
        }

        fn ensure_right(&self, folder: &Path) {
            for (name, bytes, _) in self.files.iter().filter(|(name, ..)| *name != "README.md") {
                assert!(std::fs::read(folder.join(name)).unwrap() == *bytes, "{name}");
            }
        }
    }

    /// An endpoint, and a cache for this test alone.
    pub(crate) fn source(endpoint: &str, cache: &Path) -> Source {
        Source {
            endpoint: Some(endpoint.to_string()),
            cache: Some(cache.to_path_buf()),
            ..Source::default()
        }
    }

    #[test]
    fn a_model_is_downloaded_once() {
        for answer in [Answer::Right, Answer::Redirected] {
            let hub = hub(answer);
            let cache = tempfile::tempdir().unwrap();
            let source = source(&hub.start(), cache.path());
            let told = Mutex::new(Vec::new());
            let unchecked = Mutex::new(Vec::new());
            let watch = |news: News| match news {
                News::Bytes { name, here, size } => {
                    told.lock().unwrap().push((name.to_string(), here, size))
                }
                News::Unchecked { name, etag } => {
                    unchecked.lock().unwrap().push(format!("{name} {etag}"))
                }
            };
            let folder = fetch("some/model", &source, &watch).unwrap();
            hub.ensure_right(&folder);
            assert_eq!(folder, cache.path().join("models--some--model/snapshots").join(COMMIT));
            assert_eq!(
                told.lock().unwrap().last().unwrap(),
                &("model.safetensors".to_string(), 800_000, 800_000)
            );
            assert!(told.lock().unwrap().len() > 20, "{told:?}");
            assert_eq!(
                *unchecked.lock().unwrap(),
                ["tokenizer.json 5f-0"],
                "of one file only the size was compared"
            );
            assert!(hub.resolved("README.md").is_empty());
            let asked = hub.asked.lock().unwrap().len();
            for source in [source.clone(), Source { offline: true, ..source.clone() }] {
                assert_eq!(get(&source).unwrap(), folder);
            }
            assert_eq!(hub.asked.lock().unwrap().len(), asked, "a second time, no server is asked");
        }
    }

    /// The ranks of a job are processes, and each of them needs the model.
    #[test]
    fn of_many_that_need_a_model_one_downloads_it() {
        let hub = hub(Answer::Right);
        let cache = tempfile::tempdir().unwrap();
        let source = source(&hub.start(), cache.path());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| hub.ensure_right(&get(&source).unwrap()));
            }
        });
        assert_eq!(hub.resolved("config.json").len(), 2, "{:?}", hub.asked);
    }

    /// Interrupted three times, and then only the last byte is missing. No byte but the first,
    /// which asks for the size, is sent twice.
    #[test]
    fn an_interrupted_download_continues() {
        let hub = hub(Answer::Right);
        let cache = tempfile::tempdir().unwrap();
        let source = source(&hub.start(), cache.path());
        for cut in [300_000, 200_000, 299_999] {
            *hub.answer.lock().unwrap() = Answer::CutAfter(cut);
            let error = get(&source).unwrap_err();
            assert!(
                error.contains("some/model (main): model.safetensors from http://127.0.0.1"),
                "{error}"
            );
            assert!(
                error.contains("the download ended early")
                    && error.contains("continues where it ended"),
                "{error}"
            );
        }
        *hub.answer.lock().unwrap() = Answer::Right;
        hub.ensure_right(&get(&source).unwrap());
        let mut from = hub.resolved("model.safetensors");
        from.retain(|first| *first > 0);
        assert_eq!(from, [300_000, 500_000, 799_999]);
    }

    /// All bytes had come, and the program was killed before it gave the file its name; or there
    /// are too many.
    #[test]
    fn what_an_interrupted_download_has_left_is_used_or_removed() {
        for more in [0, 5] {
            let hub = hub(Answer::Right);
            let cache = tempfile::tempdir().unwrap();
            let (_, weights, sum) = &hub.files[2];
            let blobs = cache.path().join("models--some--model/blobs");
            std::fs::create_dir_all(&blobs).unwrap();
            std::fs::write(
                blobs.join(format!("{sum}.part")),
                [&weights[..], &vec![7; more]].concat(),
            )
            .unwrap();
            hub.ensure_right(&get(&source(&hub.start(), cache.path())).unwrap());
        }
    }

    #[test]
    fn a_damaged_file_is_removed_and_downloaded_again() {
        for number in [0, 2] {
            let hub = hub(Answer::Right);
            let cache = tempfile::tempdir().unwrap();
            let mut damaged = hub.clone();
            damaged.files[number].1[3] ^= 1;
            let error = get(&source(&damaged.start(), cache.path())).unwrap_err();
            let name = hub.files[number].0;
            assert!(error.contains(&format!("{name} is damaged: its checksum is ")), "{error}");
            hub.ensure_right(&get(&source(&hub.start(), cache.path())).unwrap());
        }
    }

    /// What is looked at is what is used: a server that answers twice cannot name a path outside of
    /// the cache.
    #[test]
    fn a_server_that_changes_its_mind_writes_nothing_elsewhere() {
        let hub = hub(Answer::Turncoat);
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("a/b/cache");
        std::fs::create_dir_all(&cache).unwrap();
        hub.ensure_right(&get(&source(&hub.start(), &cache)).unwrap());
        let mut folders = vec![dir.path().to_path_buf()];
        while let Some(folder) = folders.pop().filter(|folder| *folder != cache) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                assert!(cache.starts_with(&path), "{} lies outside of the cache", path.display());
                folders.push(path);
            }
        }
    }

    /// The token is in the folder beside the cache, as `hf auth login` leaves it.
    #[test]
    fn the_token_goes_to_the_hub_alone() {
        for send_token in [false, true] {
            let store = hub(Answer::Right);
            let dir = tempfile::tempdir().unwrap();
            let hub = Hub { store: store.start(), ..hub(Answer::Elsewhere) };
            std::fs::write(dir.path().join("token"), "hf_secret\n").unwrap();
            let source = Source { send_token, ..source(&hub.start(), &dir.path().join("hub")) };
            hub.ensure_right(&get(&source).unwrap());
            let tokens = hub.tokens.lock().unwrap();
            assert!(
                store.tokens.lock().unwrap().is_empty(),
                "the server of large files needs none"
            );
            assert_eq!(
                tokens.len(),
                if send_token { hub.asked.lock().unwrap().len() } else { 0 },
                "{tokens:?}"
            );
            assert!(
                tokens.iter().all(|(_, line)| line.ends_with(": Bearer hf_secret")),
                "{tokens:?}"
            );
            assert_eq!(store.resolved("model.safetensors").len(), 2);
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("token"), "hf_secret\n").unwrap();
        let error =
            get(&source(&hub(Answer::Status(401)).start(), &dir.path().join("hub"))).unwrap_err();
        assert!(
            error.contains("help: your token was not sent, because http://127.0.0.1"),
            "{error}"
        );
        assert!(error.contains("--send-token") && !error.contains("hf_secret"), "{error}");
    }

    #[test]
    fn several_files_of_weights_are_found_by_their_index() {
        let mut hub = hub(Answer::Right);
        let cache = tempfile::tempdir().unwrap();
        let (_, weights, sum) = hub.files.remove(2);
        let index =
            br#"{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}"#;
        hub.files.push(("model.safetensors.index.json", index.to_vec(), sha256(index)));
        hub.files.push(("model-00001-of-00002.safetensors", weights, sum));
        hub.files
            .push(("model-00002-of-00002.safetensors", b"more".to_vec(), sha256(b"more")));
        hub.ensure_right(&get(&source(&hub.start(), cache.path())).unwrap());
        // An index that names a file outside the folder.
        let cache = tempfile::tempdir().unwrap();
        let index = br#"{"weight_map":{"a":"../../../evil.safetensors"}}"#;
        hub.files[3] = ("model.safetensors.index.json", index.to_vec(), sha256(index));
        assert!(
            get(&source(&hub.start(), cache.path()))
                .unwrap_err()
                .contains("index.json names no files")
        );
    }

    #[test]
    fn a_silent_server_is_given_up() {
        let cache = tempfile::tempdir().unwrap();
        let patient = |hub: &Hub, millis| Source {
            patience: Some(Duration::from_millis(millis)),
            ..source(&hub.start(), cache.path())
        };
        // One that accepts connections, and answers none.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dead = format!("http://{}", listener.local_addr().unwrap());
        let source = Source {
            patience: Some(Duration::from_millis(100)),
            ..source(&dead, cache.path())
        };
        let error = get(&source).unwrap_err();
        assert!(error.contains("its list of files from http://127.0.0.1"), "{error}");
        assert!(error.contains("nothing has come for 100ms\nhelp: check the network"), "{error}");
        // One that falls silent.
        let error = get(&patient(&hub(Answer::SilentAfter(300_000)), 3000)).unwrap_err();
        assert!(
            error.contains("model.safetensors from") && error.contains("nothing has come for 3s"),
            "{error}"
        );
        // One whose redirections lead to themselves.
        let cache = tempfile::tempdir().unwrap();
        let circular = Source {
            cache: Some(cache.path().to_path_buf()),
            ..patient(&hub(Answer::Circular), 1000)
        };
        assert!(get(&circular).unwrap_err().contains("config.json: more than 10 redirections"));
    }

    /// All together, the pauses are longer than a silent server is waited for.
    #[test]
    fn a_slow_server_is_not_given_up() {
        let hub = hub(Answer::Slow);
        let cache = tempfile::tempdir().unwrap();
        let source = Source {
            patience: Some(4 * PAUSE),
            ..source(&hub.start(), cache.path())
        };
        hub.ensure_right(&get(&source).unwrap());
    }

    #[test]
    fn an_endless_file_is_given_up_and_replaced() {
        let hub = hub(Answer::Endless);
        let cache = tempfile::tempdir().unwrap();
        let source = source(&hub.start(), cache.path());
        let error = get(&source).unwrap_err();
        assert!(error.contains("config.json: it does not end after its 6 bytes"), "{error}");
        *hub.answer.lock().unwrap() = Answer::Right;
        hub.ensure_right(&get(&source).unwrap());
    }

    #[test]
    fn errors_say_what_happened_and_what_to_do() {
        let cache = tempfile::tempdir().unwrap();
        let with =
            |status| get(&source(&hub(Answer::Status(status)).start(), cache.path())).unwrap_err();
        assert!(
            with(401).contains("access is denied (HTTP 401)") && with(403).contains("HF_TOKEN")
        );
        assert!(with(404).contains("not found (HTTP 404)\nhelp: check the model's name"));
        assert!(with(503).contains("HTTP 503"));
        let error = get(&source("http://127.0.0.1:1", cache.path())).unwrap_err();
        assert!(
            error.contains("some/model (main): its list of files from http://127.0.0.1:1"),
            "{error}"
        );
        assert!(
            error.contains("help: check the network") && error.contains("--offline"),
            "{error}"
        );
        let error = get(&source(&hub(Answer::Nowhere).start(), cache.path())).unwrap_err();
        assert!(
            error.contains("config.json: a redirection leads nowhere\nhelp: run again"),
            "{error}"
        );
        let mut hub = hub(Answer::Right);
        hub.files.remove(2);
        assert!(
            get(&source(&hub.start(), cache.path()))
                .unwrap_err()
                .contains("has no model.safetensors")
        );
        // A checksum that would be the name of a file elsewhere.
        hub.files[0].2 = "../../../evil".to_string();
        hub.files.push(("model.safetensors", b"x".to_vec(), "1".to_string()));
        assert!(
            get(&source(&hub.start(), cache.path()))
                .unwrap_err()
                .contains("checksum \"../../../evil\"")
        );
        // A cache that is a file.
        std::fs::write(cache.path().join("file"), "").unwrap();
        let error = get(&source(&hub.start(), &cache.path().join("file/cache"))).unwrap_err();
        assert!(error.contains("cannot write ") && error.contains("HF_HOME"), "{error}");
    }

    #[test]
    fn offline_no_server_is_asked_and_nothing_is_written() {
        let hub = hub(Answer::Right);
        let cache = tempfile::tempdir().unwrap();
        let error =
            get(&Source { offline: true, ..source(&hub.start(), cache.path()) }).unwrap_err();
        assert!(
            error.contains("some/model (main) is not complete in ") && error.contains("--offline"),
            "{error}"
        );
        assert!(hub.asked.lock().unwrap().is_empty());
        assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), 0);
    }

    /// Downloads in a process with these variables. Returns all that it prints.
    #[cfg(unix)]
    fn process(before: &str, variables: &[(&str, &str)]) -> String {
        let mut child = std::process::Command::new("sh");
        child
            .args(["-c", &format!("{before} exec \"$0\" \"$@\"")])
            .arg(std::env::current_exe().unwrap());
        child.args([
            "--ignored",
            "--exact",
            "--nocapture",
            "apparatus::hub::tests::with_feature::for_a_process",
        ]);
        child.env_remove("HF_HUB_CACHE").envs(variables.iter().copied());
        let output = child.output().unwrap();
        [output.stdout, output.stderr]
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .concat()
    }

    #[cfg(unix)]
    #[test]
    #[ignore = "a process of the tests below"]
    fn for_a_process() {
        match get(&Source::default()) {
            Ok(folder) => println!("downloaded to {}", folder.display()),
            Err(error) => println!("{error}"),
        }
    }

    #[cfg(unix)]
    #[test]
    fn variables_of_the_hub_are_followed() {
        let hub = hub(Answer::Right);
        let home = tempfile::tempdir().unwrap();
        let endpoint = hub.start();
        let variables =
            [("HF_ENDPOINT", endpoint.as_str()), ("HF_HOME", home.path().to_str().unwrap())];
        let offline = [&variables[..], &[("HF_HUB_OFFLINE", "1")]].concat();
        let said = process("", &offline);
        assert!(
            said.contains("downloads are switched off") && hub.asked.lock().unwrap().is_empty(),
            "{said}"
        );
        let folder = home.path().join("hub/models--some--model/snapshots").join(COMMIT);
        let said = process("", &variables);
        assert!(said.contains(&format!("downloaded to {}", folder.display())), "{said}");
        hub.ensure_right(&folder);
        assert!(process("", &offline).contains("downloaded to "));
        let home = tempfile::tempdir().unwrap();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", silent.local_addr().unwrap());
        let variables =
            [("HF_ENDPOINT", endpoint.as_str()), ("HF_HOME", home.path().to_str().unwrap())];
        let said = process("", &[&variables[..], &[("HF_HUB_DOWNLOAD_TIMEOUT", "1")]].concat());
        assert!(said.contains("nothing has come for 1s"), "{said}");
    }

    /// The disk is full: in a process that may write no large file.
    #[cfg(unix)]
    #[test]
    fn a_full_disk_is_named_and_the_download_continues() {
        let hub = hub(Answer::Right);
        let home = tempfile::tempdir().unwrap();
        let endpoint = hub.start();
        let variables =
            [("HF_ENDPOINT", endpoint.as_str()), ("HF_HOME", home.path().to_str().unwrap())];
        let said = process("trap '' XFSZ; ulimit -f 800;", &variables);
        assert!(
            said.contains("cannot write ") && said.contains("help: make room on the disk"),
            "{said}"
        );
        hub.ensure_right(&get(&source(&endpoint, &home.path().join("hub"))).unwrap());
        assert!(
            hub.resolved("model.safetensors").iter().any(|first| *first > 100_000),
            "it continues"
        );
    }
}
