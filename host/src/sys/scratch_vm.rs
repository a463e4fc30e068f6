//! A virtual machine with one vCPU and a few pages of memory, and the guarantee that the memory outlives the machine.
//!
//! Not for deciding what the guest does: see [`crate::kvm`].

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::{Kvm, VcpuFd, VmFd};

/// Bytes of a page; x86 has no other base size.
pub(crate) const PAGE: usize = 4096;

/// Zeroed memory aligned to a page.
struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is owned by this value alone and reached only through `&mut self`; nothing about it belongs to
// the thread that allocated it.
unsafe impl Send for Pages {}

impl Pages {
    fn zeroed(count: usize) -> Option<Self> {
        let layout = Layout::from_size_align(count.checked_mul(PAGE)?, PAGE).ok()?;
        if layout.size() == 0 {
            return None;
        }
        // SAFETY: the layout has a size greater than zero (checked above).
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start, layout })
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) -> Option<()> {
        let end = offset.checked_add(bytes.len())?;
        if end > self.layout.size() {
            return None;
        }
        // SAFETY: `offset..end` lies inside the allocation (checked above), which `self` owns and `bytes`, a borrow of
        // something else, cannot overlap. No vCPU runs yet: the machine is still being built.
        unsafe { self.start.add(offset).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Some(())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this very layout, and freed only here.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// A machine with one vCPU. Fields are dropped in the order written: the memory goes last, when no vCPU is left that
/// could touch it.
pub(crate) struct ScratchVm {
    vcpu: VcpuFd,
    _vm: VmFd,
    _pages: Pages,
}

/// Why a scratch machine could not be made: the step, and the kernel's error.
#[derive(Debug, thiserror::Error)]
#[error("could not {step} of a scratch VM")]
pub(crate) struct ScratchVmError {
    /// What was being done, as the end of "could not …".
    pub(crate) step: &'static str,
    /// The kernel's answer, or `None` if the request was refused before the kernel saw it.
    #[source]
    pub(crate) source: Option<kvm_ioctls::Error>,
}

fn failed(step: &'static str) -> impl FnOnce(kvm_ioctls::Error) -> ScratchVmError {
    move |source| ScratchVmError { step, source: Some(source) }
}

impl ScratchVm {
    /// A machine with `page_count` pages of memory from guest address 0, `contents` written at their offsets.
    pub(crate) fn create(kvm: &Kvm, page_count: usize, contents: &[(usize, &[u8])]) -> Result<Self, ScratchVmError> {
        let mut pages =
            Pages::zeroed(page_count).ok_or(ScratchVmError { step: "allocate the memory", source: None })?;
        for (offset, bytes) in contents {
            pages.write(*offset, bytes).ok_or(ScratchVmError { step: "write the memory", source: None })?;
        }
        let vm = kvm.create_vm().map_err(failed("create the machine"))?;
        // Intel processors without "unrestricted guest" need three pages for it; just below 4 GiB is out of the way.
        vm.set_tss_address(0xfffb_d000).map_err(failed("set the task state segment"))?;
        let region = kvm_userspace_memory_region {
            slot: 0,
            flags: 0,
            guest_phys_addr: 0,
            memory_size: pages.layout.size() as u64,
            userspace_addr: pages.start.as_ptr() as u64,
        };
        // SAFETY: the region is exactly the allocation of `pages`, which `ScratchVm` keeps until vCPU and machine are
        // closed; the vCPU is only lent out, never given away.
        unsafe { vm.set_user_memory_region(region) }.map_err(failed("lend memory to the machine"))?;
        let vcpu = vm.create_vcpu(0).map_err(failed("create the vCPU"))?;
        Ok(Self { vcpu, _vm: vm, _pages: pages })
    }

    /// The machine's only vCPU.
    pub(crate) fn vcpu(&mut self) -> &mut VcpuFd {
        &mut self.vcpu
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_beyond_the_pages_is_refused_and_changes_nothing() {
        let mut pages = Pages::zeroed(1).unwrap();
        assert!(pages.write(PAGE - 1, &[1, 2]).is_none());
        assert!(pages.write(usize::MAX, &[1]).is_none());
        assert!(pages.write(PAGE - 2, &[1, 2]).is_some());
    }

    #[test]
    fn no_pages_are_refused() {
        assert!(Pages::zeroed(0).is_none());
        assert!(Pages::zeroed(usize::MAX).is_none());
    }
}
