//! Who answers: our responder, somebody else who watches, or nobody.

use super::report::Report;
use super::{Place, shown};
use crate::responder::config::{Config, DEFAULT_PATH};
use crate::spool::Spool;
use crate::spool::calls::DirectoryCalls;
use crate::spool::lock::{LOCK, Lock};
use crate::spool::presence::{Responder, Watcher, watchers};

/// Who answers on this spool, as far as can be seen.
#[derive(Debug, Default)]
pub struct Found {
    /// What our responder does, if it serves this spool and its configuration can be read.
    pub config: Option<Config>,
    /// Processes of others that watch request_dir.
    pub others: Vec<Watcher>,
}

/// Looks for whoever answers.
pub fn look(report: &mut Report, spool: &Spool, place: &Place) -> Found {
    let is_served = Lock::is_held(&spool.requests, LOCK);
    let ours = Responder::read(&spool.requests).filter(|_| is_served);
    let is_other = |watcher: &Watcher| ours.as_ref().is_none_or(|ours| ours.pid != watcher.pid);
    let others: Vec<_> = watchers(&spool.requests).filter(is_other).collect();
    presence(report, spool, is_served, ours.as_ref(), &others);
    let config = config(report, place, is_served);
    Found { config, others }
}

fn presence(
    report: &mut Report,
    spool: &Spool,
    is_served: bool,
    ours: Option<&Responder>,
    others: &[Watcher],
) {
    const NAME: &str = "responder";
    let subject = shown(spool.requests.path());
    let names: Vec<_> = others
        .iter()
        .map(|other| format!("{} ({})", other.name, other.pid))
        .collect();
    let names = names.join(", ");
    match (is_served, ours, others) {
        (true, _, [_, ..]) => report.warn(
            "two-responders",
            &subject,
            &format!("served by this project's responder and watched by {names}, which doesn't honour its claims: a node may be fenced twice"),
            &format!("kill {}    # or: systemctl disable --now fence_recorder-responder", others[0].pid),
        ),
        (true, Some(ours), []) if ours.version != env!("CARGO_PKG_VERSION") => report.warn(
            "responder-version",
            &subject,
            &format!("the responder {} is version {}, this is {}", ours.pid, ours.version, env!("CARGO_PKG_VERSION")),
            "systemctl restart fence_recorder-responder",
        ),
        (true, Some(ours), []) => {
            let message = format!("served by the responder {} since {}", ours.pid, ours.started);
            report.ok(NAME, &subject, &message);
        }
        (true, None, []) => report.ok(NAME, &subject, "served by a responder"),
        (false, _, [_, ..]) => report.ok(NAME, &subject, &format!("watched by {names}")),
        (false, _, []) => report.warn(
            NAME,
            &subject,
            "nobody watches it: unless a responder that only polls is there, every fence will time out",
            "systemctl enable --now fence_recorder-responder",
        ),
    }
}

/// The configuration of our responder, where it serves this spool or is going to.
fn config(report: &mut Report, place: &Place, is_served: bool) -> Option<Config> {
    const NAME: &str = "responder-config";
    let path = shown(&place.config);
    let is_default = place.config.as_os_str() == DEFAULT_PATH;
    if is_default && !place.config.exists() {
        if is_served {
            let message = "not there: which rules the responder follows can't be checked";
            report.warn(NAME, &path, message, "fence_recorder check --config FILE");
        }
        return None;
    }
    match Config::load(&place.config) {
        Err(fault) => {
            let message = format!("the responder would not start with it: {fault}");
            let remedy = format!("fence_recorder responder --check-config --config {path}");
            report.fail(NAME, &path, &message, &remedy);
            None
        }
        Ok(config)
            if config.request_dir != place.request_dir
                || config.response_dir != place.response_dir =>
        {
            let (requests, responses) = (shown(&config.request_dir), shown(&config.response_dir));
            let message = format!("is for another spool: {requests} and {responses}");
            let remedy =
                format!("fence_recorder check --request-dir {requests} --response-dir {responses}");
            report.warn(NAME, &path, &message, &remedy);
            None
        }
        Ok(config) => {
            report.ok(NAME, &path, &format!("valid, {} rules", config.rules.len()));
            Some(config)
        }
    }
}
