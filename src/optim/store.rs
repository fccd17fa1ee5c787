//! The numbers of a rank's shard: in the device's memory, in the host's, or in a file.
//!
//! A step reads the optimizer's state only once, one number after the other. It reads stage 3's
//! parameters nearly as rarely. Both need much memory. Offload keeps them elsewhere. In the host's
//! memory, the host's processor also makes the update, like ZeRO-Offload's (Ren et al.,
//! arXiv 2101.06840). A rank of this library computes on a CPU anyway, so only the bytes are
//! counted apart. Files are like ZeRO-Infinity's NVMe offload (Rajbhandari et al.,
//! arXiv 2104.07857). A rank maps one window of a file into memory, uses it, and unmaps it. So it
//! never has more than a window of each file in memory, however large its shard is. The operating
//! system decides when to write windows back.

use crate::error::BadInput;
use crate::memory::zeros;
use crate::tensor::Stored;
use anyhow::{Context, Result};
use memmap2::{MmapMut, MmapOptions};
use std::fs::File;
use std::io::{self, Read};
use std::iter::Sum;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::path::PathBuf;

/// The place of the optimizer's state, and in stage 3 of parameters, that a rank keeps out of its
/// device's memory.
#[derive(Clone, Debug)]
pub enum Offload {
    /// The host's memory.
    Host,
    Files(OffloadFolder),
}

/// The folder for offloaded state, and the size of its windows.
#[derive(Clone, Debug)]
pub struct OffloadFolder {
    /// Folder for unnamed temporary files; they disappear when the process ends.
    pub dir: PathBuf,
    /// Parameters per window.
    pub window: usize,
}

impl OffloadFolder {
    /// Files in `dir`, with windows of 65,536 parameters.
    pub fn to(dir: PathBuf) -> OffloadFolder {
        OffloadFolder { dir, window: 1 << 16 }
    }

    /// Makes an unnamed temporary file.
    ///
    /// # Errors
    /// If the folder does not exist, or cannot be written.
    pub fn file(&self) -> Result<File, BadInput> {
        tempfile::tempfile_in(&self.dir).map_err(|error| {
            let what = format!("cannot make a file in `offload` {}: {error}", self.dir.display());
            BadInput::new(what, "name a folder that can be written, if possible on a separate disk")
        })
    }
}

/// Bytes of a rank's state, by the place where they are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredBytes {
    /// In the device's memory.
    pub memory: usize,
    /// In the host's memory, or in files.
    pub offloaded: usize,
}

impl Sum for StoredBytes {
    fn sum<I: Iterator<Item = StoredBytes>>(all: I) -> StoredBytes {
        all.fold(StoredBytes::default(), |sum, bytes| StoredBytes {
            memory: sum.memory + bytes.memory,
            offloaded: sum.offloaded + bytes.offloaded,
        })
    }
}

/// Numbers that are read and changed window by window.
pub trait Windowed<T> {
    /// The numbers in `range`.
    ///
    /// # Errors
    /// If they are in a file that cannot be mapped.
    fn window(&mut self, range: Range<usize>) -> Result<Window<'_, T>>;
}

/// One kind of a rank's numbers.
pub enum StateStore<T> {
    Memory(Vec<T>),
    Host(Vec<T>),
    File { file: File, numel: usize, window: usize },
}

/// A window of a store, in memory while this lives.
pub enum Window<'a, T> {
    Memory(&'a mut [T]),
    Mapped(MmapMut, PhantomData<T>),
}

impl<T: Stored> StateStore<T> {
    /// A store of `numel` zeros.
    ///
    /// # Errors
    /// If the file cannot be made, or the disk is full.
    pub fn zeros(numel: usize, offload: Option<&Offload>) -> Result<StateStore<T>> {
        let folder = match offload {
            None => return Ok(StateStore::Memory(zeros(numel))),
            Some(Offload::Host) => return Ok(StateStore::Host(zeros(numel))),
            Some(Offload::Files(folder)) => folder,
        };
        let mut file = folder.file()?;
        let bytes = (numel * size_of::<T>()) as u64;
        allocate(&mut file, bytes).map_err(|error| {
            let dir = folder.dir.display();
            let what =
                format!("no room for {bytes} bytes of a rank's shard in `offload` {dir}: {error}");
            BadInput::new(what, "name a folder on a disk with more room, or remove files there")
        })?;
        Ok(StateStore::File { file, numel, window: folder.window.max(1) })
    }

