//! The steps over Redfish (DMTF DSP0266).

use std::time::Instant;

use serde_json::{Value, json};

use super::client::{Answer, Client, explanation};
use super::{
    Device, Fault, INTERVAL, Job, Look, Machine, Power, Powered, Seen, Step, change_power, pause,
};
use crate::text::one_line;

const ROOT: &str = "/redfish/v1/";

/// Where sessions are if the service doesn't say.
const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

/// The most pages of a collection.
const MAX_PAGES: usize = 50;

/// Does the step, and sees its end, which has to be before `until`.
///
/// # Errors
/// Why it didn't come to its end.
pub fn run(job: &Job, until: Instant) -> Result<String, Fault> {
    let mut client = Client::new(&job.machine, until)?;
    let found = System::find(&mut client, &job.machine, until);
    let result = found.and_then(|mut system| match &job.step {
        Step::Power(power) => change_power(&mut system, *power, until),
        Step::Boot { device, efi } => system.boot_from(*device, *efi),
        Step::Media { kind, url } => system.media(kind, url.as_deref()),
    });
    client.log_out();
    result
}

/// One computer behind a BMC.
struct System<'a> {
    client: &'a mut Client,
    path: String,
    until: Instant,
}

fn text<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value[key].as_str()
}

fn link(value: &Value) -> Option<String> {
    text(value, "@odata.id").map(str::to_owned)
}

/// The links of a collection's members.
fn members(client: &mut Client, collection: &str) -> Result<Vec<String>, Fault> {
    let mut next = Some(collection.to_owned());
    let mut links = Vec::new();
    for _ in 0..MAX_PAGES {
        let Some(page) = next.take() else {
            break;
        };
        let page = client.get(&page)?.body;
        let members = page["Members"]
            .as_array()
            .ok_or_else(|| Fault::bmc(format!("{collection} has no Members")))?;
        links.extend(members.iter().filter_map(link));
        next = text(&page, "Members@odata.nextLink").map(str::to_owned);
    }
    Ok(links)
}

/// The collection of systems, read as whoever may.
fn systems(client: &mut Client, username: &str) -> Result<Vec<String>, Fault> {
    let root = client.get(ROOT)?.body;
    let systems = link(&root["Systems"])
        .ok_or_else(|| Fault::bmc(format!("GET {ROOT}: the answer has no Systems")))?;
    let refused = match members(client, &systems) {
        Err(Fault::Http(fault)) if fault.is_unauthorized() => fault,
        result => return result,
    };
    let sessions = link(&root["Links"]["Sessions"]).unwrap_or_else(|| SESSIONS.to_owned());
    match client.log_in(&sessions, username) {
        Ok(()) => members(client, &systems),
        // it has no sessions, so that Basic authentication's fault is the one
        Err(fault) if fault.is_unknown() => Err(refused.into()),
        Err(fault) => Err(fault.into()),
    }
}

impl<'a> System<'a> {
    /// The system that the configuration names, or the only one. Never one of several by its place.
    fn find(client: &'a mut Client, machine: &Machine, until: Instant) -> Result<Self, Fault> {
        let paths = systems(client, &machine.username)?;
        let path = match (&machine.system, paths.as_slice()) {
            (Some(wanted), paths) => by_name(client, paths, wanted)?,
            (None, [only]) => only.clone(),
            (None, []) => return Err(Fault::bmc("the BMC has no system")),
            (None, several) => {
                let count = several.len();
                let message = format!("the BMC has {count} systems: name one with system =");
                return Err(Fault::bmc(message));
            }
        };
        Ok(Self {
            client,
            path,
            until,
        })
    }

    fn read(&mut self) -> Result<Answer, Fault> {
        Ok(self.client.get(&self.path)?)
    }

    /// Posts, and follows the task that the BMC makes of it to its end.
    fn post(&mut self, path: &str, body: &Value) -> Result<(), Fault> {
        let answer = self.client.post(path, body)?;
        self.follow(answer)
    }

    fn follow(&mut self, answer: Answer) -> Result<(), Fault> {
        let Some(monitor) = answer
            .location
            .or_else(|| link(&answer.body))
            .filter(|_| answer.status == 202)
        else {
            return Ok(());
        };
        loop {
            let now = self.client.get(&monitor)?;
            let state = text(&now.body, "TaskState").unwrap_or_default();
            let is_bad = ["Exception", "Killed", "Cancelled", "Interrupted"].contains(&state)
                || (state == "Completed" && text(&now.body, "TaskStatus") == Some("Critical"));
            if is_bad {
                let why = task_messages(&now.body);
                return Err(Fault::bmc(format!("the BMC's task ended {state}: {why}")));
            }
            // a monitor is no task: it answers 202 until the end
            if state == "Completed" || (state.is_empty() && now.status != 202) {
                return Ok(());
            }
            let state = if state.is_empty() { "not over" } else { state };
            let message = format!(
                "the BMC's task {} is {}",
                one_line(&monitor),
                one_line(state)
            );
            super::say(&message);
            if !pause(INTERVAL, self.until) {
                return Err(Fault::bmc(message));
            }
        }
    }

