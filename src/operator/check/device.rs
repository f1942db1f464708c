//! One stonith device that uses this agent: its parameters, and what they mean together.

use super::cib::StonithDevice;
use super::cluster::Cluster;
use super::report::Report;
use super::responder::Found;
use super::{Place, shown, timeouts};
use crate::agent::input::{Given, Resolved};
use crate::agent::parameters::Settings;
use crate::responder::config::{Config, Unmatched};
use crate::spool::request::Action;

/// One device.
#[derive(Debug)]
pub struct Device {
    /// Its id.
    pub id: String,
    /// The ids by which constraints know it.
    pub ids: Vec<String>,
    /// What the agent makes of its parameters.
    pub settings: Settings,
    /// Its targets by name, each with its plugs.
    pub targets: Vec<(String, Vec<String>)>,
    raw: StonithDevice,
}

impl Device {
    /// Takes the device as the agent would, and reports what it can't take.
    pub fn read(raw: &StonithDevice, report: &mut Report) -> Self {
        let resolved = resolve(raw);
        let device = Self {
            id: raw.id().to_owned(),
            ids: raw.ids.clone(),
            targets: targets(raw, &resolved.settings.plug_separator),
            settings: resolved.settings,
            raw: raw.clone(),
        };
        let subject = device.subject();
        let update = |rest: &str| format!("pcs stonith update {} {rest}", device.id);
        for fault in &resolved.faults {
            let remedy = update(&format!("{}=", fault.name));
            report.fail("parameter-invalid", &subject, &fault.to_string(), &remedy);
        }
        for warning in &resolved.warnings {
            let remedy = format!("pcs stonith config {}", device.id);
            report.warn("parameter-unknown", &subject, warning, &remedy);
        }
        if device.parameter("action").is_some() {
            let message = "action is never part of a device: Pacemaker says what is to be done";
            report.warn("action-configured", &subject, message, &update("action="));
        }
        if resolved.faults.is_empty() {
            report.ok("parameters", &subject, "valid");
        }
        device
    }

    /// How lines name it.
    pub fn subject(&self) -> String {
        format!("device {}", self.id)
    }

    /// One of Pacemaker's parameters of it.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let value = self.raw.parameters.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    /// Everything about it but its place.
    pub fn look(&self, report: &mut Report, cluster: &Cluster, responder: &Found, place: &Place) {
        self.spool(report, place);
        self.hosts(report, cluster);
        self.plugs(report);
        timeouts::look(report, self, &cluster.cib);
        self.monitor(report);
        self.at_once(report, cluster);
        self.unfencing(report, responder);
        if let Some(config) = &responder.config {
            self.rules(report, config);
            self.double_retries(report, config);
        }
    }

    fn update(&self, rest: &str) -> String {
        format!("pcs stonith update {} {rest}", self.id)
    }

    fn spool(&self, report: &mut Report, place: &Place) {
        let (requests, responses) = (&self.settings.request_dir, &self.settings.response_dir);
        if *requests != place.request_dir || *responses != place.response_dir {
            let (requests, responses) = (shown(requests), shown(responses));
            let message = format!(
                "uses another spool than the one that was looked at: {requests} and {responses}"
            );
            let remedy =
                format!("fence_recorder check --request-dir {requests} --response-dir {responses}");
            report.warn("another-spool", &self.subject(), &message, &remedy);
        }
        if self.settings.allow_insecure_dirs {
            let message = "allow_insecure_dirs=1: whoever can write to the spool can make a fence succeed that never happened";
            report.warn(
                "insecure-dirs",
                &self.subject(),
                message,
                &self.update("allow_insecure_dirs="),
            );
        }
    }

    fn hosts(&self, report: &mut Report, cluster: &Cluster) {
        if self.targets.is_empty() {
            let nodes = cluster.cib.nodes.join(" ");
            report.fail(
                "no-host-list",
                &self.subject(),
                "neither pcmk_host_list nor pcmk_host_map counts: Pacemaker asks the agent about each node, and that waits behind a running fence",
                &self.update(&format!("pcmk_host_check=static-list pcmk_host_list=\"{nodes}\"")),
            );
        }
        let unknown = self.targets.iter().filter(|(name, _)| !cluster.knows(name));
        let unknown: Vec<_> = unknown.map(|(name, _)| name.as_str()).collect();
        if !unknown.is_empty() {
            let message = format!(
                "its host list or map has names that no node of the cluster has: {}",
                unknown.join(", ")
            );
            report.warn(
                "unknown-host",
                &self.subject(),
                &message,
                &format!("crm_node --list; pcs stonith config {}", self.id),
            );
        }
    }

