//! What a browser gets that asks for a page of the built book: which file, in which form, and under
//! which headers. How requests come is `serve.rs`.

use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use std::cell::Cell;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Instant, UNIX_EPOCH};

/// Bytes of a file that are read at once.
const CHUNK: u64 = 64 << 10;

/// The answer to a request for something below `folder`. `moved` is set to the time at which a part
/// of it is taken.
pub fn answer<T>(folder: &Path, asked: &Request<T>, moved: &Rc<Cell<Instant>>) -> Response<Part> {
    if ![Method::GET, Method::HEAD].contains(asked.method()) {
        let mut answer = told(StatusCode::METHOD_NOT_ALLOWED, "this server is read, with GET\n");
        put(&mut answer, header::ALLOW, "GET, HEAD");
        return answer;
    }
    let found = file(folder, asked.uri().path()).and_then(|path| Ok((open(folder, &path)?, path)));
    let (plain, path) = match found {
        Ok(found) => found,
        Err(error) if no_descriptor_is_left(&error) => {
            let mut answer = told(StatusCode::SERVICE_UNAVAILABLE, "too many files are open\n");
            put(&mut answer, header::RETRY_AFTER, "1");
            return answer;
        }
        Err(_) => return missing(folder, moved),
    };
    let packed = Some(&path).filter(|_| unpacks(asked.headers())).and_then(|path| {
        let packed = open(folder, &path.with_added_extension("gz")).ok()?;
        // One that is older has been made of an older file.
        (packed.modified >= plain.modified).then_some(packed)
    });
    let is_packed = packed.is_some();
    let sent = packed.unwrap_or(plain);
    // A page asks for the labs again, and gets them only if they have changed.
    let mark = if is_packed { "-gz" } else { "" };
    let version = format!("\"{:x}-{:x}{mark}\"", sent.modified, sent.length);
    // An address with a version always means the same bytes, so the browser need not ask again.
    let kept = match asked.uri().query() {
        Some(query) if query.starts_with("v=") => "max-age=31536000, immutable",
        _ => "no-cache",
    };
    let mut answer = if knows(asked.headers(), &version) {
        let mut answer = Response::new(Part::default());
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        answer
    } else {
        let mut answer = of_file(sent, kind(&path), moved);
        if is_packed {
            put(&mut answer, header::CONTENT_ENCODING, "gzip");
        }
        answer
    };
    put(&mut answer, header::ETAG, &version);
    put(&mut answer, header::CACHE_CONTROL, kept);
    put(&mut answer, header::VARY, "Accept-Encoding");
    may_share_memory(answer)
}

/// Without these two, a page's ranks may not share memory.
fn may_share_memory(mut answer: Response<Part>) -> Response<Part> {
    put(
        &mut answer,
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    );
    let embedder = HeaderName::from_static("cross-origin-embedder-policy");
    put(&mut answer, embedder, "require-corp");
    answer
}

fn put(answer: &mut Response<Part>, name: HeaderName, value: &str) {
    let value = HeaderValue::from_str(value).expect("values are of plain characters");
    answer.headers_mut().insert(name, value);
}

/// An answer of a few words.
fn told(status: StatusCode, text: &'static str) -> Response<Part> {
    let mut answer = Response::new(Part { text: Bytes::from_static(text.as_bytes()), file: None });
    *answer.status_mut() = status;
    put(&mut answer, header::CONTENT_TYPE, "text/plain");
    may_share_memory(answer)
}

/// The book's own page for an address that it does not have, or a word.
fn missing(folder: &Path, moved: &Rc<Cell<Instant>>) -> Response<Part> {
    let Ok(page) = open(folder, &folder.join("404.html")) else {
        return told(StatusCode::NOT_FOUND, "the book has no such page\n");
    };
    let mut answer = of_file(page, "text/html; charset=utf-8", moved);
    *answer.status_mut() = StatusCode::NOT_FOUND;
    may_share_memory(answer)
}

fn of_file(opened: Opened, kind: &str, moved: &Rc<Cell<Instant>>) -> Response<Part> {
    let length = opened.length;
    let file = Some(Sent { left: length, opened, moved: moved.clone(), yields: false });
    let mut answer = Response::new(Part { text: Bytes::new(), file });
    put(&mut answer, header::CONTENT_TYPE, kind);
    put(&mut answer, header::CONTENT_LENGTH, &length.to_string());
    answer
}

/// A regular file of the book.
struct Opened {
    file: File,
    length: u64,
    /// Nanoseconds since 1970.
    modified: u128,
}

impl Opened {
    fn new(file: File) -> io::Result<Opened> {
        let about = file.metadata()?;
        if !about.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        Ok(Opened { length: about.len(), modified: modified(&about)?, file })
    }
}

fn modified(about: &Metadata) -> io::Result<u128> {
    Ok(about.modified()?.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos()))
}

/// Opens what a path means after all links, if that lies in the folder.
fn open(folder: &Path, path: &Path) -> io::Result<Opened> {
    let real = path.canonicalize()?;
    if !real.starts_with(folder.canonicalize()?) {
        return Err(io::Error::other("a link leads out of the folder"));
    }
    let mut options = OpenOptions::new();
    options.read(true);
    // By now it may be a link, or a pipe, whose opening would wait for its writer.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        libc::O_NOFOLLOW | libc::O_NONBLOCK,
    );
    Opened::new(options.open(real)?)
}

