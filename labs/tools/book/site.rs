//! The whole book as a folder that any static host can serve: mdBook's pages, and beside them the
//! labs as one module for browsers.

use super::heads;
use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use kit::show::{Screen, bytes_decimal};
use shardlab::error::BadInput;
use shardlab::sha256;
use std::io::Write;
use std::path::Path;
use std::process::Command;

const TARGET: &str = "wasm32-wasip1-threads";

/// Builds the book below `root`, and its labs, into `target/book`.
///
/// # Errors
/// [`BadInput`] if mdBook or the target's standard library is not installed; any other error that
/// they have printed.
pub fn build(screen: &Screen, root: &Path) -> Result<()> {
    let run = |program: &str, words: &[&str], help: &str| {
        let status = Command::new(program).args(words).current_dir(root).status();
        let status = status.map_err(|error| BadInput::new(format!("{program}: {error}"), help))?;
        ensure!(
            status.success(),
            "{program} {} has failed, see above\nhelp: is it installed? {help}",
            words.join(" ")
        );
        anyhow::Ok(())
    };
    let version = include_str!("../../cluster/Containerfile")
        .lines()
        .find_map(|line| line.strip_prefix("ARG MDBOOK="))
        .context("the image names mdBook's version")?;
    let help = format!(
        "cargo install mdbook --version {version} --locked --no-default-features --features search"
    );
    run("mdbook", &["build", "book"], &help)?;
    let words = ["build", "--profile", "web", "--target", TARGET, "--package", "web"];
    run("cargo", &words, &format!("rustup target add {TARGET}"))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let module = root.join(target).join(TARGET).join("web/labs.wasm");
    let folder = root.join("target/book");
    let labs =
        std::fs::read(&module).with_context(|| format!("cannot read {}", module.display()))?;
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&labs)?;
    let packed = packed.finish()?;
    let version = sha256::hex(&labs).as_bytes()[..16].to_vec();
    let files = [("labs.wasm", &labs), ("labs.wasm.gz", &packed), ("version.txt", &version)];
    for (name, bytes) in files {
        let path = folder.join("run").join(name);
        std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    // Pages load these by themselves, as Workers and to set headers. Readers load the traces of
    // lab03-profile.
    std::fs::create_dir_all(folder.join("traces"))?;
    for (from, to) in [
        ("book/run/worker.js", "run/worker.js"),
        ("book/run/headers.js", "headers.js"),
        ("labs/lab03/traces/exposed.json", "traces/exposed.json"),
        ("labs/lab03/traces/late.json", "traces/late.json"),
        ("labs/lab03/traces/bucket.json", "traces/bucket.json"),
    ] {
        std::fs::copy(root.join(from), folder.join(to))
            .with_context(|| format!("cannot copy {from}"))?;
    }
    heads::write(root, &folder)?;
    let [whole, packed] = [&labs, &packed].map(|bytes| bytes_decimal(bytes.len() as f64));
    screen.say(format!(
        "the book is in {}, with labs of {whole}, compressed {packed}\nread it: cargo run --bin workbook -- serve",
        folder.display(),
    ));
    Ok(())
}
