//! Plain loops, compiled for several instruction sets: the machine's best is picked when the program runs (login and compute
//! nodes differ). With `SHARDLAB_SIMD=portable` it is what any machine can.

use std::sync::OnceLock;

/// Calls `loops(arguments)` with the machine's widest vector instructions.
///
/// `loops` must be a function that is `#[inline(always)]`: only what is inlined here is compiled for those instructions, and
/// the compiler does not inline a closure of some size on its own.
#[inline(always)]
pub fn vectorized<A, R>(arguments: A, loops: impl FnOnce(A) -> R) -> R {
    static ARCH: OnceLock<Option<pulp::Arch>> = OnceLock::new();
    match ARCH.get_or_init(|| widest(std::env::var("SHARDLAB_SIMD").ok().as_deref())) {
        Some(arch) => arch.dispatch(Call { arguments, loops }),
        None => loops(arguments),
    }
}

/// What this machine has, or nothing beyond what the program was compiled for, if `SHARDLAB_SIMD=portable` asks for that.
fn widest(setting: Option<&str>) -> Option<pulp::Arch> {
    match setting {
        None | Some("") => Some(pulp::Arch::new()),
        Some("portable") => None,
        Some(other) => panic!("SHARDLAB_SIMD={other} is unknown: set it to portable, or leave it out"),
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

/// [`vectorized`] whatever the setting is, for tests that compare.
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
        assert!(message.downcast_ref::<String>().unwrap().contains("set it to portable"));
    }
}
