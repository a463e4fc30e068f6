//! Enums whose variants are words on the wire.

/// Makes an enum of words. A word that is not among them is no error: conditions
/// and reasons of other programs, and of other versions, stay as they are.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$each])* $variant,)+
        }

        impl $name {
            /// Every one of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word on the wire.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// The one of this word, if it is one of them.
            #[must_use]
            pub fn of_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|each| each.word() == word)
            }
        }

        impl From<$name> for &'static str {
            fn from(one: $name) -> Self {
                one.word()
            }
        }
    };
}

pub(crate) use words;