    /// A configured value keeps Pacemaker's from being passed.
    fn plugs(&self, report: &mut Report) {
        for name in ["plug", "port"] {
            if let (Some(plug), true) = (self.parameter(name), self.targets.len() > 1) {
                let count = self.targets.len();
                let message =
                    format!("{name}=\"{plug}\" is fenced whichever of its {count} nodes is meant");
                let remedy = self.update(&format!("{name}= pcmk_host_map=\"NODE:PLUG;NODE:PLUG\""));
                report.fail("static-plug", &self.subject(), &message, &remedy);
            }
        }
    }

    fn monitor(&self, report: &mut Report) {
        let is_recurring = |interval: &String| {
            !interval
                .trim_start_matches('0')
                .trim_matches(|c: char| c.is_alphabetic())
                .is_empty()
        };
        if !self.raw.monitors.iter().any(is_recurring) {
            report.warn(
                "no-monitor",
                &self.subject(),
                "no recurring monitor: a spool that is gone, or requests that killed agents left, are found when it is too late",
                &format!("pcs resource op add {} monitor interval=60s", self.id),
            );
        }
    }

    /// Several nodes can fail at once.
    fn at_once(&self, report: &mut Report, cluster: &Cluster) {
        if self.targets.len() < 2 {
            return;
        }
        let count = self.targets.len();
        if self
            .parameter("pcmk_action_limit")
            .is_none_or(|limit| limit == "1")
        {
            let message = format!(
                "fences its {count} nodes one after the other, and a monitor waits behind a fence"
            );
            report.warn(
                "action-limit",
                &self.subject(),
                &message,
                &self.update("pcmk_action_limit=-1"),
            );
        }
        if cluster.fences_one_by_one() {
            let message = format!(
                "concurrent-fencing is off: the cluster fences its {count} nodes one after the other"
            );
            report.warn(
                "concurrent-fencing",
                &self.subject(),
                &message,
                "pcs property set concurrent-fencing=true",
            );
        }
    }

    fn unfencing(&self, report: &mut Report, responder: &Found) {
        let provides = self.raw.meta.get("provides").map(String::as_str);
        if provides == Some("unfencing") && !self.settings.request_on {
            report.fail(
                "unfencing-without-request",
                &self.subject(),
                "meta provides=unfencing, but without request_on=1 on succeeds at once and nobody is asked to let the node back",
                &self.update("request_on=1"),
            );
        }
        let nnf = responder
            .others
            .iter()
            .find(|other| other.name.contains("nnf"));
        if let (Some(nnf), true) = (nnf, self.settings.request_on) {
            let message = format!(
                "request_on=1, but {} ({}) takes any request for a fence",
                nnf.name, nnf.pid
            );
            report.fail(
                "request-on-with-nnf",
                &self.subject(),
                &message,
                &self.update("request_on="),
            );
        }
    }

    /// The requests that the cluster can make through it: plug and action.
    fn requests(&self) -> impl Iterator<Item = (&str, Action)> {
        let reboot = match self.parameter("pcmk_reboot_action") {
            Some("off") => Action::Off,
            _ => Action::Reboot,
        };
        let is_on_asked = self.settings.request_on;
        self.targets.iter().flat_map(move |(_, plugs)| {
            let reboot = if plugs.len() > 1 { Action::Off } else { reboot };
            let actions = [
                Some(Action::Off),
                Some(reboot),
                is_on_asked.then_some(Action::On),
            ];
            let actions = actions.into_iter().flatten();
            plugs
                .iter()
                .map(String::as_str)
                .flat_map(move |plug| actions.clone().map(move |action| (plug, action)))
        })
    }

