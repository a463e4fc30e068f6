//! The file of a VirtualMachine's stored machine: what its first plan decided, kept from one run to the next.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use garboard_plan::StoredMachine;

/// What is stored in a file, if it is there.
///
/// # Errors
/// The file system's error; `InvalidData` if it is no stored machine.
pub fn read(file: &Path) -> io::Result<Option<StoredMachine>> {
    match std::fs::read(file) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Stores a machine atomically, also when the host loses its power.
///
/// # Errors
/// The file system's error.
pub fn write(file: &Path, machine: &StoredMachine) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let unfinished = file.with_extension("json.new");
    let mut out = File::create(&unfinished)?;
    out.write_all(&serde_json::to_vec_pretty(machine)?)?;
    out.sync_all()?;
    std::fs::rename(&unfinished, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> StoredMachine {
        let machine = serde_json::json!({"version": 2, "machineType": "pc-q35-7.2", "cpu": "max",
            "pci": {"ports": [], "devices": {}}, "macs": {"default": "02:00:00:00:00:01"}, "diskSerials": {}});
        serde_json::from_value(machine).unwrap()
    }

    #[test]
    fn what_is_stored_is_found_and_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("machines/default/vm/stored.json");
        assert_eq!(read(&file).unwrap(), None);
        write(&file, &machine()).unwrap();
        assert_eq!(read(&file).unwrap(), Some(machine()));
        let other = StoredMachine { machine_type: "pc-q35-10.0".to_owned(), ..machine() };
        write(&file, &other).unwrap();
        assert_eq!(read(&file).unwrap(), Some(other));
        assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    }
}
