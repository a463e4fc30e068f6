//! Kubernetes quantities: `512Mi`, `1.5`, `100m`, `1e3`.
//!
//! The text a quantity was written in is kept, so that reading and writing a manifest changes nothing; comparing goes by
//! value. Arithmetic is exact, in whole billionths. The grammar, the rounding and the greatest value are those of
//! `k8s.io/apimachinery/pkg/api/resource` (Kubernetes 1.33): what is finer than a billionth is rounded away from zero,
//! what is greater than 2⁶³−1 becomes 2⁶³−1.

mod parse;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What the text of a quantity looks like. The pattern that Kubernetes publishes also admits exponents with a fraction
/// (`1e1.5`), which its own reader refuses: what a cluster stores has to be readable.
pub(crate) const QUANTITY_PATTERN: &str =
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]+))?$";
/// Billionths in one.
const NANOS_PER_UNIT: i128 = 1_000_000_000;
/// Billionths in one thousandth.
const NANOS_PER_MILLI: i128 = 1_000_000;

/// An amount of something: bytes of memory or storage, or CPUs.
#[derive(Clone)]
pub struct Quantity {
    written: Written,
    nanos: i128,
}

/// How a quantity stood in the manifest.
#[derive(Clone)]
enum Written {
    Text(String),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
}

/// Why a text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// There is no text.
    #[error("a quantity cannot be empty")]
    Empty,
    /// The text does not begin with a number.
    #[error("a quantity begins with a number, such as `1.5`")]
    Number,
    /// The unit does not exist.
    #[error("the unit is none of n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei")]
    Unit,
    /// A number that came as a JSON number cannot be held.
    #[error("the number is too great")]
    TooGreat,
}

impl Quantity {
    /// The quantity of so many bytes, written in the largest binary unit that is exact (`1Gi`).
    pub fn from_bytes(bytes: u64) -> Self {
        const UNITS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        let (mut count, mut unit) = (bytes, 0);
        while count != 0 && count % 1024 == 0 && unit + 1 < UNITS.len() {
            count /= 1024;
            unit += 1;
        }
        let written = Written::Text(format!("{count}{}", UNITS[unit]));
        Self { written, nanos: i128::from(bytes) * NANOS_PER_UNIT }
    }

    /// The quantity of so many thousandths, as CPU shares are written (`100m`).
    pub fn from_milli(milli: i64) -> Self {
        let text = if milli % 1000 == 0 { (milli / 1000).to_string() } else { format!("{milli}m") };
        Self { written: Written::Text(text), nanos: i128::from(milli) * NANOS_PER_MILLI }
    }

    /// The value, rounded up to a whole number as Kubernetes rounds when it asks for bytes or CPUs.
    pub fn value(&self) -> i64 {
        saturate(rounded_up(self.nanos, NANOS_PER_UNIT))
    }

    /// The value as bytes, rounded up to a whole byte; nothing if it is negative.
    pub fn to_bytes(&self) -> Option<u64> {
        u64::try_from(self.value()).ok()
    }

    /// The value in thousandths (of a CPU), rounded up.
    pub fn milli(&self) -> i64 {
        saturate(rounded_up(self.nanos, NANOS_PER_MILLI))
    }

    /// Whether the value is a whole number.
    pub fn is_whole(&self) -> bool {
        self.nanos % NANOS_PER_UNIT == 0
    }

    /// Whether the value is 0.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// Whether the value is greater than 0.
    pub fn is_positive(&self) -> bool {
        self.nanos > 0
    }

    /// Whether the value is less than 0.
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// The value in billionths: exact.
    pub fn nanos(&self) -> i128 {
        self.nanos
    }
}

fn rounded_up(nanos: i128, unit: i128) -> i128 {
    let whole = nanos.div_euclid(unit);
    if nanos.rem_euclid(unit) == 0 { whole } else { whole + 1 }
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

impl Default for Quantity {
    fn default() -> Self {
        Self { written: Written::Text("0".to_owned()), nanos: 0 }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Ok(Self { nanos: parse::nanos(text)?, written: Written::Text(text.to_owned()) })
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.written {
            Written::Text(text) => out.write_str(text),
            Written::Unsigned(number) => write!(out, "{number}"),
            Written::Signed(number) => write!(out, "{number}"),
            Written::Float(number) => write!(out, "{number}"),
        }
    }
}

impl fmt::Debug for Quantity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Quantity({self})")
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.written {
            Written::Text(text) => serializer.serialize_str(text),
            Written::Unsigned(number) => serializer.serialize_u64(*number),
            Written::Signed(number) => serializer.serialize_i64(*number),
            Written::Float(number) => serializer.serialize_f64(*number),
        }
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyForm)
    }
}

/// Reads a quantity from a string or a number.
struct AnyForm;

impl Visitor<'_> for AnyForm {
    type Value = Quantity;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a quantity, such as `512Mi`")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Quantity, E> {
        text.parse().map_err(|error| E::custom(format_args!("`{}`: {error}", text.escape_debug())))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Quantity, E> {
        let number_as_signed = i64::try_from(number).map_err(|_| E::custom(QuantityError::TooGreat))?;
        Ok(Quantity { written: Written::Unsigned(number), nanos: i128::from(number_as_signed) * NANOS_PER_UNIT })
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Quantity, E> {
        Ok(Quantity { written: Written::Signed(number), nanos: i128::from(number) * NANOS_PER_UNIT })
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Quantity, E> {
        let nanos = parse::nanos(&number.to_string()).map_err(E::custom)?;
        Ok(Quantity { written: Written::Float(number), nanos })
    }
}

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An amount with an optional unit: `512Mi`, `1.5`, `100m`.",
            "pattern": QUANTITY_PATTERN,
            "x-kubernetes-int-or-string": true,
        })
    }
}

#[cfg(test)]
mod tests;
