//! Streams to machines that are open through this replica, and when the last one was opened.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use garboard_metrics::catalogue::controller as catalogue;
use garboard_metrics::{Exposition, Labels, Metric};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::machines::seconds;
use crate::stores::ObjectKey;

/// The most machines of which it is known when a stream was last opened; the one that was longest ago is forgotten.
const REMEMBERED: usize = 4096;

/// The kinds of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The serial console.
    Console,
    /// The screen.
    Vnc,
    /// A USB device.
    UsbRedir,
    /// A session of QMP.
    Qmp,
    /// A port of the guest.
    PortForward,
}

impl Kind {
    const fn metric(self) -> &'static Metric {
        match self {
            Self::Console => &catalogue::CONSOLE_CONNECTIONS,
            Self::Vnc => &catalogue::VNC_CONNECTIONS,
            Self::UsbRedir => &catalogue::USBREDIR_CONNECTIONS,
            Self::Qmp => &catalogue::QMP_CONNECTIONS,
            Self::PortForward => &catalogue::PORTFORWARD_TUNNELS,
        }
    }
}

/// All of them.
#[derive(Clone, Default)]
pub struct Streams(Arc<Mutex<Open>>);

#[derive(Default)]
struct Open {
    counts: BTreeMap<(Kind, ObjectKey), u32>,
    last: HashMap<ObjectKey, Timestamp>,
}

/// One that is open, until it is dropped.
pub struct Counted {
    streams: Streams,
    of: (Kind, ObjectKey),
}

impl Streams {
    /// One more is open, of an instance.
    #[must_use]
    pub fn open(&self, kind: Kind, instance: ObjectKey) -> Counted {
        self.open_at(kind, instance, Timestamp::now())
    }

    fn open_at(&self, kind: Kind, instance: ObjectKey, now: Timestamp) -> Counted {
        let mut open = self.lock();
        if open.last.len() >= REMEMBERED && !open.last.contains_key(&instance) {
            let oldest = open.last.iter().min_by_key(|(_, at)| **at).map(|(key, _)| key.clone());
            if let Some(key) = oldest {
                open.last.remove(&key);
            }
        }
        open.last.insert(instance.clone(), now);
        *open.counts.entry((kind, instance.clone())).or_default() += 1;
        Counted { streams: self.clone(), of: (kind, instance) }
    }

    /// Adds the samples.
    pub(super) fn add(&self, to: &mut Exposition) {
        let open = self.lock();
        let labels = |key: &ObjectKey| Labels::of(&[("namespace", key.namespace.as_str()), ("vmi", key.name.as_str())]);
        for ((kind, instance), count) in &open.counts {
            to.add(kind.metric(), &labels(instance), f64::from(*count));
        }
        let mut last: Vec<_> = open.last.iter().collect();
        last.sort();
        for (instance, at) in last {
            to.add(&catalogue::LAST_API_CONNECTION, &labels(instance), seconds(&Time(*at)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        let Some(count) = open.counts.get_mut(&self.of) else { return };
        *count -= 1;
        if *count == 0 {
            open.counts.remove(&self.of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(streams: &Streams) -> String {
        let mut to = Exposition::default();
        streams.add(&mut to);
        to.text()
    }

    #[test]
    fn a_stream_counts_while_it_is_open_and_is_remembered() {
        let streams = Streams::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        let first = streams.open_at(Kind::Vnc, ObjectKey::new("ns", "vm"), at(60));
        let second = streams.open_at(Kind::Vnc, ObjectKey::new("ns", "vm"), at(61));
        let open = "kubevirt_vnc_active_connections{namespace=\"ns\",vmi=\"vm\"}";
        assert!(text(&streams).contains(&format!("{open} 2\n")));
        drop(second);
        assert!(text(&streams).contains(&format!("{open} 1\n")));
        drop(first);
        let text = text(&streams);
        let last = "kubevirt_vmi_last_api_connection_timestamp_seconds{namespace=\"ns\",vmi=\"vm\"} 61\n";
        assert!(!text.contains(open) && text.contains(last), "{text}");
    }

    #[test]
    fn of_many_machines_the_newest_are_remembered() {
        let streams = Streams::default();
        for second in 0..=REMEMBERED {
            let at = Timestamp::from_second(i64::try_from(second).unwrap()).unwrap();
            drop(streams.open_at(Kind::Console, ObjectKey::new("ns", &format!("vm-{second}")), at));
        }
        let open = streams.lock();
        assert_eq!(open.last.len(), REMEMBERED);
        assert!(!open.last.contains_key(&ObjectKey::new("ns", "vm-0")));
    }
}
