//! What is wrong with a manifest: one [`Fault`] per mistake, described for the person who wrote the manifest.
//!
//! A fault is a value, not a Rust error: a check returns every fault it finds, and the caller decides whether they
//! become an admission response, lines on a terminal or an event. Not for failures of this program.

use std::fmt;

use serde::Serialize;

use crate::cluster::Gate;

/// Where in a manifest something stands, written as Kubernetes writes it: `spec.domain.devices.disks[0].name`.
///
/// The empty path means the whole object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct FieldPath(String);

impl FieldPath {
    /// The whole object.
    pub const fn root() -> Self {
        Self(String::new())
    }

    /// The path of a field of this one. `name` may itself hold several steps (`domain.devices`).
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Self(name.to_owned()) } else { Self(format!("{}.{name}", self.0)) }
    }

    /// The path of an element of the list that stands here, counted from 0.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// The path of an entry of the map that stands here, such as one label.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the whole object.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl From<&str> for FieldPath {
    fn from(path: &str) -> Self {
        Self(path.to_owned())
    }
}

impl From<String> for FieldPath {
    fn from(path: String) -> Self {
        Self(path)
    }
}

/// What kind of mistake a fault is. The first five are the causes Kubernetes names in `details.causes[].reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum FaultCode {
    /// A field that must be there is missing.
    Required,
    /// The value cannot be accepted, alone or together with another field.
    Invalid,
    /// The value is none of those that exist.
    NotSupported,
    /// Another element of the list already has this value.
    Duplicate,
    /// The value names something that is not in the manifest.
    NotFound,
    /// No field has this name.
    UnknownField,
    /// The value has another JSON type than the field.
    WrongType,
    /// The field is known and the value would be right, but Garboard cannot honour it yet.
    NotInThisVersion,
}

impl FaultCode {
    /// Kubernetes' value for this in `details.causes[].reason`.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid | Self::UnknownField | Self::WrongType => "FieldValueInvalid",
            Self::NotSupported | Self::NotInThisVersion => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
        }
    }
}

/// A text that clients of KubeVirt compare, and that they get in place of a fault's own. The place that it names is the fault's `field`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SentText {
    /// A field that the instancetype sets, too.
    Conflict,
    /// A disk that has no volume.
    NoVolume {
        /// Its name.
        name: String,
    },
    /// A kernel of an image that is not named; the place is the field of its name.
    NoImage,
    /// An image with a kernel of which no file is named.
    NoKernel,
    /// A path that is `/`.
    Root,
    /// A path that is not absolute, or has components that it could do without.
    NotAbsolute,
    /// What this cluster does not permit: KubeVirt's text for a disk on the host. Most of its other gates have other texts.
    GateOff {
        /// The feature gate that would.
        gate: Gate,
    },
    /// An object that does not exist.
    NoObject {
        /// Its resource, with its group.
        resource: String,
        /// Its name.
        name: String,
    },
}

/// One mistake in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Fault {
    /// Where it is.
    pub path: FieldPath,
    /// The spelling of the path that KubeVirt puts in `details.causes[].field`: the same as `path` except where
    /// KubeVirt's own spelling is odd and clients may match on it.
    pub field: String,
    /// What kind of mistake it is.
    pub code: FaultCode,
    /// What is wrong, without the path and without a full stop.
    pub message: String,
    /// What to do about it, beginning with a verb, without a full stop; absent if the message is enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
    /// What KubeVirt's clients get in place of message and advice, which then come as a warning; absent for almost all.
    #[serde(skip)]
    pub sent: Option<Box<SentText>>,
}

impl Fault {
    /// A fault whose `field` is spelt like its path, without advice.
    pub fn new(path: FieldPath, code: FaultCode, message: impl Into<String>) -> Self {
        let field = path.as_str().to_owned();
        Self { path, field, code, message: message.into(), instead: None, sent: None }
    }

    /// Adds what to do about it (`write one of …`).
    #[must_use]
    pub fn instead(mut self, advice: impl Into<String>) -> Self {
        self.instead = Some(advice.into());
        self
    }

    /// Sets the spelling KubeVirt uses for the path where it differs.
    #[must_use]
    pub fn field(mut self, spelling: impl Into<String>) -> Self {
        self.field = spelling.into();
        self
    }

