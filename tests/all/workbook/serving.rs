//! `workbook serve`: what it answers, what it never sends, and that it goes on whatever comes.

use super::program;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server of a folder `book` with a page and a module, until this is dropped.
struct Served {
    dir: tempfile::TempDir,
    child: Child,
    address: String,
}

impl Served {
    /// `first` are a shell's words, such as `ulimit`.
    fn new(first: &str) -> Served {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("book/run")).unwrap();
        for (path, text) in [
            ("secret", "a secret"),
            ("book/index.html", "a page"),
            ("book/run/labs.wasm", "a module"),
            ("book/run/labs.wasm.gz", "packed"),
        ] {
            fs::write(dir.path().join(path), text).unwrap();
        }
        let mut child = Command::new("sh")
            .args(["-c", &format!("{first} exec \"$0\" serve --port 0 book")])
            .arg(program("workbook"))
            .current_dir(dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split(['/', ' ']).find(|word| word.starts_with("127.0.0.1:")).unwrap();
        Served { dir, child, address: address.to_string() }
    }

    fn book(&self) -> std::path::PathBuf {
        self.dir.path().join("book")
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// All that is said to these bytes, until the server ends the connection.
    fn says(&self, bytes: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes.as_bytes()).unwrap();
        said(&mut stream)
    }

    /// The answer to one request with these fields, in lower case but for what follows the head.
    fn gets(&self, address: &str, fields: &str) -> String {
        let fields = fields.replace('\n', "\r\n");
        self.says(&format!("GET {address} HTTP/1.1\r\nConnection: close\r\n{fields}\r\n"))
    }

