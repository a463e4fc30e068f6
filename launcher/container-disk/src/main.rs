//! `garboard-container-disk`: opens a container disk inside the disk's own container and hands the descriptor out, where
//! the cluster has no image volumes.
//!
//! ```text
//!   garboard-container-disk --install DIRECTORY            copies itself there
//!   garboard-container-disk --open SOCKET FILE …           hands FILE out at SOCKET; FILE '' is the only file of /disk
//! ```
//!
//! The image is a stranger's, and nothing of it is executed: this program is static and is not taken from it.

#![forbid(unsafe_code)]

mod serve;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

use garboard_protocol::causes::ErrorChain;
use serve::{Offer, serve};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments_text: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments_text.as_slice() {
        ["--install", directory] => {
            install(Path::new(directory)).map_err(|error| format!("could not install: {error}"))
        }
        ["--version"] => {
            let version = garboard_protocol::version!();
            writeln!(std::io::stdout(), "garboard-container-disk {version}").map_err(|error| error.to_string())
        }
        ["--open", pairs @ ..] if !pairs.is_empty() && pairs.len() % 2 == 0 => open(pairs),
        _ => Err("usage: garboard-container-disk --install DIRECTORY | --open SOCKET FILE … | --version".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "garboard-container-disk: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Created as a whole, and again if the container is started again.
fn install(directory: &Path) -> std::io::Result<()> {
    let fresh = directory.join(".fresh");
    fs::copy("/proc/self/exe", &fresh)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o555))?;
    fs::rename(fresh, directory.join(garboard_protocol::pod::CONTAINER_DISK_PROGRAM))
}

fn open(pairs: &[&str]) -> Result<(), String> {
    let offers = pairs.chunks_exact(2).map(|pair| Offer::parse(pair[0], pair[1]));
    let offers: Vec<Offer> = offers.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    serve(Path::new("/"), &offers).map_err(|error| ErrorChain(&error).to_string())
}
