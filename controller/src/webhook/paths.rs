//! The paths of the webhooks. Their last segments are random, and stand in the webhook configurations, which API servers and
//! administrators read: who does not know them is answered 404 before anything of a request is read. Each webhook has a
//! segment of its own, because the API server shows the path of a webhook that it could not reach to the client that it
//! refuses for that; a client is not refused where `evict` cannot be reached, and sees no path. The segment of `convert` follows from
//! the others, one way: a Secret of an earlier version has all that is needed.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use uuid::Uuid;

/// What a webhook is asked for: the first segment of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Webhook {
    /// Filling in.
    Mutate,
    /// Judging.
    Validate,
    /// Whether a launcher pod may be evicted.
    Evict,
    /// Converting from one version of the API to another.
    Convert,
}

impl Webhook {
    const ALL: [Self; 4] = [Self::Mutate, Self::Validate, Self::Evict, Self::Convert];
    /// Those whose segments are in the Secret.
    const STORED: [Self; 3] = [Self::Mutate, Self::Validate, Self::Evict];

    fn name(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Validate => "validate",
            Self::Evict => "evict",
            Self::Convert => "convert",
        }
    }

    /// Its entry in the Secret's data.
    fn field(self) -> String {
        format!("path.{}", self.name())
    }
}

/// The random segments.
#[derive(Clone, PartialEq, Eq)]
pub struct Paths {
    mutate: String,
    validate: String,
    evict: String,
    convert: String,
}

/// Without what is secret in them.
impl std::fmt::Debug for Paths {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Paths").finish_non_exhaustive()
    }
}

impl Paths {
    /// New ones, of the system's random numbers.
    #[must_use]
    pub fn random() -> Self {
        let segment = || format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        Self::of_segments([segment(), segment(), segment()])
    }

    /// From those of [`Webhook::STORED`].
    fn of_segments([mutate, validate, evict]: [String; 3]) -> Self {
        let half = |segment: &str| Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("convert {segment}").as_bytes());
        let convert = format!("{}{}", half(&mutate).simple(), half(&evict).simple());
        Self { mutate, validate, evict, convert }
    }

    /// Reads the data of the Secret; none where one is missing, or is nothing that was put there.
    #[must_use]
    pub fn read(data: &BTreeMap<String, ByteString>) -> Option<Self> {
        let segment = |webhook: Webhook| {
            let text = std::str::from_utf8(&data.get(&webhook.field())?.0).ok()?;
            let is_ours = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_ours.then(|| text.to_owned())
        };
        let [mutate, validate, evict] = Webhook::STORED.map(segment);
        Some(Self::of_segments([mutate?, validate?, evict?]))
    }

    /// For the data of the Secret.
    pub fn write(&self) -> impl Iterator<Item = (String, ByteString)> + '_ {
        Webhook::STORED.iter().map(|each| (each.field(), ByteString(self.segment(*each).as_bytes().to_vec())))
    }

    /// The path of a webhook.
    #[must_use]
    pub fn of(&self, webhook: Webhook) -> String {
        format!("/{}/{}", webhook.name(), self.segment(webhook))
    }

    /// Whether it is the path of a webhook. The time that it takes does not depend on how much of it is right.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        Webhook::ALL.iter().fold(false, |found, each| found | is_same(self.of(*each).as_bytes(), path.as_bytes()))
    }

    /// Whether requests at a path are answered. While the Secret has no segments, the leader is of an earlier version, and API
    /// servers ask at paths without.
    #[must_use]
    pub fn are_known(paths: Option<&Self>, path: &str) -> bool {
        let plain =
            || path.strip_prefix('/').is_some_and(|segment| Webhook::ALL.iter().any(|each| each.name() == segment));
        paths.map_or_else(plain, |paths| paths.has(path))
    }

    fn segment(&self, webhook: Webhook) -> &str {
        match webhook {
            Webhook::Mutate => &self.mutate,
            Webhook::Validate => &self.validate,
            Webhook::Evict => &self.evict,
            Webhook::Convert => &self.convert,
        }
    }
}

/// In a time that depends on the lengths alone.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |found, (a, b)| std::hint::black_box(found | (a ^ b)));
    one.len() == other.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_webhook_has_a_path_that_is_not_guessed() {
        let (paths, others) = (Paths::random(), Paths::random());
        for webhook in Webhook::ALL {
            let path = paths.of(webhook);
            assert!(paths.has(&path), "{path}");
            assert!(!others.has(&path), "{path}");
            assert!(!paths.has(&format!("/{}", webhook.name())) && !paths.has(&path[..path.len() - 1]), "{path}");
            assert!(!paths.has(&format!("{path}0")) && !paths.has(&path.replace(webhook.name(), "x")), "{path}");
        }
        assert!(!paths.has(&format!("/evict/{}", paths.mutate)), "one webhook's segment opened another");
        for segment in [&paths.mutate, &paths.validate, &paths.evict] {
            assert!(
                !paths.of(Webhook::Convert).contains(&segment[..16]),
                "a segment is part of the one that follows from it"
            );
        }
    }

    #[test]
    fn paths_without_a_segment_are_answered_as_long_as_there_is_none() {
        let paths = Paths::random();
        for path in ["/mutate", "/validate", "/evict", "/convert"] {
            assert!(Paths::are_known(None, path) && !Paths::are_known(Some(&paths), path), "{path}");
        }
        let path = paths.of(Webhook::Evict);
        assert!(Paths::are_known(Some(&paths), &path) && !Paths::are_known(None, &path));
        assert!(!Paths::are_known(None, "/") && !Paths::are_known(None, "evict"));
    }

    #[test]
    fn what_is_written_is_read_back_and_what_was_spoilt_is_not() {
        let paths = Paths::random();
        let mut data: BTreeMap<_, _> = paths.write().collect();
        assert_eq!(Paths::read(&data).as_ref(), Some(&paths));
        data.insert("path.evict".to_owned(), ByteString(Vec::new()));
        assert_eq!(Paths::read(&data), None);
        assert!(!format!("{paths:?}").contains(&paths.evict));
    }
}
