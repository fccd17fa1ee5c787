//! Places of a page that the book fills: a section on a line of its own, without text or with a
//! name in it.

use anyhow::Result;

/// The page in which each line that begins so, and ends the section, is what `fill` makes of the
/// name between: `<section class="answer">lab05-slice</section>`.
///
/// # Errors
/// Those of `fill`.
pub(super) fn filled(
    page: &str,
    begins: &str,
    mut fill: impl FnMut(&str) -> Result<String>,
) -> Result<String> {
    let mut out = String::new();
    for line in page.split_inclusive('\n') {
        let rest = line.strip_prefix(begins);
        match rest.and_then(|rest| rest.trim_end().strip_suffix("</section>")) {
            None => out += line,
            Some(name) => out += &fill(name)?,
        }
    }
    Ok(out)
}
