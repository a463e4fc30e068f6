//! The host's processor, from `/proc/cpuinfo`.

use std::collections::BTreeSet;

use crate::root::{HostRoot, ReadError};

/// The host's processor. All processors of a host are taken to be alike: the first one is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// `GenuineIntel`, `AuthenticAMD`, …; empty if the kernel does not report it.
    pub vendor: String,
    /// Model name for users.
    pub model_name: String,
    /// The kernel's names of the processor's abilities (`flags`).
    pub flags: BTreeSet<String>,
    /// Logical processors this process may be scheduled on.
    pub logical_cpus: u32,
}

/// How a processor runs guests by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Virtualization {
    /// Intel VT-x (`vmx`).
    Vmx,
    /// AMD-V (`svm`).
    Svm,
    /// The kernel sees neither.
    None,
}

impl Cpu {
    /// Reads `/proc/cpuinfo`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(root: &HostRoot) -> Result<Self, ReadError> {
        let text = root.read("/proc/cpuinfo")?;
        let mut cpu = Self::parse(&text);
        if root.is_real() {
            cpu.logical_cpus = schedulable().unwrap_or(cpu.logical_cpus);
        }
        Ok(cpu)
    }

    fn parse(text: &str) -> Self {
        let mut cpu = Self::default();
        for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match key.trim() {
                "processor" => cpu.logical_cpus += 1,
                "vendor_id" if cpu.vendor.is_empty() => value.clone_into(&mut cpu.vendor),
                "model name" if cpu.model_name.is_empty() => value.clone_into(&mut cpu.model_name),
                "flags" if cpu.flags.is_empty() => cpu.flags = value.split_whitespace().map(str::to_owned).collect(),
                _ => {}
            }
        }
        cpu
    }

    /// How it runs guests.
    #[must_use]
    pub fn virtualization(&self) -> Virtualization {
        if self.flags.contains("vmx") {
            Virtualization::Vmx
        } else if self.flags.contains("svm") {
            Virtualization::Svm
        } else {
            Virtualization::None
        }
    }

    /// Whether this host is itself a virtual machine.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.flags.contains("hypervisor")
    }
}

/// The processors of our affinity mask: fewer than the host has under `taskset` or a cpuset.
fn schedulable() -> Option<u32> {
    std::thread::available_parallelism().ok().and_then(|count| u32::try_from(count.get()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::host_of;

    const TWO_OF_AMD: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 7763\nflags\t\t: fpu svm \
        hypervisor\n\nprocessor\t: 1\nvendor_id\t: AuthenticAMD\nmodel name\t: another\nflags\t\t: fpu\n";

    #[test]
    fn the_first_processor_is_read_and_all_are_counted() {
        let (_directory, root) = host_of(&[("/proc/cpuinfo", TWO_OF_AMD)]);
        let cpu = Cpu::read(&root).unwrap();
        assert_eq!((cpu.vendor.as_str(), cpu.model_name.as_str()), ("AuthenticAMD", "AMD EPYC 7763"));
        assert_eq!(cpu.logical_cpus, 2);
        assert_eq!(cpu.virtualization(), Virtualization::Svm);
        assert!(cpu.is_virtual());
    }

    #[test]
    fn a_strange_file_is_not_an_error() {
        let cpu = Cpu::parse(":::\nflags\nprocessor: x\n\u{0}");
        assert_eq!(cpu.virtualization(), Virtualization::None);
        assert_eq!(cpu.logical_cpus, 1);
    }

    #[test]
    fn this_host_has_a_processor() {
        let cpu = Cpu::read(&HostRoot::real()).unwrap();
        assert!(cpu.logical_cpus >= 1);
        assert!(cpu.flags.contains("lm"), "an x86-64 processor has long mode: {:?}", cpu.flags);
    }
}
