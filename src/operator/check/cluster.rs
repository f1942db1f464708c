//! The cluster as a whole: its properties, who fences whom, and where devices may run.

use std::collections::BTreeMap;
use std::process::Command;

use super::cib::{Cib, Location, query};
use super::device::Device;
use super::report::Report;

/// This agent, as devices name it.
const AGENT: &str = "fence_recorder";

/// The cluster's configuration, and which of its nodes this is.
#[derive(Debug)]
pub struct Cluster {
    /// The configuration.
    pub cib: Cib,
    /// This node's name in the cluster.
    here: String,
}

/// Whether a device may run on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placement {
    Allowed,
    Banned,
    /// A rule, a pattern or a set decides.
    Unknown,
}

impl Cluster {
    /// The running cluster, if there is one.
    pub fn read(report: &mut Report) -> Option<Self> {
        const NAME: &str = "cluster";
        let text = match query() {
            Ok(text) => text,
            Err(fault) => {
                let message = format!("the devices can't be checked: {fault}");
                report.warn(
                    NAME,
                    "cluster",
                    &message,
                    "systemctl start pacemaker    # or check on a node where it runs",
                );
                return None;
            }
        };
        match Cib::parse(&text) {
            Ok(cib) => Some(Self {
                cib,
                here: own_name(),
            }),
            Err(fault) => {
                let message = format!("its configuration can't be read: {fault}");
                report.warn(NAME, "cluster", &message, "cibadmin --query");
                None
            }
        }
    }

    /// The devices that use this agent.
    pub fn devices(&self, report: &mut Report) -> Vec<Device> {
        let ours = self
            .cib
            .devices
            .iter()
            .filter(|device| device.agent == AGENT);
        let devices: Vec<_> = ours.map(|device| Device::read(device, report)).collect();
        if devices.is_empty() {
            let nodes = self.cib.nodes.join(" ");
            let remedy = format!(
                "pcs stonith create recorder {AGENT} pcmk_host_list=\"{nodes}\" op monitor interval=60s"
            );
            report.warn(
                "no-device",
                "cluster",
                "no stonith device uses this agent",
                &remedy,
            );
        }
        devices
    }

    /// Everything that isn't about one device.
    pub fn look(&self, report: &mut Report, devices: &[Device]) {
        self.is_fencing_on(report);
        self.overlaps(report, devices);
        self.coverage(report, devices);
        for device in devices {
            self.place(report, device);
        }
    }

    /// Whether a node has that name.
    pub fn knows(&self, name: &str) -> bool {
        self.cib
            .nodes
            .iter()
            .any(|node| node.eq_ignore_ascii_case(name))
    }

    /// Before 3.0 the cluster fences one node at a time unless it is told otherwise.
    pub fn fences_one_by_one(&self) -> bool {
        let version = self.cib.properties.get("dc-version");
        let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
        major.is_some_and(|major| major < 3) && !self.is_set("concurrent-fencing", false)
    }

    fn is_set(&self, property: &str, default: bool) -> bool {
        let value = self
            .cib
            .properties
            .get(property)
            .map(|value| value.to_ascii_lowercase());
        value.map_or(default, |value| {
            ["true", "yes", "on", "1", "y"].contains(&value.as_str())
        })
    }

    fn is_fencing_on(&self, report: &mut Report) {
        const NAME: &str = "stonith-enabled";
        // the older name is taken by newer versions too
        if self.is_set("stonith-enabled", true) && self.is_set("fencing-enabled", true) {
            report.ok(NAME, "cluster", "fencing is enabled");
        } else {
            let message = "stonith-enabled=false: no node is ever fenced";
            report.fail(
                NAME,
                "cluster",
                message,
                "pcs property set stonith-enabled=true",
            );
        }
    }

    /// A node in two devices is fenced by either, unless a topology says in which order.
    fn overlaps(&self, report: &mut Report, devices: &[Device]) {
        let mut by_node: BTreeMap<&str, Vec<&Device>> = BTreeMap::new();
        for device in devices {
            for (node, _) in &device.targets {
                by_node.entry(node).or_default().push(device);
            }
        }
        let has_order = |node: &str, devices: &[&Device]| {
            let levels = self
                .cib
                .levels
                .iter()
                .filter(|level| level.target.as_deref().is_none_or(|target| target == node));
            let named: Vec<_> = levels.flat_map(|level| &level.devices).collect();
            devices.iter().all(|device| named.contains(&&device.id))
        };
        for (node, devices) in by_node {
            if devices.len() > 1 && !has_order(node, &devices) {
                let names: Vec<_> = devices.iter().map(|device| device.id.as_str()).collect();
                let message = format!(
                    "{node} is in the host lists of {}: which of them fences it is chance",
                    names.join(" and ")
                );
                let remedy = format!("pcs stonith level add 1 {node} {}", names.join(","));
                report.warn("hosts-overlap", "cluster", &message, &remedy);
            }
        }
    }

