#!/usr/bin/env bash
# hf-hub 0.5.0 (the Rust crate that candle's examples use), ApiRepo::get, and a small hub on 127.0.0.1 whose model has a new commit.
# One would guess: get asks the hub which commit is the newest; or it takes all files from one commit.
# What happens: get takes a file that is in the cache, without a question, and downloads the newest of what is not. If config.json is
# there from an earlier look, and model.safetensors is not, the first run has the OLD config and the NEW weights, and no word about it.
# The download moves the cache's `main` to the new commit, so the next run of the same program has both from there: a run that
# cannot be repeated. Ranks with caches of their own (one per node) can differ, each in its first run. With all files cached, the model
# is never brought up to date.
# What to do: ask once, on one rank: repo.info()?.sha; send it to all, and get every file from Repo::with_revision(name, type, sha).
# Seen 2026-11-29: what is in SEEN below.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
mkdir "$D/src"
cat > "$D/Cargo.toml" <<'END'
[package]
name = "hub"
version = "0.0.0"
edition = "2021"
[dependencies]
hf-hub = { version = "=0.5.0", default-features = false, features = ["ureq"] }
[profile.dev]
debug = false
END
cat > "$D/src/main.rs" <<'END'
use hf_hub::{api::sync::ApiBuilder, Cache, Repo, RepoType};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

static COMMIT: AtomicUsize = AtomicUsize::new(1); // the newest one on this small hub

/// Answers as the hub does: which commits there are, or a file of one of them.
fn serve(listener: TcpListener) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let head: Vec<String> = lines.map(|line| line.unwrap()).take_while(|line| !line.is_empty()).collect();
        let path = head[0].split(' ').nth(1).unwrap();
        let newest = COMMIT.load(SeqCst);
        let (more, body) = if path.starts_with("/api/") {
            (String::new(), format!("{{\"sha\": \"commit{newest}\", \"siblings\": []}}"))
        } else {
            let at = path.split("/resolve/").nth(1).unwrap();
            let (revision, name) = at.split_once('/').unwrap();
            let commit = if revision == "main" { format!("commit{newest}") } else { revision.to_string() };
            let body = format!("{name} of {commit}");
            let asked = head.iter().find_map(|line| Some(line.to_lowercase().strip_prefix("range: bytes=")?.to_string())).unwrap();
            let (from, to) = asked.split_once('-').unwrap();
            let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse().unwrap_or(body.len() - 1));
            let part = format!("Content-Range: bytes {from}-{to}/{}\r\n", body.len());
            (part + &format!("ETag: \"{name}-{commit}\"\r\nX-Repo-Commit: {commit}\r\n"), body[from..=to].to_string())
        };
        let status = if more.is_empty() { "200 OK" } else { "206 Partial Content" };
        write!(stream, "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n{more}\r\n{body}", body.len()).unwrap();
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = format!("http://{}", listener.local_addr()?);
    std::thread::spawn(move || serve(listener));
    let cache = Cache::new(std::env::current_dir()?.join("cache"));
    let hub = ApiBuilder::from_cache(cache).with_endpoint(address).with_progress(false).build()?;
    let both = |repo: &Repo| -> Result<String, Box<dyn std::error::Error>> {
        let config = std::fs::read_to_string(hub.repo(repo.clone()).get("config.json")?)?;
        let weights = std::fs::read_to_string(hub.repo(repo.clone()).get("model.safetensors")?)?;
        Ok(format!("{config}, {weights}"))
    };
    let main = Repo::model("some/model".to_string());
    println!("a look before: {}", std::fs::read_to_string(hub.repo(main.clone()).get("config.json")?)?);
    COMMIT.store(2, SeqCst);
    println!("the first run: {}", both(&main)?);
    println!("the next run: {}", both(&main)?);
    COMMIT.store(3, SeqCst);
    println!("after one more commit: {}", both(&main)?);
    let sha = hub.repo(main).info()?.sha;
    println!("by the commit's name: {}", both(&Repo::with_revision("some/model".to_string(), RepoType::Model, sha))?);
    Ok(())
}
END
SEEN="a look before: config.json of commit1
the first run: config.json of commit1, model.safetensors of commit2
the next run: config.json of commit2, model.safetensors of commit2
after one more commit: config.json of commit2, model.safetensors of commit2
by the commit's name: config.json of commit3, model.safetensors of commit3"
GOT=$(cd "$D" && cargo run -q 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$GOT" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$GOT"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$GOT"
