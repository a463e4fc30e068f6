//! Watches one QEMU: `watch SOCKET` prints its state and then its events, until QEMU ends. The smallest supervisor
//! there is; also what the memory figures of this crate are measured with.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use garboard_qmp::{ConnectOptions, Interest, Monitor, Notice, qmp};

type Failure = Box<dyn std::error::Error>;

async fn watch(socket: PathBuf) -> Result<(), Failure> {
    let (monitor, greeting) = Monitor::connect(socket, ConnectOptions::default()).await?;
    let mut events = monitor.subscribe(Interest::All);
    let mut out = std::io::stdout();
    let status = monitor.call(&qmp::query_status {}).await?;
    writeln!(out, "QEMU {} is {:?}", greeting.version, status.status)?;
    while let Some(notice) = events.next().await {
        match notice {
            Notice::Event(event) => writeln!(out, "{} {}", event.name, event.data_text())?,
            Notice::Lagged(count) => writeln!(out, "{count} events were lost")?,
            Notice::Closed { reason: Some(reason) } => writeln!(out, "QEMU ended: {reason}")?,
            Notice::Closed { reason: None } => writeln!(out, "QEMU ended without a reason")?,
        }
    }
    Ok(())
}

fn main() -> Result<ExitCode, Failure> {
    let Some(socket) = std::env::args_os().nth(1) else {
        writeln!(std::io::stderr(), "usage: watch SOCKET")?;
        return Ok(ExitCode::from(2));
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(watch(socket.into()))?;
    Ok(ExitCode::SUCCESS)
}
