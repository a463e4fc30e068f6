//! Admission: what is written to our kinds is filled in and judged before it is stored.
//!
//! ```text
//!   API server ─ POST /mutate/RANDOM   ─► structure and rules; what is left out is filled in
//!              ─ POST /validate/RANDOM ─► rules again, after all other webhooks; what may change
//!              ─ POST /evict/RANDOM    ─► whether a drain may power a guest down
//!              ─ POST /convert/RANDOM  ─► the object in another version of the API
//! ```
//!
//! API servers show no certificate of their own; they are recognised because only they have the [`paths`].
//!
//! The answer is the same at the first two: every mistake with its path and what to write instead, as `garboard validate` prints it.
//! The first refuses what is wrong already, because the API server looks at the schema between the two and would answer
//! first, with its own messages. Every replica serves.

mod answer;
pub(crate) mod bounds;
mod change;
mod convert;
pub mod eviction;
mod given;
mod kept;
pub(crate) mod listener;
mod mutate;
pub mod paths;
mod presets;
mod server;
mod sizes;
mod trace;
mod validate;

use garboard_api::{ClusterConfig, VirtualMachineInstancePreset};
use kube::core::DynamicObject;
use kube::core::admission::AdmissionRequest;
use uuid::Uuid;

use crate::stores::ObjectKey;

pub use convert::convert;
pub use mutate::mutate;
pub use server::{Readiness, run};
pub use sizes::Sizes;
pub use validate::validate;

/// What is asked.
pub type Request = AdmissionRequest<DynamicObject>;

/// What an answer depends on beside the request.
pub struct AdmissionContext<'a> {
    /// The cluster's settings.
    pub config: &'a ClusterConfig,
    /// The namespace of Garboard's own service accounts.
    pub namespace: &'a str,
    /// A new UUID: the firmware's, where the manifest names none.
    pub fresh: Uuid,
    /// The KubeVirt objects that there are.
    pub kubevirts: &'a [ObjectKey],
    /// The instancetype and the preference of the machine that is judged.
    pub sizes: &'a Sizes,
    /// The presets of the namespace, where a new instance is to be filled in.
    pub presets: &'a [VirtualMachineInstancePreset],
    /// The trace that what follows from the change belongs to, as an annotation has it; nothing where no spans are sent.
    pub trace: Option<&'a str>,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    /// The controller.
    Controller,
    /// A node agent.
    Agent,
    /// Another user.
    Other,
}

impl AdmissionContext<'_> {
    fn writer(&self, request: &Request) -> Writer {
        let user = request.user_info.username.as_deref().unwrap_or_default();
        let is = |account: &str| user == format!("system:serviceaccount:{}:{account}", self.namespace);
        if is("garboard-controller") {
            Writer::Controller
        } else if is("garboard-node") {
            Writer::Agent
        } else {
            Writer::Other
        }
    }

    /// Whether it is Garboard itself that asks.
    fn is_ours(&self, request: &Request) -> bool {
        self.writer(request) != Writer::Other
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_presets;
#[cfg(test)]
mod tests_of_sizes;
