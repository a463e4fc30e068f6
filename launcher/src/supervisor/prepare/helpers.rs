//! What the programs beside QEMU need: one end of a socket each, whose other end is QEMU's.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use garboard_plan::{HelperPlan, LaunchPlan};
use garboard_protocol::launch::Helper;

use super::PrepareError;
use super::descriptors::OpenedDescriptors;

/// Makes the sockets; QEMU's ends go to the stock, the helpers' are returned in their order.
pub(super) fn fill(plan: &LaunchPlan, stock: &mut OpenedDescriptors) -> Result<Vec<OwnedFd>, PrepareError> {
    let mut theirs = Vec::new();
    for helper in &plan.helpers {
        let interface = || helper.interface.clone();
        let (for_qemu, for_helper) =
            UnixStream::pair().map_err(|source| PrepareError::HelperSocket { interface: interface(), source })?;
        stock.user_sockets.insert(interface(), for_qemu.into());
        theirs.push(for_helper.into());
    }
    Ok(theirs)
}

/// The plan's helper as PID 1 gets it.
pub(super) fn describe(plan: &HelperPlan) -> Helper {
    Helper { argv: plan.argv.clone(), descriptor: plan.descriptor }
}
