//! The real [`Images`]: `qemu-img`, given descriptors as its standard input and output.
//!
//! `/proc/self/fd/0` names exactly the file that was opened and checked here, also when it has no name any more, and
//! needs no inheritable descriptor beyond those three that every child has.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Stdio;

use serde::Deserialize;

use super::bounded::{Finished, Job, RunError, ToolLimits, run};
use super::{Consistency, Image, ImageError, Images, reasonable};
use crate::qcow2::{Format, ImageFacts, inspect, raw_facts};

const INPUT: &str = "/proc/self/fd/0";
const OUTPUT: &str = "/proc/self/fd/1";

/// Exit codes of `qemu-img check`.
const CHECK_DAMAGED: i32 = 2;
const CHECK_LEAKS: i32 = 3;

/// `qemu-img`, found in `PATH` unless named otherwise.
#[derive(Debug, Clone)]
pub struct QemuImg {
    program: String,
    look: ToolLimits,
    copy: ToolLimits,
}

impl Default for QemuImg {
    fn default() -> Self {
        Self { program: "qemu-img".to_owned(), look: ToolLimits::LOOK, copy: ToolLimits::COPY }
    }
}

/// What is used of `qemu-img info --output=json`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Info {
    virtual_size: u64,
}

impl QemuImg {
    /// With a program and limits of one's own: `look` for what reads tables, `copy` for what reads everything.
    pub fn new(program: impl Into<String>, look: ToolLimits, copy: ToolLimits) -> Self {
        Self { program: program.into(), look, copy }
    }

    fn run(&self, arguments: &[&str], stdin: Stdio, limits: ToolLimits) -> Result<Finished, RunError> {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        run(Job { program: self.program.clone(), arguments, stdin, stdout: None }, limits)
    }

    fn successful(&self, done: Result<Finished, RunError>, attempt: &'static str) -> Result<Finished, ImageError> {
        let failed = |source| ImageError::Tool { attempt, source };
        let done = done.map_err(failed)?;
        if done.code != 0 {
            let (program, code, stderr) = (self.program.clone(), done.code, done.stderr);
            return Err(failed(RunError::Failed { program, code, stderr }));
        }
        Ok(done)
    }
}

fn given(file: &File) -> Result<Stdio, ImageError> {
    let copy = file.as_fd().try_clone_to_owned().map_err(|source| ImageError::Descriptor { source })?;
    Ok(Stdio::from(copy))
}

/// Lets only acceptable images through to the tool. A block device reports no length; it is measured by the tool.
fn accept(image: Image<'_>) -> Result<(), ImageError> {
    let length = image.file.metadata().map_err(|source| ImageError::Descriptor { source })?.len();
    if image.format == Format::Qcow2 {
        let facts = inspect(image.file, length).map_err(ImageError::Unacceptable)?;
        if facts.format != Format::Qcow2 {
            let cause = crate::qcow2::HeaderError::NotQcow2;
            return Err(ImageError::Unacceptable(crate::qcow2::ProbeError::Qcow2(cause)));
        }
    }
    Ok(())
}

impl Images for QemuImg {
    fn facts(&self, image: Image<'_>) -> Result<ImageFacts, ImageError> {
        accept(image)?;
        let arguments = ["info", "--output=json", "--force-share", "-f", image.format.driver(), INPUT];
        let done = self.run(&arguments, given(image.file)?, self.look);
        let done = self.successful(done, "look at")?;
        let info: Info = serde_json::from_slice(&done.stdout).map_err(|source| ImageError::Answer { source })?;
        let rounded = raw_facts(info.virtual_size).map_err(ImageError::Unacceptable)?;
        Ok(ImageFacts { format: image.format, ..rounded })
    }

    fn create(&self, image: Image<'_>, virtual_bytes: u64) -> Result<(), ImageError> {
        reasonable(virtual_bytes)?;
        let size = virtual_bytes.to_string();
        let arguments = ["create", "-q", "-f", image.format.driver(), INPUT, &size];
        let done = self.run(&arguments, given(image.file)?, self.look);
        self.successful(done, "create").map(drop)
    }

    fn grow(&self, image: Image<'_>, virtual_bytes: u64) -> Result<(), ImageError> {
        reasonable(virtual_bytes)?;
        let have_bytes = self.facts(image)?.virtual_bytes;
        if virtual_bytes < have_bytes {
            return Err(ImageError::Shrinks { have_bytes, wanted_bytes: virtual_bytes });
        }
        let size = virtual_bytes.to_string();
        let arguments = ["resize", "-q", "-f", image.format.driver(), INPUT, &size];
        let done = self.run(&arguments, given(image.file)?, self.look);
        self.successful(done, "grow").map(drop)
    }