fn no_descriptor_is_left(error: &io::Error) -> bool {
    cfg!(unix) && [Some(libc::EMFILE), Some(libc::ENFILE)].contains(&error.raw_os_error())
}

/// The path below `folder` that an address means: of plain names only.
fn file(folder: &Path, address: &str) -> io::Result<PathBuf> {
    let refused = || io::Error::other("no plain names");
    let names = address.strip_prefix('/').ok_or_else(refused)?;
    let mut path = folder.to_path_buf();
    let mut names = names.split('/').peekable();
    while let Some(name) = names.next() {
        let name = decoded(name).ok_or_else(refused)?;
        let is_last = names.peek().is_none();
        match &*name {
            "" if is_last => path.push("index.html"),
            "" | "." | ".." => return Err(refused()),
            _ if name.contains(['/', '\\', ':']) => return Err(refused()),
            _ if name.contains(char::is_control) => return Err(refused()),
            _ => path.push(name),
        }
    }
    Ok(path)
}

/// A name in which `%20` is a space.
fn decoded(name: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first != b'%' {
            bytes.push(first);
            rest = after;
            continue;
        }
        let (digits, after) = after.split_at_checked(2)?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push((16 * digit(digits[0])? + digit(digits[1])?) as u8);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

/// The items of a header that is a list, from all of its lines.
fn items(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

/// Whether the browser takes a packed file: `gzip`, not `gzip;q=0`.
fn unpacks(headers: &HeaderMap) -> bool {
    let weight = |name: &str| {
        items(headers, header::ACCEPT_ENCODING).find_map(|item| {
            let mut words = item.split(';').map(str::trim);
            if !words.next()?.eq_ignore_ascii_case(name) {
                return None;
            }
            let weight = words.find_map(|word| word.strip_prefix(['q', 'Q'])?.strip_prefix('='));
            weight.map_or(Some(1.0), |weight| weight.trim().parse().ok())
        })
    };
    let weight: Option<f64> = weight("gzip").or_else(|| weight("x-gzip")).or_else(|| weight("*"));
    weight.is_some_and(|weight| weight > 0.0)
}

/// Whether the browser has this version.
fn knows(headers: &HeaderMap, version: &str) -> bool {
    let mut known = items(headers, header::IF_NONE_MATCH);
    known.any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == version)
}

fn kind(path: &Path) -> &'static str {
    match path.extension().and_then(|end| end.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("txt") => "text/plain; charset=utf-8",
        Some("wasm") => "application/wasm",
        Some("woff2") => "font/woff2",
        Some("xml") => "application/xml",
        _ => "application/octet-stream",
    }
}

/// What follows an answer's head: a text, or a file.
#[derive(Default)]
pub struct Part {
    text: Bytes,
    file: Option<Sent>,
}

/// A file that is being sent.
struct Sent {
    opened: Opened,
    left: u64,
    moved: Rc<Cell<Instant>>,
    /// Whether others have their turn before the next bytes. A socket takes millions of them at
    /// once, and all connections share one thread.
    yields: bool,
}

impl Sent {
    /// The next bytes. An error ends the connection: a file that has become another one, such as
    /// that of a book that is built again, would otherwise end in the next answer's head.
    fn next(&mut self) -> io::Result<Bytes> {
        self.moved.set(Instant::now());
        let mut bytes = vec![0; self.left.min(CHUNK) as usize];
        self.opened.file.read_exact(&mut bytes)?;
        self.left -= bytes.len() as u64;
        self.yields = true;
        let about = self.opened.file.metadata()?;
        if about.len() != self.opened.length || modified(&about)? != self.opened.modified {
            return Err(io::Error::other("the file has changed"));
        }
        Ok(bytes.into())
    }
}

impl Body for Part {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(file) = &mut self.file
            && std::mem::take(&mut file.yields)
        {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        // Reading waits for the disk, and all connections with it: a thread for that could not
        // always be started, and a folder that is slow is slow for all of them.
        Poll::Ready(if self.is_end_stream() {
            None
        } else if let Some(file) = &mut self.file {
            Some(file.next().map(Frame::data))
        } else {
            Some(Ok(Frame::data(std::mem::take(&mut self.text))))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.size_hint().exact() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.file.as_ref().map_or(self.text.len() as u64, |file| file.left);
        SizeHint::with_exact(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    /// A large file leaves in parts, and between two of them all other connections have a turn,
    /// however much the socket takes.
    #[test]
    fn others_have_their_turn_between_parts_of_a_large_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large");
        let length = 5 * CHUNK / 2;
        std::fs::write(&path, vec![7; length as usize]).unwrap();
        let opened = Opened::new(File::open(&path).unwrap()).unwrap();
        let moved = Rc::new(Cell::new(Instant::now()));
        let sent = Sent { opened, left: length, moved, yields: false };
        let mut part = Part { text: Bytes::new(), file: Some(sent) };
        let mut context = Context::from_waker(Waker::noop());
        for bytes in [CHUNK, CHUNK, CHUNK / 2] {
            let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut part).poll_frame(&mut context) else {
                panic!("no part of {bytes} bytes");
            };
            assert_eq!(frame.into_data().unwrap().len() as u64, bytes);
            assert!(bytes < CHUNK || Pin::new(&mut part).poll_frame(&mut context).is_pending());
        }
        assert!(part.is_end_stream());
    }
}