    /// The windows that cover all numbers: a single window unless they are in a file.
    pub fn windows(&self) -> impl Iterator<Item = Range<usize>> + use<T> {
        let (numel, size) = match self {
            StateStore::Memory(numbers) | StateStore::Host(numbers) => {
                (numbers.len(), numbers.len().max(1))
            }
            StateStore::File { numel, window, .. } => (*numel, *window),
        };
        (0..numel.div_ceil(size)).map(move |i| i * size..numel.min((i + 1) * size))
    }

    /// Bytes of the numbers.
    pub fn bytes(&self) -> StoredBytes {
        let [memory, offloaded] = match self {
            StateStore::Memory(numbers) => [numbers.capacity(), 0],
            StateStore::Host(numbers) => [0, numbers.capacity()],
            StateStore::File { numel, .. } => [0, *numel],
        }
        .map(|numbers| size_of::<T>() * numbers);
        StoredBytes { memory, offloaded }
    }
}

/// Fills an empty file with zeros that have their place on the disk. A file that is only made
/// longer has none: the first write through a map of it finds the disk full, and a map cannot
/// report an error. The system ends the process instead.
fn allocate(file: &mut File, bytes: u64) -> io::Result<()> {
    let length = i64::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    #[cfg(target_os = "linux")]
    if length > 0 {
        use std::os::fd::AsRawFd;
        // SAFETY: this call touches no memory, and the file is open.
        match unsafe { libc::posix_fallocate64(file.as_raw_fd(), 0, length) } {
            0 => return Ok(()),
            // This file system cannot promise room, or a signal came: writing works everywhere.
            libc::EOPNOTSUPP | libc::EINVAL | libc::EINTR => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
    io::copy(&mut io::repeat(0).take(length as u64), file)?;
    // Some file systems find room only when they write.
    file.sync_data()
}

impl<T: Stored> Windowed<T> for StateStore<T> {
    fn window(&mut self, range: Range<usize>) -> Result<Window<'_, T>> {
        let file = match self {
            StateStore::Memory(numbers) | StateStore::Host(numbers) => {
                return numbers.window(range);
            }
            // An empty range cannot be mapped.
            StateStore::File { .. } if range.is_empty() => return Ok(Window::Memory(&mut [])),
            StateStore::File { file, .. } => file,
        };
        let mut options = MmapOptions::new();
        options
            .offset((size_of::<T>() * range.start) as u64)
            .len(size_of::<T>() * range.len());
        // SAFETY: the file has no name, so no other process can open it and change the mapped
        // window. This process has one window of the file at a time, which borrows the store.
        let map = unsafe { options.map_mut(&*file) };
        Ok(Window::Mapped(
            map.context("cannot map a file of `offload` into memory")?,
            PhantomData,
        ))
    }
}

impl<T> Windowed<T> for [T] {
    fn window(&mut self, range: Range<usize>) -> Result<Window<'_, T>> {
        Ok(Window::Memory(&mut self[range]))
    }
}

impl<T: Stored> Deref for Window<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match self {
            Window::Memory(numbers) => numbers,
            Window::Mapped(map, _) => bytemuck::cast_slice(map),
        }
    }
}

impl<T: Stored> DerefMut for Window<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Window::Memory(numbers) => numbers,
            Window::Mapped(map, _) => bytemuck::cast_slice_mut(map),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_in_windows_of_65536_parameters() {
        assert_eq!(OffloadFolder::to(PathBuf::new()).window, 65_536);
    }

    /// On a full disk a sparse file ends the process at the first write, without a word.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_numbers_of_a_file_have_their_place_on_the_disk() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let offload = Offload::Files(OffloadFolder::to(dir.path().to_path_buf()));
        let mut store = StateStore::<f32>::zeros(100_000, Some(&offload)).unwrap();
        let StateStore::File { file, .. } = &store else {
            panic!("it is in a file")
        };
        let about = file.metadata().unwrap();
        assert_eq!(about.len(), 400_000);
        assert!(512 * about.blocks() >= 400_000, "{} blocks", about.blocks());
        assert!(store.window(0..100_000).unwrap().iter().all(|&x| x == 0.0));
    }

    /// No file system has files of 2^63 bytes, so no disk is filled for this.
    #[test]
    fn a_disk_without_room_is_an_error_with_the_folder_and_the_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let offload = Offload::Files(OffloadFolder::to(dir.path().to_path_buf()));
        let refused = StateStore::<f32>::zeros(1 << 61, Some(&offload)).map(drop);
        let error = refused.unwrap_err().downcast::<BadInput>().unwrap();
        let expected = format!(
            "no room for {} bytes of a rank's shard in `offload` {}: ",
            1u64 << 63,
            dir.path().display()
        );
        assert!(error.what.starts_with(&expected), "{error}");
        assert!(!error.help.is_empty());
    }
}
