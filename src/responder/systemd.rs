//! What systemd is told, where it listens (sd_notify(3)).

use std::sync::OnceLock;
use std::time::Duration;

use sd_notify::NotifyState;

fn tell(states: &[NotifyState<'_>]) {
    // without systemd nobody listens
    let _ = sd_notify::notify(states);
}

/// The responder serves.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// It reads its configuration anew.
pub fn reloading() {
    tell(&[NotifyState::Reloading]);
}

/// It ends.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// It isn't stuck. Said at every look, if systemd wants to know.
pub fn alive() {
    if watchdog().is_some() {
        tell(&[NotifyState::Watchdog]);
    }
}

/// `interval`, or less if the watchdog wants to hear sooner.
#[must_use]
pub fn at_least_every(interval: Duration) -> Duration {
    watchdog().map_or(interval, |limit| interval.min(limit / 3))
}

fn watchdog() -> Option<Duration> {
    static WATCHDOG: OnceLock<Option<Duration>> = OnceLock::new();
    *WATCHDOG.get_or_init(sd_notify::watchdog_enabled)
}
