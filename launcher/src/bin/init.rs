//! `garboard-init`: wiring only; see the `init` module.

use std::process::ExitCode;

use garboard_launcher::init::{self, InitOptions};

fn main() -> ExitCode {
    if std::env::args().skip(1).eq(["--version"]) {
        use std::io::Write;
        let version = garboard_protocol::version!();
        return ExitCode::from(u8::from(writeln!(std::io::stdout(), "garboard-init {version}").is_err()));
    }
    garboard_common::close_inherited_on_exec();
    // First of all, because QEMU's descriptors are parked at high numbers; QEMU and its helpers inherit it.
    garboard_common::raise_descriptor_limit();
    match InitOptions::from_args(std::env::args().skip(1)) {
        Ok(options) => ExitCode::from(init::run(options)),
        Err(message) => {
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "garboard-init: {message}");
            ExitCode::from(64)
        }
    }
}
