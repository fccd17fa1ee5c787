//! PyTorch's distributed checkpoint (DCP): a folder with a table, `.metadata`, and files
//! `__R_N.distcp`, in which archives of `torch.save` lie one after the other, one for each part
//! of a tensor. The table says which bytes of which file have which part, so any number of ranks
//! can load. Files that the table does not name belong to an earlier save.
//!
//! Reading order: `metadata.rs` (the table, read), `settings.rs` (what is no tensor), `write.rs`
//! (a folder that PyTorch loads).

mod metadata;
mod settings;
mod write;

pub(crate) use metadata::{METADATA, read};
pub(crate) use settings::plain;
pub(crate) use write::write;
