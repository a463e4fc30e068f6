//! Quantities: values, rounding, limits, and text that survives.

use proptest::prelude::*;

use super::{NANOS_PER_UNIT, QUANTITY_PATTERN, Quantity, QuantityError};

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn units_mean_what_kubernetes_means() {
    for (text, bytes) in [
        ("0", 0),
        ("1", 1),
        ("+7", 7),
        ("1k", 1000),
        ("1Ki", 1024),
        ("512Mi", 512 << 20),
        ("1.5Gi", 3 << 29),
        (".5Gi", 1 << 29),
        ("1.", 1),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12E-1", 2),
        ("1E", 1_000_000_000_000_000_000),
        ("2M", 2_000_000),
        ("1G", 1_000_000_000),
        ("1T", 1_000_000_000_000),
        ("1P", 1_000_000_000_000_000),
        ("1Ti", 1 << 40),
        ("1Pi", 1 << 50),
        ("1Ei", 1 << 60),
        ("128974848000m", 128_974_848),
        ("00012", 12),
    ] {
        assert_eq!(quantity(text).value(), bytes, "{text}");
    }
}

#[test]
fn parts_are_rounded_up_and_negative_ones_towards_zero() {
    assert_eq!(quantity("1.1").value(), 2);
    assert_eq!(quantity("-1.9").value(), -1);
    assert_eq!(quantity("1500u").milli(), 2);
    assert_eq!(quantity("100m").milli(), 100);
    assert_eq!(quantity("2").milli(), 2000);
}

#[test]
fn what_is_finer_than_a_billionth_becomes_one() {
    assert_eq!(quantity("0.1n").nanos(), 1);
    assert_eq!(quantity("1e-500").nanos(), 1);
    assert_eq!(quantity("-1e-40").nanos(), -1);
    assert_eq!(quantity("0.0000000000000000000000000000000000000000001").nanos(), 1);
    assert_eq!(quantity("1.00000000000000000000000000000000000000000001").nanos(), NANOS_PER_UNIT + 1);
    assert_eq!(quantity("0.000000000000000000000000000001Ei").nanos(), 1);
}

#[test]
fn what_is_too_great_becomes_the_greatest() {
    for text in ["8Ei", "1e19", "10E", "1e500", "99999999999999999999999999999999999999999999999999", "1e60000"] {
        assert_eq!(quantity(text).value(), i64::MAX, "{text}");
    }
    assert_eq!(quantity("-10E").value(), -i64::MAX);
    assert_eq!(quantity("0e900").value(), 0);
}

#[test]
fn nonsense_is_refused() {
    assert_eq!("".parse::<Quantity>(), Err(QuantityError::Empty));
    for text in ["-", ".", "Gi", "1.2.3", "x1", "+-1", " 1"] {
        assert_eq!(text.parse::<Quantity>(), Err(QuantityError::Number), "{text}");
    }
    for text in ["1K", "1ki", "1gi", "1GB", "1 Gi", "1e", "1e+", "1e1.5", "1Gi ", "0x10", "1é"] {
        assert_eq!(text.parse::<Quantity>(), Err(QuantityError::Unit), "{text}");
    }
}

#[test]
fn order_goes_by_value_not_by_text() {
    assert!(quantity("1Gi") > quantity("1G"));
    assert_eq!(quantity("1024Mi"), quantity("1Gi"));
    assert!(quantity("-1") < quantity("0"));
}

#[test]
fn json_comes_back_as_it_was() {
    for json in [r#""1024Mi""#, "1024", "-3", "1.5", r#""1e3""#] {
        let read: Quantity = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), json);
    }
    assert_eq!(serde_json::from_str::<Quantity>("1.5").unwrap(), quantity("1500m"));
    assert!(serde_json::from_str::<Quantity>("true").is_err());
    assert!(serde_json::from_str::<Quantity>("18446744073709551615").is_err());
}

#[test]
fn made_quantities_are_written_shortly() {
    assert_eq!(Quantity::from_bytes(0).to_string(), "0");
    assert_eq!(Quantity::from_bytes(1 << 30).to_string(), "1Gi");
    assert_eq!(Quantity::from_bytes(1536 << 20).to_string(), "1536Mi");
    assert_eq!(Quantity::from_bytes(1001).to_string(), "1001");
    assert_eq!(Quantity::from_milli(100).to_string(), "100m");
    assert_eq!(Quantity::from_milli(2000).to_string(), "2");
}

proptest! {
    /// What the API server stores has to be readable: one object that is not would be in the way of every list.
    #[test]
    fn what_the_pattern_admits_is_read(text in QUANTITY_PATTERN.trim_start_matches('^').trim_end_matches('$')) {
        prop_assert!(text.parse::<Quantity>().is_ok(), "{}", text);
    }

    #[test]
    fn bytes_survive_writing_and_reading(bytes in 0..=i64::MAX as u64) {
        let read: Quantity = Quantity::from_bytes(bytes).to_string().parse().unwrap();
        prop_assert_eq!(read.to_bytes(), Some(bytes));
    }

    #[test]
    fn thousandths_survive_writing_and_reading(milli in -9_000_000_000_000_000_i64..9_000_000_000_000_000) {
        let read: Quantity = Quantity::from_milli(milli).to_string().parse().unwrap();
        prop_assert_eq!(read.milli(), milli);
    }

    #[test]
    fn text_survives_json(text in r"[+-]?[0-9]{1,12}(\.[0-9]{0,6})?(Ki|Mi|Gi|n|u|m|k|M|G|e[0-9]|E-?[0-9])?") {
        let json = serde_json::to_string(&text).unwrap();
        let read: Quantity = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(serde_json::to_string(&read).unwrap(), json);
    }

    #[test]
    fn no_text_makes_parsing_panic(text in "\\PC{0,40}") {
        let _ = text.parse::<Quantity>();
    }
}