    #[cfg(target_os = "linux")]
    fn of_proc(&self, file: &str) -> std::path::PathBuf {
        Path::new("/proc").join(self.child.id().to_string()).join(file)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn said(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    if let Err(error) = stream.read_to_end(&mut all) {
        assert_ne!(error.kind(), ErrorKind::WouldBlock, "it waits for more");
    }
    String::from_utf8_lossy(&all).into_owned()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or(answer)
}

/// A field of an answer's head.
fn field<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let head = answer.split("\r\n\r\n").next()?;
    head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")))
}

#[test]
fn a_page_has_two_headers_and_the_labs_come_packed() {
    let served = Served::new("");
    for (address, is) in [("/", "200"), ("/no", "404"), ("/run/labs.wasm?v=1", "200")] {
        let answer = served.gets(address, "");
        assert_eq!(status(&answer), is, "{answer}");
        assert_eq!(field(&answer, "cross-origin-opener-policy"), Some("same-origin"));
        assert_eq!(field(&answer, "cross-origin-embedder-policy"), Some("require-corp"));
        assert!(!answer.ends_with("\r\n\r\n"), "there is something to read: {answer}");
    }
    for (fields, is_packed) in [
        ("", false),
        ("Accept-Encoding: br, gzip\n", true),
        ("Accept-Encoding: br\nACCEPT-ENCODING: GZIP;q=0.5\n", true),
        ("Accept-Encoding: *\n", true),
        ("Accept-Encoding: gzip;q=0\n", false),
        ("Accept-Encoding: gzip; q=0.0, *\n", false),
        ("Accept-Encoding: gzipped\n", false),
    ] {
        let answer = served.gets("/run/labs.wasm?v=1", fields);
        let ends = if is_packed { "packed" } else { "a module" };
        assert!(answer.ends_with(ends), "{fields}: {answer}");
        assert_eq!(field(&answer, "content-encoding"), is_packed.then_some("gzip"), "{fields}");
        assert_eq!(field(&answer, "content-type"), Some("application/wasm"));
        assert_eq!(field(&answer, "vary"), Some("Accept-Encoding"));
        assert_eq!(field(&answer, "cache-control"), Some("max-age=31536000, immutable"));
    }
    // What was packed before is no longer this file's.
    std::thread::sleep(Duration::from_millis(20));
    fs::write(served.book().join("run/labs.wasm"), "a module again").unwrap();
    let answer = served.gets("/run/labs.wasm", "Accept-Encoding: gzip\n");
    assert!(answer.ends_with("a module again"), "{answer}");
    fs::write(served.book().join("404.html"), "no such page").unwrap();
    assert!(served.gets("/no", "").ends_with("no such page"));
}

#[test]
fn a_browser_that_has_a_version_gets_it_once() {
    let served = Served::new("");
    let version = |fields: &str| {
        let answer = served.gets("/run/labs.wasm", fields);
        field(&answer, "etag").unwrap().to_string()
    };
    let [plain, packed] = ["", "Accept-Encoding: gzip\n"].map(version);
    assert_ne!(plain, packed, "two forms are two versions");
    for tag in [&plain, &packed] {
        let inner = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap();
        assert!(inner.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"'), "{tag}");
    }
    for (known, is) in [
        (plain.clone(), "304"),
        (format!("W/{plain}"), "304"),
        (format!("\"x\", {plain}"), "304"),
        (format!("\"x\"\nIf-None-Match: {plain}"), "304"),
        ("*".into(), "304"),
        (packed.clone(), "200"),
        ("\"x\"".into(), "200"),
        (plain[..plain.len() - 1].into(), "200"),
    ] {
        let answer = served.gets("/run/labs.wasm", &format!("If-None-Match: {known}\n"));
        assert_eq!(status(&answer), is, "{known}: {answer}");
        if is == "304" {
            assert!(answer.ends_with("\r\n\r\n"), "{answer}");
            assert_eq!(field(&answer, "content-length"), None, "{answer}");
            assert_eq!(field(&answer, "etag"), Some(&*plain), "{answer}");
        }
    }
}

#[test]
fn an_address_is_a_file_of_the_book_or_none() {
    let served = Served::new("");
    for name in ["100% über.html", "run/index.html"] {
        fs::write(served.book().join(name), "found").unwrap();
    }
    for address in ["/100%25%20%C3%BCber.html", "/100%25%20%c3%bcber.html?a=b", "/run/"] {
        assert!(served.gets(address, "").ends_with("found"), "{address}");
    }
    for address in [
        "/../secret",
        "/run/../../secret",
        "/%2e%2e/secret",
        "/run%2f..%2f..%2fsecret",
        "//secret",
        "/..%5csecret",
        "/run",
        "/run/labs.wasm/",
        "/./index.html",
        "/index.html%00",
        "/%",
        "/%zz",
        "/%ff",
        "/C:index.html",
        "*",
        &format!("/{}", "a".repeat(8000)),
    ] {
        let answer = served.gets(address, "");
        assert_eq!(status(&answer), "404", "{address}: {answer}");
    }
}

#[cfg(unix)]
#[test]
fn what_a_link_names_outside_of_the_folder_is_not_sent() {
    use std::os::unix::fs::symlink;
    let served = Served::new("");
    let at = |name: &str| served.book().join(name);
    symlink("../secret", at("index.html.gz")).unwrap();
    symlink("../secret", at("link.html")).unwrap();
    symlink("link.html", at("twice.html")).unwrap();
    symlink("..", at("up")).unwrap();
    symlink("../secret", at("404.html")).unwrap();
    symlink("index.html", at("inside.html")).unwrap();
    assert!(Command::new("mkfifo").arg(at("pipe.html")).status().unwrap().success());
    let packed = "Accept-Encoding: gzip\n";
    for address in ["/", "/inside.html"] {
        let answer = served.gets(address, packed);
        assert!(answer.ends_with("a page"), "{address}: {answer}");
        assert_eq!(field(&answer, "content-encoding"), None, "{answer}");
    }
    for address in ["/link.html", "/twice.html", "/up/secret", "/pipe.html", "/no"] {
        let answer = served.gets(address, packed);
        assert_eq!(status(&answer), "404", "{address}: {answer}");
        assert!(!answer.contains("secret"), "{address}: {answer}");
    }
}

/// Each ends the connection by itself: [`Served::says`] would wait otherwise.
#[test]
fn http_s_rules_are_kept() {
    let served = Served::new("");
    let inner = "GET /run/labs.wasm HTTP/1.1\r\n\r\n";
    let length = format!("Content-Length: {}\r\n\r\n{inner}", inner.len());
    let chunked = format!("Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}");
    let fields: String = (0..200).map(|field| format!("a{field}: b\r\n")).collect();
    let cookie = |length: usize| format!("Cookie: {}\r\n", "a".repeat(length));
    for (asked, is) in [
        ("GET / HTTP/1.1\r\nConnection: close\r\n\r\n".to_string(), "200"),
        ("GET / HTTP/1.0\r\n\r\n".to_string(), "200"),
        (format!("GET / HTTP/1.0\r\n{}\r\n", cookie(20_000)), "200"),
        // What follows a request is never taken for the next one.
        (format!("POST / HTTP/1.1\r\n{length}"), "405"),
        (format!("GET / HTTP/1.1\r\n{length}"), "200"),
        (format!("GET / HTTP/1.1\r\n{chunked}"), "200"),
        (format!("PUT / HTTP/1.1\r\nContent-Length: 4\r\n{chunked}"), "405"),
        ("no request\r\n\r\n".to_string(), "400"),
        ("GET / HTTP/1.1\r\nno field\r\n\r\n".to_string(), "400"),
        ("\x16\x03\x01\x02".to_string(), "400"),
        (format!("GET / HTTP/1.1\r\n{fields}\r\n"), "431"),
        (format!("GET / HTTP/1.1\r\n{}\r\n", cookie(200_000)), "431"),
    ] {
        let answer = served.says(&asked);
        let shown = &asked[..asked.len().min(60)];
        assert_eq!(status(&answer), is, "{shown:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.").count(), 1, "{shown:?}: {answer}");
    }
    let refused = served.says("DELETE / HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_eq!(field(&refused, "allow"), Some("GET, HEAD"), "{refused}");

    // One connection, many requests, until the browser has asked all that it will.
    let mut stream = served.connect();
    let all = "GET / HTTP/1.1\r\n\r\nHEAD / HTTP/1.1\r\n\r\nGET /no HTTP/1.1\r\n\r\n";
    stream.write_all(all.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let all = said(&mut stream);
    assert_eq!(all.matches("HTTP/1.1 200").count(), 2, "{all}");
    assert_eq!(all.matches("content-length: 6").count(), 2, "{all}");
    assert_eq!(all.matches("a page").count(), 1, "{all}");
    assert_eq!(all.matches("HTTP/1.1 404").count(), 1, "{all}");
}

/// A book that is built again while a browser reads: the next answer's head is never taken for the
/// rest of this file, nor two files for one.
#[test]
fn a_file_that_changes_while_it_is_sent_ends_the_connection() {
    for then in [1000, 20 << 20] {
        let served = Served::new("");
        let path = served.book().join("large");
        fs::write(&path, vec![b'x'; 20 << 20]).unwrap();
        let mut stream = served.connect();
        stream
            .write_all(b"GET /large?v=1 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n")
            .unwrap();
        std::thread::sleep(Duration::from_millis(200));
        // Cut and written again, or written over in place.
        let mut file =
            fs::OpenOptions::new().write(true).truncate(then == 1000).open(&path).unwrap();
        file.write_all(&vec![b'y'; then]).unwrap();
        let all = said(&mut stream);
        assert_eq!(all.matches("HTTP/1.1").count(), 1, "{} bytes", all.len());
        assert!(all.len() < 20 << 20, "{} bytes", all.len());
        assert!(!all.contains("yyyy"), "the bytes of another file");
        assert!(served.gets("/", "").ends_with("a page"), "it goes on");
    }
}

/// Where a system gives no thread, few files or little memory, and where many hold a connection
/// without a request: each page comes, and waiting costs nothing.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "waits for many readers: the gate runs it; run it when you change the server"]
fn a_crowd_and_a_poor_machine_end_nothing() {
    for (first, idle) in [("", 300), ("ulimit -n 40;", 60), ("ulimit -v 400000;", 300)] {
        let served = Served::new(first);
        let computed = || {
            let stat = fs::read_to_string(served.of_proc("stat")).unwrap();
            let words: Vec<&str> = stat.rsplit(')').next().unwrap().split(' ').collect();
            // In hundredths of a second, in the program and in the system.
            words[12..14].iter().map(|time| time.parse::<u64>().unwrap()).sum::<u64>()
        };
        let begun = Instant::now();
        let waiting: Vec<TcpStream> = (0..idle)
            .map(|_| {
                let mut stream = served.connect();
                stream.write_all(b"GET / HTTP/1.1\r\nX: ").ok();
                stream
            })
            .collect();
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| assert!(served.gets("/", "").ends_with("a page"), "{first}"));
            }
        });
        assert!(begun.elapsed() < Duration::from_secs(15), "{first} {:?}", begun.elapsed());
        let open = fs::read_dir(served.of_proc("fd")).unwrap().count();
        assert!(open <= 256 + 16, "{first} {open} files are open");
        let before = computed();
        std::thread::sleep(Duration::from_secs(1));
        assert!(computed() - before < 20, "{first} it computes while it waits");
        drop(waiting);
    }
}
