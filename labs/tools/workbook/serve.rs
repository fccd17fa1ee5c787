//! The built book on a port of this machine: which connections there are, and how long each may
//! take. HTTP itself is hyper's, and `pages.rs` says which file answers a request.
//!
//! All runs on one thread: where a system gives no more threads, as on many login nodes, everyone
//! is still served. Left out: ranges, uploads, encryption.

use super::pages::{self, Part};
use super::shared_build::SharedBuild;
use anyhow::Result;
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use kit::reader::Folders;
use kit::show::Screen;
use shardlab::error::BadInput;
use std::cell::Cell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

/// A connection is closed that neither completes a request nor takes a part of an answer for so
/// long, however often it sends or takes a byte.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a connection keeps its place at least, where others wait for one.
const GRACE: Duration = Duration::from_millis(200);
/// How long nothing is done where nothing can be: no place is free, or the system has no file left.
const PAUSE: Duration = Duration::from_millis(5);
/// Connections at a time, at most. A browser opens six.
const MOST: usize = 256;
/// The bytes of a request's head, at most. Cookies of 127.0.0.1 are shared by all of its ports.
const HEAD: usize = 64 << 10;

/// The folder of the built book: this room's, or the one of the checkout around the reader, or else
/// of the one that this program was built from.
pub fn built_book() -> PathBuf {
    let built = || Folders::find().map_or_else(|from| from, |folders| folders.root);
    SharedBuild::of_this_program()
        .map_or_else(|| built().join("target/book"), |shared| shared.book())
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
    let listener = std::net::TcpListener::bind(address).map_err(|error| {
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
    answer_all(folder, listener, most_connections(), PATIENCE)
}

/// Serves whoever connects, at most `most` at a time, and none that does nothing for `patience`.
fn answer_all(
    folder: &Path,
    listener: std::net::TcpListener,
    most: usize,
    patience: Duration,
) -> Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let folder: Rc<Path> = folder.into();
    LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::from_std(listener)?;
        let mut open: Vec<Open> = Vec::new();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    leave_room(&mut open, most).await;
                    open.push(Open::new(&folder, stream, patience));
                }
                // The system has no file left for it, or the browser has gone.
                Err(_) => {
                    let fewer = open.len().max(1);
                    leave_room(&mut open, fewer).await;
                    sleep(PAUSE).await;
                }
            }
        }
    })
}

/// Waits until fewer than `most` connections are open. Nobody is kept out by those who only hold a
/// place: the one that has waited longest ends, and a browser opens that again.
async fn leave_room(open: &mut Vec<Open>, most: usize) {
    loop {
        open.retain(|one| !one.end.is_finished());
        if open.len() < most {
            return;
        }
        let idlest = (0..open.len()).min_by_key(|&at| open[at].moved.get());
        match idlest.filter(|&at| open[at].moved.get().elapsed() >= GRACE) {
            Some(at) => open.swap_remove(at).end.abort(),
            None => sleep(PAUSE).await,
        }
    }
}

/// [`MOST`], or fewer where the system does not let this process open so many files: each
/// connection is one, and may read another.
fn most_connections() -> usize {
    /// Those that the process has open besides.
    const OTHERS: u64 = 16;
    #[cfg(unix)]
    {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the call fills the value, of which all bits are valid.
        if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0 {
            // Two files for each in turn: the form that is sent, and the other one.
            let most = limit.rlim_cur.saturating_sub(OTHERS) / 2;
            return most.clamp(1, MOST as u64) as usize;
        }
    }
    MOST
}

/// An open connection.
struct Open {
    /// When it last completed a request, or took a part of an answer.
    moved: Rc<Cell<Instant>>,
    end: AbortHandle,
}

impl Open {
    fn new(folder: &Rc<Path>, stream: TcpStream, patience: Duration) -> Open {
        let moved = Rc::new(Cell::new(Instant::now()));
        let task = spawn_local(converse(folder.clone(), stream, moved.clone(), patience));
        Open { moved, end: task.abort_handle() }
    }
}

/// Answers the requests of one connection, one after the other. Whoever has asked may be gone, and
/// a browser comes again, so nobody is told of an error.
async fn converse(
    folder: Rc<Path>,
    stream: TcpStream,
    moved: Rc<Cell<Instant>>,
    patience: Duration,
) {
    let answer = service_fn(|asked: Request<Incoming>| {
        moved.set(Instant::now());
        let answer = answer(&folder, &asked, &moved);
        async { Ok::<_, Infallible>(answer) }
    });
    let mut http = http1::Builder::new();
    // A browser that has asked all that it will may say so.
    http.half_close(true).max_buf_size(HEAD);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), answer));
    loop {
        let left = patience.saturating_sub(moved.get().elapsed());
        if left.is_zero() || timeout(left, connection.as_mut()).await.is_ok() {
            return;
        }
    }
}

fn answer(folder: &Path, asked: &Request<Incoming>, moved: &Rc<Cell<Instant>>) -> Response<Part> {
    let mut answer = pages::answer(folder, asked, moved);
    // No answer needs a request's body. It is not read, lest someone sees a next request in it.
    if !asked.body().is_end_stream() {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    /// A byte now and then, and an answer that nobody takes: both end when their time is over.
    #[test]
    fn a_connection_in_which_nothing_moves_ends() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().to_path_buf();
        std::fs::write(folder.join("large"), vec![0; 50 << 20]).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let patience = Duration::from_millis(500);
        std::thread::spawn(move || answer_all(&folder, listener, MOST, patience).unwrap());
        let start = Instant::now();
        let mut slow = TcpStream::connect(address).unwrap();
        let mut deaf = TcpStream::connect(address).unwrap();
        deaf.write_all(b"GET /large HTTP/1.1\r\n\r\n").unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\nX: ").unwrap();
        while slow.write_all(b"a").is_ok() {
            assert!(start.elapsed() < 20 * patience, "it waits for ever");
            std::thread::sleep(patience / 20);
        }
        assert!(start.elapsed() >= patience, "{:?}", start.elapsed());
        std::thread::sleep(patience);
        let mut all = Vec::new();
        deaf.set_read_timeout(Some(20 * patience)).unwrap();
        if let Err(error) = deaf.read_to_end(&mut all) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        assert!(all.len() < 50 << 20, "{}", all.len());
    }
}
