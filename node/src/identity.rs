//! Which pod a process belongs to, by the text of its `/proc/PID/cgroup` (cgroups(7)). Pure.
//!
//! The kubelet's two ways of naming control groups (its `cgroupDriver`):
//!
//! ```text
//! cgroupfs  …/kubepods/burstable/pod0c6b…-…/CONTAINER
//! systemd   …/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0c6b…_….slice/cri-containerd-CONTAINER.scope
//! ```
//!
//! What comes before is the kubelet's own root, which differs from node to node; any user with a session of systemd may make
//! groups, of whatever names, in other places. The agent is in a pod of the same kubelet: its own path has the root,
//! and only what lies there counts. Where the agent has a namespace of control groups (cgroup_namespaces(7)), its own
//! path is `/`, and the others' begin with one `..` for each level up to what both are in; then a pod comes next, or a
//! class and then the pod.
//!
//! The components after it may be a tenant's: a container may have the right to make groups below its own. So a pod is one
//! component of exactly the kubelet's form that is followed by a container, and all lines that name a pod name the same
//! one; a second pod anywhere, also further down in the same line, is a forgery or a cluster within a cluster, and refused.

use std::collections::BTreeSet;
use std::fmt;

/// Letters of a UID: `0c6b6b0e-7c1f-4d57-9c5e-6f0c7d6a1b2c`.
const UID_LENGTH: usize = 36;
/// Where its dashes are.
const DASHES: [usize; 4] = [8, 13, 18, 23];

/// The prefix of unit names of kubelets of kind: their `cgroupRoot` is `/kubelet`.
const KIND: &str = "kubelet-";

/// The UID of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodUid(String);

/// Why a process is in no pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// No line names a pod.
    #[error("the caller is in no pod")]
    NoPod,
    /// A line names a pod, in a place that is not the kubelet's.
    #[error("the caller's control group has the form of a pod's but is not below the kubelet's own")]
    NotKubelets,
    /// Two lines, or two places in one line, name different pods.
    #[error("the caller's control groups name more than one pod")]
    Ambiguous,
    /// A line is not `number:controllers:path`.
    #[error("the caller's /proc/PID/cgroup could not be parsed")]
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

/// Where the kubelet of this node has its pods, in each hierarchy of control groups: what comes before a pod and its class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeletRoot {
    /// These paths, each with its components joined by `/`; none where the agent is not in a pod, and then no caller is.
    Paths(BTreeSet<String>),
    /// Above the agent's own namespace of control groups.
    Above,
}

impl KubeletRoot {
    /// Reads the text of the agent's own `/proc/PID/cgroup`.
    ///
    /// # Errors
    /// [`IdentityError::Malformed`].
    pub fn of(own: &str) -> Result<Self, IdentityError> {
        let paths = own.lines().map(path).collect::<Result<Vec<_>, _>>()?;
        if paths.iter().all(|path| *path == "/") {
            return Ok(Self::Above);
        }
        let places = paths.iter().flat_map(|path| places_in(path));
        Ok(Self::Paths(places.map(|(before, _)| before).collect()))
    }

    /// Reads the pod out of the text of `/proc/PID/cgroup`.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn pod_of(&self, cgroups: &str) -> Result<PodUid, IdentityError> {
        let mut found: Option<(bool, PodUid)> = None;
        for line in cgroups.lines() {
            for (before, pod) in places_in(path(line)?) {
                let is_kubelets = self.holds(&before);
                match &found {
                    None => found = Some((is_kubelets, pod)),
                    Some((_, other)) if *other != pod => return Err(IdentityError::Ambiguous),
                    Some((all, _)) => found = Some((*all && is_kubelets, pod)),
                }
            }
        }
        match found {
            Some((true, pod)) => Ok(pod),
            Some((false, _)) => Err(IdentityError::NotKubelets),
            None => Err(IdentityError::NoPod),
        }
    }

    fn holds(&self, before: &str) -> bool {
        match self {
            Self::Paths(paths) => paths.contains(before),
            // The agent's container, its pod, and at least what holds the pods.
            Self::Above => before.split('/').skip(1).count() >= 2 && before.split('/').skip(1).all(|one| one == ".."),
        }
    }
}

/// The path of one line.
fn path(line: &str) -> Result<&str, IdentityError> {
    let mut parts = line.splitn(3, ':');
    let (Some(number), Some(_), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(IdentityError::Malformed);
    };
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) || !path.starts_with('/') {
        return Err(IdentityError::Malformed);
    }
    Ok(path)
}

/// The components that name a pod and have something below them, with what comes before them and their class.
fn places_in(path: &str) -> Vec<(String, PodUid)> {
    let components: Vec<&str> = path.split('/').collect();
    let places = components.iter().enumerate().filter_map(|(index, component)| {
        let pod = pod_component(component)?;
        components.get(index + 1).filter(|next| !next.is_empty())?;
        let before = &components[..index];
        let before = before.split_last().filter(|(last, _)| is_class(last)).map_or(before, |(_, rest)| rest);
        Some((before.join("/"), pod))
    });
    places.collect()
}

/// Whether the kubelet keeps the pods of a QoS class there; pods of the class Guaranteed have no directory of a class.
fn is_class(component: &str) -> bool {
    let unit = component.strip_prefix(KIND).unwrap_or(component).strip_prefix("kubepods-");
    let class = unit.map_or(Some(component), |unit| unit.strip_suffix(".slice"));
    matches!(class, Some("burstable" | "besteffort"))
}

