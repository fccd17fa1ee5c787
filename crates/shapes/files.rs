//! Files that someone else wrote: read so that none can hang this program or fill its memory.
//!
//! Opening a pipe waits for its writer, and a device such as /dev/zero never ends. So only regular
//! files are read, and only up to a size that the caller says. And what others may read while this
//! program writes it is replaced as a whole.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::string::FromUtf8Error;

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
/// As [`open`], and if the file is larger or [`foreign`].
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let bytes = whole(path, most)?;
    refuse(foreign(&bytes))?;
    Ok(bytes)
}

fn whole(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (file, size) = open(path)?;
    if size > most {
        let what = format!("it has {size} bytes, and at most {most} are expected");
        return Err(io::Error::new(ErrorKind::FileTooLarge, what));
    }
    let mut bytes = Vec::with_capacity(size as usize);
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a text of at most `most` bytes, without the byte order mark that Windows' programs begin
/// it with.
///
/// # Errors
/// As [`read`], and if the bytes are not UTF-8.
pub fn text(path: &Path, most: u64) -> io::Result<String> {
    let text = text_or_page(path, most)?;
    refuse(page(text.as_bytes()).map(str::to_string))?;
    Ok(text)
}

/// As [`text`], and reads an HTML page like any other text.
///
/// # Errors
/// As [`text`].
pub fn text_or_page(path: &Path, most: u64) -> io::Result<String> {
    let bytes = whole(path, most)?;
    refuse(packed(&bytes).or_else(|| wide(&bytes)))?;
    let text = String::from_utf8(bytes).map_err(|error| invalid(encoding(&error)))?;
    let unmarked = text.strip_prefix(MARK).map(str::to_string);
    Ok(unmarked.unwrap_or(text))
}

fn invalid(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// Refuses a file that is something else.
fn refuse(what: Option<String>) -> io::Result<()> {
    what.map_or(Ok(()), |what| Err(invalid(what)))
}

/// The byte order mark. In UTF-8 it says nothing.
const MARK: char = '\u{feff}';

/// Beginnings of files that hold another file, or say where it is, and what they are.
const PACKED: [(&[u8], &str); 9] = [
    (b"\x1f\x8b\x08", "packed with gzip: `gunzip FILE` unpacks it"),
    (b"PK\x03\x04", "a zip archive, as .docx and .epub are: `unzip FILE` unpacks it"),
    (b"\xfd7zXZ\0", "packed with xz: `unxz FILE` unpacks it"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd: `unzstd FILE` unpacks it"),
    (b"BZh91AY&SY", "packed with bzip2: `bunzip2 FILE` unpacks it"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive: `7z x FILE` unpacks it"),
    (b"%PDF-", "a PDF: `pdftotext FILE -` writes its text"),
    (b"{\\rtf", "RTF, as word processors write: save it as plain text"),
    (b"/annex/objects/", "a git-annex pointer: `git annex get` fetches the file"),
];

/// What a file is, and what helps, where its bytes say that it is not what its name promises: a Git
/// LFS pointer, a packed file, an HTML page. PyTorch's own files are zip archives.
pub fn foreign(bytes: &[u8]) -> Option<String> {
    packed(bytes).or_else(|| page(bytes).map(str::to_string))
}

fn packed(bytes: &[u8]) -> Option<String> {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    // Git LFS says that every pointer is shorter. A longer text is about them.
    if bytes.starts_with(b"version https://git-lfs.github.com/spec/") && bytes.len() < 1024 {
        let text = String::from_utf8_lossy(bytes);
        let size = text.lines().find_map(|line| line.strip_prefix("size ")).unwrap_or("?");
        let what = format!("it is a Git LFS pointer, and not the file of {size} bytes");
        return Some(format!("{what}: `git lfs pull` in its repository fetches that"));
    }
    let found = PACKED.iter().find(|(begins, _)| bytes.starts_with(begins));
    found.map(|(_, is)| format!("it is {is}"))
}

/// Says so where a file begins as an HTML page, which is a text, too.
pub fn page(bytes: &[u8]) -> Option<&'static str> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(1024)]).to_ascii_lowercase();
    // A comment or XML's own line may go before.
    let head = head.trim_start_matches(|c: char| c == MARK || c.is_whitespace());
    let is_html = ["<!doctype html", "<html", "<head>"].iter().any(|tag| head.contains(tag));
    (head.starts_with('<') && is_html).then_some(
        "it is an HTML page, such as a server sends in place of a file: fetch the file's own \
         address (\"raw\", \"resolve\"; curl -fL ends at an error)",
    )
}

/// Says so where a text has two or four bytes for each character. A byte order mark says it, or
/// what no other text has: control characters, NULs among them, in most places of high bytes.
fn wide(bytes: &[u8]) -> Option<String> {
    let head = &bytes[..bytes.len().min(4096) / 4 * 4];
    // Of all first bytes of four, all second, third and fourth ones.
    let is_high = [0, 1, 2, 3].map(|at| {
        let controls = head.iter().skip(at).step_by(4).filter(|&&byte| byte < 0x20);
        let has_nul = head.iter().skip(at % 2).step_by(2).any(|&byte| byte == 0);
        has_nul && controls.count() * 16 > head.len() * 3
    });
    let form = match (bytes, is_high) {
        ([0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..], _) => "UTF-32",
        ([0xff, 0xfe, ..] | [0xfe, 0xff, ..], _) => "UTF-16",
        (_, [false, _, true, true]) => "UTF-32LE",
        (_, [true, true, _, false]) => "UTF-32BE",
        (_, [false, true, false, true]) => "UTF-16LE",
        (_, [true, false, true, false]) => "UTF-16BE",
        _ => return None,
    };
    Some(format!("it is {form}: `iconv -f {form} -t UTF-8 OLD > NEW` makes it UTF-8"))
}

/// Why bytes are not UTF-8, and the command that makes them so.
fn encoding(error: &FromUtf8Error) -> String {
    let bytes = error.as_bytes();
    let at = error.utf8_error().valid_up_to();
    let high = bytes.iter().filter(|byte| **byte >= 0x80).count();
    let why = match error.utf8_error().error_len() {
        _ if bytes.contains(&0) => "it is no text",
        None => "its last character is cut: is the file complete?",
        _ if !bytes[..at].is_ascii() => "`iconv -c -f UTF-8 -t UTF-8 OLD > NEW` drops what is not",
        // A letter here and there is from a Western European text.
        _ if high * 4 < bytes.len() => "`iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW` makes it UTF-8",
        _ => {
            "`iconv -f ENCODING -t UTF-8 OLD > NEW` makes it UTF-8, with the text's own encoding, \
             such as GB18030, SHIFT_JIS or WINDOWS-1251"
        }
    };
    format!("it is not UTF-8 text (byte {at}): {why}")
}

/// A file's bytes in memory.
#[cfg(not(target_family = "wasm"))]
pub type Mapped = memmap2::Mmap;
/// A file's bytes in memory. A browser maps no files.
#[cfg(target_family = "wasm")]
pub type Mapped = Vec<u8>;

/// Maps a file into memory, however large it is: only what is used is read.
///
/// # Errors
/// As [`open`], if the file is [`foreign`] or some words of a server, and if the system cannot map
/// it.
pub fn map(path: &Path) -> io::Result<Mapped> {
    let map = mapped(path)?;
    // Safetensors begin with a number of 8 bytes, which can be any, and JSON.
    if map.get(8) != Some(&b'{') {
        refuse(foreign(&map).or_else(|| answer(&map)))?;
    }
    Ok(map)
}

#[cfg(not(target_family = "wasm"))]
fn mapped(path: &Path) -> io::Result<Mapped> {
    let (file, _) = open(path)?;
    // SAFETY: a model's files do not change while they are read. If a different program cuts one, a
    // signal ends this program, and its memory stays as it is.
    unsafe { Mapped::map(&file) }
}

#[cfg(target_family = "wasm")]
fn mapped(path: &Path) -> io::Result<Mapped> {
    whole(path, u64::MAX)
}

/// Quotes what a server says in place of a file: "Entry not found". Numbers are no such text, JSON
/// is a file of its own, and a few letters may be the rest of one.
fn answer(bytes: &[u8]) -> Option<String> {
    // By its length first: a file may have more bytes than can be looked at.
    if !(8..1024).contains(&bytes.len()) {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?.trim();
    let is_other = text.starts_with(['{', '[']) || text.contains('\0');
    (!is_other).then(|| format!("it is a short text, {text:?}: fetch the file itself"))
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

/// Makes an empty file to write. What had its name is removed: through a link, a file elsewhere
/// would be emptied. For names of this program's own; what a user names may be a link.
///
/// # Errors
/// If the folder does not exist, or the disk refuses.
pub fn create(path: &Path) -> io::Result<File> {
    if path.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
        std::fs::remove_file(path)?;
    }
    File::create_new(path)
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

    #[cfg(unix)]
    #[test]
    fn what_a_link_names_is_not_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let [precious, made] = ["precious", "made"].map(|name| dir.path().join(name));
        std::fs::write(&precious, "precious").unwrap();
        for link in [std::os::unix::fs::symlink, std::fs::hard_link] {
            link(&precious, &made).unwrap();
            create(&made).unwrap().write_all(b"new").unwrap();
            assert_eq!(std::fs::read(&made).unwrap(), b"new");
            assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
            std::fs::remove_file(&made).unwrap();
        }
        create(dir.path()).unwrap_err();
    }

    #[test]
    fn a_file_has_a_size_and_a_text_is_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        std::fs::write(&path, "höher").unwrap();
        assert_eq!(text(&path, 6).unwrap(), "höher");
        let error = read(&path, 5).unwrap_err();
        assert_eq!(error.to_string(), "it has 6 bytes, and at most 5 are expected");
        std::fs::write(&path, [0, 1, 2]).unwrap();
        assert_eq!(&map(&path).unwrap()[..], [0, 1, 2]);
        // A sparse file has a size, and takes no disk.
        File::options().write(true).open(&path).unwrap().set_len(1 << 34).unwrap();
        assert!(
            read(&path, LIST)
                .unwrap_err()
                .to_string()
                .starts_with("it has 17179869184 bytes")
        );
        std::fs::write(&path, [b'a', 0xff]).unwrap();
        let said = text(&path, 6).unwrap_err().to_string();
        assert!(said.starts_with("it is not UTF-8 text (byte 1): "), "{said}");
    }

    /// What each way to read says of these bytes: a text, a page or text, a list, a map.
    fn said(bytes: &[u8]) -> [String; 4] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, bytes).unwrap();
        let path = file.path();
        let text = |read: io::Result<String>| read.unwrap_or_else(|error| error.to_string());
        let bytes = |read: io::Result<Vec<u8>>| match read {
            Ok(bytes) => format!("{} bytes", bytes.len()),
            Err(error) => error.to_string(),
        };
        [
            text(super::text(path, LIST)),
            text(text_or_page(path, LIST)),
            bytes(read(path, LIST)),
            bytes(map(path).map(|map| map.to_vec())),
        ]
    }

    #[test]
    fn a_pointer_a_packed_file_and_a_page_are_named_by_every_reader() {
        let pointer = format!(
            "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 4976698672\n",
            "0".repeat(64)
        );
        let named = "it is a Git LFS pointer, and not the file of 4976698672 bytes: `git lfs pull` in \
                     its repository fetches that";
        let marked = format!("\u{feff}{pointer}");
        let lines = pointer.replace('\n', "\r\n");
        assert_eq!(said(pointer.as_bytes()), [named; 4]);
        assert_eq!(said(marked.as_bytes()), [named; 4]);
        assert_eq!(said(lines.as_bytes()), [named; 4]);
        // A text about pointers is longer than any of them.
        let about = pointer.repeat(9);
        assert_eq!(said(about.as_bytes())[0], about);

        assert!(said(b"\x1f\x8b\x08\0\0").iter().all(|said| said.contains("`gunzip FILE`")));
        assert!(said(b"PK\x03\x04\x14\0").iter().all(|said| said.contains("`unzip FILE`")));
        assert!(said(b"%PDF-1.7\n").iter().all(|said| said.contains("`pdftotext FILE -`")));
        // The length of a header of 559,903 bytes has gzip's first bytes.
        assert_eq!(said(b"\x1f\x8b\x08\0\0\0\0\0{}")[3], "10 bytes");

        for page in [
            "<!DOCTYPE html><title>404</title>",
            "\n\n  <HTML lang=\"en\">",
            "\u{feff}<?xml version=\"1.0\"?>\n<!DOCTYPE html PUBLIC \"-//W3C//DTD XHTML 1.0\">",
            "<!-- saved -->\n<html><body>",
        ] {
            let [text, either, list, map] = said(page.as_bytes());
            for said in [&text, &list, &map] {
                assert!(said.starts_with("it is an HTML page"), "{page}: {said}");
            }
            assert_eq!(either, page.trim_start_matches(MARK));
        }
        assert!(said(b"{\\rtf1\\ansi Hello}").iter().all(|said| said.starts_with("it is RTF")));
        for text in ["In HTML a page is <html>.", "<p>no page</p>", "# <html>\n", "<head", "{}"] {
            assert_eq!(said(text.as_bytes())[0], text);
        }
        assert!(said(b"Entry not found")[3].starts_with("it is a short text, \"Entry not found\""));
        assert_eq!(said(b"GGUF\0")[3], "5 bytes");
    }

    #[test]
    fn a_text_has_no_mark_and_other_encodings_are_named() {
        assert_eq!(said("\u{feff}h\u{feff}öher".as_bytes())[0], "h\u{feff}öher");
        assert_eq!(said("\u{feff}".as_bytes())[0], "");
        let wide = |text: &str, big: bool| -> Vec<u8> {
            let bytes = |unit: u16| if big { unit.to_be_bytes() } else { unit.to_le_bytes() };
            text.encode_utf16().flat_map(bytes).collect()
        };
        for text in [
            "To be, or not to be",
            "Быть или не быть",
            "होना या न होना, यही सवाल है",
            "It\u{2019}s 😀, she said; late",
            "a\nb\nc\nd\n",
        ] {
            for (big, named) in [(false, "it is UTF-16LE: "), (true, "it is UTF-16BE: ")] {
                let said = &said(&wide(text, big))[0];
                assert!(said.starts_with(named), "{text}: {said}");
            }
            assert_eq!(
                said(&wide(&format!("{MARK}{text}"), true))[0],
                "it is UTF-16: `iconv -f UTF-16 -t UTF-8 OLD > NEW` makes it UTF-8"
            );
            let longer: Vec<u8> = text.chars().flat_map(|c| (c as u32).to_le_bytes()).collect();
            assert!(said(&longer)[0].starts_with("it is UTF-32LE: "), "{text}");
            let longer: Vec<u8> = text.chars().flat_map(|c| (c as u32).to_be_bytes()).collect();
            assert!(said(&longer)[0].starts_with("it is UTF-32BE: "), "{text}");
        }
        for text in ["la\0te, she said", "a\nb\nc\nd\n", "\0\0\0\0", "a\0", "\t1\t2\t3\t4\0\0"] {
            assert_eq!(said(text.as_bytes())[0], text);
        }
        for (bytes, help) in [
            (&b"it\x92s late"[..], "-f WINDOWS-1252"),
            (b"\xc4\xe3\xba\xc3\xca\xc0\xbd\xe7", "-f ENCODING"),
            ("hö\u{e9}".as_bytes().split_last().unwrap().1, "its last character is cut"),
            (b"h\xc3\xb6\x92her", "-c -f UTF-8"),
            (b"\x7fELF\x02\0\0\xff\0", "it is no text"),
        ] {
            let said = &said(bytes)[0];
            assert!(said.starts_with("it is not UTF-8 text (byte "), "{said}");
            assert!(said.contains(help), "{help}: {said}");
        }
    }
}
