//! Files that someone else wrote: opened so that no pipe, device or endless file can hang this
//! program or fill its memory.
//!
//! The name that a user gives, or the folder that many people share, may hold anything. Opening a
//! pipe waits for its writer, and a device such as /dev/zero never ends. So only regular files are
//! read, and only up to a size that the caller says. And what others may read while this program
//! writes it is replaced as a whole.

use memmap2::Mmap;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

/// The most bytes of a file that a person or a program writes to be read as a whole: settings, a
/// list, a report.
pub const LIST: u64 = 64 << 20;

/// Opens a regular file to read it. Returns its size, too.
///
/// # Errors
/// If there is no such file, it may not be read, or it is no regular file (a folder, a pipe, a
/// device).
pub fn open(path: &Path) -> io::Result<(File, u64)> {
    // First by name: opening some devices does something, rewinding a tape for example.
    regular(&std::fs::metadata(path)?)?;
    // What the name means may have changed since.
    open_now(path)
}

fn open_now(path: &Path) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    options.read(true);
    // With this flag, opening a pipe does not wait.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        libc::O_NONBLOCK | libc::O_NOCTTY,
    );
    let file = options.open(path)?;
    let about = file.metadata()?;
    regular(&about)?;
    Ok((file, about.len()))
}

/// Reads a file of at most `most` bytes.
///
/// # Errors
/// As [`open`], and if the file is larger.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let too_large = |size: u64| {
        let what = format!("it has {size} bytes, and at most {most} are expected");
        Err(io::Error::new(ErrorKind::FileTooLarge, what))
    };
    let (file, size) = open(path)?;
    if size > most {
        return too_large(size);
    }
    let mut bytes = Vec::with_capacity(size as usize);
    // The file may grow meanwhile.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        too_large(bytes.len() as u64)
    } else {
        Ok(bytes)
    }
}

/// Reads a text of at most `most` bytes.
///
/// # Errors
/// As [`read`], and if the bytes are not UTF-8.
pub fn text(path: &Path, most: u64) -> io::Result<String> {
    let text = String::from_utf8(read(path, most)?);
    text.map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(ErrorKind::InvalidData, format!("it is not UTF-8 text (byte {at})"))
    })
}

/// Maps a file into memory, however large it is: only what is used is read.
///
/// # Errors
/// As [`open`], and if the system cannot map it.
pub fn map(path: &Path) -> io::Result<Mmap> {
    let (file, _) = open(path)?;
    // SAFETY: a model's files do not change while they are read. If a different program cuts one, a
    // signal ends this program, and its memory stays as it is.
    unsafe { Mmap::map(&file) }
}

/// Writes a file of `bytes`, either completely or not at all: an earlier one is replaced when all
/// bytes are on the disk.
///
/// # Errors
/// If the folder does not exist, or the disk refuses.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = tempfile::Builder::new();
    // The user's umask decides the permissions, as for any file that a program writes.
    #[cfg(unix)]
    file.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    // In the same folder, so that one rename replaces the old file.
    let mut file = file.tempfile_in(path.parent().unwrap_or(Path::new("")))?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

fn regular(about: &Metadata) -> io::Result<()> {
    if about.is_file() {
        return Ok(());
    }
    Err(io::Error::other(format!("it is no regular file but {}", kind(about))))
}

#[cfg(unix)]
fn kind(about: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let kind = about.file_type();
    match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    }
}

#[cfg(not(unix))]
fn kind(about: &Metadata) -> &'static str {
    if about.is_dir() { "a folder" } else { "a device" }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Reads on a thread, so that a read that never ends fails the test.
    fn refused(path: &Path, most: u64) -> String {
        let (send, receive) = channel();
        let path = path.to_path_buf();
        std::thread::spawn(move || {
            let read = read(&path, most).map(drop).and_then(|()| map(&path).map(drop));
            send.send(read.unwrap_err().to_string())
        });
        receive.recv_timeout(Duration::from_secs(20)).expect("it waits")
    }

    #[test]
    fn what_is_no_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        std::os::unix::fs::symlink("/dev/zero", at("zero")).unwrap();
        std::os::unix::fs::symlink(at("pipe"), at("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for (name, what) in [
            ("pipe", "a pipe"),
            ("link", "a pipe"),
            ("zero", "a device"),
            ("socket", "a socket"),
            ("", "a folder"),
        ] {
            assert_eq!(refused(&at(name), 100), format!("it is no regular file but {what}"));
        }
        assert!(refused(&at("none"), 100).contains("No such file"));
    }

    /// The name was a file's when it was looked at, and is a pipe's when it is opened.
    #[test]
    fn opening_a_pipe_itself_does_not_wait() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (send, receive) = channel();
        std::thread::spawn(move || send.send(open_now(&pipe).unwrap_err().to_string()));
        let said = receive
            .recv_timeout(Duration::from_secs(20))
            .expect("it waits for the pipe's writer");
        assert_eq!(said, "it is no regular file but a pipe");
    }

    #[test]
    fn a_file_has_a_size_and_a_text_is_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        std::fs::write(&path, "höher").unwrap();
        assert_eq!(text(&path, 6).unwrap(), "höher");
        assert_eq!(&map(&path).unwrap()[..], "höher".as_bytes());
        assert_eq!(
            read(&path, 5).unwrap_err().to_string(),
            "it has 6 bytes, and at most 5 are expected"
        );
        // A sparse file has a size, and takes no disk.
        File::options().write(true).open(&path).unwrap().set_len(1 << 34).unwrap();
        assert!(
            read(&path, LIST)
                .unwrap_err()
                .to_string()
                .starts_with("it has 17179869184 bytes")
        );
        assert_eq!(map(&path).unwrap().len(), 1 << 34);
        std::fs::write(&path, [b'a', 0xff]).unwrap();
        assert_eq!(text(&path, 6).unwrap_err().to_string(), "it is not UTF-8 text (byte 1)");
        // The system's own lists have no size.
        assert!(
            text(Path::new("/proc/self/status"), LIST)
                .map_or(cfg!(target_os = "macos"), |text| !text.is_empty())
        );
    }
}
