//! "Did you mean": what to write instead of an unknown name.

/// A name is taken for a misspelling of another if they are at least this alike (Jaro-Winkler, 0 to 1).
const ALIKE: f64 = 0.75;
/// How alike two names are that differ by one typing mistake.
const SLIP: f64 = 0.95;
/// One mistake is permitted for so many letters; shorter names are too easily others.
const LETTERS_PER_SLIP: usize = 4;
/// The shortest name in which a mistake is permitted.
const LETTERS_MIN: usize = 3;
/// The longest name that is compared, bytes: the comparison takes time for each letter of one beside each of the other.
const LONGEST: usize = 128;

/// The known name that `given` most likely stands for, if any is close.
pub(crate) fn closest<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    if given.len() > LONGEST {
        return None;
    }
    let given = given.to_ascii_lowercase();
    known
        .iter()
        .map(|name| (*name, alikeness(&given, &name.to_ascii_lowercase())))
        .filter(|(_, alike)| *alike >= ALIKE)
        .max_by(|(_, left), (_, right)| left.total_cmp(right))
        .map(|(name, _)| name)
}

fn alikeness(given: &str, name: &str) -> f64 {
    let letters = given.chars().count().min(name.chars().count());
    let slips = strsim::damerau_levenshtein(given, name);
    let slipped = letters >= LETTERS_MIN && slips <= (letters / LETTERS_PER_SLIP).max(1);
    if slipped { SLIP } else { strsim::jaro_winkler(given, name) }
}

/// What to write instead of `given` where one of the `known` names must stand.
///
/// Begins in lower case, as the continuation of a message: `write one of …; did you mean …?`.
pub(crate) fn one_of(given: &str, known: &[&str]) -> String {
    let all = listed(known);
    match closest(given, known) {
        Some(name) if !given.is_empty() => format!("write {all} (did you mean `{name}`?)"),
        _ => format!("write {all}"),
    }
}

/// The names as a list in a text: "`a`, `b` or `c`".
pub(crate) fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [only] => format!("`{only}`"),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(|name| format!("`{name}`")).collect();
            format!("{} or `{last}`", first.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_recognised() {
        let known = ["bridge", "masquerade", "passtBinding"];
        assert_eq!(closest("masquerad", &known), Some("masquerade"));
        assert_eq!(closest("Bridge", &known), Some("bridge"));
        assert_eq!(closest("bsu", &["bus", "readonly"]), Some("bus"));
        assert_eq!(closest("zzz", &known), None);
        assert_eq!(closest(&format!("bridge{}", " ".repeat(LONGEST)), &known), None, "no misspelling is so long");
    }

    #[test]
    fn the_answer_lists_every_known_name_and_the_likeliest() {
        assert_eq!(one_of("sta", &["virtio", "sata"]), "write `virtio` or `sata` (did you mean `sata`?)");
        assert_eq!(one_of("floppy", &["sata"]), "write `sata`");
        assert_eq!(one_of("", &["virtio", "scsi", "usb"]), "write `virtio`, `scsi` or `usb`");
    }
}
