//! What the guest was given, and when it is given again: each thing of each user by itself, so that one that fails has no other set
//! again. What fails is tried again after a pause that doubles; what the agent has no command for, by another agent.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::give::{Failure, Why, message};
use super::wanted::{GiftName, Wanted};

/// After this time the guest is given everything again; KubeVirt's. Also the longest pause after a failure.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(300);
/// The pause after a first failure.
const FIRST_PAUSE: Duration = super::LOOK;
/// How much of a pause may be left: a look is not on time to the millisecond.
const NEARLY: Duration = Duration::from_secs(5);

/// By what a guest that may have lost what it was given is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GuestSeen {
    /// The agents that have answered so far.
    pub(super) agents: u64,
    /// How often it was reset.
    pub(super) resets: u32,
}

/// Whether the guest is to be given something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// It has it.
    Not,
    /// It had it, and may have lost it.
    MayBeLost,
    /// It does not have it, and is asked later.
    Later,
    /// It does not have it, or had it long ago.
    Wanted,
}

impl Due {
    /// Whether an agent that answers is asked.
    pub(super) fn is_now(self) -> bool {
        matches!(self, Self::MayBeLost | Self::Wanted)
    }

    /// Whether the guest is known not to have it.
    pub(super) fn is_missing(self) -> bool {
        matches!(self, Self::Later | Self::Wanted)
    }
}

/// What is given, and to which guest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    /// Of what is given: a password itself is not kept.
    pub(super) digest: u64,
    /// The guest, as far as can be seen.
    pub(super) guest: GuestSeen,
}

/// The last attempt to give something.
#[derive(Debug)]
struct Attempt {
    given: Given,
    /// When it was over.
    at: Instant,
    /// Why the guest does not have it.
    failed: Option<Failed>,
}

#[derive(Debug)]
struct Failed {
    failure: Failure,
    pause: Duration,
}

impl Attempt {
    /// Whether this guest is another one than the one that failed. Silence itself makes another agent of the same: that is none.
    fn is_anothers(&self, why: Why, guest: GuestSeen) -> bool {
        match why {
            Why::Refused | Why::Unsupported => self.given.guest != guest,
            Why::Silent => self.given.guest.resets != guest.resets,
        }
    }

    fn due(&self, now: Given, at: Instant) -> Due {
        let since = at.duration_since(self.at);
        match &self.failed {
            _ if self.given.digest != now.digest => Due::Wanted,
            None if since >= AGAIN_AFTER => Due::Wanted,
            None if self.given.guest != now.guest => Due::MayBeLost,
            None => Due::Not,
            Some(Failed { failure, .. }) if self.is_anothers(failure.why, now.guest) => Due::Wanted,
            Some(Failed { failure, .. }) if failure.why == Why::Unsupported => Due::Later,
            Some(Failed { pause, .. }) if since + NEARLY >= *pause => Due::Wanted,
            Some(_) => Due::Later,
        }
    }

    /// The pause after the next failure.
    fn next_pause(&self, now: Given) -> Duration {
        match &self.failed {
            Some(Failed { failure, pause })
                if self.given.digest == now.digest && !self.is_anothers(failure.why, now.guest) =>
            {
                (*pause * 2).min(AGAIN_AFTER)
            }
            Some(_) | None => FIRST_PAUSE,
        }
    }
}

/// The last attempts, by what was to be given.
#[derive(Debug, Default)]
pub(super) struct Tried(BTreeMap<GiftName, Attempt>);

impl Tried {
    /// Forgets what is not wanted any more.
    pub(super) fn keep_only(&mut self, wanted: &Wanted) {
        self.0.retain(|name, _| match name {
            GiftName::Keys(user) => wanted.keys.contains_key(user),
            GiftName::Password(user) => wanted.passwords.contains_key(user),
        });
    }

    /// Whether it is to be given now.
    pub(super) fn due(&self, name: &GiftName, now: Given, at: Instant) -> Due {
        self.0.get(name).map_or(Due::Wanted, |attempt| attempt.due(now, at))
    }

    /// It was tried.
    pub(super) fn note(&mut self, name: GiftName, now: Given, outcome: Result<(), Failure>) {
        let pause = self.0.get(&name).map_or(FIRST_PAUSE, |before| before.next_pause(now));
        let failed = outcome.err().map(|failure| Failed { failure, pause });
        self.0.insert(name, Attempt { given: now, at: Instant::now(), failed });
    }

    /// Whether the guest has everything, and otherwise what failed for whom, for a person.
    pub(super) fn outcome(&self) -> Result<(), String> {
        let failed = self.0.values().filter_map(|attempt| attempt.failed.as_ref());
        let messages: Vec<&str> = failed.map(|failed| failed.failure.message.as_str()).collect();
        if messages.is_empty() { Ok(()) } else { Err(message(&messages)) }
    }
}
