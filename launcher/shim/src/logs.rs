//! The logs of a machine's own directory: the supervisor's with PID 1's, and the shim's. All three append and none of
//! them empties; so the shim looks at them now and then, and takes out the middle of one that is too long. Its
//! beginning has what was planned and executed, its end what happened last.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use garboard_common::foreign;
use garboard_protocol::paths::Layout;
use garboard_shim_client::logs::{SHIM_LOG, SUPERVISOR_LOG, append};

/// How often they are looked at.
pub(crate) const LOOK: Duration = Duration::from_secs(10);
/// When one is longer, it is cut: as much as its record keeps.
const MAX_BYTES: u64 = 4 * 1024 * 1024;
/// The most that is read of one that may have grown since it was looked at last.
const MAX_READ_BYTES: u64 = 16 * MAX_BYTES;
/// What is kept of its beginning and of its end, up to whole lines.
const HEAD_BYTES: u64 = 256 * 1024;
const TAIL_BYTES: u64 = 1024 * 1024;

/// Cuts those that have grown too long. The directory is the shim's alone, so a name in it is what the shim put there.
pub(crate) fn cut_all(machine: &Path) {
    for name in [SUPERVISOR_LOG, SHIM_LOG] {
        match cut(&machine.join(name)) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(name, %error, "could not cut a log"),
        }
    }
}

/// What is logged between reading and writing is lost.
fn cut(path: &Path) -> io::Result<()> {
    let mut file = append().read(true).open(path)?;
    let length = file.metadata()?.len();
    if length <= MAX_BYTES {
        return Ok(());
    }
    let mut kept = piece(&file, 0, HEAD_BYTES)?;
    kept.truncate(kept.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
    let tail = piece(&file, length - TAIL_BYTES, TAIL_BYTES)?;
    let tail = &tail[tail.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1)..];
    let left_out = length - (kept.len() + tail.len()) as u64;
    kept.extend(note(left_out)?);
    kept.extend_from_slice(tail);
    file.set_len(0)?;
    file.write_all(&kept)
}

fn piece(file: &File, at: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

/// A line as the supervisor writes them.
fn note(left_out_bytes: u64) -> io::Result<Vec<u8>> {
    let line = serde_json::json!({
        "timestamp": jiff::Timestamp::now().to_string(),
        "level": "WARN",
        "fields": {"message": "the log was too long; lines were removed here", "bytes": left_out_bytes},
        "target": "garboard",
    });
    let mut line = serde_json::to_vec(&line)?;
    line.push(b'\n');
    Ok(line)
}

/// The last error that a supervisor logged before it died, for a machine that never came to run.
pub(crate) fn last_error(layout: &Layout) -> String {
    let mut text = Vec::new();
    if let Ok(Some(file)) = foreign::open_file(layout.machine(), SUPERVISOR_LOG) {
        // What was read before a failure may hold one.
        let _ = file.take(MAX_READ_BYTES).read_to_end(&mut text);
    }
    let text = String::from_utf8_lossy(&text);
    let events = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let errors = events.filter(|event| event["level"] == "ERROR");
    let last = errors.filter_map(|event| event["fields"]["error"].as_str().map(str::to_owned)).next_back();
    last.unwrap_or_else(|| "its supervisor ended repeatedly".to_owned())
}

#[cfg(test)]
mod tests {
    use garboard_shim_client::logs::create;

    use super::*;

    fn line(number: usize) -> String {
        format!(
            "{{\"level\":\"INFO\",\"fields\":{{\"message\":\"line {number}\",\"filler\":\"{}\"}}}}\n",
            "x".repeat(950)
        )
    }

    #[test]
    fn a_log_keeps_its_beginning_and_its_end_and_its_writer_goes_on() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join(SUPERVISOR_LOG);
        let mut writer = create(&path).unwrap();
        for round in 0..3_usize {
            for number in 0..5000 {
                writer.write_all(line(round * 5000 + number).as_bytes()).unwrap();
            }
            cut_all(room.path());
            let length = writer.metadata().unwrap().len();
            assert!(length < HEAD_BYTES + TAIL_BYTES + 1024, "{length}");
        }
        writer.write_all(b"{\"fields\":{\"message\":\"the next\"}}\n").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let messages: Vec<String> = text
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["fields"]["message"].to_string())
            .collect();
        assert_eq!(messages.first().unwrap(), "\"line 0\"");
        assert_eq!(messages[messages.len() - 2..], ["\"line 14999\"", "\"the next\""]);
        assert!(messages.iter().any(|message| message.contains("were removed")), "and the log reports what is missing");
    }

    #[test]
    fn the_shims_own_log_is_cut_too_and_a_short_one_stays_whole() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join(SHIM_LOG);
        std::fs::write(&path, "of an earlier shim").unwrap();
        let mut writer = create(&path).unwrap();
        writer.write_all(b"short\n").unwrap();
        cut_all(room.path());
        assert_eq!(std::fs::read(&path).unwrap(), b"short\n");
        writer.write_all(&b"a line without an end ".repeat(300_000)).unwrap();
        cut_all(room.path());
        assert!(writer.metadata().unwrap().len() < HEAD_BYTES + TAIL_BYTES + 1024);
    }

    #[test]
    fn the_last_error_of_a_supervisor_is_found_among_lines_of_others() {
        let room = tempfile::tempdir().unwrap();
        let layout = Layout::new(room.path());
        assert_eq!(last_error(&layout), "its supervisor ended repeatedly");
        let lines = [
            r#"{"level":"ERROR","fields":{"message":"the supervisor failed","error":"no disk"}}"#,
            r#"{"level":"ERROR","fields":{"message":"the supervisor failed","error":"no plan"}}"#,
            "garboard-init: no JSON",
            r#"{"level":"WARN","fields":{"message":"more","error":"no reason"}}"#,
        ];
        std::fs::write(room.path().join(SUPERVISOR_LOG), lines.join("\n")).unwrap();
        assert_eq!(last_error(&layout), "no plan");
    }
}
