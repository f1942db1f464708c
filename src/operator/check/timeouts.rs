//! Pacemaker's timeouts against the agent's: whose ends first.

use std::time::Duration;

use super::cib::Cib;
use super::device::Device;
use super::report::Report;
use crate::clock::span;

/// Pacemaker's, where nothing is configured.
const DEFAULT: Duration = Duration::from_mins(1);

/// What the agent needs to withdraw its request and say why, on a machine in trouble.
const MARGIN: Duration = Duration::from_secs(2);

/// Pacemaker's tries, where nothing is configured.
const RETRIES: u32 = 2;

/// A failed run is only tried again before this part of the timeout has passed, in percent.
const RETRY_BEFORE: u32 = 70;

/// Looks at each action that the device is asked for.
pub fn look(report: &mut Report, device: &Device, cib: &Cib) {
    let is_on_asked = device.settings.request_on;
    let actions = ["reboot", "off", "on"].into_iter();
    for action in actions.filter(|action| *action != "on" || is_on_asked) {
        if let Some(timeout) = timeout(report, device, cib, action) {
            judge(report, device, action, timeout);
            retries(report, device, action, timeout);
        }
    }
}

/// Pacemaker's timeout for the action; none if it can't be read.
fn timeout(report: &mut Report, device: &Device, cib: &Cib, action: &str) -> Option<Duration> {
    let name = format!("pcmk_{action}_timeout");
    let own = device.parameter(&name);
    let (name, text) = match (own, cib.properties.get("stonith-timeout")) {
        (Some(text), _) => (name.as_str(), text),
        (None, Some(text)) => ("stonith-timeout", text.as_str()),
        (None, None) => return Some(DEFAULT),
    };
    let time = time(text);
    if time.is_none() {
        let message = format!("{name} = \"{text}\" is no time");
        let remedy = format!("pcs stonith update {} pcmk_{action}_timeout=60s", device.id);
        report.fail("timeout-unreadable", &device.subject(), &message, &remedy);
    }
    time
}

fn judge(report: &mut Report, device: &Device, action: &str, timeout: Duration) {
    let (wait, delay) = (device.settings.response_timeout, device.settings.delay);
    let (id, subject) = (&device.id, device.subject());
    let needed = (wait + delay + MARGIN * 2).as_secs();
    let remedy = format!("pcs stonith update {id} pcmk_{action}_timeout={needed}s");
    let told = format!(
        "{action}: the agent waits {} of Pacemaker's {}",
        span(wait),
        span(timeout)
    );
    if wait >= timeout {
        let message = format!(
            "{told}: Pacemaker kills it first, the request stays, and no other peer is tried"
        );
        report.fail("timeout-too-short", &subject, &message, &remedy);
    } else if !delay.is_zero() && wait + delay + MARGIN > timeout {
        let message = format!("{told}, but delay ({}) is not counted in that", span(delay));
        report.warn("delay-not-counted", &subject, &message, &remedy);
    } else if wait + MARGIN > timeout {
        let message = format!(
            "{told}: a margin of {} is too small",
            span(timeout.saturating_sub(wait))
        );
        report.warn("timeout-margin", &subject, &message, &remedy);
    } else {
        let message = format!(
            "{told}: margin {}",
            span(timeout.saturating_sub(wait + delay))
        );
        report.ok("timeout", &subject, &message);
    }
}

/// A second try gets only what is left of the timeout.
fn retries(report: &mut Report, device: &Device, action: &str, timeout: Duration) {
    let needed = device.settings.response_timeout + device.settings.delay;
    let is_tried_again = device.retries(action) > 1 && needed < timeout * RETRY_BEFORE / 100;
    let left = timeout.saturating_sub(needed + Duration::from_secs(1));
    if is_tried_again && left < needed {
        let message = format!(
            "{action}: after an attempt that timed out Pacemaker tries again with the {} that are left, and kills that one",
            span(left)
        );
        let remedy = format!("pcs stonith update {} pcmk_{action}_retries=1", device.id);
        report.warn("retry-does-not-fit", &device.subject(), &message, &remedy);
    }
}

impl Device {
    /// How often Pacemaker tries the action.
    pub fn retries(&self, action: &str) -> u32 {
        let given = self.parameter(&format!("pcmk_{action}_retries"));
        given
            .and_then(|given| given.parse().ok())
            .unwrap_or(RETRIES)
    }
}

/// A time as Pacemaker takes it: a number of seconds, one with a unit, or ISO 8601.
fn time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        let time: jiff::SignedDuration = text.parse().ok()?;
        return Duration::try_from(time).ok();
    }
    let number: u64 = text[..digits].parse().ok()?;
    let microseconds = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "us" | "usec" => 1,
        "ms" | "msec" => 1000,
        "" | "s" | "sec" => 1_000_000,
        "m" | "min" => 60_000_000,
        "h" | "hr" => 3_600_000_000,
        _ => return None,
    };
    Some(Duration::from_micros(number.checked_mul(microseconds)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_pacemaker_reads_them() {
        for (text, seconds) in [
            ("60", 60),
            ("60s", 60),
            (" 2 min", 120),
            ("1h", 3600),
            ("500ms", 0),
            ("PT1M", 60),
        ] {
            assert_eq!(
                time(text).map(|time| time.as_secs()),
                Some(seconds),
                "{text}"
            );
        }
        for text in ["", "soon", "-5s", "5 parsecs"] {
            assert_eq!(time(text), None, "{text}");
        }
    }
}
