#!/usr/bin/env bash
# hf-hub 0.5.0 (the Rust crate), ApiRepo::get in several processes of one machine at once, as the ranks of a job call it at their start.
# One would guess: one downloads, the others wait for its file, and use it.
# What happens: a rank that finds the file locked tries six times, a second apart. If the lock is free by then, it downloads the WHOLE
# file AGAIN, though it is in the cache now: the cache is not looked at a second time. If not, which is any file that takes longer than
# five seconds, get ends in the error "Lock acquisition failed", and the rank with it. So eight ranks of a node start with a small
# model, each paying for a download, and fail with a large one, but for one rank; in the next try, with all files cached, all is well.
# What to do: one rank per cache downloads, the others wait for it (a barrier) and then call get.
# Seen 2026-11-29: what is in SEEN below.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
mkdir "$D/src"
cat > "$D/Cargo.toml" <<'END'
[package]
name = "together"
version = "0.0.0"
edition = "2021"
[dependencies]
hf-hub = { version = "=0.5.0", default-features = false, features = ["ureq"] }
[profile.dev]
debug = false
END
cat > "$D/src/main.rs" <<'END'
use hf_hub::api::sync::{Api, ApiBuilder};
use hf_hub::Cache;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

static SENT: AtomicUsize = AtomicUsize::new(0);
const FILE: &str = "some weights";

/// Sends a file as the hub does, at once if one byte of it is asked for, else slowly.
fn answer(mut stream: TcpStream, seconds: u64) {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let head: Vec<String> = lines.map(|line| line.unwrap()).take_while(|line| !line.is_empty()).collect();
    let one = head.iter().any(|line| line.to_lowercase() == "range: bytes=0-0");
    if !one {
        SENT.fetch_add(1, SeqCst);
        std::thread::sleep(Duration::from_secs(seconds));
    }
    let body = if one { &FILE[..1] } else { FILE };
    let (last, all) = (body.len() - 1, FILE.len());
    let length = format!("Content-Range: bytes 0-{last}/{all}\r\nContent-Length: {}\r\n", body.len());
    let names = "ETag: \"abc\"\r\nX-Repo-Commit: c1\r\nConnection: close\r\n";
    write!(stream, "HTTP/1.1 206 Partial Content\r\n{length}{names}\r\n{body}").unwrap();
}

fn hub(address: &str, folder: &str) -> Api {
    let cache = Cache::new(std::env::current_dir().unwrap().join(folder));
    ApiBuilder::from_cache(cache).with_endpoint(address.into()).with_progress(false).build().unwrap()
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.len() > 1 {
        match hub(&args[2], &args[3]).model("some/model".into()).get("model.safetensors") {
            Ok(path) => println!("has {}", std::fs::read_to_string(path).unwrap()),
            Err(error) => println!("{}", error.to_string().split(':').next().unwrap()),
        }
        return;
    }
    for (ranks, seconds) in [(2, 1), (4, 20)] {
        SENT.store(0, SeqCst);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || for stream in listener.incoming() {
            std::thread::spawn(move || answer(stream.unwrap(), seconds));
        });
        let folder = format!("cache{seconds}");
        let start = |_| Command::new(&args[0]).args(["rank", &address, &folder]).stdout(Stdio::piped()).spawn().unwrap();
        let all: Vec<_> = (0..ranks).map(start).collect();
        let outputs = all.into_iter().map(|rank| rank.wait_with_output().unwrap().stdout);
        let mut said: Vec<String> = outputs.map(|bytes| String::from_utf8(bytes).unwrap().trim().to_string()).collect();
        said.sort();
        println!("{ranks} ranks, {seconds} s per file, sent {} times: {said:?}", SENT.load(SeqCst));
    }
}
END
SEEN="2 ranks, 1 s per file, sent 2 times: [\"has some weights\", \"has some weights\"]
4 ranks, 20 s per file, sent 1 times: [\"Lock acquisition failed\", \"Lock acquisition failed\", \"Lock acquisition failed\", \"has some weights\"]"
GOT=$(cd "$D" && cargo run -q 2>"$D/err") || { tail -5 "$D/err"; exit 1; }
[ "$GOT" = "$SEEN" ] || { printf 'changed\nseen on 2026-11-29:\n%s\nnow:\n%s\n' "$SEEN" "$GOT"; exit 1; }
printf 'as seen on 2026-11-29:\n%s\n' "$GOT"
