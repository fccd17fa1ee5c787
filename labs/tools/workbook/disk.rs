//! Free space, and whether a folder can be written.

use std::io;
use std::path::Path;

/// Bytes that this user may still write to the disk of a path that exists. None if the system does
/// not say. Quotas are not counted.
// The fields' types differ between systems.
#[allow(clippy::unnecessary_cast)]
pub(super) fn free(path: &Path) -> Option<u64> {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
        // SAFETY: all bytes zero is a valid `statvfs`, which the call fills; the path ends with a
        // zero.
        let about = unsafe {
            let mut about: libc::statvfs = std::mem::zeroed();
            (libc::statvfs(path.as_ptr(), &mut about) == 0).then_some(about)?
        };
        Some(about.f_bavail as u64 * about.f_frsize as u64)
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        None
    }
}

/// Writes a small file into a folder and removes it. Returns how far its time is ahead of this
/// machine's clock, in seconds: on a shared disk a server may write the time.
pub(super) fn write_to(folder: &Path) -> io::Result<f64> {
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    io::Write::write_all(&mut file, &[b'x'; 4096])?;
    file.as_file().sync_all()?;
    let written = file.as_file().metadata()?.modified()?;
    Ok(match written.duration_since(std::time::SystemTime::now()) {
        Ok(ahead) => ahead.as_secs_f64(),
        Err(behind) => -behind.duration().as_secs_f64(),
    })
}
