//! Compiles plain loops for several instruction sets, and chooses the machine's best at run time, because login and
//! compute nodes differ. `SHARDLAB_SIMD=portable` chooses instructions that every machine has.

use std::sync::OnceLock;

/// Calls `loops(arguments)` with the machine's widest vector instructions.
///
/// `loops` must be an `#[inline(always)]` function. Only code that is inlined here is compiled for those instructions,
/// and the compiler does not inline a larger closure without being told.
#[inline(always)]
pub fn vectorized<A, R>(arguments: A, loops: impl FnOnce(A) -> R) -> R {
    static ARCH: OnceLock<Option<pulp::Arch>> = OnceLock::new();
    match ARCH.get_or_init(|| widest(std::env::var("SHARDLAB_SIMD").ok().as_deref())) {
        Some(arch) => arch.dispatch(Call { arguments, loops }),
        None => loops(arguments),
    }
}

/// The widest instructions of this machine. `None` if `SHARDLAB_SIMD=portable` asks for the instructions that the
/// program was compiled for.
fn widest(setting: Option<&str>) -> Option<pulp::Arch> {
    match setting {
        None | Some("") => Some(pulp::Arch::new()),
        Some("portable") => None,
        Some(other) => {
            panic!("SHARDLAB_SIMD={other} is unknown: set it to portable, or leave it out")
        }
    }
}

struct Call<A, F> {
    arguments: A,
    loops: F,
}

impl<A, R, F: FnOnce(A) -> R> pulp::WithSimd for Call<A, F> {
    type Output = R;

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _simd: S) -> R {
        (self.loops)(self.arguments)
    }
}

/// [`vectorized`] regardless of the setting, for tests that compare.
#[cfg(test)]
pub(crate) fn in_widest_vectors<A, R>(arguments: A, loops: impl FnOnce(A) -> R) -> R {
    pulp::Arch::new().dispatch(Call { arguments, loops })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portable_is_a_choice_and_a_slip_is_not() {
        assert!(widest(None).is_some() && widest(Some("portable")).is_none());
        let message = std::panic::catch_unwind(|| widest(Some("portabel"))).unwrap_err();
        assert!(
            message
                .downcast_ref::<String>()
                .unwrap()
                .contains("set it to portable")
        );
    }
}
