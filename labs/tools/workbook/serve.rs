//! The built book on a port of this machine, with the two headers without which a page's ranks may
//! not share memory.
//!
//! Left out: ranges, uploads, encryption, and every method but GET and HEAD. Each connection has a
//! thread of its own: a browser opens several and leaves them open, and one of them that waited for
//! a pool's threads would wait for the others to end.

use super::room::Room;
use anyhow::Result;
use kit::show::Screen;
use shardlab::error::BadInput;
use shardlab::files;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// A connection on which nothing is asked for so long is closed.
const PATIENCE: Duration = Duration::from_secs(30);
/// The bytes of a request's head, at most.
const HEAD: usize = 16 << 10;
const HEADERS: usize = 64;

/// The folder of the built book: this room's, or the one of the checkout that this program was
/// built from.
pub fn built_book() -> PathBuf {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/book");
    Room::of_this_program().map_or_else(built, |room| room.book())
}

/// Serves the files below `folder`, until the process is ended.
///
/// # Errors
/// [`BadInput`] if there is no book, or if the port is taken.
pub fn serve(screen: &Screen, folder: &Path, address: SocketAddr) -> Result<()> {
    if !folder.join("index.html").is_file() {
        let what = format!("there is no book in {}", folder.display());
        let help = "in a checkout, install mdBook (cargo install mdbook --locked) and rustup target add wasm32-wasip1-threads, \
                    then:  cargo run --bin book -- build; for a room, labs/cluster/build.sh fetch, then build.sh";
        return Err(BadInput::new(what, help).into());
    }
    let listener = TcpListener::bind(address).map_err(|error| {
        let help = "is it served already? else choose another port: --port";
        BadInput::new(format!("cannot serve on {address}: {error}"), help)
    })?;
    let at = listener.local_addr()?;
    screen.say(format!("the book is at http://{at}/ until you press Ctrl-C"));
    if !at.ip().is_loopback() {
        screen.say(screen.wrap(
            "Everyone who reaches this machine can read it, and nothing else of its files. Labs run on its pages only where \
             browsers see 127.0.0.1 or https: through ssh -L 8000:127.0.0.1:8000, or behind a server with a certificate.",
            0,
        ));
    }
    std::thread::scope(|scope| {
        for stream in listener.incoming() {
            // Whoever has asked may be gone, and a browser comes again.
            scope.spawn(move || converse(folder, stream?));
        }
    });
    Ok(())
}

/// Answers the requests of one connection, one after the other.
fn converse(folder: &Path, mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut read = Vec::new();
    loop {
        let Some(asked) = next_request(&mut stream, &mut read)? else {
            return Ok(());
        };
        let mut answer = answer(folder, &asked)?;
        let _ = write!(answer.head, "Content-Length: {}\r\n\r\n", answer.length);
        stream.write_all(answer.head.as_bytes())?;
        if let Some(file) = answer.body.as_mut().filter(|_| asked.method == "GET") {
            io::copy(&mut file.take(answer.length), &mut stream)?;
        }
    }
}

/// What this server reads of a request.
#[derive(Default)]
struct Asked {
    method: String,
    address: String,
    /// The version that the browser has.
    known: String,
    unpacks: bool,
}

/// The next request, of which `read` may hold the beginning. None if there is none, or if it is no
/// request.
fn next_request(stream: &mut TcpStream, read: &mut Vec<u8>) -> io::Result<Option<Asked>> {
    loop {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(read) {
            Ok(httparse::Status::Complete(length)) => {
                let field = |name: &str| {
                    let found =
                        request.headers.iter().find(|one| one.name.eq_ignore_ascii_case(name));
                    found.map_or("", |one| std::str::from_utf8(one.value).unwrap_or_default())
                };
                let asked = Asked {
                    method: request.method.unwrap_or_default().to_string(),
                    address: request.path.unwrap_or_default().to_string(),
                    known: field("If-None-Match").to_string(),
                    unpacks: field("Accept-Encoding").contains("gzip"),
                };
                read.drain(..length);
                return Ok(Some(asked));
            }
            Ok(httparse::Status::Partial) if read.len() < HEAD => {
                let mut more = [0; 4096];
                match stream.read(&mut more)? {
                    0 => return Ok(None),
                    length => read.extend_from_slice(&more[..length]),
                }
            }
            _ => return Ok(None),
        }
    }
}

/// An answer: its head without its length, and the file that follows.
struct Answer {
    head: String,
    length: u64,
    body: Option<File>,
}

impl Answer {
    fn new(status: &str, kind: &str) -> Answer {
        let head = format!(
            "HTTP/1.1 {status}\r\nCross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Embedder-Policy: require-corp\r\n\
             Content-Type: {kind}\r\n"
        );
        Answer { head, length: 0, body: None }
    }
}

