//! How this program is started again.

use kit::commands;

/// The workbook's program as the reader can type it.
pub fn command() -> String {
    // Cargo's alias, in `.cargo/config.toml`, works wherever Cargo finds the package.
    if std::env::var_os("CARGO").is_some() {
        "cargo workbook".into()
    } else if commands::from_shardlab_bin() {
        commands::command("workbook")
    } else {
        std::env::args().next().unwrap_or("workbook".into())
    }
}
