//! The archive: where its entries are. They are stored as they are, never compressed, so a
//! file's entries cannot be larger than the file.
//!
//! Not the crate `zip` 9.2.2, with which `write.rs` writes: its `ZipArchive` makes room for as
//! many entries as a file claims to have before it has read one, and the process aborts if the
//! claim is false. It may use any of several end records, so no look at the file beforehand
//! bounds that. `ZipIterable`, which makes no room, is no stable part of that crate.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

/// The directory of an archive, in bytes. Each entry takes about a hundred.
const DIRECTORY: u64 = 64 << 20;

const LOCAL: u64 = 0x0403_4b50;
const CENTRAL: u64 = 0x0201_4b50;
const END: u64 = 0x0605_4b50;
const END64: u64 = 0x0606_4b50;
const LOCATOR64: u64 = 0x0706_4b50;

/// An entry of the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    header: u64,
    pub size: u64,
    /// The checksum, or 0 where the writer left it out.
    pub crc: u32,
}

/// The entries of an archive by name, without the folder that all of them share.
#[derive(Default)]
pub(super) struct Listing {
    pub entries: HashMap<String, Entry>,
    /// The folder that all entries share.
    pub folder: String,
    /// Where the archive begins in its file: several can be in one.
    begin: u64,
    /// The directory's offset in the archive. All entries end before it.
    end: u64,
}

pub(super) fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<u64, String> {
    let part = at
        .checked_add(N)
        .and_then(|end| bytes.get(at..end))
        .ok_or("its directory ends too early")?;
    let mut array = [0; 8];
    array[..N].copy_from_slice(part);
    Ok(u64::from_le_bytes(array))
}

/// Reads `size` bytes from `at`. The caller has bounded `size`.
pub(super) fn read_at(mut file: &File, at: u64, size: usize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; size];
    let read = file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut bytes));
    read.map_err(|error| format!("{size} bytes at {at} cannot be read: {error}"))?;
    Ok(bytes)
}

/// Lists the entries of the archive that these bytes of a file are.
pub(super) fn list(file: &File, archive: Range<u64>) -> Result<Listing, String> {
    let length = archive.end - archive.start;
    // The end record is the last thing in the archive, except for a comment of at most 64 KiB.
    let tail = length.min(22 + 0xffff);
    let last = read_at(file, archive.end - tail, tail as usize)?;
    let begins = |at: &usize| number::<4>(&last, *at) == Ok(END);
    let Some(at) = (0..last.len().saturating_sub(21)).rev().find(begins) else {
        return Err(
            "it is no zip archive, or it is truncated: its end record is missing".to_string()
        );
    };
    let mut count = number::<2>(&last, at + 10)?;
    let mut size = number::<4>(&last, at + 12)?;
    let mut begin = number::<4>(&last, at + 16)?;
    if (count == 0xffff || size == 0xffff_ffff || begin == 0xffff_ffff)
        && let Some(locator) = at.checked_sub(20)
        && number::<4>(&last, locator)? == LOCATOR64
    {
        let record = number::<8>(&last, locator + 8)?;
        if record.checked_add(56).is_none_or(|end| end > length) {
            return Err("its large directory is not in the file".to_string());
        }
        let record = read_at(file, archive.start + record, 56)?;
        if number::<4>(&record, 0)? != END64 {
            return Err("its large directory is broken".to_string());
        }
        (count, size, begin) =
            (number::<8>(&record, 32)?, number::<8>(&record, 40)?, number::<8>(&record, 48)?);
    }
    if size > DIRECTORY || begin.checked_add(size).is_none_or(|end| end > length) {
        return Err(format!("its directory would be {size} bytes at {begin} of {length}"));
    }
    let directory = read_at(file, archive.start + begin, size as usize)?;
    let mut listing = Listing { begin: archive.start, end: begin, ..Listing::default() };
    let mut at = 0;
    for _ in 0..count {
        at = listing.add(&directory, at)?;
    }
    Ok(listing)
}

