//! Tests of what counts for a whole process: its allocations, its allocator's settings, its
//! threads. Each runs in a process of its own, which this program starts.

mod allocations;
mod libraries;
mod memory;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod page_faults;
mod planned;
mod process;
#[path = "../suite/mod.rs"]
mod suite;
#[cfg(target_os = "linux")]
mod threads;
mod zero_memory;

use process::CountingAll;
use std::process::Command;

/// The checkout.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The programs that these tests start, for cargo.
const PROGRAMS: &[&str] = &["--bins"];

#[global_allocator]
static ALLOCATOR: CountingAll = CountingAll;

/// Names, in a process that this program has started, the one test that it runs.
const ALONE: &str = "SHARDLAB_TEST_ALONE";

/// Whether this is the process for the test of this name. If not, such a process is started, and
/// must succeed.
#[track_caller]
fn alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some_and(|alone| alone == test) {
        return true;
    }
    let mut program = Command::new(std::env::current_exe().unwrap());
    let output = program
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, test)
        .output()
        .unwrap();
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    println!("{}{}", said[0], said[1]);
    assert!(output.status.success() && said[0].contains("1 passed"), "{test} failed");
    false
}