fn pod_component(component: &str) -> Option<PodUid> {
    if let Some(uid) = component.strip_prefix("pod") {
        return PodUid::parse(uid);
    }
    // A unit's name has dashes for levels, so the UID has underscores.
    let component = component.strip_prefix(KIND).unwrap_or(component);
    let unit = component.strip_prefix("kubepods")?.strip_suffix(".slice")?;
    let (class, uid) = unit.split_once("-pod")?;
    let known = matches!(class, "" | "-burstable" | "-besteffort");
    (known && !uid.contains('-')).then(|| PodUid::parse(&uid.replace('_', "-"))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0c6b6b0e-7c1f-4d57-9c5e-6f0c7d6a1b2c";
    const OWN: &str = "11111111-7c1f-4d57-9c5e-6f0c7d6a1b2c";
    const B: &str = "ffffffff-7c1f-4d57-9c5e-6f0c7d6a1b2c";

    /// As an agent that is in a pod of the same kubelet sees it.
    fn found_by(own: &str, text: &str) -> Result<String, IdentityError> {
        KubeletRoot::of(own).unwrap().pod_of(text).map(|pod| pod.to_string())
    }

    fn found(text: &str) -> Result<String, IdentityError> {
        found_by(&format!("0::/kubepods/burstable/pod{OWN}/agent\n"), text)
    }

    #[test]
    fn both_drivers_and_both_versions_are_read() {
        let (units, own) = (A.replace('-', "_"), OWN.replace('-', "_"));
        let cgroupfs = format!("0::/kubepods/burstable/pod{OWN}/agent\n");
        let systemd =
            format!("0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{own}.slice/a.scope\n");
        let kind = "kubelet.slice/kubelet-kubepods.slice";
        let kind_own =
            format!("0::/{kind}/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{own}.slice/a.scope");
        let nested = format!("0::/gbk/node-1/kubepods/besteffort/pod{OWN}/agent\n");
        let first = format!("9:name=systemd:/kubepods/pod{OWN}/abc\n8:pids:/kubepods/pod{OWN}/abc\n7:blkio:/\n0::/\n");
        let inside = "9:name=systemd:/\n0::/\n".to_owned();
        let table = [
            (&cgroupfs, format!("0::/kubepods/burstable/pod{A}/abc\n")),
            (&cgroupfs, format!("0::/kubepods/besteffort/pod{A}/abc\n")),
            (&cgroupfs, format!("0::/kubepods/pod{A}/abc\n")),
            (&inside, format!("0::/../../pod{A}/abc\n")),
            (&inside, format!("0::/../../../besteffort/pod{A}/abc\n")),
            (&inside, format!("0::/../../../kubepods-pod{units}.slice/cri-containerd-abc.scope\n")),
            (&inside, format!("0::/../../../kubepods-besteffort.slice/kubepods-besteffort-pod{units}.slice/c.scope")),
            (&systemd, format!("0::/kubepods.slice/kubepods-pod{units}.slice/cri-containerd-abc.scope")),
            (&systemd, format!("0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{units}.slice/c")),
            (&kind_own, format!("0::/{kind}/kubelet-kubepods-pod{units}.slice/cri-containerd-abc.scope")),
            (&nested, format!("0::/gbk/node-1/kubepods/pod{A}/abc/inner")),
            (&first, format!("9:name=systemd:/kubepods/pod{A}/abc\n8:pids:/kubepods/pod{A}/abc\n7:blkio:/\n0::/\n")),
            (&cgroupfs, format!("4:cpu,cpuacct:/kubepods/pod{A}/c:o:l:o:n\n")),
        ];
        for (own, text) in table {
            assert_eq!(found_by(own, &text).as_deref(), Ok(A), "{own} {text}");
        }
    }

    /// Names below a session's own group are the user's.
    #[test]
    fn a_group_that_a_user_made_is_no_pod() {
        let session = "user.slice/user-1000.slice/user@1000.service/app.slice";
        let units = A.replace('-', "_");
        let inside = "0::/\n".to_owned();
        let table = [
            format!("0::/{session}/pod{A}/x"),
            format!("0::/{session}/kubepods/burstable/pod{A}/x"),
            format!("0::/{session}/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{units}.slice/x"),
            format!("0::/pod{A}/x"),
            format!("0::/kubepods/burstable/pod{A}/c\n1:name=systemd:/{session}/kubepods/pod{A}/x"),
        ];
        for text in &table {
            assert_eq!(found(text), Err(IdentityError::NotKubelets), "{text}");
        }
        let seen_from_inside = [
            format!("0::/../../../../{session}/pod{A}/x"),
            format!("0::/../../../../{session}/kubepods/burstable/pod{A}/x"),
            format!("0::/pod{A}/x"),
            format!("0::/../pod{A}/x"),
            format!("0::/burstable/pod{A}/x"),
        ];
        for text in &seen_from_inside {
            assert_eq!(found_by(&inside, text), Err(IdentityError::NotKubelets), "{text}");
        }
        // An agent outside pods cannot determine what is the kubelet's.
        assert_eq!(found_by("0::/init.scope", &format!("0::/kubepods/pod{A}/c")), Err(IdentityError::NotKubelets));
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
