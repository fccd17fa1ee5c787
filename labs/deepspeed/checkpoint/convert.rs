//! A conversion, planned before anything is written: what goes into the result, how many bytes
//! that are, and what is left out.

use super::open::{Format, open};
use super::safetensors;
use crate::dcp;
use crate::folder::Folder;
use crate::options::Watch;
use crate::tensors::{Key, Setting, Tensor};
use kit::machine::memory_limit_in_words;
use kit::show::bytes_decimal;
use serde_json::Value as Json;
use shardlab::error::BadInput;
use shardlab::launch;
use std::path::PathBuf;

/// What to convert, and to what.
#[derive(Clone, Debug)]
pub struct Conversion {
    pub input: PathBuf,
    /// The folder of the result, which must not exist.
    pub output: PathBuf,
    pub to: Format,
    /// Take only names that begin with this, and write them without it.
    pub only: Option<String>,
    /// Tensors that are read and written at the same time, each in memory.
    pub workers: usize,
}

/// What a conversion will do.
#[derive(Debug)]
pub struct Plan {
    pub from: Format,
    pub tensors: Vec<Tensor>,
    pub settings: Vec<Setting>,
    /// The settings' values, if the result can have only plain ones.
    values: Vec<Json>,
    /// Names that are not written, with the reason.
    pub left_out: Vec<(String, String)>,
    /// Names that `only` did not ask for.
    pub others: usize,
    /// Bytes of the tensors that will be written.
    pub bytes: u64,
}

impl Conversion {
    /// Reads what is there, and decides what will be written.
    ///
    /// # Errors
    /// If the input cannot be used, nothing in it was asked for, or a tensor does not fit in
    /// memory.
    pub fn plan(&self) -> Result<Plan, BadInput> {
        let (from, checkpoint) = open(&self.input)?;
        let mut plan = Plan {
            from,
            tensors: Vec::new(),
            settings: Vec::new(),
            values: Vec::new(),
            left_out: Vec::new(),
            others: 0,
            bytes: 0,
        };
        for mut tensor in checkpoint.tensors {
            match self.cut(&mut tensor.name, &mut tensor.keys) {
                true => plan.tensors.push(tensor),
                false => plan.others += 1,
            }
        }
        for mut setting in checkpoint.values {
            if !self.cut(&mut setting.name, &mut setting.keys) {
                plan.others += 1;
            } else if self.to == Format::Dcp {
                plan.settings.push(setting);
            } else if let Some(value) = dcp::plain(&setting)? {
                plan.settings.push(setting);
                plan.values.push(value);
            } else {
                plan.left_out.push((setting.name, "an object of Python".to_string()));
            }
        }
        for (mut name, why) in checkpoint.unread {
            match self.cut(&mut name, &mut Vec::new()) {
                true => plan.left_out.push((name, why)),
                false => plan.others += 1,
            }
        }
        if plan.tensors.is_empty() {
            let only = self.only.as_deref().unwrap_or_default();
            let what =
                format!("{} has no tensor whose name begins with {only:?}", self.input.display());
            let help = "see the names with `checkpoint inspect --all`";
            return Err(BadInput::new(what, help));
        }
        plan.bytes = plan.tensors.iter().map(Tensor::bytes).sum();
        self.ensure_memory(&plan, launch::free_memory(0).unwrap_or(u64::MAX))?;
        Ok(plan)
    }

    /// Takes the prefix off a name and its keys. Returns whether the name has it.
    fn cut(&self, name: &mut String, keys: &mut Vec<Key>) -> bool {
        let Some(only) = &self.only else {
            return true;
        };
        let Some(rest) = name.strip_prefix(only.as_str()).filter(|rest| !rest.is_empty()) else {
            return false;
        };
        // The keys that the prefix was joined of, if it ends where one does.
        let mut begin = String::new();
        let after = keys.iter().position(|key| {
            begin += &match key {
                Key::Name(name) => format!("{name}."),
                Key::At(at) => format!("{at}."),
            };
            begin == *only
        });
        *keys = match after {
            Some(last) => keys.split_off(last + 1),
            None => vec![Key::Name(rest.to_string())],
        };
        *name = rest.to_string();
        true
    }

    fn ensure_memory(&self, plan: &Plan, free: u64) -> Result<(), BadInput> {
        let mut sizes: Vec<u64> = plan.tensors.iter().map(Tensor::bytes).collect();
        sizes.sort_by_key(|bytes| std::cmp::Reverse(*bytes));
        let needed: u64 = sizes.iter().take(self.workers).sum();
        if needed <= free {
            return Ok(());
        }
        let what = format!(
            "{} workers need {} of memory, and {} are free{}: the largest tensor takes {}",
            self.workers,
            bytes_decimal(needed as f64),
            bytes_decimal(free as f64),
            memory_limit_in_words(),
            bytes_decimal(sizes[0] as f64),
        );
        Err(BadInput::new(what, "give fewer --workers, or a machine with more memory"))
    }

    /// Writes the result, whose folder appears when it is complete. Returns its bytes.
    ///
    /// # Errors
    /// If the input is damaged, the folder exists, or the disk refuses.
    pub fn run(&self, plan: &Plan, watch: &dyn Watch) -> Result<u64, BadInput> {
        let folder = Folder::begin(&self.output, "name a folder that does not exist yet")?;
        let Plan { tensors, settings, values, .. } = plan;
        match self.to {
            Format::Dcp => {
                watch.begin("Writing", tensors.len() + settings.len());
                dcp::write(folder.path(), tensors, settings, self.workers, watch)?;
            }
            Format::Safetensors => {
                watch.begin("Writing", tensors.len());
                let settings: Vec<_> = settings.iter().zip(values.iter().cloned()).collect();
                safetensors::write(folder.path(), tensors, &settings, self.workers, watch)?;
            }
        }
        watch.end();
        folder.publish()
    }
}
