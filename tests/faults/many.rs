//! Runs many cases on all cores, and tells of each that breaks a promise.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::env::TestEnv;

/// Whether everything is tried, not a sample.
#[must_use]
pub fn all() -> bool {
    std::env::var_os("FAULTS").is_some_and(|value| value == "all")
}

/// What a case came to, if it broke no promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// The fault happened.
    True,
    /// That run had no such call: how often some are made depends on the moment.
    Otherwise,
}

/// Tries each case; fails with all that broke a promise, or if the faults of more than one in ten
/// didn't happen. Runs mostly wait, so that more of them than cores go at once.
pub fn try_each<T: Sync + std::fmt::Debug>(
    what: &str,
    cases: &[T],
    test: impl Fn(&T) -> Result<Came, String> + Sync,
) {
    const AT_ONCE: usize = 8;
    let (next, otherwise) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let broken = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let tried = catch_unwind(AssertUnwindSafe(|| test(case)));
                    match tried.unwrap_or_else(|_| Err("see the panic above".to_owned())) {
                        Ok(Came::True) => {}
                        Ok(Came::Otherwise) => _ = otherwise.fetch_add(1, Ordering::Relaxed),
                        Err(why) => broken.lock().unwrap().push(format!("{case:?}: {why}")),
                    }
                }
            });
        }
    });
    let (broken, otherwise) = (broken.into_inner().unwrap(), otherwise.into_inner());
    let (tried, count) = (cases.len() - otherwise, broken.len());
    println!("{what}: {tried} tried, {count} promises broken, {otherwise} did not happen");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(otherwise * 10 < cases.len(), "{otherwise} did not happen");
}

/// Whether strace tells of the fault.
pub fn came(env: &TestEnv, mark: &str) -> Came {
    let trace = fs::read_to_string(env.path("trace")).unwrap_or_default();
    if trace.contains(mark) {
        Came::True
    } else {
        Came::Otherwise
    }
}
