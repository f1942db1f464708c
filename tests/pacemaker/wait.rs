//! Waiting for a condition, watching it, with a bound.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// More than any single step takes on a busy machine; only a failure ever waits that long.
pub const LONG: Duration = Duration::from_secs(90);

const PAUSE: Duration = Duration::from_millis(30);

/// Looks until there is something to see and returns it; panics, naming `what`, after `LONG`.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < LONG, "waited {LONG:?} in vain: {what}");
        sleep(PAUSE);
    }
}

/// Waits until the condition holds.
pub fn until_true(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, || holds().then_some(()));
}
