//! What a person does to a bare-metal server, over Redfish and IPMI, seen to its end.
//!
//! A step runs in a process of its own, as every task does, so that it can be killed: the responder
//! writes the [`Job`] to its standard input, the last line that it prints is the outcome.

pub mod client;
pub mod ipmi;
mod redfish;
pub mod tls;

use std::fmt;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::text::one_line;

/// The first argument that makes this program do one step.
pub const WORD: &str = "responder-bmc-step";

/// How often a BMC is asked whether it has come to a state.
const INTERVAL: Duration = Duration::from_secs(1);

/// How much of its time a step leaves, so that it can say itself why it failed.
const MARGIN: Duration = Duration::from_secs(1);

/// A machine, and what is to be done to it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    /// Where its BMC is.
    pub machine: Machine,
    /// What is to be done.
    pub step: Step,
    /// How many seconds it may take; then it is killed.
    pub seconds: f64,
}

/// A BMC and how to get in.
#[derive(Serialize, Deserialize)]
pub struct Machine {
    /// What it speaks.
    pub protocol: Protocol,
    /// Redfish: a URL. IPMI: a host, with a port if it isn't 623.
    pub address: String,
    /// The user.
    pub username: String,
    /// The password.
    pub password: String,
    /// Redfish: whom to trust.
    pub trust: Trust,
    /// Redfish: which system, by id, uuid or name; needed if there are several.
    pub system: Option<String>,
    /// IPMI: the cipher suite, if ipmitool's own choice isn't right.
    pub cipher_suite: Option<u8>,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // never the password
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, username) = (one_line(&self.address), one_line(&self.username));
        write!(f, "{} {address} as {username}", self.protocol)?;
        match &self.system {
            Some(system) => write!(f, ", system {}", one_line(system)),
            None => Ok(()),
        }
    }
}

/// What a BMC speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// DMTF's HTTP interface.
    Redfish,
    /// IPMI 2.0 over LAN.
    Ipmi,
}

/// Whose certificate counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trust {
    /// One that an authority of this system's store signed.
    System,
    /// One that these, in PEM, signed.
    Authorities(String),
    /// Any: it is said each time.
    Insecure,
}

/// One thing to do; `U` is what says where an image is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step<U = String> {
    /// Its power.
    Power(Power),
    /// What it boots from next, once.
    Boot {
        /// The device.
        device: Device,
        /// By UEFI, or as a PC did.
        efi: bool,
    },
    /// What lies in a virtual drive.
    Media {
        /// Redfish's name of the kind of drive: `CD`, `DVD`, `USBStick`, `Floppy`.
        kind: String,
        /// The image; none ejects.
        url: Option<U>,
    },
}

impl<U> Step<U> {
    /// Why it can't be done over `protocol`.
    #[must_use]
    pub fn unknown_to(&self, protocol: Protocol) -> Option<&'static str> {
        match (self, protocol) {
            (Self::Media { .. }, Protocol::Ipmi) => Some("IPMI knows no virtual media"),
            (
                Self::Boot {
                    device: Device::Safe,
                    ..
                },
                Protocol::Redfish,
            ) => Some("Redfish knows no boot into safe mode"),
            _ => None,
        }
    }

    /// The same, with the image's place made of `url`'s result.
    ///
    /// # Errors
    /// Whatever `url` fails with.
    pub fn with_url<E>(&self, url: impl Fn(&U) -> Result<String, E>) -> Result<Step, E> {
        Ok(match self {
            Self::Power(power) => Step::Power(*power),
            Self::Boot { device, efi } => Step::Boot {
                device: *device,
                efi: *efi,
            },
            Self::Media { kind, url: image } => Step::Media {
                kind: kind.clone(),
                url: image.as_ref().map(url).transpose()?,
            },
        })
    }
}

