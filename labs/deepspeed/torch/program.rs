//! The program of a pickle: bytes, from which instructions take their arguments.

/// The rest of a program. Errors say what is missing.
pub(super) struct Program<'a> {
    bytes: &'a [u8],
    /// Bytes that were taken.
    pub at: usize,
}

impl<'a> Program<'a> {
    pub fn new(bytes: &'a [u8]) -> Program<'a> {
        Program { bytes, at: 0 }
    }

    pub fn take(&mut self, size: usize) -> Result<&'a [u8], String> {
        let rest = &self.bytes[self.at..];
        if size > rest.len() {
            return Err(format!(
                "it ends too early: {size} bytes are needed, {} are left",
                rest.len()
            ));
        }
        self.at += size;
        Ok(&rest[..size])
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// An unsigned number of `bytes` bytes.
    pub fn length(&mut self, bytes: usize) -> Result<usize, String> {
        let mut array = [0; 8];
        array[..bytes].copy_from_slice(self.take(bytes)?);
        usize::try_from(u64::from_le_bytes(array)).map_err(|_| "a length is absurd".to_string())
    }

    /// Bytes after their own length, which is a number of `bytes` bytes.
    pub fn counted(&mut self, bytes: usize) -> Result<&'a [u8], String> {
        let size = self.length(bytes)?;
        self.take(size)
    }

    /// A line of text: the name of a module or class.
    pub fn line(&mut self) -> Result<&'a str, String> {
        let rest = &self.bytes[self.at..];
        let end = rest
            .iter()
            .position(|byte| *byte == b'\n')
            .ok_or_else(|| "a line has no end".to_string())?;
        self.at += end + 1;
        std::str::from_utf8(&rest[..end]).map_err(|_| "a line is not UTF-8".to_string())
    }
}