fn answer(folder: &Path, asked: &Asked) -> io::Result<Answer> {
    if !["GET", "HEAD"].contains(&&*asked.method) {
        return Ok(Answer::new("405 Method Not Allowed", "text/plain"));
    }
    let Some((path, (file, _))) = file(folder, &asked.address)
        .and_then(|path| Some((path.clone(), files::open(&path).ok()?)))
    else {
        return Ok(Answer::new("404 Not Found", "text/plain"));
    };
    // A page asks for the labs again, and gets them only if they have changed.
    let about = file.metadata()?;
    let version = format!("\"{:?}-{}\"", about.modified()?, about.len());
    let same = asked.known == version;
    let status = if same { "304 Not Modified" } else { "200 OK" };
    let mut answer = Answer::new(status, kind(&path));
    // An address with a version always means the same bytes, so the browser need not ask again.
    let kept = if asked.address.contains("?v=") {
        "max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    let _ = write!(answer.head, "ETag: {version}\r\nCache-Control: {kept}\r\n");
    if same {
        return Ok(answer);
    }
    let packed = files::open(Path::new(&format!("{}.gz", path.display())));
    let body = match packed {
        Ok((packed, _)) if asked.unpacks => {
            answer.head += "Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n";
            packed
        }
        _ => file,
    };
    answer.length = body.metadata()?.len();
    answer.body = Some(body);
    Ok(answer)
}

/// The file that an address means: below `folder`, and of plain names only.
fn file(folder: &Path, url: &str) -> Option<PathBuf> {
    let path = url.split(['?', '#']).next()?.strip_prefix('/')?;
    let is_plain = |part: Component| matches!(part, Component::Normal(_));
    let plain = !path.contains(['%', '\\', ':']) && Path::new(path).components().all(is_plain);
    let found = folder.join(if path.is_empty() { "index.html" } else { path });
    // A link could lead out of the folder.
    let inside = found.canonicalize().ok()?.starts_with(folder.canonicalize().ok()?);
    (plain && inside).then_some(found)
}

fn kind(path: &Path) -> &'static str {
    match path.extension().and_then(|end| end.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("wasm") => "application/wasm",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_book_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let book = dir.path().join("book");
        std::fs::create_dir_all(book.join("run")).unwrap();
        for path in ["secret", "book/index.html", "book/run/labs.wasm"] {
            std::fs::write(dir.path().join(path), "text").unwrap();
        }
        let names = |url| file(&book, url).map(|path| path.strip_prefix(&book).unwrap().to_owned());
        assert_eq!(names("/"), Some("index.html".into()));
        assert_eq!(names("/run/labs.wasm?v=1"), Some("run/labs.wasm".into()));
        for url in
            ["/../secret", "/run/../../secret", "/%2e%2e/secret", "//secret", "secret", "/no"]
        {
            assert_eq!(names(url), None, "{url}");
        }
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(dir.path().join("secret"), book.join("link")).unwrap();
            assert_eq!(names("/link"), None);
        }
    }

    /// What a server answers to these bytes, until it ends the connection.
    fn said(bytes: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("run")).unwrap();
        std::fs::write(dir.path().join("index.html"), "a page").unwrap();
        std::fs::write(dir.path().join("run/labs.wasm"), "a module").unwrap();
        std::fs::write(dir.path().join("run/labs.wasm.gz"), "packed").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut browser = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| converse(dir.path(), stream));
            browser.write_all(bytes.as_bytes()).unwrap();
            browser.shutdown(std::net::Shutdown::Write).unwrap();
            let mut all = String::new();
            // A server that has read too much ends it abruptly.
            browser.read_to_string(&mut all).ok();
            all
        })
    }

    #[test]
    fn a_connection_has_many_requests_and_each_answer_lets_memory_be_shared() {
        let all = said(
            "GET / HTTP/1.1\r\nHost: a\r\n\r\nHEAD / HTTP/1.1\r\n\r\nGET /no HTTP/1.1\r\n\r\n",
        );
        assert_eq!(all.matches("HTTP/1.1 200 OK").count(), 2, "{all}");
        assert_eq!(all.matches("HTTP/1.1 404").count(), 1, "{all}");
        assert_eq!(all.matches("a page").count(), 1, "{all}");
        assert_eq!(all.matches("Embedder-Policy: require-corp").count(), 3, "{all}");
        assert!(said("POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert_eq!(said("no request\r\n\r\n"), "");
        assert_eq!(said(&format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(2 * HEAD))), "");
    }

    #[test]
    fn the_labs_come_packed_and_once() {
        let ask = "GET /run/labs.wasm HTTP/1.1\r\n";
        let whole = said(&format!("{ask}\r\n"));
        assert!(whole.contains("application/wasm") && whole.ends_with("a module"), "{whole}");
        let packed = said(&format!("{ask}Accept-Encoding: br, gzip\r\n\r\n"));
        assert!(packed.contains("Encoding: gzip") && packed.ends_with("packed"), "{packed}");
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("index.html"), "a page").unwrap();
        let mut asked = Asked {
            method: "GET".into(),
            address: "/".into(),
            ..Asked::default()
        };
        let first = answer(dir.path(), &asked).unwrap().head;
        asked.known = first.lines().find_map(|line| line.strip_prefix("ETag: ")).unwrap().into();
        let again = answer(dir.path(), &asked).unwrap();
        assert!(again.head.starts_with("HTTP/1.1 304") && again.body.is_none(), "{}", again.head);
    }
}