/// Sizes and offset of an entry. Those that need more than 32 bits are in an extra field.
fn large(
    (packed, size, header): (u64, u64, u64),
    mut extra: &[u8],
) -> Result<(u64, u64, u64), String> {
    let mut numbers = [size, packed, header];
    while extra.len() >= 4 {
        let kind = number::<2>(extra, 0)?;
        let length = number::<2>(extra, 2)? as usize;
        let Some(field) = extra.get(4..4 + length) else {
            break;
        };
        if kind == 1 {
            let mut at = 0;
            for value in numbers.iter_mut().filter(|value| **value == 0xffff_ffff) {
                *value = number::<8>(field, at)?;
                at += 8;
            }
        }
        extra = &extra[4 + length..];
    }
    let [size, packed, header] = numbers;
    Ok((packed, size, header))
}

impl Listing {
    /// Adds the entry that the directory has at `at`. Returns where the next one begins.
    fn add(&mut self, directory: &[u8], at: usize) -> Result<usize, String> {
        if number::<4>(directory, at)? != CENTRAL {
            return Err("its directory is broken".to_string());
        }
        let length = |offset: usize| number::<2>(directory, at + offset).map(|size| size as usize);
        let name = at + 46..at + 46 + length(28)?;
        let extra = name.end..name.end + length(30)?;
        let next = extra.end + length(32)?;
        let fields = directory.get(extra.clone()).ok_or("its directory ends too early")?;
        let path =
            std::str::from_utf8(&directory[name]).map_err(|_| "an entry's name is not UTF-8")?;
        let sizes = (
            number::<4>(directory, at + 20)?,
            number::<4>(directory, at + 24)?,
            number::<4>(directory, at + 42)?,
        );
        let (packed, size, header) = large(sizes, fields)?;
        if length(10)? != 0 || packed != size || length(8)? & 1 != 0 {
            return Err(format!(
                "its entry {path:?} is compressed or encrypted, which torch.save never does"
            ));
        }
        // All names begin with one folder, named like the file when it was written.
        let Some((folder, rest)) = path.split_once('/') else {
            return Err(format!("its entry {path:?} is in no folder"));
        };
        self.folder = folder.to_string();
        let crc = number::<4>(directory, at + 16)? as u32;
        self.entries.insert(rest.to_string(), Entry { header, size, crc });
        Ok(next)
    }

    /// The offset of an entry's bytes.
    pub fn locate(&self, file: &File, name: &str) -> Result<(u64, Entry), String> {
        let entry =
            *self.entries.get(name).ok_or_else(|| format!("its entry {name:?} is missing"))?;
        let at = self.begin.checked_add(entry.header).ok_or("its directory is broken")?;
        let header = read_at(file, at, 30)?;
        if number::<4>(&header, 0)? != LOCAL {
            return Err(format!("its entry {name:?} is broken"));
        }
        let begin = entry.header + 30 + number::<2>(&header, 26)? + number::<2>(&header, 28)?;
        if begin.checked_add(entry.size).is_none_or(|end| end > self.end) {
            return Err(format!(
                "its entry {name:?} has {} bytes at {begin}, beyond the file's {}",
                entry.size, self.end
            ));
        }
        Ok((self.begin + begin, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// torch.save writes no comments; other archivers do.
    #[test]
    fn the_next_entry_is_after_the_comment() {
        let mut directory = vec![0; 46];
        directory[..4].copy_from_slice(&(CENTRAL as u32).to_le_bytes());
        let name = b"folder/name";
        let comment = b"a comment";
        directory[28] = name.len() as u8;
        directory[32] = comment.len() as u8;
        directory.extend_from_slice(name);
        directory.extend_from_slice(comment);
        let mut listing = Listing::default();
        assert_eq!(listing.add(&directory, 0), Ok(directory.len()));
        assert!(listing.entries.contains_key("name"));
    }
}
