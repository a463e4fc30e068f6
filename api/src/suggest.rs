//! "Did you mean": turning a word nobody knows into what to write instead.

/// A word is taken for a misspelling of another if they are at least this alike (Jaro-Winkler, 0 to 1).
const ALIKE: f64 = 0.75;
/// How alike two words are of which one is the other with a slip of the finger.
const SLIP: f64 = 0.95;
/// One slip is forgiven for so many letters; shorter words are too easily others.
const LETTERS_PER_SLIP: usize = 4;
/// The shortest word in which a slip is forgiven.
const LETTERS_MIN: usize = 3;

/// The known word that `given` most likely stands for, if any is close.
pub(crate) fn closest<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    let given = given.to_ascii_lowercase();
    known
        .iter()
        .map(|word| (*word, alikeness(&given, &word.to_ascii_lowercase())))
        .filter(|(_, alike)| *alike >= ALIKE)
        .max_by(|(_, left), (_, right)| left.total_cmp(right))
        .map(|(word, _)| word)
}

fn alikeness(given: &str, word: &str) -> f64 {
    let letters = given.chars().count().min(word.chars().count());
    let slips = strsim::damerau_levenshtein(given, word);
    let slipped = letters >= LETTERS_MIN && slips <= (letters / LETTERS_PER_SLIP).max(1);
    if slipped { SLIP } else { strsim::jaro_winkler(given, word) }
}

/// What to write instead of `given` where one of the `known` words must stand.
///
/// Begins in lower case, as the continuation of a message: `write one of …; did you mean …?`.
pub(crate) fn one_of(given: &str, known: &[&str]) -> String {
    let all = listed(known);
    match closest(given, known) {
        Some(word) if !given.is_empty() => format!("write {all} (did you mean `{word}`?)"),
        _ => format!("write {all}"),
    }
}

/// The words as a list in a sentence: "`a`, `b` or `c`".
pub(crate) fn listed(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => format!("`{only}`"),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(|word| format!("`{word}`")).collect();
            format!("{} or `{last}`", first.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_is_recognised() {
        let known = ["bridge", "masquerade", "passtBinding"];
        assert_eq!(closest("masquerad", &known), Some("masquerade"));
        assert_eq!(closest("Bridge", &known), Some("bridge"));
        assert_eq!(closest("bsu", &["bus", "readonly"]), Some("bus"));
        assert_eq!(closest("zzz", &known), None);
    }

    #[test]
    fn the_answer_lists_every_known_word_and_the_likeliest() {
        assert_eq!(one_of("sta", &["virtio", "sata"]), "write `virtio` or `sata` (did you mean `sata`?)");
        assert_eq!(one_of("floppy", &["sata"]), "write `sata`");
        assert_eq!(one_of("", &["virtio", "scsi", "usb"]), "write `virtio`, `scsi` or `usb`");
    }
}
