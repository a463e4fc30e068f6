//! Enums whose variants have names on the wire.

/// Makes an enum of names. An unknown name is no error: conditions and reasons of other programs, and of other versions,
/// stay as they are.
macro_rules! name_enum {
    ($(#[$doc:meta])* $enum:ident { $($(#[$each:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $enum {
            $($(#[$each])* $variant,)+
        }

        impl $enum {
            /// All variants.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name on the wire.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// The variant of this name, if there is one.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|each| each.name() == name)
            }
        }

        impl From<$enum> for &'static str {
            fn from(one: $enum) -> Self {
                one.name()
            }
        }
    };
}

pub(crate) use name_enum;
