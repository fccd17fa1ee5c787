//! Enums whose values have names: in messages, in the text of a strategy, and where a program reads
//! one from its user.

/// A type of a few values with names.
pub trait NamedValue: Copy + PartialEq + Send + Sync + 'static {
    /// All values, in the order of their declaration.
    fn all() -> &'static [Self];

    /// The value's name, as messages print it.
    fn name(self) -> &'static str;

    /// The value in a sentence, or nothing: its comment.
    fn about(self) -> &'static str;
}

/// The value of this name.
pub fn find<T: NamedValue>(name: &str) -> Option<T> {
    T::all().iter().copied().find(|value| value.name() == name)
}

/// Declares an enum of values with names: `ALL` lists the values and `name` returns a value's name.
/// After `by default`, one of them is the usual one.
macro_rules! named {
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
            fn all() -> &'static [$type] {
                &$type::ALL
            }

            fn name(self) -> &'static str {
                self.name()
            }

            fn about(self) -> &'static str {
                match self {
                    $($type::$value => concat!($($about),*).trim_ascii(),)*
                }
            }
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
pub(crate) use named;

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
        assert_eq!(NamedValue::about(Way::Left), "Where the heart is.");
        assert_eq!((NamedValue::about(Way::Right), Way::ALL.len()), ("", 2));
    }
}
