//! The grammar of quantities.

use super::{NANOS_PER_UNIT, QuantityError};

/// The greatest magnitude a quantity has, in billionths: 2⁶³−1.
const LIMIT: i128 = i64::MAX as i128 * NANOS_PER_UNIT;
/// Decimal exponents beyond this make every number either 0, the smallest or the greatest quantity.
const EXPONENT_LIMIT: i64 = 64;

/// Reads `text`, in billionths.
pub(super) fn nanos(text: &str) -> Result<i128, QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Empty);
    }
    let (negative, unsigned) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let number_end = unsigned.find(|each: char| !each.is_ascii_digit() && each != '.').unwrap_or(unsigned.len());
    let (number, unit) = unsigned.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err(QuantityError::Number);
    }
    let scale = Scale::of(unit)?;
    let magnitude = magnitude(whole, fraction, scale).min(LIMIT);
    Ok(if negative { -magnitude } else { magnitude })
}

/// What a unit multiplies by.
#[derive(Clone, Copy)]
enum Scale {
    /// 10 to this power.
    Ten(i64),
    /// 1024 to this power.
    Binary(u32),
}

impl Scale {
    fn of(unit: &str) -> Result<Self, QuantityError> {
        Ok(match unit {
            "" => Self::Ten(0),
            "n" => Self::Ten(-9),
            "u" => Self::Ten(-6),
            "m" => Self::Ten(-3),
            "k" => Self::Ten(3),
            "M" => Self::Ten(6),
            "G" => Self::Ten(9),
            "T" => Self::Ten(12),
            "P" => Self::Ten(15),
            "E" => Self::Ten(18),
            "Ki" => Self::Binary(1),
            "Mi" => Self::Binary(2),
            "Gi" => Self::Binary(3),
            "Ti" => Self::Binary(4),
            "Pi" => Self::Binary(5),
            "Ei" => Self::Binary(6),
            _ => Self::Ten(exponent(unit)?),
        })
    }
}

fn exponent(unit: &str) -> Result<i64, QuantityError> {
    let digits = unit.strip_prefix(['e', 'E']).ok_or(QuantityError::Unit)?;
    let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(digits);
    if unsigned.is_empty() || !unsigned.bytes().all(|each| each.is_ascii_digit()) {
        return Err(QuantityError::Unit);
    }
    // One that has too many digits is beyond every limit, on its side.
    let beyond = if digits.starts_with('-') { -EXPONENT_LIMIT } else { EXPONENT_LIMIT };
    Ok(digits.parse().unwrap_or(beyond))
}

/// The billionths of `whole.fraction` times the scale: rounded up, and anything beyond the limit as `i128::MAX`.
fn magnitude(whole: &str, fraction: &str, scale: Scale) -> i128 {
    let fraction = fraction.trim_end_matches('0');
    let digits = format!("{}{fraction}", whole.trim_start_matches('0'));
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    // The value is `digits` times 10 to `power`, in billionths, times the binary unit.
    let places = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let (ten, binary) = match scale {
        Scale::Ten(power) => (power, 0),
        Scale::Binary(power) => (0, power),
    };
    let power = ten.clamp(-EXPONENT_LIMIT, EXPONENT_LIMIT).saturating_add(9).saturating_sub(places);
    // A part that lies below 10⁻³⁰ of a billionth can only matter for rounding up: it becomes one digit.
    let (kept, dropped) = keep_leading(digits, power);
    let Some(mut value) = kept.parse::<i128>().ok().or((kept.is_empty()).then_some(0)) else { return i128::MAX };
    for _ in 0..binary {
        let Some(next) = value.checked_mul(1024) else { return i128::MAX };
        value = next;
    }
    let power = power.saturating_add(dropped.places);
    if power >= 0 {
        let factor = u32::try_from(power).ok().and_then(|power| 10_i128.checked_pow(power));
        return factor.and_then(|factor| value.checked_mul(factor)).unwrap_or(i128::MAX);
    }
    let divisor = u32::try_from(-power).ok().and_then(|power| 10_i128.checked_pow(power));
    let Some(divisor) = divisor else { return 1 };
    let rest = value % divisor != 0 || dropped.anything;
    value / divisor + i128::from(rest)
}

/// What was cut from the end of a long run of digits.
struct Dropped {
    places: i64,
    anything: bool,
}

/// Cuts digits far behind the billionths, so that the rest can be calculated with.
fn keep_leading(digits: &str, power: i64) -> (&str, Dropped) {
    const SPARE: i64 = 18;
    let surplus = (-power).saturating_sub(SPARE);
    let cut = usize::try_from(surplus).unwrap_or(0).min(digits.len());
    let (kept, rest) = digits.split_at(digits.len() - cut);
    (kept, Dropped { places: i64::try_from(cut).unwrap_or(0), anything: rest.bytes().any(|each| each != b'0') })
}
