//! What a client of the API server has to know of our kinds: k8s-openapi's traits, which need no client.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, NamespaceResourceScope, Resource};

use crate::v1::{
    KubeVirt, VirtualMachine, VirtualMachineInstance, VirtualMachineInstancePreset, VirtualMachineInstanceReplicaSet,
    VirtualMachinePool,
};

impl Resource for VirtualMachine {
    const API_VERSION: &'static str = crate::v1::API_VERSION;
    const GROUP: &'static str = "kubevirt.io";
    const KIND: &'static str = "VirtualMachine";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "virtualmachines";
    type Scope = NamespaceResourceScope;
}

impl Metadata for VirtualMachine {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Resource for VirtualMachineInstance {
    const API_VERSION: &'static str = crate::v1::API_VERSION;
    const GROUP: &'static str = "kubevirt.io";
    const KIND: &'static str = "VirtualMachineInstance";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "virtualmachineinstances";
    type Scope = NamespaceResourceScope;
}

impl Metadata for VirtualMachineInstance {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Resource for VirtualMachineInstanceReplicaSet {
    const API_VERSION: &'static str = crate::v1::API_VERSION;
    const GROUP: &'static str = "kubevirt.io";
    const KIND: &'static str = "VirtualMachineInstanceReplicaSet";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "virtualmachineinstancereplicasets";
    type Scope = NamespaceResourceScope;
}

impl Metadata for VirtualMachineInstanceReplicaSet {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Resource for VirtualMachineInstancePreset {
    const API_VERSION: &'static str = crate::v1::API_VERSION;
    const GROUP: &'static str = "kubevirt.io";
    const KIND: &'static str = "VirtualMachineInstancePreset";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "virtualmachineinstancepresets";
    type Scope = NamespaceResourceScope;
}

impl Metadata for VirtualMachineInstancePreset {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Resource for VirtualMachinePool {
    const API_VERSION: &'static str = crate::pool::API_VERSION;
    const GROUP: &'static str = "pool.kubevirt.io";
    const KIND: &'static str = "VirtualMachinePool";
    const VERSION: &'static str = "v1beta1";
    const URL_PATH_SEGMENT: &'static str = "virtualmachinepools";
    type Scope = NamespaceResourceScope;
}

impl Metadata for VirtualMachinePool {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Resource for KubeVirt {
    const API_VERSION: &'static str = crate::v1::API_VERSION;
    const GROUP: &'static str = "kubevirt.io";
    const KIND: &'static str = "KubeVirt";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "kubevirts";
    type Scope = NamespaceResourceScope;
}

impl Metadata for KubeVirt {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