    fn convert(&self, from: Image<'_>, to: Image<'_>) -> Result<(), ImageError> {
        accept(from)?;
        let arguments = ["convert", "-q", "-f", from.format.driver(), "-O", to.format.driver(), INPUT, OUTPUT];
        let job = Job {
            program: self.program.clone(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            stdin: given(from.file)?,
            stdout: Some(given(to.file)?),
        };
        let done = run(job, self.copy);
        self.successful(done, "convert").map(drop)
    }

    fn check(&self, image: Image<'_>) -> Result<Consistency, ImageError> {
        if image.format == Format::Raw {
            return Ok(Consistency::Sound);
        }
        accept(image)?;
        let arguments = ["check", "-q", "--output=json", "-f", image.format.driver(), INPUT];
        let done = self.run(&arguments, given(image.file)?, self.copy);
        match &done {
            Ok(Finished { code: CHECK_LEAKS, .. }) => Ok(Consistency::Leaks),
            Ok(Finished { code: CHECK_DAMAGED, .. }) => Ok(Consistency::Damaged),
            _ => self.successful(done, "check").map(|_| Consistency::Sound),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::image::testing::contract;
    use crate::qcow2::create_empty;

    fn installed() -> bool {
        let there = std::process::Command::new("qemu-img").arg("--version").output().is_ok();
        if !there {
            eprintln!("skipped: no qemu-img");
        }
        there
    }

    #[test]
    fn qemu_img_keeps_the_contract() {
        if installed() {
            contract(&QemuImg::default());
        }
    }

    #[test]
    fn an_image_that_names_another_file_never_reaches_the_tool() {
        let file = tempfile::tempfile().unwrap();
        create_empty(&file, 1 << 30).unwrap();
        file.write_all_at(&200_u64.to_be_bytes(), 8).unwrap();
        let tool = QemuImg::new("/nonexistent/qemu-img", ToolLimits::LOOK, ToolLimits::COPY);
        let image = Image { file: &file, format: Format::Qcow2 };
        assert!(matches!(tool.facts(image), Err(ImageError::Unacceptable(_))));
        assert!(matches!(tool.check(image), Err(ImageError::Unacceptable(_))));
        assert!(matches!(tool.convert(image, image), Err(ImageError::Unacceptable(_))));
    }

    #[test]
    fn damage_and_failure_are_distinguished() {
        if !installed() {
            return;
        }
        let file = tempfile::tempfile().unwrap();
        create_empty(&file, 1 << 30).unwrap();
        // The L1 table now points at itself: one cluster used twice.
        file.write_all_at(&(3_u64 << 16).to_be_bytes(), 3 << 16).unwrap();
        let tool = QemuImg::default();
        let image = Image { file: &file, format: Format::Qcow2 };
        assert_eq!(tool.check(image).unwrap(), Consistency::Damaged);

        let missing = QemuImg::new("/nonexistent/qemu-img", ToolLimits::LOOK, ToolLimits::COPY);
        file.set_len(0).unwrap();
        create_empty(&file, 1 << 30).unwrap();
        let error = missing.facts(image).unwrap_err();
        assert!(matches!(error, ImageError::Tool { source: RunError::Failed { code: 127, .. }, .. }), "{error:?}");
    }

    #[test]
    fn content_survives_conversion_between_descriptors() {
        if !installed() {
            return;
        }
        let (raw, qcow2, back) =
            (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        raw.set_len(8 << 20).unwrap();
        raw.write_all_at(&[0xa7; 70_000], 3 << 20).unwrap();
        let image = |file, format| Image { file, format };
        let tool = QemuImg::default();
        tool.convert(image(&raw, Format::Raw), image(&qcow2, Format::Qcow2)).unwrap();
        assert_eq!(tool.facts(image(&qcow2, Format::Qcow2)).unwrap().virtual_bytes, 8 << 20);
        tool.convert(image(&qcow2, Format::Qcow2), image(&back, Format::Raw)).unwrap();
        let mut bytes = vec![0; 70_000];
        back.read_exact_at(&mut bytes, 3 << 20).unwrap();
        assert_eq!(bytes, vec![0xa7; 70_000]);
        assert_eq!(back.metadata().unwrap().len(), 8 << 20);
    }
}
