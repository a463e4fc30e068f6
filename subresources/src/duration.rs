//! Durations as Go writes them (`time.ParseDuration`), which is how `metav1.Duration` is sent: `5m0s`, `1.5h`, `300ms`. Pure.

use std::time::Duration;

/// The units and their nanoseconds; a longer name comes before one that it begins with.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3600 * 1_000_000_000),
];
/// The longest that Go has, nanoseconds.
const LONGEST: u64 = i64::MAX as u64;

/// Reads a duration that is not negative; nothing if it is none.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    // The only number without a unit.
    if unsigned == "0" || text == "-0" {
        return Some(Duration::ZERO);
    }
    let mut rest = unsigned;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (nanoseconds, after) = part(rest)?;
        total = total.checked_add(nanoseconds).filter(|total| *total <= LONGEST)?;
        rest = after;
    }
    (!unsigned.is_empty()).then(|| Duration::from_nanos(total))
}

/// A number with its unit, and what follows.
fn part(text: &str) -> Option<(u64, &str)> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (name, unit) = UNITS.iter().find(|(name, _)| rest.starts_with(name))?;
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let nanoseconds = whole.checked_mul(*unit)?.checked_add(of_fraction(fraction, *unit))?;
    Some((nanoseconds, rest.get(name.len()..)?))
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()))
}

/// What digits after the point are of a unit, without a part of a nanosecond. Digits that cannot make one are not read.
fn of_fraction(digits: &str, unit: u64) -> u64 {
    let (mut value, mut of) = (0, 1);
    for digit in digits.bytes().take(18) {
        value = value * 10 + u128::from(digit - b'0');
        of *= 10;
    }
    u64::try_from(u128::from(unit) * value / of).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        let table = [
            ("5m0s", Some(300_000)),
            ("1h", Some(3_600_000)),
            ("1h2m3s4ms", Some(3_723_004)),
            ("1.5h", Some(5_400_000)),
            (".5s", Some(500)),
            ("1.s", Some(1_000)),
            ("+10s", Some(10_000)),
            ("0", Some(0)),
            ("-0", Some(0)),
            ("0s", Some(0)),
            ("100us", Some(0)),
            ("2562047h", Some(9_223_369_200_000)),
            ("2562048h", None),
            ("99999999999999999999h", None),
            ("", None),
            ("+", None),
            (".s", None),
            ("5", None),
            ("5 m", None),
            ("-1s", None),
            ("5x", None),
            ("1m1", None),
            ("s", None),
        ];
        for (text, milliseconds) in table {
            assert_eq!(parse(text).map(|found| found.as_millis()), milliseconds, "{text}");
        }
        for micro in ["1us", "1\u{b5}s", "1\u{3bc}s"] {
            assert_eq!(parse(micro), Some(Duration::from_micros(1)));
        }
        assert_eq!(parse("0.000000001s"), Some(Duration::from_nanos(1)));
    }

    proptest! {
        #[test]
        fn what_go_writes_is_read(hours in 0_u64..2_000_000, minutes in 0_u64..60, seconds in 0_u64..60, nanos in 0_u64..1_000_000_000) {
            let text = format!("{hours}h{minutes}m{seconds}.{nanos:09}s");
            let expected = Duration::new(hours * 3600 + minutes * 60 + seconds, 0) + Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&text), Some(expected));
        }

        #[test]
        fn no_text_is_too_strange(text in "\\PC{0,40}") {
            let _ = parse(&text);
        }
    }
}