    /// Sets what KubeVirt's clients get in place of the message.
    #[must_use]
    pub fn sent(mut self, text: SentText) -> Self {
        self.sent = Some(Box::new(text));
        self
    }

    /// The text that KubeVirt's clients compare, word for word, if they compare it.
    #[must_use]
    pub fn sent_text(&self) -> Option<String> {
        let field = &self.field;
        Some(match self.sent.as_deref()? {
            SentText::Conflict => format!("VM field(s) {field} conflicts with selected instance type"),
            // The name of this one field has a capital letter there.
            SentText::NoVolume { name } => {
                format!("{}.Name '{name}' not found.", field.strip_suffix(".name").unwrap_or(field))
            }
            SentText::NoImage => {
                format!("{} must be defined with an image", field.strip_suffix(".image").unwrap_or(field))
            }
            SentText::NoKernel => {
                format!("{field} must be defined with at least one of the following: kernelPath, initrdPath")
            }
            SentText::Root => format!("{field} must not point to root"),
            SentText::NotAbsolute => format!("{field} must be an absolute path to a file without relative components"),
            SentText::GateOff { gate } => format!("{gate} feature gate is not enabled"),
            SentText::NoObject { resource, name } => format!("{resource} \"{name}\" not found"),
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_root() {
            write!(out, "{}: ", self.path)?;
        }
        out.write_str(&self.message)?;
        match &self.instead {
            Some(advice) => write!(out, "; {advice}"),
            None => Ok(()),
        }
    }
}

/// The most faults that an answer lists, as in KubeVirt.
pub const MOST_LISTED: usize = 10;

/// All faults in one line, as KubeVirt has its messages: the first [`MOST_LISTED`], each as `text` writes it, and how many more there are.
#[must_use]
pub fn in_one_line(faults: &[Fault], text: impl Fn(&Fault) -> String) -> String {
    let texts: Vec<String> = faults.iter().take(MOST_LISTED).map(text).collect();
    let line = texts.join(", ");
    match faults.len().saturating_sub(MOST_LISTED) {
        0 => line,
        more => format!("{line}, and {more} more validation errors"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_as_kubernetes_writes_them() {
        let path = FieldPath::root().child("spec").child("domain.devices.disks").index(2).child("name");
        assert_eq!(path.to_string(), "spec.domain.devices.disks[2].name");
        assert_eq!(FieldPath::root().child("metadata").child("labels").key("a/b").to_string(), "metadata.labels[a/b]");
    }

    #[test]
    fn what_clients_compare_is_kubevirts_text() {
        let of = |path: &str, sent: SentText| Fault::new(FieldPath::from(path), FaultCode::Invalid, "no").sent(sent);
        let conflict = of("spec.template.spec.domain.cpu.dedicatedCpuPlacement", SentText::Conflict);
        let conflict = conflict.field("spec.template.spec.domain.cpu.dedicatedCPUPlacement");
        let text =
            "VM field(s) spec.template.spec.domain.cpu.dedicatedCPUPlacement conflicts with selected instance type";
        assert_eq!(conflict.sent_text().as_deref(), Some(text));
        let disk = of("spec.domain.devices.disks[2].name", SentText::NoVolume { name: "a".to_owned() });
        assert_eq!(disk.sent_text().as_deref(), Some("spec.domain.devices.disks[2].Name 'a' not found."));
        let object = SentText::NoObject { resource: "pods.example".to_owned(), name: "a".to_owned() };
        assert_eq!(of("spec.x", object).sent_text().as_deref(), Some("pods.example \"a\" not found"));
        assert_eq!(disk.to_string(), "spec.domain.devices.disks[2].name: no", "for people");
        assert_eq!(Fault::new(FieldPath::root(), FaultCode::Invalid, "no").sent_text(), None);
        assert!(!serde_json::to_string(&disk).unwrap().contains("sent"), "the command prints its own");
    }

    #[test]
    fn a_fault_is_shown_in_one_line() {
        let fault = Fault::new(FieldPath::from("spec.x"), FaultCode::Invalid, "`5` is too much").instead("write `4`");
        assert_eq!(fault.to_string(), "spec.x: `5` is too much; write `4`");
        assert_eq!(Fault::new(FieldPath::root(), FaultCode::Required, "no kind").to_string(), "no kind");
    }
}