impl<U: fmt::Display> fmt::Display for Step<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Power(power) => write!(f, "power {}", power.name()),
            Self::Boot { device, efi } => {
                let mode = if *efi { "UEFI" } else { "legacy" };
                write!(f, "boot once from {} ({mode})", device.name())
            }
            Self::Media { kind, url } => match url {
                Some(url) => write!(f, "put {url} into the virtual {kind}"),
                None => write!(f, "eject the virtual {kind}"),
            },
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redfish => "redfish",
            Self::Ipmi => "ipmi",
        })
    }
}

/// What to do with the power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    /// On.
    On,
    /// Off at once.
    Off,
    /// Off by its operating system.
    Soft,
    /// Off, then on.
    Cycle,
    /// A restart without a loss of power.
    Reset,
    /// Only look.
    Status,
}

impl Power {
    /// All, as configurations name them.
    pub const NAMES: [(&str, Self); 6] = [
        ("on", Self::On),
        ("off", Self::Off),
        ("soft", Self::Soft),
        ("cycle", Self::Cycle),
        ("reset", Self::Reset),
        ("status", Self::Status),
    ];

    /// As configurations name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        name_in(&Self::NAMES, &self)
    }
}

impl Device {
    /// All, as configurations name them.
    pub const NAMES: [(&str, Self); 5] = [
        ("pxe", Self::Pxe),
        ("disk", Self::Disk),
        ("bios", Self::Bios),
        ("cdrom", Self::Cdrom),
        ("safe", Self::Safe),
    ];

    /// As configurations and ipmitool name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        name_in(&Self::NAMES, &self)
    }
}

