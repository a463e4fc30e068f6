//! Requests that have a number: whether one was there before, and what became of it. Pure.
//!
//! A request is written down before it is done, and stays for twice as long as its client may send it again. Where all that are
//! written down are younger, one more is refused: forgetting one could have it done twice.

use garboard_protocol::control::ControlReply;
use garboard_protocol::journal::{NumberedRequest, RequestOutcome};
use garboard_protocol::number::{REMEMBERED, REPEATED_WITHIN_SECONDS};
use garboard_protocol::text::printable;

/// How long a request is remembered, milliseconds.
const REMEMBERED_MS: i64 = REPEATED_WITHIN_SECONDS as i64 * 2000;
/// The longest reason that is remembered, characters.
const LONGEST_REASON: usize = 400;
/// The answer where nobody knows what became of it.
pub(crate) const INTERRUPTED: &str = "the supervisor of this machine was replaced while it carried this request out, and whether it was done \
     is not known; look at the machine, then ask again";
/// The answers to a number that cannot be used.
pub(crate) const ANOTHER_REQUEST: &str = "this number was used for another request; a new request needs a new number";
pub(crate) const TOO_MANY: &str = "this machine was changed too often within a minute; try again later";

/// What a number comes to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Begun {
    /// It is new and is written down as accepted.
    New,
    /// It is being done.
    UnderWay,
    /// It was done before, with this answer, or cannot be done.
    Answered(ControlReply),
}

/// A request with a number has come.
pub(crate) fn begin(requests: &mut Vec<NumberedRequest>, id: &str, ask: &str, now_ms: i64) -> Begun {
    let denied = |reason: &str| Begun::Answered(ControlReply::Denied { reason: reason.to_owned() });
    if let Some(before) = requests.iter().find(|before| before.id == id) {
        if before.ask != ask {
            return denied(ANOTHER_REQUEST);
        }
        return match before.outcome {
            RequestOutcome::Accepted => Begun::UnderWay,
            RequestOutcome::Queued => Begun::Answered(ControlReply::Queued),
            RequestOutcome::AlreadySo => Begun::Answered(ControlReply::AlreadySo),
            RequestOutcome::Done => Begun::Answered(ControlReply::Done),
            RequestOutcome::Denied => denied(&before.reason),
            RequestOutcome::Unknown => denied(INTERRUPTED),
        };
    }
    if requests.len() >= REMEMBERED {
        // The clock of another boot may be behind.
        let is_old = |before: &NumberedRequest| !(0..REMEMBERED_MS).contains(&now_ms.saturating_sub(before.at_ms));
        let Some(oldest) = requests.iter().position(is_old) else { return denied(TOO_MANY) };
        requests.remove(oldest);
    }
    requests.push(NumberedRequest {
        id: id.to_owned(),
        ask: ask.to_owned(),
        at_ms: now_ms,
        outcome: RequestOutcome::Accepted,
        reason: String::new(),
    });
    Begun::New
}

/// What became of one. An outcome that was written down stays.
pub(crate) fn settle(requests: &mut [NumberedRequest], id: &str, outcome: RequestOutcome, reason: &str) {
    let open = |request: &&mut NumberedRequest| request.id == id && request.outcome == RequestOutcome::Accepted;
    if let Some(request) = requests.iter_mut().find(open) {
        request.outcome = outcome;
        request.reason = printable(reason, LONGEST_REASON);
    }
}

/// What an earlier supervisor was doing: nobody knows how far it came.
pub(crate) fn interrupt(requests: &mut [NumberedRequest]) {
    for request in requests.iter_mut().filter(|request| request.outcome == RequestOutcome::Accepted) {
        request.outcome = RequestOutcome::Unknown;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn denied(reason: &str) -> Begun {
        Begun::Answered(ControlReply::Denied { reason: reason.to_owned() })
    }

    #[test]
    fn a_repeated_number_is_answered_with_what_became_of_it() {
        let table = [
            (RequestOutcome::Accepted, Begun::UnderWay),
            (RequestOutcome::Queued, Begun::Answered(ControlReply::Queued)),
            (RequestOutcome::AlreadySo, Begun::Answered(ControlReply::AlreadySo)),
            (RequestOutcome::Done, Begun::Answered(ControlReply::Done)),
            (RequestOutcome::Denied, denied("no")),
            (RequestOutcome::Unknown, denied(INTERRUPTED)),
        ];
        for (outcome, expected) in table {
            let mut requests = Vec::new();
            assert_eq!(begin(&mut requests, "a", "reset", 0), Begun::New);
            settle(&mut requests, "a", outcome, "no");
            assert_eq!(begin(&mut requests, "a", "reset", 1), expected);
            assert_eq!(begin(&mut requests, "a", "pause", 1), denied(ANOTHER_REQUEST));
            assert_eq!(requests.len(), 1);
        }
    }

    #[test]
    fn what_an_earlier_supervisor_was_doing_is_not_known_and_what_it_did_is() {
        let mut requests = Vec::new();
        for id in ["open", "done"] {
            begin(&mut requests, id, "reset", 0);
        }
        settle(&mut requests, "done", RequestOutcome::Queued, "");
        interrupt(&mut requests);
        assert_eq!(begin(&mut requests, "open", "reset", 1), denied(INTERRUPTED));
        assert_eq!(begin(&mut requests, "done", "reset", 1), Begun::Answered(ControlReply::Queued));
    }

    #[test]
    fn none_is_forgotten_that_may_come_again_and_the_list_is_bounded() {
        let mut requests = Vec::new();
        for number in 0..REMEMBERED {
            assert_eq!(begin(&mut requests, &number.to_string(), "pause", 0), Begun::New);
        }
        assert_eq!(begin(&mut requests, "one more", "pause", REMEMBERED_MS - 1), denied(TOO_MANY));
        assert_eq!(begin(&mut requests, "0", "pause", REMEMBERED_MS - 1), Begun::UnderWay);
        assert_eq!(begin(&mut requests, "one more", "pause", REMEMBERED_MS), Begun::New);
        assert_eq!(requests.len(), REMEMBERED);
        // The clock of a boot before this one was further.
        assert_eq!(begin(&mut requests, "after a boot", "pause", -1), Begun::New);
    }

    proptest! {
        /// Clients that send again as long as they may, in any order: each number is new once.
        #[test]
        fn a_number_is_new_once(steps in prop::collection::vec((0_usize..400, 0_i64..2_000), 1..800)) {
            let (mut requests, mut first, mut now) = (Vec::new(), HashMap::new(), 0_i64);
            for (client, pause) in steps {
                now += pause;
                let may_repeat = |at: &i64| now - at <= i64::try_from(REPEATED_WITHIN_SECONDS).unwrap() * 1000;
                if first.get(&client).is_some_and(|at| !may_repeat(at)) {
                    continue;
                }
                if begin(&mut requests, &client.to_string(), "reset", now) == Begun::New {
                    prop_assert!(first.insert(client, now).is_none(), "{client} would be done twice");
                }
                prop_assert!(requests.len() <= REMEMBERED);
            }
        }
    }
}
