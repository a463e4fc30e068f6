//! Processor architectures, as Go and Kubernetes spell them.

use std::fmt;

/// The architectures that KubeVirt supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arch {
    /// x86, 64 bits.
    Amd64,
    /// Arm, 64 bits.
    Arm64,
    /// IBM Z.
    S390x,
}

impl Arch {
    /// Every architecture.
    pub const ALL: [Self; 3] = [Self::Amd64, Self::Arm64, Self::S390x];

    /// The architecture of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.name() == name)
    }

    /// The name of the architecture: `amd64`, `arm64` or `s390x`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
            Self::S390x => "s390x",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for arch in Arch::ALL {
            assert_eq!(Arch::named(&arch.to_string()), Some(arch));
        }
        assert_eq!(Arch::named("x86_64"), None);
    }
}
