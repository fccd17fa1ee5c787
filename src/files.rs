//! Files that someone else wrote: read so that none can hang this program or fill its memory.
//!
//! Opening a pipe waits for its writer, and a device such as /dev/zero never ends. So only regular
//! files are read, and only up to a size that the caller says. And what others may read while this
//! program writes it is replaced as a whole.

use memmap2::Mmap;
use std::fs::File;
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
    // By name, before it is opened: opening a pipe waits for its writer.
    let about = std::fs::metadata(path)?;
    if !about.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    Ok((File::open(path)?, about.len()))
}

/// Reads a file of at most `most` bytes.
///
/// # Errors
/// As [`open`], and if the file is larger.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (file, size) = open(path)?;
    if size > most {
        let what = format!("it has {size} bytes, and at most {most} are expected");
        return Err(io::Error::new(ErrorKind::FileTooLarge, what));
    }
    let mut bytes = Vec::with_capacity(size as usize);
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
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
    #[cfg_attr(not(unix), allow(unused_mut, reason = "only unix has permissions"))]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // On a thread: opening the pipe would wait for ever.
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || send.send(open(&pipe).unwrap_err().to_string()));
        let said = receive.recv_timeout(std::time::Duration::from_secs(20)).expect("it waits");
        assert_eq!(said, "it is no regular file");
        for folder in [dir.path(), Path::new("/dev/zero")] {
            assert_eq!(map(folder).unwrap_err().to_string(), "it is no regular file");
        }
    }

    #[test]
    fn a_file_has_a_size_and_a_text_is_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        std::fs::write(&path, "höher").unwrap();
        assert_eq!(text(&path, 6).unwrap(), "höher");
        assert_eq!(&map(&path).unwrap()[..], "höher".as_bytes());
        let error = read(&path, 5).unwrap_err();
        assert_eq!(error.to_string(), "it has 6 bytes, and at most 5 are expected");
        // A sparse file has a size, and takes no disk.
        File::options().write(true).open(&path).unwrap().set_len(1 << 34).unwrap();
        assert!(
            read(&path, LIST)
                .unwrap_err()
                .to_string()
                .starts_with("it has 17179869184 bytes")
        );
        std::fs::write(&path, [b'a', 0xff]).unwrap();
        assert_eq!(text(&path, 6).unwrap_err().to_string(), "it is not UTF-8 text (byte 1)");
    }
}
