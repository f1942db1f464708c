//! `check`: each broken setup is found under its name, and a good one is silent.

use std::fmt::Write as _;
use std::fs;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::desk::{ask, command, json, run};
use crate::env::{Ended, wait_for};
use crate::scene::{Scene, rule};

const SERVES_ALL: &str = "[[rule]]\nnodes = [\"*\"]\napproval = \"manual\"\n";

/// A spool with its responder, and a cluster's configuration that uses it; good unless changed.
struct Setup {
    scene: Scene,
    parameters: Vec<(&'static str, String)>,
    meta: &'static str,
    properties: Vec<(&'static str, &'static str)>,
    nodes: Vec<&'static str>,
    monitor: &'static str,
    constraints: &'static str,
    more: &'static str,
}

impl Setup {
    fn with_rules(rules: &str) -> Self {
        let scene = Scene::new(rules);
        let path = |name| scene.path(name).display().to_string();
        Self {
            parameters: vec![
                ("pcmk_host_list", "n1 n2".to_owned()),
                ("pcmk_action_limit", "-1".to_owned()),
                ("request_dir", path("requests")),
                ("response_dir", path("responses")),
            ],
            scene,
            meta: "",
            properties: vec![
                ("stonith-enabled", "true"),
                ("dc-version", "2.1.5-a3f44794f94"),
                ("concurrent-fencing", "true"),
            ],
            nodes: vec!["n1", "n2"],
            monitor: "60s",
            constraints: r#"<rsc_location id="l" rsc="recorder" node="n2" score="-INFINITY"/>"#,
            more: "",
        }
    }

    fn new() -> Self {
        Self::with_rules(SERVES_ALL)
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.parameters.retain(|(other, _)| *other != name);
        self.parameters.push((name, value.to_owned()));
        self
    }

    fn without(mut self, name: &'static str) -> Self {
        self.parameters.retain(|(other, _)| *other != name);
        self
    }

    fn property(mut self, name: &'static str, value: &'static str) -> Self {
        self.properties.retain(|(other, _)| *other != name);
        self.properties.push((name, value));
        self
    }

    fn cib(&self) -> String {
        let mut id = 0;
        let mut pairs = |values: &[(&str, &str)]| {
            let mut text = String::new();
            for (name, value) in values {
                id += 1;
                let _ = write!(
                    text,
                    "<nvpair id=\"p{id}\" name=\"{name}\" value=\"{value}\"/>"
                );
            }
            text
        };
        let parameters: Vec<_> = self
            .parameters
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let (parameters, properties) = (pairs(&parameters), pairs(&self.properties));
        let nodes = self
            .nodes
            .iter()
            .enumerate()
            .map(|(id, name)| format!("<node id=\"{}\" uname=\"{name}\"/>", id + 1));
        let (meta, monitor, constraints, more) =
            (self.meta, self.monitor, self.constraints, self.more);
        format!(
            "<cib crm_feature_set=\"3.16.2\" validate-with=\"pacemaker-3.9\" epoch=\"7\" num_updates=\"1\" admin_epoch=\"0\">\
             <configuration><crm_config><cluster_property_set id=\"cib-bootstrap-options\">{properties}</cluster_property_set>\
             </crm_config><nodes>{}</nodes><resources><primitive id=\"recorder\" class=\"stonith\" type=\"fence_recorder\">\
             <instance_attributes id=\"i\">{parameters}</instance_attributes>{meta}<operations>\
             <op id=\"m\" name=\"monitor\" interval=\"{monitor}\"/></operations></primitive>{more}</resources>\
             <constraints>{constraints}</constraints></configuration><status/></cib>",
            nodes.collect::<String>()
        )
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let cib = self.scene.path("cib.xml");
        fs::write(&cib, self.cib()).unwrap();
        let config = self.scene.path("responder.toml").display().to_string();
        let mut command = command(
            &self.scene.env,
            &[&["check", "--config", &config], arguments].concat(),
        );
        command.env("CIB_file", cib);
        command
    }

    fn check(&self, arguments: &[&str]) -> Ended {
        self.command(arguments).output().unwrap().into()
    }

