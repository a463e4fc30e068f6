//! CPU features that KVM offers but cannot give: their model-specific register is not taken back. QEMU writes the register
//! when it makes a vCPU, and aborts when KVM refuses ("failed to set MSR"), so that a guest with `-cpu host` never starts.
//!
//! Seen with KVM inside a virtual machine. Sources: `kvm_init_msrs` of QEMU's `target/i386/kvm/kvm.c`;
//! `KVM_GET_MSR_FEATURE_INDEX_LIST` in Linux's `Documentation/virt/kvm/api.rst`.

use kvm_bindings::{Msrs, kvm_msr_entry};
use kvm_ioctls::Kvm;

/// Registers that QEMU writes because of a CPU feature, with QEMU's name of the feature.
const REGISTERS: [(u32, &str); 1] = [(0x10a, "arch-capabilities")];

/// QEMU's names of the features whose register KVM does not take. Nothing if KVM cannot be asked: then nothing is known.
pub(super) fn refused(kvm: &Kvm) -> Vec<&'static str> {
    let refuses = |register: u32| takes_its_own_value(kvm, register).is_some_and(|taken| !taken);
    REGISTERS.into_iter().filter(|(register, _)| refuses(*register)).map(|(_, feature)| feature).collect()
}

/// Whether a vCPU takes the value that KVM itself reports for the register; `None` if KVM does not support the register.
fn takes_its_own_value(kvm: &Kvm, register: u32) -> Option<bool> {
    let entry = kvm_msr_entry { index: register, ..kvm_msr_entry::default() };
    let mut registers = Msrs::from_entries(&[entry]).ok()?;
    if kvm.get_msrs(&mut registers).ok()? != 1 {
        return None;
    }
    let vm = kvm.create_vm().ok()?;
    let vcpu = vm.create_vcpu(0).ok()?;
    Some(vcpu.set_msrs(&registers).is_ok_and(|taken| taken == 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_register_has_no_answer() {
        let Ok(kvm) = Kvm::new() else {
            eprintln!("skipped: /dev/kvm is not there or may not be opened");
            return;
        };
        assert_eq!(takes_its_own_value(&kvm, 0xffff_fff0), None);
    }
}
