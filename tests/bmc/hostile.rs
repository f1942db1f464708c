//! A BMC that does its worst: whatever it sends, the step ends in time, says why, and gives nothing away.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::env::{AGENT, Ended};

/// Odd enough to look different in every encoding.
const PASSWORD: &str = "pa ss/w+rd";

struct Hostile {
    directory: TempDir,
    server: Child,
    port: u16,
}

impl Hostile {
    fn start(mode: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let (certificate, private) = (
            directory.path().join("cert.pem"),
            directory.path().join("key.pem"),
        );
        fs::write(&certificate, key.cert.pem()).unwrap();
        fs::write(&private, key.signing_key.serialize_pem()).unwrap();
        let secret = directory.path().join("password");
        fs::write(&secret, PASSWORD).unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let mut server = Command::new("/usr/bin/python3")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bmc/hostile.py"))
            .args([&certificate, &private])
            .args([mode, PASSWORD])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(server.stdout.take().unwrap())
            .read_line(&mut port)
            .unwrap();
        let port = port.trim().parse().unwrap();
        Self {
            directory,
            server,
            port,
        }
    }

    /// `power = "off"` of a machine behind it, with a proxy in the environment that must not be used.
    fn off(&self) -> Ended {
        let directory = self.directory.path().display();
        let port = self.port;
        let job = format!(
            "[[bmc]]\nnodes = [\"*\"]\nprotocol = \"redfish\"\naddress = \"https://127.0.0.1:{port}\"\nusername = \"admin\"\n\
             password_file = \"{directory}/password\"\nca_file = \"{directory}/cert.pem\"\nsystem = \"n1\"\n\
             [[task]]\npower = \"off\"\ntimeout = \"3s\"\nretry_count = 1\n"
        );
        let file = self.directory.path().join("job.toml");
        fs::write(&file, job).unwrap();
        let output = Command::new(AGENT)
            .args(["run", "--node", "n1", "--request-dir", "/no/spool"])
            .arg(file)
            .env("HTTPS_PROXY", "http://127.0.0.1:1")
            .env("ALL_PROXY", "http://127.0.0.1:1")
            .output()
            .unwrap();
        output.into()
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

#[track_caller]
fn fails(mode: &str, why: &str) -> Ended {
    let ended = Hostile::start(mode).off();
    assert_eq!(ended.code, Some(1), "{mode}: {ended:?}");
    assert!(ended.stdout.contains(why), "{mode}: {ended:?}");
    ended
}

#[test]
fn a_byte_now_and_then_is_ended_at_the_timeout() {
    fails("drip", "no answer within 2.7 s");
}

#[test]
fn bodies_headers_pages_and_redirects_without_end_are_ended() {
    fails("body", "larger than");
    fails("headers", "header is too big");
    fails("pages", "has no system \"n1\"");
    fails("redirects", "redirected again and again");
    fails("deep", "can't be read");
    fails("empty", "GET /redfish/v1/");
}

#[test]
fn a_password_that_comes_back_in_any_form_is_not_shown() {
    let ended = fails("echo", "500");
    let told = ended.stdout + &ended.stderr;
    assert!(told.matches("[secret]").count() >= 8, "{told}");
    for form in ["pa ss", "pa%20ss", "pa+ss", "cGEgc3", "YWRtaW46"] {
        assert!(!told.contains(form), "{form} in {told}");
    }
}

#[test]
fn escape_sequences_never_reach_the_terminal() {
    let ended = fails("escape", "500");
    let told = ended.stdout + &ended.stderr;
    assert!(told.contains("\\u{1b}[2J"), "{told}");
    assert!(
        !told.contains('\u{1b}') && !told.contains('\u{7}'),
        "{told:?}"
    );
}
