//! Descriptors at chosen numbers, for the program that is executed next.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};

use nix::fcntl::{FcntlArg, fcntl};

/// Descriptors are parked at or above this number before they are moved to where they belong, so that no
/// move lands on one that has not moved yet.
const PARKING: RawFd = 1000;

/// Moves each descriptor to its number, not close-on-exec, so that the next executed program has it there.
/// The returned owners close the numbers again when they are dropped.
///
/// # Errors
/// `InvalidInput` if the lists differ in length or a number is below 3, else the error of `fcntl(2)` or `dup3(2)`.
pub(crate) fn place(descriptors: Vec<OwnedFd>, numbers: &[RawFd]) -> io::Result<Vec<OwnedFd>> {
    if descriptors.len() != numbers.len() {
        let text = format!("{} descriptors arrived for {} numbers", descriptors.len(), numbers.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    if numbers.iter().any(|number| !(3..PARKING).contains(number)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a descriptor number is not in 3..1000"));
    }
    let parked = descriptors.into_iter().map(|descriptor| park(&descriptor)).collect::<io::Result<Vec<_>>>()?;
    parked.iter().zip(numbers).map(|(descriptor, number)| duplicate_to(descriptor, *number)).collect()
}

fn park(descriptor: &OwnedFd) -> io::Result<OwnedFd> {
    let number = fcntl(descriptor.as_fd(), FcntlArg::F_DUPFD_CLOEXEC(PARKING))?;
    // SAFETY: fcntl has just made this number for us.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn duplicate_to(descriptor: &OwnedFd, number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: `number` is either free or a descriptor this process opened for itself and never gave away;
    // PID 1 keeps its own descriptors away from these numbers by parking them first (`keep_clear`).
    Ok(unsafe { nix::unistd::dup2_raw(descriptor, number) }?)
}

/// Moves one of our own descriptors out of the way of the numbers that [`place`] will use.
///
/// # Errors
/// The error of `fcntl(2)`.
pub(crate) fn keep_clear(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    park(&descriptor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn descriptors_land_on_their_numbers_even_when_these_are_taken() {
        let files: Vec<OwnedFd> =
            ["/proc/self/stat", "/dev/null"].map(|path| std::fs::File::open(path).unwrap().into()).into();
        let placed = place(files, &[900, 901]).unwrap();
        let mut text = String::new();
        std::fs::File::open("/proc/self/fd/900").unwrap().read_to_string(&mut text).unwrap();
        assert!(text.contains('('));
        assert_eq!(std::fs::read_link("/proc/self/fd/901").unwrap().to_str(), Some("/dev/null"));
        drop(placed);
        assert!(std::fs::read_link("/proc/self/fd/900").is_err());
    }

    #[test]
    fn a_wrong_count_is_refused() {
        assert!(place(Vec::new(), &[10]).is_err());
    }
}
