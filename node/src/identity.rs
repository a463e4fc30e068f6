//! Which pod a process belongs to, by the text of its `/proc/PID/cgroup` (cgroups(7)). Pure.
//!
//! The kubelet's two ways of naming control groups (its `cgroupDriver`):
//!
//! ```text
//! cgroupfs  …/kubepods/burstable/pod0c6b…-…/CONTAINER
//! systemd   …/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0c6b…_….slice/cri-containerd-CONTAINER.scope
//! ```
//!
//! What comes before is anybody's: a root the kubelet was given, or `..` where this process has a namespace of control
//! groups of its own. What comes after may be a tenant's, who may have been given the right to make groups below its own.
//! So a pod is one component of exactly the kubelet's form that is followed by a container, and all lines that name a pod
//! name the same one; a second pod anywhere, also further down in the same line, is a forgery or a cluster within a
//! cluster, and refused.

use std::fmt;

/// Letters of a UID: `0c6b6b0e-7c1f-4d57-9c5e-6f0c7d6a1b2c`.
const UID_LENGTH: usize = 36;
/// Where its dashes are.
const DASHES: [usize; 4] = [8, 13, 18, 23];

/// The UID of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodUid(String);

/// Why a process is in no pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// No line names one.
    #[error("the caller is in no pod")]
    NoPod,
    /// Two lines, or two places in one, name different ones.
    #[error("the caller's control groups name more than one pod")]
    Ambiguous,
    /// A line is not `number:controllers:path`.
    #[error("the kernel's account of the caller's control groups is not understood")]
    Malformed,
}

impl PodUid {
    /// A UID as the API server writes it: lower-case, with dashes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fits = |(index, byte): (usize, u8)| match DASHES.contains(&index) {
            true => byte == b'-',
            false => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        };
        (text.len() == UID_LENGTH && text.bytes().enumerate().all(fits)).then(|| Self(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Reads the pod out of the text of `/proc/PID/cgroup`.
///
/// # Errors
/// [`IdentityError`].
pub fn pod_of(cgroups: &str) -> Result<PodUid, IdentityError> {
    let mut found = None;
    for line in cgroups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(_), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(IdentityError::Malformed);
        };
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) || !path.starts_with('/') {
            return Err(IdentityError::Malformed);
        }
        for pod in pods_in(path) {
            match &found {
                None => found = Some(pod),
                Some(before) if *before == pod => {}
                Some(_) => return Err(IdentityError::Ambiguous),
            }
        }
    }
    found.ok_or(IdentityError::NoPod)
}

/// The components that name a pod and have something below them.
fn pods_in(path: &str) -> impl Iterator<Item = PodUid> {
    let mut components = path.split('/').skip(1).peekable();
    std::iter::from_fn(move || {
        loop {
            let component = components.next()?;
            let container = components.peek().is_some_and(|next| !next.is_empty());
            if let (Some(pod), true) = (pod_component(component), container) {
                return Some(pod);
            }
        }
    })
}

fn pod_component(component: &str) -> Option<PodUid> {
    if let Some(uid) = component.strip_prefix("pod") {
        return PodUid::parse(uid);
    }
    // A unit's name has dashes for levels, so the UID has underscores.
    // `kubelet-` is what kind's kubelets have before it: their `cgroupRoot` is `/kubelet`.
    let component = component.strip_prefix("kubelet-").unwrap_or(component);
    let unit = component.strip_prefix("kubepods")?.strip_suffix(".slice")?;
    let (class, uid) = unit.split_once("-pod")?;
    let known = matches!(class, "" | "-burstable" | "-besteffort");
    (known && !uid.contains('-')).then(|| PodUid::parse(&uid.replace('_', "-"))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0c6b6b0e-7c1f-4d57-9c5e-6f0c7d6a1b2c";
    const B: &str = "ffffffff-7c1f-4d57-9c5e-6f0c7d6a1b2c";

    fn found(text: &str) -> Result<String, IdentityError> {
        pod_of(text).map(|pod| pod.to_string())
    }

    #[test]
    fn both_drivers_and_both_versions_are_read() {
        let units = A.replace('-', "_");
        let table = [
            format!("0::/kubepods/burstable/pod{A}/abc\n"),
            format!("0::/../../pod{A}/abc\n"),
            format!("0::/../../../kubepods-besteffort-pod{units}.slice/cri-containerd-abc.scope\n"),
            format!("0::/kubepods.slice/kubepods-pod{units}.slice/cri-containerd-abc.scope"),
            format!("0::/kubelet.slice/kubelet-kubepods-burstable-pod{units}.slice/cri-containerd-abc.scope"),
            format!("0::/gbk/node-1/kubepods/pod{A}/abc/inner"),
            format!("9:name=systemd:/kubepods/pod{A}/abc\n8:pids:/kubepods/pod{A}/abc\n7:blkio:/\n0::/\n"),
            format!("4:cpu,cpuacct:/kubepods/pod{A}/c:o:l:o:n\n"),
        ];
        for text in table {
            assert_eq!(found(&text).as_deref(), Ok(A), "{text}");
        }
    }

    #[test]
    fn what_only_looks_like_a_pod_is_none() {
        let units = A.replace('-', "_");
        let table = [
            String::new(),
            "0::/\n".to_owned(),
            "0::/init.scope\n".to_owned(),
            format!("0::/kubepods/burstable/pod{A}\n"),
            format!("0::/kubepods/pod{A}/\n"),
            format!("0::/kubepods/pod{}/c", A.to_uppercase()),
            format!("0::/kubepods/pod{A}x/c"),
            format!("0::/kubepods/xpod{A}/c"),
            format!("0::/kubepods/pod{}/c", &A[..35]),
            format!("0::/kubepods/pod{units}/c"),
            format!("0::/kubepods-evil-pod{units}.slice/c"),
            format!("0::/kubepods-burstable-pod{A}.slice/c"),
            format!("0::/user.slice/x-pod{units}.slice/c"),
            "0::/kubepods/pod0123456789abcdef0123456789abcdef/c".to_owned(),
            format!("0::/kubepods/pod{}é/c", &A[..34]),
        ];
        for text in table {
            assert_eq!(found(&text), Err(IdentityError::NoPod), "{text}");
        }
    }

    #[test]
    fn two_pods_are_a_forgery() {
        let table = [
            format!("0::/kubepods/pod{A}/c/pod{B}/d"),
            format!("1:cpu:/kubepods/pod{A}/c\n2:pids:/kubepods/pod{B}/c\n"),
            format!("0::/kubepods/pod{A}/c/kubepods-pod{}.slice/d", B.replace('-', "_")),
        ];
        for text in table {
            assert_eq!(found(&text), Err(IdentityError::Ambiguous), "{text}");
        }
    }

    #[test]
    fn nonsense_is_not_understood() {
        for text in ["hello", ":", "0:", "0::relative/path", "x::/a", "0::/a\n\n", "-1::/a"] {
            assert_eq!(found(text), Err(IdentityError::Malformed), "{text}");
        }
    }
}