    /// Which kinds of reset the machine takes; none if it doesn't say.
    fn reset(&mut self) -> Result<(String, Vec<String>), Fault> {
        let system = self.read()?.body;
        let action = &system["Actions"]["#ComputerSystem.Reset"];
        let target = text(action, "target")
            .ok_or_else(|| Fault::bmc(format!("{} has no ComputerSystem.Reset", self.path)))?
            .to_owned();
        let mut allowed = strings(&action["ResetType@Redfish.AllowableValues"]);
        if allowed.is_empty()
            && let Some(info) = text(action, "@Redfish.ActionInfo")
        {
            let info = self.client.get(info)?.body;
            let parameters = info["Parameters"].as_array().into_iter().flatten();
            let reset = parameters.filter(|one| text(one, "Name") == Some("ResetType"));
            allowed = reset
                .flat_map(|one| strings(&one["AllowableValues"]))
                .collect();
        }
        Ok((target, allowed))
    }

    fn boot_from(&mut self, device: Device, efi: bool) -> Result<String, Fault> {
        let target = match device {
            Device::Pxe => "Pxe",
            Device::Disk => "Hdd",
            Device::Bios => "BiosSetup",
            Device::Cdrom => "Cd",
            Device::Safe => return Err(Fault::bmc("Redfish has no safe mode to boot into")),
        };
        let mode = if efi { "UEFI" } else { "Legacy" };
        let wanted = json!({
            "BootSourceOverrideEnabled": "Once",
            "BootSourceOverrideTarget": target,
            "BootSourceOverrideMode": mode,
        });
        let etag = self.read()?.etag;
        let path = self.path.clone();
        let answer = self
            .client
            .patch(&path, &json!({"Boot": wanted}), etag.as_deref())?;
        self.follow(answer)?;
        let boot = self.read()?.body["Boot"].clone();
        for (key, wanted) in [
            ("BootSourceOverrideTarget", target),
            ("BootSourceOverrideMode", mode),
        ] {
            let got = text(&boot, key).unwrap_or("nothing");
            if got != wanted {
                let got = one_line(got);
                return Err(Fault::bmc(format!(
                    "the BMC accepted {key} {wanted}, and shows {got}"
                )));
            }
        }
        Ok(match text(&boot, "BootSourceOverrideEnabled") {
            Some("Once") => format!("boots once from {target} ({mode})"),
            other => format!(
                "boots from {target} ({mode}); warning: the BMC shows it as {}, not Once",
                one_line(other.unwrap_or("nothing"))
            ),
        })
    }

