//! The checksum of a file, as the hub gives it in the header ETag.

use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::path::Path;

/// A checksum, as the hub has it for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum<'a> {
    /// The SHA-256, for large files.
    Sha256(&'a str),
    /// Git's name for the contents, for files in the repository itself.
    Git(&'a str),
    /// A scheme that only this server knows.
    Unknown,
}

impl Sum<'_> {
    pub fn of(etag: &str) -> Sum<'_> {
        match (etag.len(), etag.chars().all(|c| c.is_ascii_hexdigit())) {
            (64, true) => Sum::Sha256(etag),
            (40, true) => Sum::Git(etag),
            _ => Sum::Unknown,
        }
    }
}

/// How a file differs from the expected size or checksum; `None` if it does not.
pub fn difference(path: &Path, size: u64, sum: Sum) -> io::Result<Option<String>> {
    let found = path.metadata()?.len();
    if found != size {
        return Ok(Some(format!("it has {found} bytes, not {size}")));
    }
    let (found, expected) = match sum {
        Sum::Sha256(expected) => (hash(path, Sha256::new())?, expected),
        Sum::Git(expected) => {
            (hash(path, Sha1::new_with_prefix(format!("blob {size}\0")))?, expected)
        }
        Sum::Unknown => return Ok(None),
    };
    Ok((!found.eq_ignore_ascii_case(expected))
        .then(|| format!("its checksum is {found}, not {expected}")))
}

fn hash<D: Digest>(path: &Path, mut digest: D) -> io::Result<String> {
    let (mut file, _) = shardlab::files::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect());
        }
        digest.update(&buffer[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'hello\n' | git hash-object --stdin`, and `sha256sum`.
    #[test]
    fn sums_are_those_of_git_and_sha256sum() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hello");
        std::fs::write(&path, "hello\n").unwrap();
        let git = "ce013625030ba8dba906f756967f9e9ca394464a";
        let sha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        for sum in [git, sha256, "W/\"5f\""] {
            assert_eq!(difference(&path, 6, Sum::of(sum)).unwrap(), None);
        }
        assert_eq!(difference(&path, 7, Sum::Unknown).unwrap().unwrap(), "it has 6 bytes, not 7");
        std::fs::write(&path, "hello!").unwrap();
        for sum in [git, sha256] {
            assert!(
                difference(&path, 6, Sum::of(sum))
                    .unwrap()
                    .unwrap()
                    .ends_with(&format!("not {sum}"))
            );
        }
    }
}
