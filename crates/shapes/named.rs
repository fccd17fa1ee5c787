//! Enums whose values have names: in messages, in the text of a strategy, and where a program reads
//! one from its user.

/// A type of a few values with names.
pub trait NamedValue: Copy + PartialEq + Send + Sync + 'static {
    /// All values, in the order of their declaration. Each has its name, as messages print it, and
    /// its comment, a sentence or nothing.
    const TABLE: &'static [(Self, &'static str, &'static str)];
}

/// The value of this name.
pub fn find<T: NamedValue>(name: &str) -> Option<T> {
    T::TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
}

/// Declares an enum of values with names: `ALL` lists the values and `name` returns a value's name.
/// After `by default`, one of them is the usual one.
#[doc(hidden)]
#[macro_export]
macro_rules! __named {
    (
        $(#[$of_type:meta])*
        pub enum $type:ident $(by default $usual:ident)? {
            $($(#[doc = $about:literal])* $value:ident = $name:literal,)*
        }
    ) => {
        $(#[$of_type])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $($(#[doc = $about])* $value,)*
        }

        impl $type {
            /// All values, in the order of their declaration.
            pub const ALL: [$type; [$($type::$value),*].len()] = [$($type::$value),*];

            /// The value's name, as messages print it.
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$value => $name,)*
                }
            }
        }

        impl $crate::named::NamedValue for $type {
            const TABLE: &'static [($type, &'static str, &'static str)] =
                &[$(($type::$value, $name, concat!($($about),*).trim_ascii())),*];
        }

        $(
            impl Default for $type {
                fn default() -> $type {
                    $type::$usual
                }
            }
        )?
    };
}
pub use __named as named;

#[cfg(test)]
mod tests {
    use super::*;

    named! {
        /// A way to go.
        pub enum Way by default Left {
            /// Where the heart
            /// is.
            Left = "left",
            Right = "right",
        }
    }

    #[test]
    fn values_have_names_and_sentences() {
        assert_eq!(Way::default(), Way::Left);
        assert_eq!(find("right"), Some(Way::Right));
        assert_eq!(find::<Way>("up"), None);
        assert_eq!((Way::Right.name(), Way::ALL.len()), ("right", 2));
        let left = (Way::Left, "left", "Where the heart is.");
        assert_eq!(Way::TABLE, [left, (Way::Right, "right", "")]);
    }
}
