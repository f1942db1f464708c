//! The responder's log: lines on standard error, which systemd puts into the journal.

use tracing_subscriber::fmt;

/// Lines from now on, as JSON if wanted. The journal has the time of each line itself.
pub fn start(is_json: bool) {
    let lines = fmt::fmt()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false);
    let is_journal = std::env::var_os("JOURNAL_STREAM").is_some();
    // a second start in one process would fail, and nothing depends on it
    let _ = match (is_json, is_journal) {
        (true, _) => lines.json().flatten_event(true).try_init(),
        (false, true) => lines.without_time().try_init(),
        (false, false) => lines.try_init(),
    };
}
