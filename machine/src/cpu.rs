//! `-cpu` and `-smp`.
//!
//! `-cpu` is cut at commas by `strtok` (`x86_cpu_parse_featurestr`), so a comma cannot be written in any way:
//! [`CpuToken`] refuses it.

use std::fmt;

use crate::argv::{Arg, Argument, Options};

/// A model name, a property's name or its value in `-cpu`: printable, without comma and space.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuToken(String);

/// A text that `-cpu` cannot carry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` cannot be part of a CPU: letters, digits and punctuation without commas")]
pub struct CpuTokenError {
    /// The text.
    pub text: String,
}

impl CpuToken {
    /// Takes `text` as it is.
    ///
    /// # Errors
    /// [`CpuTokenError`].
    pub fn new(text: impl Into<String>) -> Result<Self, CpuTokenError> {
        let text = text.into();
        let is_fit = |byte: u8| byte.is_ascii_graphic() && byte != b',';
        if !text.is_empty() && text.bytes().all(is_fit) { Ok(Self(text)) } else { Err(CpuTokenError { text }) }
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `-cpu MODEL,property=value,…`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// A name from `query-cpu-definitions`.
    pub model: CpuToken,
    /// In the order of the command line; a later one wins.
    pub properties: Vec<(CpuToken, CpuToken)>,
}

impl Cpu {
    /// A model without properties.
    ///
    /// # Errors
    /// [`CpuTokenError`] for a model that cannot be written.
    pub fn new(model: &str) -> Result<Self, CpuTokenError> {
        Ok(Self { model: CpuToken::new(model)?, properties: Vec::new() })
    }

    /// Reads what [`Cpu`] writes: `MODEL,name=value,…`. A token without a value is a switch that is on.
    ///
    /// # Errors
    /// [`CpuTokenError`] for an empty token.
    pub fn parse(text: &str) -> Result<Self, CpuTokenError> {
        let mut tokens = text.split(',');
        let mut cpu = Self::new(tokens.next().unwrap_or_default())?;
        for token in tokens {
            let (name, value) = token.split_once('=').unwrap_or((token, "on"));
            cpu.set(name, value)?;
        }
        Ok(cpu)
    }

    /// Appends `name=value`.
    ///
    /// # Errors
    /// [`CpuTokenError`] if either cannot be written.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), CpuTokenError> {
        self.properties.push((CpuToken::new(name)?, CpuToken::new(value)?));
        Ok(())
    }

    /// Appends `name=on` or `name=off`.
    ///
    /// # Errors
    /// [`CpuTokenError`] if the name cannot be written.
    pub fn switch(&mut self, name: &str, state: Switch) -> Result<(), CpuTokenError> {
        self.set(name, state.as_str())
    }

    /// The value of a property, the one that wins.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.properties.iter().rev().find(|(property, _)| property.as_str() == name).map(|(_, value)| value.as_str())
    }
}

/// Properties of a CPU that are no feature of a processor, and so not requested by name.
const NO_FEATURES: [&str; 17] = [
    "check",
    "cpuid-0xb",
    "enforce",
    "fill-mtrr-mask",
    "full-cpuid-auto-level",
    "host-cache-info",
    "host-phys-bits",
    "hotpluggable",
    "hotplugged",
    "kvm",
    "l3-cache",
    "legacy-cache",
    "migratable",
    "realized",
    "start-powered-off",
    "tcg-cpuid",
    "vmware-cpuid-freq",
];

/// Whether a property of a CPU, as `query-cpu-model-expansion` names it, is a feature of a processor.
#[must_use]
pub fn is_feature(name: &str) -> bool {
    !name.starts_with("x-") && !NO_FEATURES.contains(&name)
}

/// One of QEMU's names of a feature, always the same one: `lahf-lm` of `lahf_lm`, `sse4-1` of `sse4.1`.
#[must_use]
pub fn canonical_feature(name: &str) -> String {
    name.replace(['_', '.'], "-")
}

/// `on` or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// `on`
    On,
    /// `off`
    Off,
}

impl Switch {
    /// QEMU's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

impl From<bool> for Switch {
    fn from(on: bool) -> Self {
        if on { Self::On } else { Self::Off }
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.model.0)?;
        self.properties.iter().try_for_each(|(name, value)| write!(f, ",{}={}", name.0, value.0))
    }
}

impl Arg for Cpu {
    fn argument(&self) -> Argument {
        Argument::text("-cpu", self.to_string())
    }
}

/// `-smp`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Smp {
    /// vCPUs at boot.
    pub cpus: u32,
    /// vCPUs that may come: `sockets * cores * threads`.
    pub maxcpus: u32,
    /// Sockets, those still empty included.
    pub sockets: u32,
    /// Cores of a socket.
    pub cores: u32,
    /// Threads of a core.
    pub threads: u32,
}

impl Arg for Smp {
    fn argument(&self) -> Argument {
        let options = Options::new()
            .set("cpus", self.cpus)
            .set("maxcpus", self.maxcpus)
            .set("sockets", self.sockets)
            .set("cores", self.cores)
            .set("threads", self.threads);
        Argument::options("-smp", options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_property_wins() {
        let mut cpu = Cpu::new("max").unwrap();
        cpu.switch("vmx", Switch::On).unwrap();
        cpu.switch("vmx", Switch::Off).unwrap();
        assert_eq!(cpu.to_string(), "max,vmx=on,vmx=off");
        assert_eq!(cpu.get("vmx"), Some("off"));
    }

    #[test]
    fn a_cpu_reads_back_as_it_was_written() {
        for text in ["host,migratable=on", "Haswell,mpx=off,enforce=on", "max"] {
            assert_eq!(Cpu::parse(text).unwrap().to_string(), text);
        }
        assert!(Cpu::parse("").is_err() && Cpu::parse("max,").is_err());
    }

    #[test]
    fn what_is_no_feature_is_left_out() {
        let names = ["avx2", "lahf-lm", "lahf_lm", "x-migrate-smi-count", "check", "kvm-pv-eoi"];
        let kept: Vec<_> = names.into_iter().filter(|name| is_feature(name)).collect();
        assert_eq!(kept, ["avx2", "lahf-lm", "lahf_lm", "kvm-pv-eoi"]);
    }

    #[test]
    fn what_qemu_would_take_apart_is_refused() {
        for bad in ["", "a,b", "a b", "a\n", "ä"] {
            assert!(CpuToken::new(bad).is_err(), "{bad:?}");
        }
    }
}
