//! Enums whose values have names.

/// Declares an enum of values with names, which messages print: `ALL` lists the values and `name`
/// returns a value's name.
macro_rules! named {
    ($(#[$of_type:meta])* pub enum $type:ident { $($(#[$of_value:meta])* $value:ident = $name:literal,)* }) => {
        $(#[$of_type])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $($(#[$of_value])* $value,)*
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
    };
}
pub(crate) use named;
