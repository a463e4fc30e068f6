//! Commands that take several machines: each is done by itself, at once, and one that fails stops no other.

use crate::exit::{self, code_of};
use crate::output::{harmless, note};

/// Does something with each; the code is the first one, in the order of the command line, that is not good.
pub fn each<T: Sync>(all: &[T], what: impl Fn(&T) -> anyhow::Result<()> + Sync) -> anyhow::Result<u8> {
    // Alone it fails as every other command does.
    if let [one] = all {
        return what(one).map(|()| exit::OK);
    }
    let what = &what;
    let codes: Vec<u8> = std::thread::scope(|scope| {
        let running: Vec<_> = all.iter().map(|one| scope.spawn(move || report(what(one)))).collect();
        running.into_iter().map(|one| one.join().unwrap_or(exit::FAILED)).collect()
    });
    Ok(codes.into_iter().find(|code| *code != exit::OK).unwrap_or(exit::OK))
}

fn report(outcome: anyhow::Result<()>) -> u8 {
    match outcome {
        Ok(()) => exit::OK,
        Err(error) => {
            note!("garboard: {}", harmless(format!("{error:#}").as_bytes()));
            code_of(&error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::{NOT_FOUND, REFUSED, exit_error};

    #[test]
    fn one_that_fails_stops_no_other_and_the_first_code_counts() {
        let seen = std::sync::Mutex::new(Vec::new());
        let code = each(&[1_u8, 2, 3, 4], |one| {
            seen.lock().unwrap().push(*one);
            match one {
                2 => Err(exit_error(REFUSED, "no")),
                3 => Err(exit_error(NOT_FOUND, "none")),
                _ => Ok(()),
            }
        });
        assert_eq!(code.unwrap(), REFUSED);
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, [1, 2, 3, 4]);
        assert_eq!(each(&[1, 2], |_: &i32| Ok(())).unwrap(), exit::OK);
        assert!(each(&[1], |_: &i32| Err(exit_error(REFUSED, "no"))).is_err());
    }
}
