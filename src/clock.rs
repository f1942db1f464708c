//! This host's clock as people read it: local time, and spans of time in a few characters.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// The zone of this host's clock. Without TZ it is read from where it lies: to find its name, as
/// the library would, takes a walk through the whole database in every fence.
#[must_use]
pub fn local_zone() -> TimeZone {
    if std::env::var_os("TZ").is_some_and(|zone| !zone.is_empty()) {
        return TimeZone::system();
    }
    let zone = std::fs::read("/etc/localtime").ok();
    zone.and_then(|zone| TimeZone::tzif("Local", &zone).ok())
        .unwrap_or(TimeZone::UTC)
}

/// A time in the form of the logs: `2026-01-14 13:45:10`.
#[must_use]
pub fn local(time: Timestamp, zone: &TimeZone) -> String {
    time.to_zoned_datetime(zone.clone())
        .strftime("%Y-%m-%d %H:%M:%S")
        .to_string()
}

/// A time in as few characters as a column of a table wants: `Jan 14 13:45:10`, and after half a year
/// `Jan 14  2026`, as ls has it.
#[must_use]
pub fn brief(time: Timestamp, now: Timestamp, zone: &TimeZone) -> String {
    const HALF_A_YEAR: SignedDuration = SignedDuration::from_hours(24 * 182);
    let is_near = now.duration_since(time).abs() < HALF_A_YEAR;
    let format = if is_near {
        "%b %d %H:%M:%S"
    } else {
        "%b %d  %Y"
    };
    time.to_zoned_datetime(zone.clone())
        .strftime(format)
        .to_string()
}

/// A span of time: its two largest units, `0.8s`, `12s`, `4m05s`, `3h12m`, `2d04h`.
#[must_use]
pub fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        0..10 => format!(
            "{:.1}s",
            f64::from(u32::try_from(time.as_millis() / 100).unwrap_or(0)) / 10.0
        ),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{:02}s", seconds % 60),
        3600..86400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

/// How long ago `time` was by the wall clock; nothing if it is still to come.
#[must_use]
pub fn since(time: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(time)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_show_their_two_largest_units() {
        for (milliseconds, text) in [
            (0, "0.0s"),
            (9_999, "9.9s"),
            (10_000, "10s"),
            (245_000, "4m05s"),
            (11_520_000, "3h12m"),
            (187_200_000, "2d04h"),
        ] {
            assert_eq!(span(Duration::from_millis(milliseconds)), text);
        }
    }
}
