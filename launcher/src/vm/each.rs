//! Lists for tests with values of every variant, as far as the compiler can see to that.

/// Makes a function that has the values of its lines. Their patterns are one match without a wildcard: a variant that has no
/// line does not compile, and a line without a value of its pattern panics.
macro_rules! each {
    ($(#[$about:meta])* $visibility:vis $name:ident: $type:ty, $($pattern:pat => $values:expr,)*) => {
        $(#[$about])*
        #[allow(clippy::redundant_pattern_matching, reason = "the pattern of a line may be `None`")]
        $visibility fn $name() -> Vec<$type> {
            let _has_a_line = |value: &$type| match value {
                $($pattern)|* => {}
            };
            let mut all: Vec<$type> = Vec::new();
            $({
                let values: Vec<$type> = $values.into_iter().collect();
                let line = stringify!($pattern);
                assert!(!values.is_empty(), "no value for {line}");
                assert!(values.iter().all(|value| matches!(value, $pattern)), "another value at {line}");
                all.extend(values);
            })*
            all
        }
    };
}

pub(super) use each;