    /// The findings of that level about the spool and the cluster: this machine has neither the agent
    /// installed nor its logs rotated.
    fn found(&self, level: &str) -> Vec<String> {
        let ended = self.check(&["--json"]);
        let findings: Vec<Value> = serde_json::from_str(&ended.stdout).expect(&ended.stderr);
        let names = findings
            .iter()
            .filter(|one| one["level"] == level)
            .map(|one| {
                assert!(
                    level == "OK"
                        || one["remedy"]
                            .as_str()
                            .is_some_and(|remedy| !remedy.is_empty()),
                    "{one}"
                );
                one["name"].as_str().unwrap().to_owned()
            });
        names
            .filter(|name| !["agent", "log-rotation", "inotify"].contains(&name.as_str()))
            .collect()
    }

    #[track_caller]
    fn has_just(&self, level: &str, name: &str) {
        let found = [self.found("FAIL"), self.found("WARN")];
        let expected = match level {
            "FAIL" => [vec![name.to_owned()], vec![]],
            _ => [vec![], vec![name.to_owned()]],
        };
        let distinct = found.map(|mut names| {
            names.dedup();
            names
        });
        assert_eq!(distinct, expected, "{}", self.check(&[]).stdout);
    }
}

#[test]
fn a_good_setup_has_nothing_but_ok() {
    let setup = Setup::new();
    assert_eq!(
        (setup.found("FAIL"), setup.found("WARN")),
        (vec![], vec![]),
        "{}",
        setup.check(&[]).stdout
    );
    assert!(setup.found("OK").len() > 10);
}

/// A level, a name, and what is found as that.
type Broken = (&'static str, &'static str, fn() -> Setup);

/// Broken setups by the name under which each is found: what is wrong is all that is told.
#[test]
fn every_broken_device_is_found_by_name() {
    let broken: [Broken; 22] = [
        ("FAIL", "no-host-list", || {
            Setup::new().without("pcmk_host_list")
        }),
        ("FAIL", "no-host-list", || {
            Setup::new().with("pcmk_host_check", "dynamic-list")
        }),
        ("FAIL", "static-plug", || Setup::new().with("plug", "n1")),
        ("FAIL", "static-plug", || Setup::new().with("port", "n1")),
        ("FAIL", "parameter-invalid", || {
            Setup::new().with("poll_interval", "often")
        }),
        ("FAIL", "timeout-too-short", || {
            Setup::new().with("response_timeout", "60")
        }),
        ("FAIL", "timeout-too-short", || {
            Setup::new().property("stonith-timeout", "40s")
        }),
        ("FAIL", "timeout-unreadable", || {
            Setup::new().property("stonith-timeout", "soon")
        }),
        ("FAIL", "unfencing-without-request", || {
            let meta = r#"<meta_attributes id="x"><nvpair id="y" name="provides" value="unfencing"/></meta_attributes>"#;
            Setup {
                meta,
                ..Setup::new()
            }
        }),
        ("FAIL", "stonith-enabled", || {
            Setup::new().property("stonith-enabled", "false")
        }),
        ("FAIL", "no-rule", || {
            Setup::with_rules("[[rule]]\nnodes = [\"n1\"]\napproval = \"manual\"\n")
        }),
        ("WARN", "timeout-margin", || {
            Setup::new().with("response_timeout", "59")
        }),
        ("WARN", "delay-not-counted", || {
            Setup::new().with("delay", "5")
        }),
        ("WARN", "retry-does-not-fit", || {
            Setup::new().with("response_timeout", "35")
        }),
        ("WARN", "retries-twice", || {
            Setup::with_rules(&rule("exec = [\"/bin/true\"]\nretry_count = 3\n"))
        }),
        ("WARN", "action-limit", || {
            Setup::new().without("pcmk_action_limit")
        }),
        ("WARN", "concurrent-fencing", || {
            Setup::new().property("concurrent-fencing", "false")
        }),
        ("WARN", "no-constraint", || Setup {
            constraints: "",
            ..Setup::new()
        }),
        ("WARN", "no-monitor", || Setup {
            monitor: "0",
            ..Setup::new()
        }),
        ("WARN", "unknown-host", || {
            Setup::new().with("pcmk_host_list", "n1 n2 n3")
        }),
        ("WARN", "hosts-missed", || {
            Setup::new()
                .with("pcmk_host_list", "n1")
                .without("pcmk_action_limit")
        }),
        ("WARN", "parameter-unknown", || {
            Setup::new().with("respose_dir", "/x")
        }),
    ];
    for (level, name, make) in broken {
        make().has_just(level, name);
    }
}

#[test]
fn what_mends_a_broken_setup_is_silent() {
    let rules = rule("exec = [\"/bin/true\"]\nretry_count = 3\n");
    let setups = [
        Setup::with_rules(&rules).with("pcmk_reboot_retries", "1").with("pcmk_off_retries", "1"),
        Setup::new().with("delay", "5").with("pcmk_reboot_timeout", "70").with("pcmk_off_timeout", "75s"),
        Setup::new().without("pcmk_host_list").with("pcmk_host_map", "n1:a,b;n2:c"),
        Setup::new().property("dc-version", "3.0.1-1").property("concurrent-fencing", "false"),
        Setup {
            meta: r#"<meta_attributes id="x"><nvpair id="y" name="provides" value="unfencing"/></meta_attributes>"#,
            ..Setup::with_rules("[[rule]]\nnodes = [\"*\"]\nactions = [\"off\", \"reboot\", \"on\"]\napproval = \"manual\"\n").with("request_on", "1")
        },
    ];
    for setup in setups {
        assert_eq!(
            (setup.found("FAIL"), setup.found("WARN")),
            (vec![], vec![]),
            "{}",
            setup.check(&[]).stdout
        );
    }
}

#[test]
fn a_node_in_two_devices_is_found_unless_a_topology_orders_them() {
    const TWIN: &str = r#"<primitive id="twin" class="stonith" type="fence_recorder"><instance_attributes id="s">
        <nvpair id="s1" name="pcmk_host_list" value="n1"/></instance_attributes>
        <operations><op id="o" name="monitor" interval="10s"/></operations></primitive>"#;
    const SECOND: &str = r#"<primitive id="second" class="stonith" type="fence_ipmilan"><instance_attributes id="s">
        <nvpair id="s1" name="pcmk_host_list" value="n1 n2"/></instance_attributes></primitive>"#;
    let setup = Setup {
        more: SECOND,
        ..Setup::new()
    };
    assert_eq!(setup.found("WARN"), [""; 0]);
    let setup = Setup {
        more: TWIN,
        ..Setup::new()
    };
    assert!(setup.found("WARN").contains(&"hosts-overlap".to_owned()));
}

#[test]
fn broken_spools_and_responders_are_found_by_name() {
    // no spool where one is needed
    let mut setup = Setup::new();
    setup.scene.crash();
    fs::remove_dir_all(setup.scene.path("requests")).unwrap();
    assert_eq!(setup.found("FAIL"), ["spool"]);
    // one that others can write to
    let setup = Setup::new();
    setup.scene.env.chmod("responses", 0o777);
    assert_eq!(setup.found("FAIL"), ["spool"]);
    assert_eq!(setup.check(&[]).code, Some(1));
    // nobody answers
    let mut setup = Setup::new();
    setup.scene.crash();
    setup.has_just("WARN", "responder");
    // requests that nobody swept
    let setup = Setup::new();
    setup.scene.pause();
    ask(&setup.scene, "n1", -20.0);
    setup.has_just("WARN", "stale-requests");
    setup.scene.resume();
    // a configuration that would not be taken
    let setup = Setup::new();
    setup.scene.configure("[[rule]]\nnodes = [\"*\"]\n");
    setup.has_just("FAIL", "responder-config");
    // another spool than the responder's
    let setup = Setup::new();
    let config = fs::read_to_string(setup.scene.path("responder.toml")).unwrap();
    fs::write(
        setup.scene.path("responder.toml"),
        config.replacen("/requests", "/others", 1),
    )
    .unwrap();
    setup.has_just("WARN", "responder-config");
    // a device that uses another spool
    let setup = Setup::new().with("request_dir", "/var/spool/other");
    assert!(setup.found("WARN").contains(&"another-spool".to_owned()));
    // directories that others could change, waived
    Setup::new()
        .with("allow_insecure_dirs", "1")
        .has_just("WARN", "insecure-dirs");
    // a log directory that is none
    let setup = Setup::new();
    let _ = fs::remove_dir_all(setup.scene.path("log"));
    fs::write(setup.scene.path("log"), "").unwrap();
    setup.has_just("WARN", "log-dir");
    // an older responder
    let setup = Setup::new();
    let path = setup.scene.path("requests/.responder.json");
    let told = fs::read_to_string(&path)
        .unwrap()
        .replace(env!("CARGO_PKG_VERSION"), "0.0.1");
    fs::write(path, told).unwrap();
    setup.has_just("WARN", "responder-version");
}

/// A process that watches a directory under a name of its own, as nnf-sos does.
fn watcher(setup: &Setup, name: &str) -> Child {
    let program = setup.scene.path(name);
    fs::copy("/usr/bin/inotifywait", &program)
        .expect("inotifywait is missing: apt-get install inotify-tools");
    let mut child = Command::new(program)
        .args(["--monitor", "--quiet"])
        .arg(setup.scene.path("requests"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the watch", || {
        assert!(child.try_wait().unwrap().is_none());
        let fdinfo = fs::read_dir(format!("/proc/{}/fdinfo", child.id())).ok()?;
        let has_watch = |entry: fs::DirEntry| {
            fs::read_to_string(entry.path()).is_ok_and(|text| text.contains("inotify wd:"))
        };
        fdinfo.flatten().any(has_watch).then_some(())
    });
    child
}

#[test]
fn a_second_watcher_is_found_and_nnf_sos_beside_request_on() {
    let mut setup = Setup::new();
    let mut other = watcher(&setup, "nnf-sos");
    setup.has_just("WARN", "two-responders");
    setup.scene.crash();
    fs::remove_file(setup.scene.path("responder.toml")).unwrap();
    setup.parameters.push(("request_on", "1".to_owned()));
    let found = setup.found("FAIL");
    assert!(
        found.contains(&"request-on-with-nnf".to_owned()),
        "{found:?}"
    );
    other.kill().unwrap();
    other.wait().unwrap();
}

/// A command in a mount namespace of its own, after `line` has changed what it sees.
fn beside(setup: &Setup, line: &str) -> Vec<(String, String)> {
    let check = setup.command(&["--json"]);
    let mut command = Command::new("unshare");
    command
        .args([
            "--mount",
            "sh",
            "-ec",
            &format!("{line}\nexec \"$0\" \"$@\""),
        ])
        .arg(check.get_program())
        .args(check.get_args())
        .env("DIR", setup.scene.env.directory.path())
        .envs(
            check
                .get_envs()
                .filter_map(|(key, value)| Some((key, value?))),
        );
    let output = command.output().unwrap();
    let findings: Vec<Value> = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
    findings
        .iter()
        .map(|one| (text(one, "level"), text(one, "name")))
        .collect()
}

#[track_caller]
fn has(found: &[(String, String)], level: &str, name: &str) {
    let pair = (level.to_owned(), name.to_owned());
    assert!(found.contains(&pair), "{pair:?} in {found:?}");
}

#[test]
fn what_the_machine_lacks_is_found() {
    let mut setup = Setup::new();
    // a disk that is full, one that is nearly, one for each directory, claims on another
    let found = beside(
        &setup,
        "mount -t tmpfs -o size=64k,mode=755 none $DIR/requests\nhead -c 1M /dev/zero >$DIR/requests/fill || true",
    );
    has(&found, "FAIL", "space");
    has(&found, "WARN", "two-file-systems");
    let found = beside(
        &setup,
        "mount -t tmpfs -o size=1M,mode=755 none $DIR/requests",
    );
    has(&found, "WARN", "space");
    let found = beside(&setup, "mount -t tmpfs none $DIR/requests/.claimed");
    has(&found, "FAIL", "claims-elsewhere");
    // no instance of inotify is left
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap();
    let fake = setup.scene.path("instances");
    fs::write(&fake, "1\n").unwrap();
    assert!(limit.trim().parse::<u32>().unwrap() > 1);
    let found = beside(
        &setup,
        "mount --bind $DIR/instances /proc/sys/fs/inotify/max_user_instances",
    );
    has(&found, "WARN", "inotify");
    // the agent that Pacemaker runs, and the logs' rotation
    let none = beside(
        &setup,
        "mount -t tmpfs none /usr/sbin; mount -t tmpfs none /etc/logrotate.d",
    );
    has(&none, "FAIL", "agent");
    has(&none, "WARN", "log-rotation");
    let good = "mount -t tmpfs none /usr/sbin; cp \"$0\" /usr/sbin/fence_recorder
                mount -t tmpfs none /etc/logrotate.d; echo '/x/fence-events.log {}' >/etc/logrotate.d/fence_recorder";
    let found = beside(&setup, good);
    has(&found, "OK", "agent");
    has(&found, "OK", "log-rotation");
    let other = "mount -t tmpfs none /usr/sbin; printf '#!/bin/sh\\necho 0.0.1' >/usr/sbin/fence_recorder; chmod 755 /usr/sbin/fence_recorder";
    has(&beside(&setup, other), "WARN", "agent");
    // a node that needs none has no spool
    setup.scene.crash();
    setup.constraints = r#"<rsc_location id="l" rsc="recorder" node="here" score="-INFINITY"/>"#;
    let away = "rm -rf $DIR/requests; printf '#!/bin/sh\\necho here' >$DIR/crm_node; chmod 755 $DIR/crm_node
                mount --bind $DIR/crm_node /usr/sbin/crm_node";
    has(&beside(&setup, away), "OK", "spool");
}

/// What the kernel's selinuxfs would say: contexts are attributes that root can set anywhere, and the
/// answer to a question follows it in the file.
#[test]
fn selinux_that_denies_the_cluster_is_found() {
    let setup = Setup::new();
    let context = "system_u:object_r:user_home_t:s0";
    let selinuxfs = |allowed: &str| {
        let question = format!("system_u:system_r:cluster_t:s0 {context} 7");
        format!(
            "mount -t tmpfs none /sys/fs/selinux 2>/dev/null || {{ mount -t tmpfs none /sys/fs; mkdir /sys/fs/selinux; }}
             mkdir -p /sys/fs/selinux/class/dir/perms
             echo 1 >/sys/fs/selinux/enforce; echo 7 >/sys/fs/selinux/class/dir/index
             n=1; for perm in search read open write add_name remove_name; do
                 echo $n >/sys/fs/selinux/class/dir/perms/$perm; n=$((n + 1)); done
             printf '%{}s{allowed} ffffffff 0 ffffffff 1 0' '' >/sys/fs/selinux/access
             for dir in requests responses; do setfattr -n security.selinux -v {context} $DIR/$dir; done",
            question.len()
        )
    };
    has(&beside(&setup, &selinuxfs("7")), "WARN", "selinux");
    let found = beside(&setup, &selinuxfs("3f"));
    has(&found, "OK", "selinux");
    assert!(
        !found.contains(&("WARN".to_owned(), "selinux".to_owned())),
        "{found:?}"
    );
}

#[test]
fn without_a_cluster_the_rest_is_checked() {
    let scene = Scene::new(SERVES_ALL);
    let ended = run(&scene.env, &["check", "--quiet"]);
    assert!(
        ended
            .stdout
            .contains("WARN cluster: the devices can't be checked"),
        "{ended:?}"
    );
    let told = json_whatever_the_code(&scene);
    assert!(
        told.iter()
            .any(|one| one["name"] == "spool" && one["level"] == "OK"),
        "{told:?}"
    );
    assert_eq!(json(&scene.env, &["requests"]), serde_json::json!([]));
}

fn json_whatever_the_code(scene: &Scene) -> Vec<Value> {
    serde_json::from_str(&run(&scene.env, &["check", "--json"]).stdout).unwrap()
}
