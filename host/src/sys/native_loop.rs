//! The counted loop of the KVM measurement, executed by this processor.

use std::arch::asm;

/// Adds up `iterations`, `iterations - 1`, … 1 with exactly the instructions of [`MACHINE_CODE`]; returns the sum.
#[inline(never)]
pub(crate) fn sum_downwards(iterations: u64) -> u64 {
    let mut sum: u64 = 0;
    if iterations == 0 {
        return sum;
    }
    // SAFETY: touches the two registers it names and the flags, no memory and no stack; ends because `count` is not
    // zero at the start and falls by one per round.
    unsafe {
        asm!(
            "2:",
            "add {sum}, {count}",
            "dec {count}",
            "jnz 2b",
            sum = inout(reg) sum,
            count = inout(reg) iterations => _,
            options(nomem, nostack),
        );
    }
    sum
}

/// The same loop for the guest, with the sum in RAX and the count in RCX, then OUT to [`END_PORT`]. REX prefixes make every
/// instruction 64 bits wide: in any other mode they would be instructions of their own and the sum would be wrong.
pub(crate) const MACHINE_CODE: [u8; 10] = [
    0x48, 0x01, 0xc8, // add rax, rcx
    0x48, 0xff, 0xc9, // dec rcx
    0x75, 0xf8, // jnz  (back to add)
    0xe6, 0xe9, // out END_PORT, al
];

/// The port whose use ends the guest's loop. No scratch VM has a device there, so KVM hands it to us.
pub(crate) const END_PORT: u16 = 0xe9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_the_formula() {
        for iterations in [0, 1, 2, 3, 1000, 100_000] {
            assert_eq!(sum_downwards(iterations), iterations * (iterations + 1) / 2);
        }
    }
}
