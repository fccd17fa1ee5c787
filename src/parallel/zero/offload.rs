//! Offload: the optimizer's state in a file (what ZeRO-Infinity's NVMe offload does; Rajbhandari et al., arXiv 2104.07857).
//!
//! Moments and master are touched once a step, one after the other: nothing of training needs them so rarely, and so much
//! memory. The file holds them window by window. A step maps one window, updates it, and lets go of it before it maps the
//! next: so a rank never has more than a window of them, however large its share is. The system writes it back when it likes.

use crate::error::BadInput;
use crate::optim::{AdamWConfig, Moments, Piece, Rule, update_pieces};
use crate::tensor::stored::{Precision, Stored, narrow};
use anyhow::{Context, Result};
use memmap2::{MmapMut, MmapOptions};
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;

/// Where to, and how much at a time.
#[derive(Clone, Debug)]
pub struct Offload {
    /// The folder for the file, which has no name there and is gone with the run.
    pub dir: PathBuf,
    /// Parameters whose state is in memory at the same time.
    pub window: usize,
}

/// A share's optimizer state in a file.
pub(super) struct StateFile {
    config: AdamWConfig,
    pieces: Vec<Piece>,
    file: File,
    window: usize,
    numel: usize,
    /// Numbers a parameter: two moments, and the master if there is one.
    each: usize,
    steps: i32,
}

impl StateFile {
    pub fn new<T: Stored>(
        config: AdamWConfig,
        pieces: Vec<Piece>,
        share: &[f32],
        offload: &Offload,
    ) -> Result<StateFile> {
        let each = if T::PRECISION == Precision::F32 { 2 } else { 3 };
        let bytes = (each * share.len() * size_of::<f32>()) as u64;
        let file = tempfile::tempfile_in(&offload.dir).map_err(|error| {
            let what = format!("cannot make a file in --offload {}: {error}", offload.dir.display());
            BadInput::new(what, "name a folder that can be written, on a disk of its own if there is one")
        })?;
        // Zeros, for which a disk needs no room yet.
        file.set_len(bytes).with_context(|| format!("cannot make room for {bytes} bytes of optimizer state"))?;
        let (window, numel) = (offload.window.max(1), share.len());
        let state = StateFile { config, pieces, file, window, numel, each, steps: 0 };
        for window in state.windows() {
            let mut map = state.map(&window)?;
            if let [_, _, master] = &mut state.parts(&mut map, window.len())[..] {
                master.copy_from_slice(&share[window]);
            }
        }
        Ok(state)
    }

    fn windows(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (numel, window) = (self.numel, self.window);
        (0..numel.div_ceil(window)).map(move |i| i * window..numel.min((i + 1) * window))
    }

    /// The state of these parameters.
    fn map(&self, window: &Range<usize>) -> Result<MmapMut> {
        let one = self.each * size_of::<f32>();
        let mut options = MmapOptions::new();
        options.offset((one * window.start) as u64).len(one * window.len());
        // SAFETY: the file has no name, so that no other process can open it and change what is mapped; this one maps a
        // window at a time.
        unsafe { options.map_mut(&self.file) }.context("cannot map the optimizer's state into memory")
    }

    /// First and second moment, and the master if there is one.
    fn parts<'a>(&self, map: &'a mut MmapMut, len: usize) -> Vec<&'a mut [f32]> {
        bytemuck::cast_slice_mut(map).chunks_exact_mut(len).collect()
    }

    /// One step, window by window.
    pub fn update<T: Stored>(&mut self, values: &mut [T], gradients: &[T], lr: f64, scale: f32) -> Result<()> {
        self.steps += 1;
        let rule = Rule::new(&self.config, self.steps, lr, scale);
        for window in self.windows() {
            let mut map = self.map(&window)?;
            let mut parts = self.parts(&mut map, window.len()).into_iter();
            let (Some(m), Some(v)) = (parts.next(), parts.next()) else { continue };
            let (moments, values) = (Moments { m, v }, &mut values[window.clone()]);
            let gradients = &gradients[window.clone()];
            match parts.next() {
                Some(master) => {
                    update_pieces(&rule, &self.pieces, window.start, master, gradients, moments);
                    narrow(master, values);
                }
                None => T::change(values, |values| {
                    update_pieces(&rule, &self.pieces, window.start, values, gradients, moments);
                }),
            }
        }
        Ok(())
    }

    pub fn bytes(&self) -> usize {
        self.numel * self.each * size_of::<f32>()
    }
}
