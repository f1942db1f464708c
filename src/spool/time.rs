//! Wall-clock time as the spool's files carry it; waiting never uses it (design 3.3).

use jiff::Timestamp;
use nix::sys::stat::FileStat;

/// RFC 3339 in UTC with microseconds and the offset as `+00:00`: older readers (Python before 3.11)
/// take neither `Z` nor nanoseconds.
#[must_use]
pub fn timestamp_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6f+00:00").to_string()
}

/// When a file was last written.
#[must_use]
pub fn from_file_time(status: &FileStat) -> Timestamp {
    let nanoseconds = i32::try_from(status.st_mtime_nsec).unwrap_or(0);
    Timestamp::new(status.st_mtime, nanoseconds).unwrap_or(Timestamp::MIN)
}