fn name_in<T: PartialEq>(names: &[(&'static str, T)], wanted: &T) -> &'static str {
    let found = names.iter().find(|(_, value)| value == wanted);
    found.map_or("?", |(name, _)| name)
}

/// What to boot from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// The network.
    Pxe,
    /// The first disk.
    Disk,
    /// The setup.
    Bios,
    /// The drive, or its virtual one.
    Cdrom,
    /// The disk, in safe mode (IPMI only).
    Safe,
}

/// Why a step didn't come to its end.
#[derive(Debug, Error)]
pub enum Fault {
    /// The BMC said no, or nothing that can be understood.
    #[error("{0}")]
    Bmc(String),
    /// A request over HTTP.
    #[error("{0}")]
    Http(#[from] client::HttpFault),
    /// A program that is needed.
    #[error("{0}")]
    Program(String),
}

impl Fault {
    fn bmc(text: impl Into<String>) -> Self {
        Self::Bmc(text.into())
    }
}

/// Does the step that standard input describes. Exit 0 only if its end was seen.
#[must_use]
pub fn main() -> ExitCode {
    match read_job().and_then(|job| job.run()) {
        Ok(done) => {
            say(&done);
            ExitCode::SUCCESS
        }
        Err(fault) => {
            say(&fault.to_string());
            ExitCode::FAILURE
        }
    }
}

fn read_job() -> Result<Job, Fault> {
    let mut text = String::new();
    let read = io::stdin().read_to_string(&mut text);
    read.ok()
        .and_then(|_| serde_json::from_str(&text).ok())
        .ok_or_else(|| Fault::Program("standard input describes no step".to_owned()))
}

impl Job {
    fn run(&self) -> Result<String, Fault> {
        let time = Duration::try_from_secs_f64(self.seconds).unwrap_or_default();
        let until = Instant::now() + time.saturating_sub(MARGIN.min(time / 10));
        match self.machine.protocol {
            Protocol::Redfish => redfish::run(self, until),
            Protocol::Ipmi => ipmi::run(self, until),
        }
    }
}

/// Prints a line; the last one is what is known if the step is killed.
fn say(text: &str) {
    let _ = writeln!(io::stdout(), "{}", one_line(text));
}

/// Waits for the next look; false if there is no time for one.
fn pause(interval: Duration, until: Instant) -> bool {
    if Instant::now() + interval >= until {
        return false;
    }
    std::thread::sleep(interval);
    true
}

/// A machine's power as its BMC shows it.
#[derive(Debug, Clone)]
struct Look {
    seen: Seen,
    /// In the BMC's own word.
    word: String,
    /// When the machine was last restarted, where the BMC says that.
    restarted: Option<Timestamp>,
}

/// Whether a machine is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    On,
    Off,
    /// On its way, or in a state without a name here.
    Other,
}

/// What both protocols can do with a machine's power.
trait Powered {
    /// How it is now.
    fn look(&mut self) -> Result<Look, Fault>;

    /// Asks for a change; what was asked for, in the BMC's own word.
    fn ask(&mut self, power: Power) -> Result<String, Fault>;

    /// Whether the machine can be cycled in one.
    fn can_cycle(&mut self) -> Result<bool, Fault>;

    /// Whether a restart without a loss of power can be seen at all.
    const SHOWS_RESTARTS: bool;
}

/// Sees a change of power to its end.
fn change_power(machine: &mut impl Powered, power: Power, until: Instant) -> Result<String, Fault> {
    match power {
        Power::Status => Ok(format!("power is {}", machine.look()?.word)),
        Power::On => reach(machine, power, Seen::On, until),
        Power::Off | Power::Soft => reach(machine, power, Seen::Off, until),
        Power::Cycle | Power::Reset => restart(machine, power, until),
    }
}

/// Until the BMC shows `wanted`; nothing is asked for if it does already.
fn reach<M: Powered>(
    machine: &mut M,
    power: Power,
    wanted: Seen,
    until: Instant,
) -> Result<String, Fault> {
    let before = machine.look()?;
    if before.seen == wanted {
        return Ok(format!("power is {} already", before.word));
    }
    let asked = machine.ask(power)?;
    say(&format!("{asked} was accepted"));
    loop {
        // a BMC that is busy with it may not answer for a while
        let look = machine.look();
        if let Ok(look) = &look
            && look.seen == wanted
        {
            return Ok(format!("{asked}: power is {}", look.word));
        }
        if !pause(INTERVAL, until) {
            return Err(unseen(&asked, look, "power is"));
        }
    }
}

/// Off was seen and then on, or the BMC says that the machine was restarted.
fn restart<M: Powered>(machine: &mut M, power: Power, until: Instant) -> Result<String, Fault> {
    let before = machine.look()?;
    if before.seen == Seen::Off {
        let done = reach(machine, Power::On, Seen::On, until)?;
        return Ok(format!("power was off; {done}"));
    }
    if power == Power::Cycle && !machine.can_cycle()? {
        let off = reach(machine, Power::Off, Seen::Off, until)?;
        let on = reach(machine, Power::On, Seen::On, until)?;
        return Ok(format!("{off}; {on}"));
    }
    let asked = machine.ask(power)?;
    say(&format!("{asked} was accepted"));
    let mut was_off = false;
    loop {
        let look = machine.look();
        if let Ok(now) = &look {
            was_off |= now.seen == Seen::Off;
            let is_later = before
                .restarted
                .zip(now.restarted)
                .is_some_and(|(then, now)| now > then);
            let is_on = now.seen == Seen::On;
            if is_on && (was_off || is_later) {
                return Ok(format!("{asked}: restarted, power is {}", now.word));
            }
            if is_on && power == Power::Reset && !M::SHOWS_RESTARTS {
                return Ok(format!(
                    "{asked} was accepted and power is {}; not verified: IPMI shows nothing of a reset",
                    now.word
                ));
            }
        }
        // a short time without power must not be missed
        if !pause(INTERVAL / 4, until) {
            return Err(unseen(
                &asked,
                look,
                if was_off {
                    "it went off and power is"
                } else {
                    "not verified: no restart was seen, power is"
                },
            ));
        }
    }
}

/// Why a change that was accepted is none.
fn unseen(asked: &str, look: Result<Look, Fault>, what: &str) -> Fault {
    Fault::Bmc(match look {
        Ok(look) => format!("{asked} was accepted, but {what} {}", look.word),
        Err(fault) => format!("{asked} was accepted, but then: {fault}"),
    })
}
