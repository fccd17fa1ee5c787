//! Nothing: this package's dependencies are what it is for (see its `Cargo.toml`).
