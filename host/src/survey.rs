//! Everything a plan depends on, observed once: [`Survey::facts`] turns it into the planner's facts,
//! [`mod@crate::diagnose`] into advice.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use garboard_machine::facts::{CpuFacts, HostFacts, NetworkFacts, UefiPair};
use garboard_machine::features::Accelerator;
use nix::errno::Errno;

use crate::boot::BootId;
use crate::cache::ProbeCache;
use crate::cgroup_hierarchy::CgroupHierarchy;
use crate::cpu::Cpu;
use crate::devices::{DeviceNode, TUN, VHOST_NET};
use crate::firmware;
use crate::kvm::KvmReport;
use crate::memory::HostMemory;
use crate::namespaces;
use crate::privileges::Privileges;
use crate::qemu::{self, Freshness, ProbeKvm, QemuBinary, QemuError, QemuReport};
use crate::root::{HostRoot, ReadError};
use crate::tools::Tools;

/// The places and caches that are used.
#[derive(Clone, Debug)]
pub struct GatherOptions {
    /// The host's files.
    pub root: HostRoot,
    /// The QEMU to use; `None`: the first found.
    pub qemu: Option<PathBuf>,
    /// Value of `PATH`, where QEMU is looked for first.
    pub search_path: Option<OsString>,
    /// Where answers are kept.
    pub cache: ProbeCache,
    /// Whether stored answers will do.
    pub freshness: Freshness,
}

impl GatherOptions {
    /// This host, the first QEMU in `search_path`, stored answers from `cache`.
    #[must_use]
    pub fn new(cache: ProbeCache, search_path: Option<OsString>) -> Self {
        Self { root: HostRoot::real(), qemu: None, search_path, cache, freshness: Freshness::Stored }
    }
}

/// The facts of a host could not be gathered.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    /// Without QEMU there is nothing to plan for.
    #[error(transparent)]
    Qemu(#[from] QemuError),
    /// A file every Linux has.
    #[error("this host cannot be examined")]
    Read(#[from] ReadError),
}

/// A host as it was found.
#[derive(Debug)]
pub struct Survey {
    /// What this process may do.
    pub privileges: Privileges,
    /// The processor.
    pub cpu: Cpu,
    /// Physical memory and huge pages.
    pub memory: HostMemory,
    /// KVM.
    pub kvm: KvmReport,
    /// QEMU, or why there is none.
    pub qemu: Result<QemuReport, QemuError>,
    /// UEFI builds.
    pub uefi: Vec<UefiPair>,
    /// `/dev/net/tun`.
    pub tun: DeviceNode,
    /// `/dev/vhost-net`.
    pub vhost_net: DeviceNode,
    /// Programs of other packages.
    pub tools: Tools,
    /// Whether user namespaces may be made: passt and the machines of a user need them.
    pub user_namespaces: Result<(), Errno>,
    /// Control groups.
    pub cgroup: CgroupHierarchy,
}

impl Survey {
    /// Looks at everything. With stored answers this takes a few milliseconds, else up to a third of a second.
    ///
    /// # Errors
    /// `/proc` cannot be read. A missing QEMU is not an error here.
    pub fn take(options: &GatherOptions) -> Result<Self, ReadError> {
        let root = &options.root;
        let boot = BootId::read(root);
        let kvm = KvmReport::probe(root, &options.cache, &boot, options.freshness);
        let ask_kvm = if kvm.interface.is_some() { ProbeKvm::Yes } else { ProbeKvm::No };
        let search = options.search_path.as_deref();
        let qemu = QemuBinary::locate(root, options.qemu.as_deref(), search)
            .map_err(QemuError::Locate)
            .and_then(|binary| qemu::examine(&binary, &options.cache, &boot, ask_kvm, options.freshness));
        Ok(Self {
            privileges: Privileges::read(root),
            cpu: Cpu::read(root)?,
            memory: HostMemory::read(root)?,
            kvm,
            qemu,
            uefi: firmware::find(root),
            tun: DeviceNode::probe(root, TUN),
            vhost_net: DeviceNode::probe(root, VHOST_NET),
            tools: Tools::find(root),
            user_namespaces: namespaces::user(),
            cgroup: CgroupHierarchy::probe(root),
        })
    }

    /// The planner's facts.
    ///
    /// # Errors
    /// There is no QEMU.
    pub fn facts(self) -> Result<HostFacts, QemuError> {
        let network = self.network();
        let kvm = self.kvm.state();
        let kvm_max_vcpus = self.kvm.max_vcpus();
        let qemu = self.qemu?;
        let mut features: BTreeMap<_, _> = qemu.cpu_features;
        if let Some(offered) = features.remove(&Accelerator::Kvm) {
            features.insert(Accelerator::Kvm, self.kvm.given(offered));
        }
        Ok(HostFacts {
            qemu: qemu.facts,
            kvm,
            kvm_max_vcpus,
            cpu: CpuFacts {
                vendor: self.cpu.vendor,
                model_name: self.cpu.model_name,
                logical_cpus: self.cpu.logical_cpus,
                features,
            },
            uefi: self.uefi,
            network,
            cgroup: self.cgroup.version,
            hugepages: self.memory.hugepages,
            memory_bytes: self.memory.total_bytes,
            is_root: self.privileges.is_root(),
        })
    }

    fn network(&self) -> NetworkFacts {
        NetworkFacts {
            tap: self.tun.opens() && self.privileges.net_admin(),
            vhost_net: self.vhost_net.opens(),
            passt: self.passt().map(|path| path.to_string_lossy().into_owned()),
        }
    }

    /// passt, if it is there and could do its work: it moves into a user namespace first.
    fn passt(&self) -> Option<&Path> {
        self.tools.passt.as_deref().filter(|_| self.user_namespaces.is_ok())
    }
}

/// The facts a plan needs.
///
/// # Errors
/// There is no usable QEMU, or `/proc` cannot be read.
pub fn gather(options: &GatherOptions) -> Result<HostFacts, GatherError> {
    Ok(Survey::take(options)?.facts()?)
}
