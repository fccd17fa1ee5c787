//! Compiles plain loops for several instruction sets, and chooses the machine's best at run time,
//! because login and compute nodes differ. `SHARDLAB_SIMD=portable` chooses instructions that every
//! machine has; `SHARDLAB_SIMD=vectors` multiplies bf16 in vectors, to every machine's bits, also
//! where the processor has tiles, which are faster and have bits of their own.

/// Calls `loops(arguments)` with the machine's widest vector instructions:
/// `vectorized!((x, &mut y[..]), gelu_of)`.
///
/// `loops` must be an `#[inline(always)]` function: only what is inlined is compiled for those
/// instructions. The closure is, but a function that is passed as a value stays outside, and so may
/// the start of an iterator over several slices. Where rows are short and many, loop over indices,
/// of slices whose length the compiler sees: `&mut x[..width]`, not a vector.
macro_rules! vectorized {
    ($arguments:expr, $loops:expr $(,)?) => {
        $crate::simd::in_vectors(
            $arguments,
            #[inline(always)]
            |arguments| $loops(arguments),
        )
    };
}
pub(crate) use vectorized;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[cfg(not(target_family = "wasm"))]
use chosen::wants_tiles;
#[cfg(not(target_family = "wasm"))]
pub(crate) use chosen::{in_vectors, is_portable, unknown};

static ANOTHER_RANK_HAS_NO_TILES: AtomicBool = AtomicBool::new(false);

/// Whether this rank would multiply bf16 in the processor's tiles, whose bits are their own.
pub(crate) fn has_tiles() -> bool {
    static HAS_TILES: OnceLock<bool> = OnceLock::new();
    *HAS_TILES.get_or_init(|| wants_tiles() && bf16_products::Way::Tiles.is_here())
}

/// Whether all ranks do.
pub(crate) fn use_tiles() -> bool {
    has_tiles() && !ANOTHER_RANK_HAS_NO_TILES.load(Relaxed)
}

/// Another rank of this job has no tiles: from now on this one uses none.
pub(crate) fn without_tiles() {
    ANOTHER_RANK_HAS_NO_TILES.store(true, Relaxed);
}

/// A browser has one kind of vector instructions, for which the program is compiled as a whole.
#[cfg(target_family = "wasm")]
#[inline(always)]
pub(crate) fn in_vectors<A, R>(arguments: A, loops: impl Fn(A) -> R) -> R {
    loops(arguments)
}

/// Whether the setting asks for instructions that every machine has. A browser's are one kind.
#[cfg(target_family = "wasm")]
pub(crate) fn is_portable() -> bool {
    true
}

#[cfg(target_family = "wasm")]
fn wants_tiles() -> bool {
    false
}

#[cfg(target_family = "wasm")]
pub(crate) fn unknown() -> Option<String> {
    None
}

#[cfg(not(target_family = "wasm"))]
mod chosen {
    use std::sync::OnceLock;

    #[inline(always)]
    pub(crate) fn in_vectors<A, R>(arguments: A, loops: impl Fn(A) -> R) -> R {
        match arch() {
            Some(arch) => arch.dispatch(Call { arguments, loops }),
            None => loops(arguments),
        }
    }

    /// Whether `SHARDLAB_SIMD=portable` asks for instructions that every machine has.
    pub(crate) fn is_portable() -> bool {
        arch().is_none()
    }

    /// Whether no setting asks for the bits that every machine has.
    pub(super) fn wants_tiles() -> bool {
        matches!(setting().as_deref(), None | Some(""))
    }

    fn setting() -> Option<String> {
        let setting = std::env::var_os("SHARDLAB_SIMD")?;
        Some(setting.to_string_lossy().into_owned())
    }

    /// A value of `SHARDLAB_SIMD` that is none, for a program to refuse before work starts.
    pub(crate) fn unknown() -> Option<String> {
        setting().filter(|setting| widest(Some(setting)).is_none())
    }

    fn arch() -> Option<pulp::Arch> {
        static ARCH: OnceLock<Option<pulp::Arch>> = OnceLock::new();
        *ARCH.get_or_init(|| {
            let widest = widest(setting().as_deref());
            widest
                .expect("SHARDLAB_SIMD is unknown: set it to portable or vectors, or leave it out")
        })
    }

    /// The widest instructions of this machine, or `Some(None)` for those that the program was
    /// compiled for, if `SHARDLAB_SIMD=portable` asks for them. `None` if the setting is unknown.
    pub(super) fn widest(setting: Option<&str>) -> Option<Option<pulp::Arch>> {
        match setting {
            None | Some("" | "vectors") => Some(Some(pulp::Arch::new())),
            Some("portable") => Some(None),
            Some(_) => None,
        }
    }

    pub(super) struct Call<A, F> {
        pub(super) arguments: A,
        pub(super) loops: F,
    }

    impl<A, R, F: Fn(A) -> R> pulp::WithSimd for Call<A, F> {
        type Output = R;

        #[inline(always)]
        fn with_simd<S: pulp::Simd>(self, _simd: S) -> R {
            (self.loops)(self.arguments)
        }
    }
}

/// The same regardless of the setting, for tests that compare.
#[cfg(test)]
pub(crate) fn in_widest_vectors<A, R>(arguments: A, loops: impl Fn(A) -> R) -> R {
    pulp::Arch::new().dispatch(chosen::Call { arguments, loops })
}

#[cfg(test)]
mod tests {
    use super::chosen::widest;

    #[test]
    fn portable_is_a_choice_and_a_slip_is_not() {
        assert!(widest(None).unwrap().is_some() && widest(Some("")).unwrap().is_some());
        assert!(widest(Some("vectors")).unwrap().is_some());
        assert!(widest(Some("portable")).unwrap().is_none());
        for slip in ["portabel", "PORTABLE", "vector", "avx2", " "] {
            assert!(widest(Some(slip)).is_none(), "{slip}");
        }
    }
}
