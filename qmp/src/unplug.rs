//! Taking a device out of a running guest.
//!
//! Unplugging is a request to the guest: `device_del` only asks, and what becomes of it is an event. So we listen
//! first, then ask, then wait.
//!
//! ```text
//! device_del ──► DEVICE_DELETED                                  removed
//!            ├─► DEVICE_UNPLUG_GUEST_ERROR, MEM_UNPLUG_ERROR     the guest refused; the device works on
//!            └─► nothing until the time is over                  the guest may still do it, or has no driver for it
//! ```
//!
//! Sources followed: `qapi/qdev.json`, `qapi/machine.json` of QEMU 7.2 and 10.0 (`MEM_UNPLUG_ERROR` went away in 9.1).

use std::time::Duration;

use serde::Deserialize;
use tracing::debug;

use crate::connection::Monitor;
use crate::error::{CallError, ShutdownReason};
use crate::event::{Event, Interest, Notice, Subscription};
use crate::qmp;
use crate::text::printable;

const EVENTS: Interest = Interest::Named(&["DEVICE_DELETED", "DEVICE_UNPLUG_GUEST_ERROR", "MEM_UNPLUG_ERROR"]);

/// Where QEMU keeps the devices that have an id.
const PERIPHERALS: &str = "/machine/peripheral";

/// How a device came to be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unplugged {
    /// The guest released it now.
    Removed,
    /// There was no such device.
    AlreadyGone,
}

/// Why a device is still there.
#[derive(Debug, thiserror::Error)]
pub enum UnplugError {
    /// The guest refused.
    #[error("the guest refused to release device `{device}`: {message}")]
    GuestRefused {
        /// The device's id.
        device: String,
        /// QEMU's message, or a general one where there is none. Escaped and bounded.
        message: String,
    },
    /// The guest has not answered. It may still do so.
    #[error("the guest did not release device `{device}` within {after:?}; it may have no driver for hot unplug")]
    NoAnswer {
        /// The device's id.
        device: String,
        /// The time limit.
        after: Duration,
    },
    /// QEMU ended meanwhile.
    #[error("the connection to QEMU ended while device `{device}` was unplugged")]
    Disconnected {
        /// The device's id.
        device: String,
        /// Why QEMU ended, if it reported that.
        reason: Option<ShutdownReason>,
    },
    /// A command failed, for example because the device cannot be unplugged at all.
    #[error("device `{device}` could not be unplugged")]
    Call {
        /// The device's id.
        device: String,
        /// How it failed.
        #[source]
        source: CallError,
    },
}

#[derive(Deserialize)]
struct DeviceData {
    device: Option<String>,
    path: Option<String>,
    msg: Option<String>,
}

impl DeviceData {
    fn is_about(&self, wanted: &str) -> bool {
        match (&self.device, &self.path) {
            (Some(device), _) => device == wanted,
            (None, Some(path)) => {
                path.strip_prefix(PERIPHERALS).is_some_and(|rest| rest.strip_prefix('/') == Some(wanted))
            }
            (None, None) => false,
        }
    }
}

impl Monitor {
    /// Asks the guest to give up `device` (the id given to `device_add`) and waits for what becomes of it, at most
    /// `limit`. May be repeated: a request the guest has not answered yet is waited for again.
    pub async fn unplug(&self, device: &str, limit: Duration) -> Result<Unplugged, UnplugError> {
        let mut events = self.subscribe(EVENTS);
        let called = |source| UnplugError::Call { device: device.to_owned(), source };
        let ask = self.call(&qmp::device_del { id: device.to_owned() }).await;
        match ask {
            Ok(_) => {}
            Err(error) if error.is_refusal_of_class("DeviceNotFound") => return Ok(Unplugged::AlreadyGone),
            Err(CallError::Refused { desc, .. }) if desc.contains("already in the process of unplug") => {
                debug!(device, "an earlier unplug request is still open; waiting for it");
            }
            Err(source) => return Err(called(source)),
        }
        match tokio::time::timeout(limit, self.await_removal(device, &mut events)).await {
            Ok(outcome) => outcome.map(|()| Unplugged::Removed),
            // The event may have been missed by an older supervisor or a hair's breadth: look once before giving up.
            Err(_) if !self.has_device(device).await.map_err(called)? => Ok(Unplugged::Removed),
            Err(_) => Err(UnplugError::NoAnswer { device: device.to_owned(), after: limit }),
        }
    }

    /// Whether QEMU has a device of this id.
    pub async fn has_device(&self, device: &str) -> Result<bool, CallError> {
        #[derive(Deserialize)]
        struct Property {
            name: String,
        }
        let children: Vec<Property> = self.ask(&qmp::qom_list { path: PERIPHERALS.to_owned() }).await?;
        Ok(children.iter().any(|child| child.name == device))
    }

    async fn await_removal(&self, device: &str, events: &mut Subscription) -> Result<(), UnplugError> {
        loop {
            match events.next().await {
                Some(Notice::Event(event)) => {
                    if let Some(outcome) = outcome_for(device, &event) {
                        return outcome;
                    }
                }
                Some(Notice::Lagged(lost)) => {
                    debug!(device, lost, "events were lost during an unplug; the device is queried");
                    let there = self.has_device(device).await;
                    if !there.map_err(|source| UnplugError::Call { device: device.to_owned(), source })? {
                        return Ok(());
                    }
                }
                Some(Notice::Closed { reason }) => {
                    return Err(UnplugError::Disconnected { device: device.to_owned(), reason });
                }
                None => return Err(UnplugError::Disconnected { device: device.to_owned(), reason: None }),
            }
        }
    }
}

/// What an event means for the device; `None` if it is about another one.
fn outcome_for(device: &str, event: &Event) -> Option<Result<(), UnplugError>> {
    let data: DeviceData = event.decode().ok()?;
    if !data.is_about(device) {
        return None;
    }
    if event.name == "DEVICE_DELETED" {
        return Some(Ok(()));
    }
    let message = data.msg.as_deref().unwrap_or("it gave no reason");
    Some(Err(UnplugError::GuestRefused { device: device.to_owned(), message: printable(message, 300) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_matched_by_id_and_else_by_path() {
        let data = |device: Option<&str>, path: &str| DeviceData {
            device: device.map(ToOwned::to_owned),
            path: Some(path.to_owned()),
            msg: None,
        };
        assert!(data(Some("disk1"), "/machine/peripheral/disk1").is_about("disk1"));
        assert!(data(None, "/machine/peripheral/disk1").is_about("disk1"));
        // The parts of a device (its virtio backend) are deleted too, without an id.
        assert!(!data(None, "/machine/peripheral/disk1/virtio-backend").is_about("disk1"));
        assert!(!data(Some("disk10"), "/machine/peripheral/disk10").is_about("disk1"));
        assert!(!data(None, "/machine/peripheral-anon/device[1]").is_about("disk1"));
    }
}
