//! Agents that dial, by arithmetic: a model in steps of a tenth of a second.

use std::collections::BTreeMap;

use super::*;

const STEP_MS: u128 = 100;

/// A controller that comes back, and its agents.
struct Model {
    agents: usize,
    /// What it can accept in a step; the others are refused.
    capacity: usize,
    spread: Duration,
}

/// What came of it.
struct Outcome {
    /// The most attempts in any second.
    most_in_a_second: usize,
    /// When the last agent was connected.
    all_connected: Duration,
    attempts: usize,
}

impl Model {
    fn run(&self, seed: u64) -> Outcome {
        let mut chances: Vec<Chance> = Chance::seeded(seed).take(self.agents).map(Chance::seeded).collect();
        let mut due: BTreeMap<u128, Vec<(usize, u32)>> = BTreeMap::new();
        for (agent, chance) in chances.iter_mut().enumerate() {
            let at = pause(self.spread, 0, chance.next().unwrap()).as_millis() / STEP_MS;
            due.entry(at).or_default().push((agent, 0));
        }
        let (mut arrivals, mut last, mut attempts) = (BTreeMap::<u128, usize>::new(), 0, 0);
        while let Some((step, dialling)) = due.pop_first() {
            assert!(step * STEP_MS < 600_000, "not all are connected after ten minutes");
            *arrivals.entry(step).or_default() += dialling.len();
            attempts += dialling.len();
            for (place, (agent, failures)) in dialling.into_iter().enumerate() {
                if place < self.capacity {
                    last = step;
                    continue;
                }
                let wait = pause(self.spread, failures + 1, chances[agent].next().unwrap());
                let at = step + (wait.as_millis() / STEP_MS).max(1);
                due.entry(at).or_default().push((agent, failures + 1));
            }
        }
        let in_a_second =
            |from: u128| arrivals.range(from..from + 1000 / STEP_MS).map(|(_, count)| count).sum::<usize>();
        let most_in_a_second = arrivals.keys().map(|from| in_a_second(*from)).max().unwrap_or_default();
        let all_connected = Duration::from_millis(u64::try_from(last * STEP_MS).unwrap());
        Outcome { most_in_a_second, all_connected, attempts }
    }
}

#[test]
fn eight_thousand_agents_do_not_arrive_in_one_second() {
    let agents = 8000;
    let spread = spread(agents);
    assert_eq!(spread, Duration::from_secs(32));
    for seed in 0..32 {
        // As many as are expected, and a little for those that chance has together.
        let outcome = Model { agents, capacity: 40, spread }.run(seed);
        let most = ARRIVALS_PER_SECOND as usize * 3 / 2;
        assert!(outcome.most_in_a_second <= most, "seed {seed}: {} in a second", outcome.most_in_a_second);
        assert!(outcome.all_connected <= spread * 2, "seed {seed}: {:?}", outcome.all_connected);
        assert!(outcome.attempts < agents * 2, "seed {seed}: {} attempts", outcome.attempts);
    }
}

#[test]
fn a_controller_that_is_slower_than_its_agents_gets_all_of_them_all_the_same() {
    for seed in 0..8 {
        // A third of what arrives.
        let outcome = Model { agents: 8000, capacity: 8, spread: spread(8000) }.run(seed);
        // It could have had them after 100 s.
        assert!(outcome.all_connected <= Duration::from_secs(200), "seed {seed}: {:?}", outcome.all_connected);
        assert!(outcome.most_in_a_second <= 1200, "seed {seed}: {}", outcome.most_in_a_second);
    }
}

#[test]
fn without_the_spread_the_model_shows_the_herd() {
    let outcome = Model { agents: 8000, capacity: 40, spread: LEAST_SPREAD }.run(1);
    assert!(outcome.most_in_a_second > 4000, "{}", outcome.most_in_a_second);
}

#[test]
fn a_small_cluster_is_connected_again_before_requests_are_given_up() {
    // `TRY_FOR` of the controller is 8 s.
    let outcome = Model { agents: 100, capacity: 40, spread: spread(100) }.run(7);
    assert!(outcome.all_connected <= Duration::from_secs(2), "{:?}", outcome.all_connected);
}

#[test]
fn a_spread_of_a_header_is_bounded() {
    for (header, expected) in [
        (None, LEAST_SPREAD),
        (Some(""), LEAST_SPREAD),
        (Some("-1"), LEAST_SPREAD),
        (Some("0"), LEAST_SPREAD),
        (Some("32000"), Duration::from_secs(32)),
        (Some("18446744073709551615"), MOST_SPREAD),
        (Some("99999999999999999999999"), LEAST_SPREAD),
    ] {
        assert_eq!(spread_of_header(header), expected, "{header:?}");
    }
    assert_eq!((spread(0), spread(usize::MAX)), (LEAST_SPREAD, MOST_SPREAD));
}

#[test]
fn a_pause_is_within_its_bounds_whatever_chance_says() {
    for spread in [LEAST_SPREAD, MOST_SPREAD] {
        for failures in [0, 1, 2, 5, 31, 32, u32::MAX] {
            let (least, most) = (pause(spread, failures, 0), pause(spread, failures, u64::MAX));
            assert!(least <= most && most <= spread.max(LONGEST_PAUSE), "{failures}: {least:?} to {most:?}");
            assert!(failures == 0 || least >= FIRST_PAUSE, "{failures}: {least:?}");
        }
    }
}
