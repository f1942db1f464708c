//! The machines' BMCs in the configuration, and the tasks that are done through them.

use std::fmt;
use std::path::{Path, PathBuf};

use super::nodes::Nodes;
use super::reader::Table;
use super::task::{is_executable, read_template};
use super::template::{Subject, Template};
use super::trusted::{Secrecy, read_trusted};
use crate::bmc::client::{check_address, check_authorities};
use crate::bmc::ipmi::{IPMITOOL, check_host};
use crate::bmc::{Device, Power, Protocol, Step};
use crate::spool::request::Action;

/// The machines behind some BMCs, one for each node.
#[derive(Debug)]
pub struct Bmc {
    /// Which nodes.
    pub nodes: Nodes,
    /// What it speaks.
    pub protocol: Protocol,
    /// Redfish: a URL. IPMI: a host, with a port if it isn't 623.
    pub address: Template,
    /// The user.
    pub username: Template,
    /// The file with the password.
    pub password_file: Template,
    /// Redfish: whose certificate counts.
    pub trust: Trusted,
    /// Redfish: which system.
    pub system: Option<Template>,
    /// IPMI: the cipher suite.
    pub cipher_suite: Option<u8>,
}

/// Whose certificate of a BMC counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trusted {
    /// One that an authority of this system's store signed.
    System,
    /// One that is in this file, or was signed by one that is.
    File(PathBuf),
    /// Any.
    Insecure,
}

/// What is done through a BMC, for whichever node.
pub type BmcStep = Step<Template>;

const PROTOCOLS: [(&str, Protocol); 2] = [("redfish", Protocol::Redfish), ("ipmi", Protocol::Ipmi)];

const MEDIA: [(&str, &str); 4] = [
    ("CD", "CD"),
    ("DVD", "DVD"),
    ("USBStick", "USBStick"),
    ("Floppy", "Floppy"),
];

/// Reads every `[[bmc]]`.
pub(super) fn read_all(table: &Table<'_>) -> Vec<Bmc> {
    let tables = table.tables("bmc");
    tables.into_iter().map(read).collect()
}

fn read(table: Table<'_>) -> Bmc {
    let nodes = Nodes::read(&table, "a bmc");
    let protocol = table.choice("protocol", &PROTOCOLS);
    let trust = read_trust(&table);
    let address = read_address(&table, protocol, &trust);
    let username = needed(&table, "username");
    let password_file = needed(&table, "password_file");
    let system = table
        .text("system")
        .and_then(|text| read_template(&table, &text));
    let cipher_suite = table.number("cipher_suite", 0..=17);
    let complain = |message: &str| table.faults.add(&table.span, message);
    for key in ["protocol", "address", "username", "password_file"] {
        if !table.has(key) {
            complain(&format!("a bmc needs {key}"));
        }
    }
    if protocol == Some(Protocol::Ipmi) {
        for key in ["ca_file", "insecure", "system"] {
            if table.has(key) {
                complain(&format!("{key} means nothing to IPMI"));
            }
        }
        if let Err(why) = is_executable(Path::new(IPMITOOL)) {
            complain(&format!("{why}: install ipmitool"));
        }
    }
    if protocol == Some(Protocol::Redfish) && cipher_suite.is_some() {
        complain("cipher_suite means nothing to Redfish");
    }
    if cipher_suite == Some(0) {
        complain("cipher_suite 0 asks for no password: anybody could answer for the BMC");
    }
    table.finish();
    // one with faults stands for its nodes all the same, so that its tasks have none
    Bmc {
        nodes,
        protocol: protocol.unwrap_or(Protocol::Redfish),
        address: address.unwrap_or_default(),
        username: username.unwrap_or_default(),
        password_file: password_file.unwrap_or_default(),
        trust,
        system,
        cipher_suite: cipher_suite.and_then(|suite| suite.try_into().ok()),
    }
}

fn needed(table: &Table<'_>, key: &'static str) -> Option<Template> {
    let text = table.text(key)?;
    if text.value.is_empty() {
        table.faults.add(&text.span, format!("{key} is empty"));
    }
    if key == "password_file" && !text.value.starts_with('/') {
        let message = "password_file must be an absolute path";
        table.faults.add(&text.span, message);
    }
    read_template(table, &text)
}

fn read_trust(table: &Table<'_>) -> Trusted {
    let insecure = table.flag("insecure").unwrap_or(false);
    let Some(file) = table.text("ca_file") else {
        return if insecure {
            Trusted::Insecure
        } else {
            Trusted::System
        };
    };
    if insecure {
        let message = "ca_file or insecure = true: with both, one would mean nothing";
        table.faults.add(&file.span, message);
    }
    let path = PathBuf::from(file.value);
    let checked = read_trusted(&path, Secrecy::Open)
        .map_err(|fault| fault.to_string())
        .and_then(|pem| check_authorities(&pem).map_err(|fault| fault.to_string()));
    if let Err(why) = checked {
        table.faults.add(&file.span, format!("ca_file: {why}"));
    }
    Trusted::File(path)
}

