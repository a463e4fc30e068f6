//! Small changes of inputs, the same for the same seed.

use crate::Target;

/// A generator of numbers that need not be good, only repeatable (xorshift64*).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Seeded; zero is taken for one.
    pub fn new(seed: u64) -> Self {
        Self(seed.max(1))
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`; zero if that is zero.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        usize::try_from(self.roll().checked_rem(limit).unwrap_or(0)).unwrap_or(0)
    }
}

/// Longest input made, in bytes.
const INPUT_LIMIT: usize = 64 << 10;

/// One of the seeds with one to eight changes.
pub fn mutated(dice: &mut Dice, target: &Target, seeds: &[Vec<u8>]) -> Vec<u8> {
    let empty = Vec::new();
    let pick = |dice: &mut Dice| seeds.get(dice.below(seeds.len())).unwrap_or(&empty).clone();
    let mut input = pick(dice);
    for _ in 0..=dice.below(8) {
        let at = dice.below(input.len() + 1);
        let to = (at + dice.below(32)).min(input.len());
        match dice.below(8) {
            0 if at < input.len() => input[at] ^= 1 << dice.below(8),
            1 if at < input.len() => input[at] = dice.roll().to_le_bytes()[0],
            2 => insert(&mut input, at, &dice.roll().to_le_bytes()[..1 + dice.below(8)]),
            3 => drop(input.drain(at..to)),
            4 => {
                let piece = input[at..to].to_vec();
                insert(&mut input, at, &piece.repeat(1 + dice.below(40)));
            }
            5 => {
                let other = pick(dice);
                let from = dice.below(other.len() + 1);
                insert(&mut input, at, &other[from..]);
            }
            6 => input.truncate(at),
            _ => {
                let token = target.tokens.get(dice.below(target.tokens.len())).copied().unwrap_or_default();
                insert(&mut input, at, token.as_bytes());
            }
        }
        input.truncate(INPUT_LIMIT);
    }
    input
}

fn insert(input: &mut Vec<u8>, at: usize, piece: &[u8]) {
    input.splice(at..at, piece.iter().copied());
}
