//! SHA-256, by which files are recognised and models compared.

use sha2::{Digest, Sha256};

/// The hash of some bytes, as 64 hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