fn read_address(
    table: &Table<'_>,
    protocol: Option<Protocol>,
    trust: &Trusted,
) -> Option<Template> {
    let text = table.text("address")?;
    let template = read_template(table, &text)?;
    // any node will do to see its form
    let subject = Subject {
        node: "node",
        action: "off",
        request_id: "id",
    };
    let filled = template.fill(subject).unwrap_or_default();
    let checked = match protocol? {
        Protocol::Redfish => check_address(&filled)
            .map(|_| ())
            .map_err(|fault| fault.to_string()),
        Protocol::Ipmi => check_host(&filled)
            .map(|_| ())
            .map_err(|fault| fault.to_string()),
    };
    if let Err(why) = checked {
        table.faults.add(&text.span, why);
    } else if filled.starts_with("http:") && *trust != Trusted::Insecure {
        let message = "http:// shows the password to anybody on the way: use https://, or say insecure = true";
        table.faults.add(&text.span, message);
    }
    Some(template)
}

/// Reads the step that the key `kind` names.
pub(super) fn read_step(table: &Table<'_>, kind: &str) -> Option<BmcStep> {
    match kind {
        "power" => table.choice("power", &Power::NAMES).map(Step::Power),
        "boot_device" => {
            let efi = table.flag("efi").unwrap_or(false);
            let device = table.choice("boot_device", &Device::NAMES)?;
            Some(Step::Boot { device, efi })
        }
        _ => {
            let media = table.table("virtual_media")?;
            let kind = media.choice("kind", &MEDIA);
            if !media.has("kind") {
                let message = "virtual_media needs the kind of drive: CD, DVD, USBStick, Floppy";
                media.faults.add(&media.span, message);
            }
            let url = media.text("url");
            if let Some(url) = &url
                && url.value.is_empty()
            {
                let message = "url is empty: leave it out to eject";
                media.faults.add(&url.span, message);
            }
            let url = url.map(|url| read_template(&media, &url));
            media.finish();
            Some(Step::Media {
                kind: kind?.to_owned(),
                url: match url {
                    Some(url) => Some(url?),
                    None => None,
                },
            })
        }
    }
}

/// Why `step` can't be done for all of `nodes`, as far as that can be told from their names.
pub(super) fn misfit(step: &BmcStep, bmcs: &[Bmc], nodes: &Nodes) -> Option<String> {
    let first = |name: &str| bmcs.iter().find(|bmc| bmc.nodes.has(name));
    if let Some(name) = nodes.names().find(|name| first(name).is_none()) {
        return Some(format!("no [[bmc]] has the node {name}"));
    }
    if bmcs.is_empty() {
        return Some("it needs a [[bmc]] for its nodes".to_owned());
    }
    let of_patterns = nodes.patterns.iter().filter_map(|pattern| {
        let bmc = bmcs.iter().find(|bmc| bmc.nodes.take(pattern))?;
        Some((pattern.as_str(), bmc))
    });
    let names = bmcs.iter().flat_map(|bmc| bmc.nodes.names());
    let of_names = names.filter_map(|name| Some((name, first(name).filter(|_| nodes.has(name))?)));
    let mut all = of_patterns.chain(of_names);
    all.find_map(|(name, bmc)| {
        let why = step.unknown_to(bmc.protocol)?;
        Some(format!("{why}, and the BMC of {name} speaks that"))
    })
}

/// What `step` does to the node's power.
pub(super) fn effect(step: &BmcStep) -> Option<Action> {
    match step {
        Step::Power(Power::On) => Some(Action::On),
        Step::Power(Power::Off | Power::Soft) => Some(Action::Off),
        Step::Power(Power::Cycle | Power::Reset) => Some(Action::Reboot),
        Step::Power(Power::Status) | Step::Boot { .. } | Step::Media { .. } => None,
    }
}

/// Whether `step` takes the action that was asked for.
pub(super) fn takes_action(step: &BmcStep) -> bool {
    matches!(step, Step::Media { url: Some(url), .. } if url.takes_action())
}

impl Bmc {
    /// Whether it takes the action that was asked for.
    pub(super) fn takes_action(&self) -> bool {
        let always = [&self.address, &self.username, &self.password_file];
        let mut all = always.into_iter().chain(&self.system);
        all.any(Template::takes_action)
    }
}

impl fmt::Display for Bmc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.nodes.patterns.join(", ");
        write!(f, "{nodes}: {} {}", self.protocol, self.address)?;
        write!(
            f,
            " as {} (password in {})",
            self.username, self.password_file
        )?;
        if let Some(system) = &self.system {
            write!(f, ", system {system}")?;
        }
        match &self.trust {
            Trusted::File(path) => write!(f, ", certificates by {}", path.display()),
            Trusted::Insecure => f.write_str(", INSECURE: any certificate counts"),
            Trusted::System => Ok(()),
        }
    }
}