    fn rules(&self, report: &mut Report, config: &Config) {
        let mut unserved: Vec<_> = self
            .requests()
            .filter(|(plug, action)| config.rule_for(plug, *action).is_none())
            .map(|(plug, action)| format!("{} of {plug}", action.as_str()))
            .collect();
        unserved.sort();
        unserved.dedup();
        if unserved.is_empty() {
            return report.ok(
                "rules",
                &self.subject(),
                "the responder has a rule for each of its nodes and actions",
            );
        }
        let message = format!("the responder has no rule for {}", unserved.join(", "));
        let remedy = "fence_recorder responder --check-config    # then add a [[rule]], and systemctl reload fence_recorder-responder";
        match config.unmatched {
            Unmatched::Refuse => report.fail("no-rule", &self.subject(), &message, remedy),
            Unmatched::Ignore => {
                let message = format!("{message}: they are left to another responder");
                report.warn("no-rule", &self.subject(), &message, remedy);
            }
        }
    }

    /// The responder's own attempts fit the request's time; Pacemaker's would begin them anew.
    fn double_retries(&self, report: &mut Report, config: &Config) {
        let retries = |(plug, action): (&str, Action)| {
            let rule = config.rule_for(plug, action);
            rule.is_some_and(|rule| rule.tasks.iter().any(|task| task.retry_count > 1))
        };
        if !self.requests().any(retries) {
            return;
        }
        let twice: Vec<_> = ["reboot", "off"]
            .into_iter()
            .filter(|action| self.retries(action) != 1)
            .collect();
        if !twice.is_empty() {
            let settings: Vec<_> = twice
                .iter()
                .map(|action| format!("pcmk_{action}_retries=1"))
                .collect();
            let message = format!(
                "the responder tries its tasks again itself, and so does Pacemaker: {} isn't 1",
                settings.join(", ").replace("=1", "")
            );
            report.warn(
                "retries-twice",
                &self.subject(),
                &message,
                &self.update(&settings.join(" ")),
            );
        }
    }
}

/// What the agent would make of the parameters: the same lines as Pacemaker writes.
fn resolve(raw: &StonithDevice) -> Resolved {
    let is_ours = |name: &str| !name.starts_with("pcmk_") && name != "action";
    let lines = raw.parameters.iter().filter(|(name, _)| is_ours(name));
    let lines = lines.map(|(name, value)| format!("{name}={}", value.replace('\n', " ")));
    let lines = lines.collect::<Vec<_>>().join("\n");
    let given = Given::from_stdin(lines.as_bytes()).unwrap_or_default();
    given.resolve(|_| None)
}

/// Pacemaker's host list and map together; none where it looks for hosts in another way.
fn targets(raw: &StonithDevice, separator: &str) -> Vec<(String, Vec<String>)> {
    let text = |name: &str| {
        raw.parameters
            .get(name)
            .map(String::as_str)
            .unwrap_or_default()
    };
    let check = text("pcmk_host_check");
    if !check.is_empty() && !check.eq_ignore_ascii_case("static-list") {
        return Vec::new();
    }
    let names = text("pcmk_host_list").split([' ', ',', ';', '\t', '\n']);
    let mut targets: Vec<(String, Vec<String>)> = Vec::new();
    for name in names.filter(|name| !name.is_empty()) {
        targets.push((name.to_owned(), vec![name.to_owned()]));
    }
    for (name, plugs) in host_map(text("pcmk_host_map")) {
        let plugs = plugs.split(separator).map(str::to_owned).collect();
        targets.retain(|(other, _)| !other.eq_ignore_ascii_case(&name));
        targets.push((name, plugs));
    }
    targets
}

/// `node:plug;node:plug`, as Pacemaker takes it: blanks divide too, and a backslash keeps what
/// follows it.
fn host_map(text: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let (mut name, mut word) = (None, String::new());
    let mut characters = text.chars().chain([';']);
    while let Some(c) = characters.next() {
        match c {
            '\\' => word.extend(characters.next()),
            ':' | '=' if name.is_none() => name = Some(std::mem::take(&mut word)),
            ';' | ' ' | '\t' | '\n' => {
                let plug = std::mem::take(&mut word);
                pairs.extend(
                    name.take()
                        .filter(|_| !plug.is_empty())
                        .map(|name| (name, plug)),
                );
            }
            c => word.push(c),
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_map_is_read_as_pacemaker_reads_it() {
        let pair = |name: &str, plug: &str| (name.to_owned(), plug.to_owned());
        assert_eq!(
            host_map("n1:psu-a,psu-b;n2=two n3:with\\ blank;;x"),
            [
                pair("n1", "psu-a,psu-b"),
                pair("n2", "two"),
                pair("n3", "with blank")
            ]
        );
    }
}
