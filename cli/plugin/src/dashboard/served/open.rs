//! The browser of this computer. Every user of it sees the arguments of its processes, so the address is in a file that this user alone may
//! read, and the browser is given the name of the file.

use std::fs::OpenOptions;
use std::io::Write;
#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

use super::keys::Keys;
use crate::output::note;
use crate::stream::BESIDE;

/// Programs that open a file as its user wishes: of Linux, of macOS.
const OPENERS: [&str; 2] = ["xdg-open", "open"];

/// A file that leads a browser to the page. It is removed with this.
#[derive(Debug)]
pub(super) struct Opened {
    file: PathBuf,
    key: String,
}

impl Opened {
    /// Writes the file, with a key of its own, and starts a browser.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn new(directory: &Path, keys: &Keys, port: u16) -> anyhow::Result<Self> {
        let opened =
            Self::written(directory, keys.cut(), port).context("write the file that leads a browser to the page")?;
        if !OPENERS.iter().any(|program| opened.is_given_to(program)) {
            note!("no browser could be started here: open the address by hand");
        }
        Ok(opened)
    }

    fn written(directory: &Path, key: String, port: u16) -> std::io::Result<Self> {
        let file = directory.join(BESIDE);
        let mut options = OpenOptions::new();
        let mut written = options.write(true).create_new(true).mode(0o600).open(&file)?;
        let opened = Self { file, key };
        written.write_all(page(&super::address(port, &opened.key)).as_bytes())?;
        Ok(opened)
    }

    /// Whether no browser has come by it yet.
    pub(super) fn is_unused(&self, keys: &Keys) -> bool {
        keys.is_unused(&self.key)
    }

    fn is_given_to(&self, program: &str) -> bool {
        let mut command = Command::new(program);
        command.arg(&self.file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().is_ok()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // The directory may be gone.
        let _ = std::fs::remove_file(&self.file);
    }
}

/// An address has no character that HTML takes in another way. Pure.
fn page(address: &str) -> String {
    format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta http-equiv=\"refresh\" content=\"0; url={address}\">\n<title>Garboard</title>\n\
         <p><a href=\"{address}\">Machines</a></p>\n"
    )
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    use std::os::unix::fs::PermissionsExt;

    use super::super::keys::Redemption;
    use super::*;

    #[test]
    fn a_browser_is_led_by_a_file_that_one_user_reads_and_that_goes_with_its_key() {
        let directory = tempfile::tempdir().unwrap();
        let keys = Keys::default();
        let opened = Opened::written(directory.path(), keys.cut(), 4000).unwrap();
        let file = opened.file.clone();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&file).unwrap();
        let expected = format!("content=\"0; url=http://127.0.0.1:4000/#key={}\"", opened.key);
        assert!(text.contains(&expected), "{text}");
        assert!(opened.is_unused(&keys));
        assert!(matches!(keys.redeem(&opened.key), Redemption::Token(_)));
        assert!(!opened.is_unused(&keys));
        drop(opened);
        assert!(!file.exists());
    }
}
