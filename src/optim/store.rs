//! The numbers of a rank's shard: in the device's memory, in the host's, or in a file.
//!
//! A step reads the optimizer's state only once, one number after the other. It reads stage 3's parameters nearly as
//! rarely. Both need much memory. Offload keeps them elsewhere. In the host's memory, the host's processor also makes the
//! update, like ZeRO-Offload's (Ren et al., arXiv 2101.06840). A rank of this library computes on a CPU anyway, so only the
//! bytes are counted apart. Files are like ZeRO-Infinity's NVMe offload (Rajbhandari et al., arXiv 2104.07857). A rank maps
//! one window of a file into memory, uses it, and unmaps it. So it never has more than a window of each file in memory,
//! however large its shard is. The operating system decides when to write windows back.

use crate::error::BadInput;
use crate::tensor::Stored;
use anyhow::{Context, Result};
use memmap2::{MmapMut, MmapOptions};
use std::fs::File;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::path::PathBuf;

/// The place of the optimizer's state, and in stage 3 of parameters, that a rank keeps out of its device's memory.
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
        OffloadFolder {
            dir,
            window: 1 << 16,
        }
    }

    /// Makes an unnamed temporary file.
    ///
    /// # Errors
    /// If the folder does not exist, or cannot be written.
    pub fn file(&self) -> Result<File, BadInput> {
        tempfile::tempfile_in(&self.dir).map_err(|error| {
            let what = format!(
                "cannot make a file in --offload {}: {error}",
                self.dir.display()
            );
            BadInput::new(
                what,
                "name a folder that can be written, if possible on a separate disk",
            )
        })
    }
}

/// Adds up bytes in the device's memory, and bytes elsewhere.
pub fn added(all: impl Iterator<Item = [usize; 2]>) -> [usize; 2] {
    all.fold([0, 0], |sum, bytes| [sum[0] + bytes[0], sum[1] + bytes[1]])
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
    File {
        file: File,
        numel: usize,
        window: usize,
    },
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
            None => return Ok(StateStore::Memory(vec![T::zeroed(); numel])),
            Some(Offload::Host) => return Ok(StateStore::Host(vec![T::zeroed(); numel])),
            Some(Offload::Files(folder)) => folder,
        };
        let file = folder.file()?;
        let bytes = (numel * size_of::<T>()) as u64;
        // The file is full of zeros, which take no room on the disk yet.
        file.set_len(bytes)
            .with_context(|| format!("cannot make room for {bytes} bytes in --offload"))?;
        Ok(StateStore::File {
            file,
            numel,
            window: folder.window.max(1),
        })
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

    /// Bytes in the device's memory, and elsewhere.
    pub fn bytes(&self) -> [usize; 2] {
        match self {
            StateStore::Memory(numbers) => [size_of::<T>() * numbers.capacity(), 0],
            StateStore::Host(numbers) => [0, size_of::<T>() * numbers.capacity()],
            StateStore::File { numel, .. } => [0, size_of::<T>() * numel],
        }
    }
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
        // SAFETY: the file has no name, so no other process can open it and change the mapped window. This process has
        // one window of the file at a time, which borrows the store.
        let map = unsafe { options.map_mut(&*file) };
        Ok(Window::Mapped(
            map.context("cannot map a file of --offload into memory")?,
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
