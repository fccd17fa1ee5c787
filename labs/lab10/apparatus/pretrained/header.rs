//! A GGUF file's header, looked through before candle reads it.
//!
//! candle divides by the header's alignment, and keeps each of its values in 32 bytes, however few
//! the file spends on it. So a header with an alignment of 0, or with a billion values, is refused
//! here, where nothing is kept.

use shardlab::files::LIST;
use std::fs::File;
use std::io::{self, BufReader, Error, Read, Seek};

/// Values of all entries together. A vocabulary of 256,000 tokens takes about a million.
const VALUES: u64 = 1 << 24;

/// Entries, and tensors. Large models have some thousand tensors.
const COUNT: u64 = 1 << 20;

/// Arrays in arrays.
const DEPTH: usize = 8;

const STRING: u32 = 8;
const ARRAY: u32 = 9;

const ALIGNMENT: &[u8] = b"general.alignment";

/// Refuses a header that would make candle panic, or take memory that no model needs. What else is
/// wrong, candle says.
pub(super) fn ensure_sound(file: &File, length: u64) -> io::Result<()> {
    let mut header = Header { file: BufReader::new(file), length, wide: true, values: 0 };
    let magic = header.number::<4>()?;
    header.wide = header.number::<4>()? > 1;
    if magic != u64::from(u32::from_le_bytes(*b"GGUF")) {
        return Err(Error::other("it does not begin with GGUF"));
    }
    let [tensors, entries] = [header.length()?, header.length()?];
    if tensors.max(entries) > COUNT {
        return Err(Error::other(format!(
            "its header has {tensors} tensors and {entries} entries"
        )));
    }
    for _ in 0..entries {
        header.entry()?;
    }
    for _ in 0..tensors {
        header.text()?;
        let dimensions = header.number::<4>()?;
        // Then the type and the offset.
        header.skip(dimensions * header.wide_or_not() + 4 + 8)?;
    }
    Ok(())
}

struct Header<'a> {
    file: BufReader<&'a File>,
    length: u64,
    /// Whether lengths have 8 bytes, as from version 2 on.
    wide: bool,
    /// Values so far.
    values: u64,
}

impl Header<'_> {
    /// A number of N bytes.
    fn number<const N: usize>(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact(&mut bytes[..N])?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn wide_or_not(&self) -> u64 {
        if self.wide { 8 } else { 4 }
    }

    fn length(&mut self) -> io::Result<u64> {
        if self.wide {
            self.number::<8>()
        } else {
            self.number::<4>()
        }
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let end = self.file.stream_position()?.saturating_add(bytes);
        if end > self.length {
            return Err(Error::other(format!(
                "its header ends after the file's {} bytes",
                self.length
            )));
        }
        if end > LIST {
            return Err(Error::other(format!("its header has more than {LIST} bytes")));
        }
        self.file.seek_relative(bytes as i64)
    }

    fn text(&mut self) -> io::Result<()> {
        let length = self.length()?;
        self.skip(length)
    }

    fn entry(&mut self) -> io::Result<()> {
        let length = self.length()?;
        let mut key = [0; ALIGNMENT.len()];
        if length == key.len() as u64 {
            self.file.read_exact(&mut key)?;
        } else {
            self.skip(length)?;
        }
        let kind = self.number::<4>()? as u32;
        if key != ALIGNMENT {
            return self.value(kind, 0);
        }
        let alignment = match size(kind)? {
            1 => self.number::<1>()?,
            2 => self.number::<2>()?,
            4 => self.number::<4>()?,
            _ => self.number::<8>()?,
        };
        if alignment.is_power_of_two() {
            return Ok(());
        }
        Err(Error::other(format!(
            "its general.alignment is {alignment}, and must be a power of 2"
        )))
    }

    fn value(&mut self, kind: u32, depth: usize) -> io::Result<()> {
        match kind {
            STRING => self.text(),
            ARRAY => {
                let kind = self.number::<4>()? as u32;
                let count = self.length()?;
                self.values = self.values.saturating_add(count);
                if self.values > VALUES || depth == DEPTH {
                    return Err(Error::other(format!(
                        "its header has more than {VALUES} values, or arrays in arrays"
                    )));
                }
                if kind != STRING && kind != ARRAY {
                    return self.skip(count * size(kind)?);
                }
                (0..count).try_for_each(|_| self.value(kind, depth + 1))
            }
            _ => self.skip(size(kind)?),
        }
    }
}

/// Bytes of a number of this kind.
fn size(kind: u32) -> io::Result<u64> {
    match kind {
        0 | 1 | 7 => Ok(1),
        2 | 3 => Ok(2),
        4..=6 => Ok(4),
        10..=12 => Ok(8),
        _ => Err(Error::other(format!("its header has a value of the unknown kind {kind}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A file of so many bytes that begins with these.
    fn looked_through(bytes: &[u8], length: u64) -> String {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.set_len(length).unwrap();
        file.rewind().unwrap();
        ensure_sound(&file, length).map_or_else(|error| error.to_string(), |()| "sound".to_string())
    }

    fn header(tensors: u64, entries: u64, rest: &[&[u8]]) -> Vec<u8> {
        let start = [
            b"GGUF".as_slice(),
            &3u32.to_le_bytes(),
            &tensors.to_le_bytes(),
            &entries.to_le_bytes(),
        ]
        .concat();
        [start, rest.concat()].concat()
    }

    fn key(name: &str, kind: u32) -> Vec<u8> {
        [&(name.len() as u64).to_le_bytes(), name.as_bytes(), &kind.to_le_bytes()].concat()
    }

    /// The files are sparse: they take no disk, and a reader that keeps their values takes all
    /// memory.
    #[test]
    fn nothing_that_a_header_promises_is_allocated() {
        let many = |kind: u32, count: u64| [&kind.to_le_bytes()[..], &count.to_le_bytes()].concat();
        let array = |kind, count| header(0, 1, &[&key("a", ARRAY), &many(kind, count)]);
        assert!(looked_through(&array(0, 1 << 29), 1 << 30).contains("more than 16777216 values"));
        assert!(
            looked_through(&array(ARRAY, 1 << 29), 1 << 34).contains("more than 16777216 values")
        );
        assert!(
            looked_through(&array(STRING, u64::MAX), 1 << 34).contains("more than 16777216 values")
        );
        assert!(looked_through(&array(12, 1 << 24), 1 << 34).contains("more than 67108864 bytes"));
        let nested: Vec<u8> = (0..100).flat_map(|_| many(ARRAY, 1)).collect();
        assert!(
            looked_through(&header(0, 1, &[&key("a", ARRAY), &nested]), 1 << 20)
                .contains("arrays in arrays")
        );
        let long = header(0, 1, &[&key("a", STRING), &(1u64 << 29).to_le_bytes()]);
        assert!(looked_through(&long, 1 << 30).contains("more than 67108864 bytes"));
        assert!(looked_through(&long, 1 << 10).contains("ends after the file's 1024 bytes"));
        assert!(
            looked_through(&header(1 << 40, 1, &[]), 1 << 40).contains("1099511627776 tensors")
        );
        assert!(
            looked_through(&header(0, 1, &[&key("a", 77)]), 1 << 10).contains("unknown kind 77")
        );
        assert!(
            looked_through(&header(1, 0, &[&[0; 8], &u32::MAX.to_le_bytes()]), 1 << 10)
                .contains("ends after")
        );
        let sound = header(0, 1, &[&key("general.alignment", 4), &32u32.to_le_bytes()]);
        assert_eq!(looked_through(&sound, sound.len() as u64), "sound");
    }
}