    /// Nodes that no device is for, as far as host lists say.
    fn coverage(&self, report: &mut Report, devices: &[Device]) {
        let others = self
            .cib
            .devices
            .iter()
            .filter(|device| device.agent != AGENT);
        let mut listed: Vec<String> = devices
            .iter()
            .flat_map(|device| &device.targets)
            .map(|(node, _)| node.clone())
            .collect();
        for other in others {
            let of = |name: &str| other.parameters.get(name).cloned().unwrap_or_default();
            let hosts = of("pcmk_host_list") + ";" + &of("pcmk_host_map");
            if hosts.len() == 1 {
                // it finds its nodes itself
                return;
            }
            let names = hosts
                .split([' ', ',', ';'])
                .map(|word| word.split([':', '=']).next().unwrap_or(word));
            listed.extend(names.map(str::to_owned));
        }
        let is_listed = |node: &str| listed.iter().any(|name| name.eq_ignore_ascii_case(node));
        let missed: Vec<_> = self
            .cib
            .nodes
            .iter()
            .filter(|node| !is_listed(node))
            .map(String::as_str)
            .collect();
        if !missed.is_empty() && devices.iter().all(|device| !device.targets.is_empty()) {
            let message = format!(
                "no device's host list has {}: they can't be fenced",
                missed.join(", ")
            );
            let remedy = "pcs stonith update DEVICE pcmk_host_list=\"...\"";
            report.warn("hosts-missed", "cluster", &message, remedy);
        }
    }

    fn constraints<'a>(&'a self, device: &'a Device) -> impl Iterator<Item = &'a Location> {
        let is_about = |location: &&Location| {
            location
                .resource
                .as_ref()
                .is_none_or(|resource| device.ids.contains(resource))
        };
        self.cib.locations.iter().filter(is_about)
    }

    fn placement(&self, device: &Device, node: &str) -> Placement {
        let mut placement = if self.is_set("symmetric-cluster", true) {
            Placement::Allowed
        } else {
            Placement::Banned
        };
        for location in self.constraints(device) {
            let is_here = location
                .node
                .as_deref()
                .map(|name| name.eq_ignore_ascii_case(node));
            match (is_here, location.score.to_ascii_uppercase().as_str()) {
                _ if location.resource.is_none() => return Placement::Unknown,
                (None, _) => return Placement::Unknown,
                (Some(true), "-INFINITY" | "-1000000") => return Placement::Banned,
                (Some(true), _) => placement = Placement::Allowed,
                (Some(false), _) => {}
            }
        }
        placement
    }

    /// Whether the device may run on this node; true if that can't be said.
    pub fn runs_here(&self, device: &Device) -> bool {
        self.placement(device, &self.here) != Placement::Banned
    }

    /// A node without the spool fails in milliseconds, but is asked.
    fn place(&self, report: &mut Report, device: &Device) {
        let (id, subject) = (&device.id, device.subject());
        let has_spool = device.settings.request_dir.is_dir();
        let is_allowed = self.placement(device, &self.here);
        let (name, others) = (&self.here, "NODES-WITHOUT-THE-SPOOL");
        if self.cib.nodes.len() > 1
            && self.constraints(device).next().is_none()
            && self.is_set("symmetric-cluster", true)
        {
            report.warn(
                "no-constraint",
                &subject,
                "any node may run it: one without the spool is asked in vain, and a node may be asked to fence itself",
                &format!("pcs constraint location {id} avoids {others}"),
            );
        } else if is_allowed == Placement::Allowed && !has_spool {
            let message = format!("may run on {name}, which has no spool");
            report.warn(
                "no-constraint",
                &subject,
                &message,
                &format!("pcs constraint location {id} avoids {name}"),
            );
        } else if is_allowed == Placement::Banned && has_spool {
            let message = format!("is banned from {name}, which has a spool");
            report.warn(
                "banned-from-spool",
                &subject,
                &message,
                &format!("pcs constraint location {id} prefers {name}"),
            );
        } else {
            report.ok("constraint", &subject, "its place is constrained");
        }
    }
}

/// What the cluster calls this node.
fn own_name() -> String {
    let output = Command::new("timeout")
        .args(["5", "crm_node", "--name"])
        .output();
    let told = output.ok().filter(|output| output.status.success());
    let told = told.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    told.filter(|name| !name.is_empty()).unwrap_or_else(|| {
        let name = nix::unistd::gethostname();
        name.map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    })
}
