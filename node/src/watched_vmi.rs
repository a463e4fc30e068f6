//! A VMI as the API server has it, whether this release can read it or not.
//!
//! The controller reports one that cannot be read. That nothing is left of its pods is answered all the same
//! (`crate::remains`), or it could not be deleted: for that its metadata and a part of its status are enough.

use std::borrow::Cow;
use std::sync::Arc;

use garboard_api::remnant_of_instance;
use garboard_api::v1::VirtualMachineInstance;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A VMI of a watch.
#[derive(Clone, Debug)]
pub(crate) struct WatchedVmi {
    vmi: Arc<VirtualMachineInstance>,
    is_whole: bool,
}

impl WatchedVmi {
    /// The UID, and the VMI if it can be read.
    pub(crate) fn whole(self) -> (String, Option<Arc<VirtualMachineInstance>>) {
        let is_whole = self.is_whole;
        let (uid, vmi) = self.legible();
        (uid, vmi.filter(|_| is_whole))
    }

    /// The UID, and as much of the VMI as can be read: where its pods are, at least.
    pub(crate) fn legible(self) -> (String, Option<Arc<VirtualMachineInstance>>) {
        (self.vmi.metadata.uid.clone().unwrap_or_default(), Some(self.vmi))
    }

    /// Whether all of it can be read.
    pub(crate) const fn is_whole(&self) -> bool {
        self.is_whole
    }
}

impl<'de> Deserialize<'de> for WatchedVmi {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Value::deserialize(deserializer)?;
        let (mut vmi, is_whole) = match VirtualMachineInstance::deserialize(&written) {
            Ok(vmi) => (vmi, true),
            Err(_) => (serde_json::from_value(remnant_of_instance(&written)).map_err(D::Error::custom)?, false),
        };
        vmi.metadata.managed_fields = None;
        Ok(Self { vmi: Arc::new(vmi), is_whole })
    }
}

impl Resource for WatchedVmi {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        VirtualMachineInstance::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        VirtualMachineInstance::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        VirtualMachineInstance::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        VirtualMachineInstance::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.vmi.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut Arc::make_mut(&mut self.vmi).metadata
    }
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectList;
    use serde_json::json;

    use super::*;
    use crate::remains::questions;

    fn instance(uid: &str, guest: &str) -> Value {
        let pod = crate::pods::tests::POD;
        json!({
            "metadata": {"name": uid, "namespace": "ns", "uid": uid},
            "spec": {"domain": {"devices": {}, "memory": {"guest": guest}}},
            "status": {"phase": "Running", "nodeName": "n", "activePods": {pod: "n"}, "conditions": 5},
        })
    }

    fn listed(items: &[Value]) -> Vec<WatchedVmi> {
        let list = json!({"metadata": {}, "items": items});
        serde_json::from_value::<ObjectList<WatchedVmi>>(list).unwrap().items
    }

    #[test]
    fn an_instance_that_cannot_be_read_hides_no_other() {
        let mut good = instance("good", "64Mi");
        good["status"] = json!({});
        let read = listed(&[instance("bad", "1e1.5"), good]).into_iter().map(WatchedVmi::whole);
        let read: Vec<_> = read.map(|(uid, vmi)| (uid, vmi.is_some())).collect();
        assert_eq!(read, [("bad".to_owned(), false), ("good".to_owned(), true)]);
    }

    #[test]
    fn what_is_left_of_its_pods_is_answered_all_the_same() {
        let (uid, vmi) = listed(&[instance("bad", "1e1.5")]).remove(0).legible();
        let asked = questions(&vmi.unwrap(), "n");
        assert_eq!((uid.as_str(), asked.len()), ("bad", 1), "{asked:?}");
    }
}
