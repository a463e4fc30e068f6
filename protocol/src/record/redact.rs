//! What a record leaves out: whole lines that have a line of a secret document in them, values of what is called a password, and private
//! keys. Pure.

/// What stands in place of what is left out.
pub const MARK: &str = "<redacted>";
/// A shorter line of a secret document is a word that is anywhere, bytes; of one that has no other line, it may be a password.
const SHORTEST: usize = 8;
const SHORTEST_ALONE: usize = 4;
/// The most lines that are looked for. Where there are more, it is not known what is secret ([`Hidden::is_whole`]).
const MOST: usize = 4096;
/// Parts of names whose values are secret, in lower case.
const NAMES: [&str; 6] = ["password", "passwd", "secret", "token", "apikey", "api_key"];
const KEY_BEGINS: &str = "PRIVATE KEY-----";

/// Values of fields with such names that are no secret: `lock_passwd: false`.
const PLAIN_VALUES: [&str; 4] = ["true", "false", "null", "none"];

/// What is to be hidden of texts.
#[derive(Clone, Debug, Default)]
pub struct Hidden {
    lines: Vec<String>,
    /// There were more lines than are looked for.
    is_cut: bool,
}

impl Hidden {
    /// Adds a document whose lines are secret: cloud-init's user data, a value of a Secret.
    pub fn add(&mut self, document: &str) {
        let is_alone = document.trim().lines().count() == 1;
        let shortest = if is_alone { SHORTEST_ALONE } else { SHORTEST };
        let is_secret = |line: &&str| line.len() >= shortest && (is_alone || !line.starts_with('#'));
        let lines = document.lines().map(str::trim).filter(is_secret);
        // A program prints a password without the name that it has in the document.
        let values = document.lines().filter_map(|line| Some(line[value_at(line)?..].trim().trim_matches(['"', '\''])));
        let values = values.filter(|value| value.len() >= SHORTEST_ALONE && !PLAIN_VALUES.contains(value));
        for line in lines.chain(values) {
            if self.lines.len() >= MOST {
                self.is_cut = true;
                return;
            }
            self.lines.push(line.to_owned());
        }
    }

    /// Whether all that was added is looked for. Where it is not, no text may be kept.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        !self.is_cut
    }

    /// A text without it.
    #[must_use]
    pub fn of(&self, text: &str) -> String {
        let mut kept: Vec<String> = Vec::new();
        let mut in_key = false;
        for line in text.split('\n') {
            let borders = line.contains(KEY_BEGINS);
            if in_key || borders {
                // A border that ends a key begins none.
                let ends = line.contains("-----END ");
                if ends && !in_key && !line.contains("-----BEGIN ") {
                    // The text begins within a key.
                    let before = kept.iter().rposition(|line| !is_of_key(line)).map_or(0, |last| last + 1);
                    kept.truncate(before);
                }
                in_key = !ends;
                if kept.last().map(String::as_str) != Some(MARK) {
                    kept.push(MARK.to_owned());
                }
                continue;
            }
            kept.push(self.line(line));
        }
        kept.join("\n")
    }

    fn line(&self, line: &str) -> String {
        if self.lines.iter().any(|secret| line.contains(secret.as_str())) {
            return MARK.to_owned();
        }
        match value_at(line).filter(|at| !line[*at..].trim().is_empty()) {
            Some(at) => format!("{} {MARK}", &line[..at]),
            None => line.to_owned(),
        }
    }
}

/// Where the value of what is called a password begins in a line.
fn value_at(line: &str) -> Option<usize> {
    // The same length, byte by byte.
    let lower = line.to_ascii_lowercase();
    let from = NAMES.iter().filter_map(|name| Some(lower.find(name)? + name.len())).min()?;
    Some(from + lower[from..].find([':', '='])? + 1)
}

/// Whether a line has the characters of a key alone.
fn is_of_key(line: &str) -> bool {
    let is_allowed = |one: char| one.is_ascii_alphanumeric() || matches!(one, '+' | '/' | '=' | '\r');
    !line.is_empty() && line.chars().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_with_more_lines_than_are_looked_for_are_not_whole() {
        let mut hidden = Hidden::default();
        hidden.add(&"a line of a document\n".repeat(MOST));
        assert!(hidden.is_whole());
        hidden.add("another-secret");
        assert!(!hidden.is_whole());
    }

    #[test]
    fn lines_of_user_data_passwords_and_keys_are_left_out() {
        let mut hidden = Hidden::default();
        hidden.add("#cloud-config\nchpasswd: {expire: false}\nruncmd: [echo hunter2-of-ada]\nshort\n");
        hidden.add("#cloud-config\nusers:\n- plain_text_passwd: 'opal7'\n  lock_passwd: false\n");
        hidden.add("#hunt\n");
        hidden.add("on\n");
        let table = [
            ("the word is #hunt", MARK),
            ("on", "on"),
            ("ci-info: runcmd: [echo hunter2-of-ada] ran", MARK),
            ("login: root", "login: root"),
            ("short", "short"),
            ("#cloud-config", "#cloud-config"),
            ("Password: hunter3", "Password: <redacted>"),
            ("DB_PASSWORD=hunter4 started", "DB_PASSWORD= <redacted>"),
            ("Password: ", "Password: "),
            ("a token was found", "a token was found"),
            (
                "key\n-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1r\n-----END OPENSSH PRIVATE KEY-----\nafter",
                "key\n<redacted>\nafter",
            ),
            ("-----BEGIN RSA PRIVATE KEY-----\nno end", MARK),
            ("a line\nb3BlbnNz\naC1r==\n-----END OPENSSH PRIVATE KEY-----\nafter", "a line\n<redacted>\nafter"),
            ("ada has opal7 now", MARK),
            ("it is false", "it is false"),
        ];
        for (text, expected) in table {
            assert_eq!(hidden.of(text), expected, "{text:?}");
        }
    }
}
