//! Places for connections, of which there are so many.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// All of them.
#[derive(Debug)]
pub(super) struct Places {
    taken: AtomicUsize,
    most: usize,
}

/// One, for as long as this lives.
#[derive(Debug)]
pub(super) struct Place(Arc<Places>);

impl Places {
    /// So many.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { taken: AtomicUsize::new(0), most })
    }

    /// One of them; nothing if all are taken.
    pub(super) fn take(self: &Arc<Self>) -> Option<Place> {
        let place = Place(Arc::clone(self));
        let before = self.taken.fetch_add(1, Ordering::SeqCst);
        // One too many is given back here.
        (before < self.most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_after_its_connection() {
        let places = Places::new(2);
        let (first, _second) = (places.take().unwrap(), places.take().unwrap());
        assert!(places.take().is_none() && places.take().is_none());
        drop(first);
        assert!(places.take().is_some());
    }
}
