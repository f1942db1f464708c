//! The steps over IPMI, through ipmitool: its exit code is not trusted where it lies.

use std::process::{Command, Stdio};
use std::time::Instant;

use super::{Device, Fault, Job, Look, Machine, Power, Powered, Seen, Step, change_power, say};
use crate::secret::redacted;
use crate::text::one_line;

/// From the package of the same name.
pub const IPMITOOL: &str = "/usr/bin/ipmitool";

/// Does the step, and sees its end, which has to be before `until`.
///
/// # Errors
/// Why it didn't come to its end.
pub fn run(job: &Job, until: Instant) -> Result<String, Fault> {
    let address = &job.machine.address;
    let (host, port) = check_host(address)?;
    let mut bmc = Bmc {
        machine: &job.machine,
        host,
        port,
    };
    // ipmitool takes its time with a BMC that is silent
    say(&format!("no answer of the BMC {address} yet"));
    match &job.step {
        Step::Power(power) => change_power(&mut bmc, *power, until),
        Step::Boot { device, efi } => bmc.boot_from(*device, *efi),
        Step::Media { .. } => Err(Fault::bmc("IPMI knows no virtual media")),
    }
}

struct Bmc<'a> {
    machine: &'a Machine,
    host: &'a str,
    port: Option<&'a str>,
}

impl Bmc<'_> {
    /// Runs ipmitool; the password goes by the environment, which only root and the user can read.
    fn tool(&self, words: &[&str]) -> Result<String, Fault> {
        let mut command = Command::new(IPMITOOL);
        let username = &self.machine.username;
        command.args(["-I", "lanplus", "-E", "-H", self.host, "-U", username]);
        if let Some(port) = self.port {
            command.args(["-p", port]);
        }
        let suite = self.machine.cipher_suite.map(|suite| suite.to_string());
        if let Some(suite) = &suite {
            command.args(["-C", suite]);
        }
        let output = command
            .args(words)
            .env("IPMI_PASSWORD", &self.machine.password)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| {
                Fault::Program(format!("{IPMITOOL} can't be run: {error}: install it"))
            })?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(said);
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = |text: &str| {
            text.lines()
                .rev()
                .find(|line| !line.trim().is_empty())
                .map(str::to_owned)
        };
        let why = last(&errors).or_else(|| last(&said)).unwrap_or_default();
        let why = redacted(&why, std::slice::from_ref(&self.machine.password));
        Err(Fault::bmc(format!(
            "ipmitool {}: {}",
            words.join(" "),
            one_line(&why)
        )))
    }

    fn boot_from(&self, device: Device, efi: bool) -> Result<String, Fault> {
        let word = device.name();
        let shown = match device {
            Device::Pxe => "Force PXE",
            Device::Disk => "Force Boot from default Hard-Drive",
            Device::Bios => "Force Boot into BIOS Setup",
            Device::Cdrom => "Force Boot from CD/DVD",
            Device::Safe => "Force Boot from default Hard-Drive, request Safe-Mode",
        };
        let mut words = vec!["chassis", "bootdev", word];
        words.extend(efi.then_some("options=efiboot"));
        let said = self.tool(&words)?;
        // it exits 0 when the BMC refuses, too
        if !said.contains(&format!("Set Boot Device to {word}")) {
            return Err(Fault::bmc(format!(
                "ipmitool {}: {}",
                words.join(" "),
                one_line(said.trim())
            )));
        }
        let flags = self.tool(&["chassis", "bootparam", "get", "5"])?;
        let selector = value_of(&flags, "Boot Device Selector").unwrap_or_default();
        if selector != shown {
            let selector = one_line(selector);
            return Err(Fault::bmc(format!(
                "the BMC accepted {word}, and shows \"{selector}\""
            )));
        }
        let is_efi = flags.contains("BIOS EFI boot");
        if is_efi != efi {
            let (wanted, got) = if efi {
                ("EFI", "legacy")
            } else {
                ("legacy", "EFI")
            };
            return Err(Fault::bmc(format!(
                "the BMC accepted {wanted} boot, and shows {got}"
            )));
        }
        let once = flags.contains("only next boot");
        let warning = if once {
            ""
        } else {
            "; warning: the BMC doesn't show it as for the next boot only"
        };
        let mode = if efi { "EFI" } else { "legacy" };
        Ok(format!("boots once from {word} ({mode}){warning}"))
    }
}

/// Host and port of `host`, `host:port`, `[v6]:port` or a bare IPv6 address.
///
/// # Errors
/// When it is none of them.
pub fn check_host(address: &str) -> Result<(&str, Option<&str>), Fault> {
    let bracketed = address
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'));
    let (host, port) = match (bracketed, address.rsplit_once(':')) {
        (Some((host, "")), _) => (host, None),
        (Some((host, rest)), _) => (host, Some(rest.strip_prefix(':').unwrap_or(rest))),
        (None, Some((host, port))) if !host.contains(':') => (host, Some(port)),
        _ => (address, None),
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
    let is_host = host.bytes().all(is_plain) && !host.is_empty() && !host.starts_with('-');
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    if is_host && is_port {
        Ok((host, port))
    } else {
        let address = one_line(address);
        Err(Fault::bmc(format!(
            "the BMC's address \"{address}\" is no host, or host:port"
        )))
    }
}

/// What stands behind `- key : ` in ipmitool's list.
fn value_of<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(" : ")?;
        (name.trim().trim_start_matches("- ").trim() == key).then(|| value.trim())
    })
}

impl Powered for Bmc<'_> {
    const SHOWS_RESTARTS: bool = false;

    fn look(&mut self) -> Result<Look, Fault> {
        let said = self.tool(&["chassis", "power", "status"])?;
        let (seen, word) = match said.trim() {
            "Chassis Power is on" => (Seen::On, "on"),
            "Chassis Power is off" => (Seen::Off, "off"),
            other => {
                let other = one_line(other);
                return Err(Fault::bmc(format!(
                    "ipmitool chassis power status: \"{other}\""
                )));
            }
        };
        Ok(Look {
            seen,
            word: word.to_owned(),
            restarted: None,
        })
    }

    fn ask(&mut self, power: Power) -> Result<String, Fault> {
        let word = power.name();
        self.tool(&["chassis", "power", word])?;
        Ok(format!("power {word}"))
    }

    fn can_cycle(&mut self) -> Result<bool, Fault> {
        Ok(true)
    }
}