    /// The virtual drive of this kind, through the links of the system or of its managers.
    fn drive(&mut self, kind: &str) -> Result<(String, Value), Fault> {
        let system = self.read()?.body;
        let mut collections: Vec<_> = link(&system["VirtualMedia"]).into_iter().collect();
        let managers = system["Links"]["ManagedBy"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        for manager in managers.iter().filter_map(link) {
            let manager = self.client.get(&manager)?.body;
            collections.extend(link(&manager["VirtualMedia"]));
        }
        let mut kinds = Vec::new();
        for collection in collections {
            for path in members(self.client, &collection)? {
                let drive = self.client.get(&path)?.body;
                let types = strings(&drive["MediaTypes"]);
                if types.iter().any(|one| one.eq_ignore_ascii_case(kind)) {
                    return Ok((path, drive));
                }
                kinds.extend(types);
            }
        }
        kinds.sort();
        kinds.dedup();
        let has = if kinds.is_empty() {
            "none".to_owned()
        } else {
            one_line(&kinds.join(", "))
        };
        Err(Fault::bmc(format!(
            "the BMC has no virtual drive for {kind}; it has {has}"
        )))
    }

    fn media(&mut self, kind: &str, url: Option<&str>) -> Result<String, Fault> {
        let (path, drive) = self.drive(kind)?;
        let is_in = |drive: &Value| drive["Inserted"] == true;
        let holds = |drive: &Value, url: &str| is_in(drive) && text(drive, "Image") == Some(url);
        let action = |name: &str| {
            let target = text(&drive["Actions"][name], "target");
            target.map_or_else(
                || format!("{path}/Actions/{}", name.trim_start_matches('#')),
                str::to_owned,
            )
        };
        if is_in(&drive) && !url.is_some_and(|url| holds(&drive, url)) {
            self.post(&action("#VirtualMedia.EjectMedia"), &json!({}))?;
        }
        let Some(url) = url else {
            let now = self.drive_until(&path, |drive| !is_in(drive))?;
            return if is_in(&now) {
                Err(Fault::bmc(format!(
                    "the BMC accepted the eject, and shows {kind} inserted"
                )))
            } else {
                Ok(format!("nothing is in the virtual {kind}"))
            };
        };
        if holds(&drive, url) {
            return Ok(format!("{url} is in the virtual {kind} already"));
        }
        let image = json!({"Image": url, "Inserted": true, "WriteProtected": true});
        self.post(&action("#VirtualMedia.InsertMedia"), &image)?;
        let now = self.drive_until(&path, |drive| holds(drive, url))?;
        if holds(&now, url) {
            return Ok(format!("{url} is in the virtual {kind}"));
        }
        let shown = text(&now, "Image").filter(|image| !image.is_empty());
        let shown = one_line(shown.unwrap_or("nothing"));
        Err(Fault::bmc(format!(
            "the BMC accepted {url}, and shows {shown} in the virtual {kind}"
        )))
    }

    /// The drive once it is as it should be, or as it is when no time is left.
    fn drive_until(
        &mut self,
        path: &str,
        is_done: impl Fn(&Value) -> bool,
    ) -> Result<Value, Fault> {
        loop {
            let drive = self.client.get(path)?.body;
            if is_done(&drive) || !pause(INTERVAL, self.until) {
                return Ok(drive);
            }
        }
    }
}

fn strings(value: &Value) -> Vec<String> {
    let values = value.as_array().into_iter().flatten();
    values
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn task_messages(task: &Value) -> String {
    let messages = task["Messages"].as_array().into_iter().flatten();
    let messages: Vec<_> = messages
        .filter_map(|message| text(message, "Message"))
        .collect();
    if messages.is_empty() {
        one_line(&explanation(task))
    } else {
        one_line(&messages.join(" "))
    }
}

/// The one system whose id, uuid or name is `wanted`.
fn by_name(client: &mut Client, paths: &[String], wanted: &str) -> Result<String, Fault> {
    let has_id = |path: &&String| path.trim_end_matches('/').rsplit('/').next() == Some(wanted);
    if let Some(path) = paths.iter().find(has_id) {
        return Ok(path.clone());
    }
    let mut found = Vec::new();
    for path in paths {
        let system = client.get(path)?.body;
        let has = |key| text(&system, key) == Some(wanted);
        let has_uuid = text(&system, "UUID").is_some_and(|uuid| uuid.eq_ignore_ascii_case(wanted));
        if has("Id") || has_uuid || has("Name") {
            found.push(path.clone());
        }
    }
    let wanted = one_line(wanted);
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(Fault::bmc(format!("the BMC has no system \"{wanted}\""))),
        several => {
            let count = several.len();
            Err(Fault::bmc(format!(
                "{count} systems of the BMC are called \"{wanted}\""
            )))
        }
    }
}

/// What Redfish calls it, the best first.
fn reset_types(power: Power) -> &'static [&'static str] {
    match power {
        Power::On => &["On", "ForceOn"],
        Power::Off => &["ForceOff"],
        Power::Soft => &["GracefulShutdown"],
        Power::Cycle => &["PowerCycle", "FullPowerCycle"],
        Power::Reset | Power::Status => &["ForceRestart"],
    }
}

/// The first of them that the machine allows; the first of all if it doesn't say.
fn reset_type(power: Power, allowed: &[String]) -> Option<&'static str> {
    let is_allowed = |kind: &&&str| allowed.is_empty() || allowed.iter().any(|one| one == **kind);
    reset_types(power).iter().find(is_allowed).copied()
}

impl Powered for System<'_> {
    const SHOWS_RESTARTS: bool = true;

    fn look(&mut self) -> Result<Look, Fault> {
        let system = self.read()?.body;
        let word = text(&system, "PowerState")
            .ok_or_else(|| Fault::bmc(format!("{} has no PowerState", self.path)))?;
        let seen = match word {
            "On" => Seen::On,
            "Off" => Seen::Off,
            _ => Seen::Other,
        };
        Ok(Look {
            seen,
            word: one_line(word),
            restarted: text(&system, "LastResetTime").and_then(|time| time.parse().ok()),
        })
    }

    fn ask(&mut self, power: Power) -> Result<String, Fault> {
        let (target, allowed) = self.reset()?;
        let Some(kind) = reset_type(power, &allowed) else {
            let (wanted, allowed) = (
                reset_types(power).join(" or "),
                one_line(&allowed.join(", ")),
            );
            return Err(Fault::bmc(format!(
                "the machine takes no reset {wanted}, only {allowed}"
            )));
        };
        self.post(&target, &json!({"ResetType": kind}))?;
        Ok(kind.to_owned())
    }

    fn can_cycle(&mut self) -> Result<bool, Fault> {
        let (_, allowed) = self.reset()?;
        Ok(reset_type(Power::Cycle, &allowed).is_some())
    }
}
