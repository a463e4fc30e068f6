//! Taking back what a failed sequence of steps had done, last step first.
//!
//! The stack is data, not closures: each entry describes in the kernel's terms what restores the former state, so
//! it can be logged, and a fake can run it. Descriptors are not here: dropping them is enough.

use std::fmt;
use std::io::ErrorKind;

use ipnet::IpNet;

use crate::error::NetError;
use crate::names::LinkName;
use crate::observed::Route;
use crate::seam::{LinkChange, Links, Sysctl};

/// What restores the state before one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoStep {
    /// The step made this link.
    DeleteLink(LinkName),
    /// The step changed this property of a link; this is what it was.
    ChangeLink(LinkName, LinkChange),
    /// The step added this address.
    DeleteAddress(LinkName, IpNet),
    /// The step removed this address.
    AddAddress(LinkName, IpNet),
    /// The step lost this route.
    AddRoute(Route),
    /// The step changed this setting; this is what it was.
    ChangeSetting(Sysctl, String),
}

impl fmt::Display for UndoStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeleteLink(name) => write!(f, "remove the link `{name}`"),
            Self::ChangeLink(name, change) => write!(f, "restore {change:?} of the link `{name}`"),
            Self::DeleteAddress(link, address) => write!(f, "remove {address} from the link `{link}`"),
            Self::AddAddress(link, address) => write!(f, "give {address} back to the link `{link}`"),
            Self::AddRoute(route) => write!(f, "restore the route to {} by the link `{}`", route.to, route.link),
            Self::ChangeSetting(setting, value) => write!(f, "write {value} back to {}", setting.path().display()),
        }
    }
}

/// One step that could not be taken back.
#[derive(Debug, thiserror::Error)]
#[error("could not {step}")]
pub struct UndoFailure {
    /// What was to be done.
    pub step: UndoStep,
    /// Why it was not.
    #[source]
    pub source: Box<NetError>,
}

/// The steps to take back, per namespace.
#[derive(Debug)]
pub struct UndoStack<'a, N> {
    steps: Vec<(&'a N, UndoStep)>,
}

impl<N> Default for UndoStack<'_, N> {
    fn default() -> Self {
        Self { steps: Vec::new() }
    }
}

impl<'a, N: Links> UndoStack<'a, N> {
    /// Notes how to take back the step just done.
    pub fn push(&mut self, namespace: &'a N, step: UndoStep) {
        self.steps.push((namespace, step));
    }

    /// After success nothing is taken back; after a failure everything is. The error is the step's own, or
    /// [`NetError::Undone`] if something could not be taken back. The caller drops the descriptors it
    /// opened first.
    pub async fn settle<T>(self, outcome: Result<T, NetError>) -> Result<T, NetError> {
        let cause = match outcome {
            Ok(value) => return Ok(value),
            Err(cause) => cause,
        };
        let mut left = Vec::new();
        for (namespace, step) in self.steps.into_iter().rev() {
            tracing::debug!(%step, "undoing a step");
            if let Err(source) = take_back(namespace, &step).await
                && !already_so(&source)
            {
                tracing::warn!(%step, error = &source as &dyn std::error::Error, "undo failed");
                left.push(UndoFailure { step, source: Box::new(source) });
            }
        }
        if left.is_empty() { Err(cause) } else { Err(NetError::Undone { cause: Box::new(cause), left }) }
    }
}

/// Whether the kernel's answer means that there is nothing to take back: some steps are noted before they are done,
/// and some take others back with them, as removing a link does with its addresses.
fn already_so(error: &NetError) -> bool {
    let kind = if let NetError::Netlink { source, .. } | NetError::Sysctl { source, .. } = error {
        Some(source.kind())
    } else {
        None
    };
    matches!(kind, Some(ErrorKind::AlreadyExists | ErrorKind::NotFound | ErrorKind::AddrNotAvailable))
}

async fn take_back<N: Links>(namespace: &N, step: &UndoStep) -> Result<(), NetError> {
    match step {
        UndoStep::DeleteLink(name) => namespace.delete_link(name).await,
        UndoStep::ChangeLink(name, change) => namespace.change_link(name, change).await,
        UndoStep::DeleteAddress(link, address) => namespace.delete_address(link, *address).await,
        UndoStep::AddAddress(link, address) => namespace.add_address(link, *address).await,
        UndoStep::AddRoute(route) => namespace.add_route(route).await,
        UndoStep::ChangeSetting(setting, value) => namespace.change_setting(setting, value).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeHost;
    use std::error::Error as _;

    fn failure() -> NetError {
        NetError::PoolEmpty
    }

    #[tokio::test]
    async fn after_success_nothing_is_taken_back() {
        let namespace = FakeHost::new().namespace();
        let bridge: LinkName = "br0".parse().unwrap();
        namespace.add_bridge(&bridge, "02:00:00:00:00:01".parse().unwrap(), 1500).await.unwrap();
        let mut undo = UndoStack::default();
        undo.push(&namespace, UndoStep::DeleteLink(bridge));
        assert_eq!(undo.settle(Ok(7)).await.unwrap(), 7);
        assert_eq!(namespace.links().await.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn what_cannot_be_taken_back_is_reported_beside_the_cause() {
        let namespace = FakeHost::new().namespace();
        let bridge: LinkName = "br0".parse().unwrap();
        namespace.add_bridge(&bridge, "02:00:00:00:00:01".parse().unwrap(), 1500).await.unwrap();
        let mut undo = UndoStack::default();
        undo.push(&namespace, UndoStep::DeleteLink(bridge.clone()));
        let no_bridge: LinkName = "lo".parse().unwrap();
        undo.push(&namespace, UndoStep::ChangeLink(bridge.clone(), LinkChange::Port(no_bridge)));
        let error = undo.settle::<()>(Err(failure())).await.unwrap_err();
        assert!(matches!(error.cause(), NetError::PoolEmpty));
        assert_eq!(error.left().len(), 1);
        assert_eq!(error.source().unwrap().to_string(), failure().to_string());
        assert!(error.to_string().contains("restore Port(\"lo\") of the link `br0`"), "{error}");
        assert_eq!(namespace.links().await.unwrap().len(), 1, "the other step was taken back all the same");
    }

    #[tokio::test]
    async fn a_step_that_was_never_done_is_no_failure() {
        let namespace = FakeHost::new().namespace();
        let mut undo = UndoStack::default();
        undo.push(&namespace, UndoStep::DeleteLink("br0".parse().unwrap()));
        assert!(matches!(undo.settle::<()>(Err(failure())).await, Err(NetError::PoolEmpty)));
    }
}
