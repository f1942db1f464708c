//! Simulated BMCs: real servers on ports of their own, ended with the test.

use std::ffi::OsStr;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::certificate;
use crate::env::wait_for;

pub const PASSWORD: &str = "s3cret";

/// A port that nobody has, below those that the kernel gives away.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let from = u16::try_from(std::process::id() % 60).unwrap() * 200;
    loop {
        let port = 20_000 + from + NEXT.fetch_add(1, Ordering::Relaxed) % 200;
        if TcpListener::bind(("127.0.0.1", port)).is_ok()
            && UdpSocket::bind(("127.0.0.1", port)).is_ok()
        {
            return port;
        }
    }
}

/// A process, its directory and its port.
pub struct Server {
    pub directory: TempDir,
    child: Child,
    pub port: u16,
    network: Network,
}

/// Where a server listens.
#[derive(Clone, Copy)]
pub enum Network {
    /// Where the tests run.
    Own,
    /// In the network of this process.
    Of(u32),
}

impl Network {
    /// The command of a program that runs there.
    fn command(self, program: impl AsRef<OsStr>) -> Command {
        match self {
            Self::Own => Command::new(program),
            Self::Of(pid) => {
                let mut command = Command::new("nsenter");
                command
                    .arg(format!("--net=/proc/{pid}/ns/net"))
                    .arg("--")
                    .arg(program);
                command
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let password = directory.path().join("password");
    fs::write(&password, format!("{PASSWORD}\n")).unwrap();
    fs::set_permissions(password, fs::Permissions::from_mode(0o600)).unwrap();
    directory
}

impl Server {
    fn start(directory: TempDir, port: u16, network: Network, mut command: Command) -> Self {
        let log = fs::File::create(directory.path().join("output")).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .current_dir(directory.path())
            .env("TMPDIR", directory.path());
        let child = command.spawn().unwrap();
        Self {
            directory,
            child,
            port,
            network,
        }
    }

    /// One of our scripts, in the virtual environment `simulators`.
    fn python(simulators: &str, script: &str, directory: TempDir, network: Network) -> Self {
        let python = repository(&format!("target/{simulators}/bin/python"));
        assert!(python.exists(), "no simulators: run ./tests/run first");
        let port = free_port();
        let mut command = network.command(python);
        command
            .arg(repository(&format!("tests/bmc/{script}")))
            .arg(directory.path())
            .arg(port.to_string());
        Self::start(directory, port, network, command)
    }

    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// Says what is odd from now on.
    pub fn knobs(&self, knobs: &Value) {
        fs::write(self.path("new"), knobs.to_string()).unwrap();
        fs::rename(self.path("new"), self.path("knobs.json")).unwrap();
    }

    /// The lines of a log since the last time.
    pub fn lines(&self, log: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(log)).unwrap_or_default();
        let _ = fs::remove_file(self.path(log));
        text.lines().map(str::to_owned).collect()
    }

    fn output(&self) -> String {
        fs::read_to_string(self.path("output")).unwrap_or_default()
    }
}

/// sushy-tools' Redfish emulator.
pub struct Redfish(pub Server);

impl Redfish {
    /// One that knows virtual media under its systems.
    pub fn start() -> Self {
        Self::with(certificate::of_an_authority)
    }

    /// One with other certificates.
    pub fn with(certificates: impl FnOnce(&Path)) -> Self {
        Self::start_in("simulators", certificates, Network::Own)
    }

    /// One in the network of the process `pid`.
    pub fn start_beside(pid: u32) -> Self {
        let network = Network::Of(pid);
        Self::start_in("simulators", certificate::of_an_authority, network)
    }

    /// One that knows virtual media under its managers.
    pub fn start_old() -> Self {
        Self::start_in("simulators-old", certificate::of_an_authority, Network::Own)
    }

    fn start_in(simulators: &str, certificates: impl FnOnce(&Path), network: Network) -> Self {
        let directory = directory();
        certificates(directory.path());
        let line = format!("admin:{}\n", bcrypt(PASSWORD));
        fs::write(directory.path().join("htpasswd"), line).unwrap();
        let server = Self(Server::python(simulators, "redfish.py", directory, network));
        wait_for("the Redfish emulator", || {
            server.0.child_lives();
            let root = server.curl(&["-k"], "/redfish/v1/");
            root.status.success().then_some(())
        });
        server.0.lines("requests.log");
        server
    }

    /// The `[[bmc]]` of all nodes, with these lines more.
    pub fn bmc(&self, lines: &str) -> String {
        format!(
            "[[bmc]]\nnodes = [\"*\"]\nprotocol = \"redfish\"\naddress = \"https://127.0.0.1:{}\"\nusername = \"admin\"\npassword_file = \"{}\"\n{lines}\n",
            self.0.port,
            self.0.path("password"),
        )
    }

    /// The same for nodes that are called as their systems, with the right authority.
    pub fn by_node(&self) -> String {
        self.bmc(&format!("system = \"{{node}}\"\n{}", self.authority()))
    }

    pub fn authority(&self) -> String {
        format!("ca_file = \"{}\"", self.0.path("ca.pem"))
    }

    fn curl(&self, options: &[&str], path: &str) -> std::process::Output {
        let user = format!("admin:{PASSWORD}");
        let mut curl = self.0.network.command("curl");
        curl.args(["-sfL", "--max-time", "10", "-u", &user])
            .args(options)
            .arg(format!("https://127.0.0.1:{}{path}", self.0.port));
        curl.output()
            .expect("curl is missing: run ./tests/run first")
    }

    /// What another client reads there; it leaves no trace in the log.
    pub fn read(&self, path: &str) -> Value {
        let before = fs::read(self.0.path("requests.log"));
        let output = self.curl(&["-k"], path);
        let _ = before.map(|log| fs::write(self.0.path("requests.log"), log));
        assert!(output.status.success(), "{path}: {}", self.0.output());
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub fn system(&self, name: &str) -> Value {
        self.read(&format!("/redfish/v1/Systems/{name}"))
    }

    pub fn power(&self, name: &str) -> String {
        self.system(name)["PowerState"].as_str().unwrap().to_owned()
    }

    /// How many changes were asked for since the last look.
    pub fn changes(&self) -> Vec<String> {
        let lines = self.0.lines("requests.log");
        let is_change = |line: &String| !line.starts_with("GET ");
        lines.into_iter().filter(is_change).collect()
    }
}

fn bcrypt(password: &str) -> String {
    let python = repository("target/simulators/bin/python");
    let script = "import bcrypt,sys;print(bcrypt.hashpw(sys.argv[1].encode(),bcrypt.gensalt(rounds=4)).decode())";
    let output = Command::new(&python)
        .args(["-c", script, password])
        .output();
    let output = output.expect("no simulators: run ./tests/run first");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Server {
    fn child_lives(&self) {
        let state = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        assert!(!state.contains(") Z "), "it died: {}", self.output());
    }
}

/// A BMC that speaks IPMI.
pub struct Ipmi {
    pub server: Server,
    username: &'static str,
    password: &'static str,
}

impl Ipmi {
    /// OpenIPMI's simulator. Its machine is on while the file `power` holds 1; the file `odd` is a
    /// shell's words that are run before each look and change, with $1 get or set and $3 the value.
    pub fn start() -> Self {
        let directory = directory();
        let path = |name: &str| directory.path().join(name);
        let port = free_port();
        let write = |name: &str, text: String| fs::write(path(name), text).unwrap();
        write("password", "test\n".to_owned());
        write("power", "1\n".to_owned());
        write("boot", "none\n".to_owned());
        write("odd", String::new());
        write(
            "chassis.sh",
            CHASSIS.replace("DIR", &directory.path().display().to_string()),
        );
        fs::set_permissions(path("chassis.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        write(
            "lan.conf",
            format!(
                "name \"node\"\nstartlan 1\n addr 127.0.0.1 {port}\n guid a123456789abcdefa123456789abcdef\nendlan\n\
                 chassis_control \"{}\"\nuser 2 true \"ipmiusr\" \"test\" admin 10\n",
                path("chassis.sh").display()
            ),
        );
        write(
            "node.emu",
            "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\nmc_enable 0x20\n".to_owned(),
        );
        fs::create_dir(path("state")).unwrap();
        let mut command = Command::new("ipmi_sim");
        command.args(["-n", "-c", "lan.conf", "-f", "node.emu", "-s", "state"]);
        Self::serving(
            Server::start(directory, port, Network::Own, command),
            "ipmiusr",
            "test",
        )
    }

    /// pyghmi's, which keeps the flags of a boot device.
    pub fn start_pyghmi() -> Self {
        let server = Server::python("simulators", "ipmi.py", directory(), Network::Own);
        Self::serving(server, "admin", PASSWORD)
    }

    fn serving(server: Server, username: &'static str, password: &'static str) -> Self {
        let ipmi = Self {
            server,
            username,
            password,
        };
        wait_for("the IPMI simulator", || {
            ipmi.server.child_lives();
            ipmi.try_tool(&["chassis", "power", "status"])
        });
        ipmi.server.lines("commands.log");
        ipmi
    }

    pub fn bmc(&self, lines: &str) -> String {
        format!(
            "[[bmc]]\nnodes = [\"*\"]\nprotocol = \"ipmi\"\naddress = \"127.0.0.1:{}\"\nusername = \"{}\"\npassword_file = \"{}\"\ncipher_suite = 3\n{lines}\n",
            self.server.port,
            self.username,
            self.server.path("password"),
        )
    }

    fn try_tool(&self, words: &[&str]) -> Option<String> {
        let output = Command::new("ipmitool")
            .args(["-I", "lanplus", "-C", "3", "-H", "127.0.0.1", "-p"])
            .arg(self.server.port.to_string())
            .args(["-U", self.username, "-P", self.password])
            .args(words)
            .output()
            .expect("ipmitool is missing: run ./tests/run first");
        let said = String::from_utf8(output.stdout).unwrap();
        output.status.success().then_some(said)
    }

    /// What ipmitool says itself.
    pub fn tool(&self, words: &[&str]) -> String {
        self.try_tool(words)
            .unwrap_or_else(|| panic!("{words:?}: {}", self.server.output()))
    }

    pub fn power(&self) -> String {
        let said = self.tool(&["chassis", "power", "status"]);
        said.trim().replace("Chassis Power is ", "")
    }

    /// Makes ipmi_sim's machine odd.
    pub fn odd(&self, words: &str) {
        fs::write(self.server.path("odd"), words).unwrap();
    }

    /// The changes of power that reached the machine since the last time.
    pub fn changes(&self) -> Vec<String> {
        self.server.lines("commands.log")
    }
}

const CHASSIS: &str = r#"#!/bin/sh
cd DIR
. ./odd
if [ "$1" = get ]; then
  while [ $# -gt 1 ]; do shift; echo "$1:$(cat "$1")"; done
  exit 0
fi
shift
while [ $# -gt 1 ]; do
  echo "$1 $2" >>commands.log
  case $1 in
    power | boot) echo "$2" >"$1" ;;
    shutdown) echo 0 >power ;;
  esac
  shift 2
done
"#;

/// The knobs of a server that does all as it should.
pub fn nothing_odd() -> Value {
    json!({})
}

/// The example of packaging/ for simulators on these ports; `ca.pem` and `password` are in `directory`.
pub fn example(redfish: u16, ipmi: u16, directory: &Path) -> String {
    let path = |name: &str| directory.join(name).display().to_string();
    let mut text = include_str!("../../packaging/examples/bare-metal.toml").to_owned();
    for (from, to) in [
        ("https://bmc-{node}", format!("https://127.0.0.1:{redfish}")),
        ("\"bmc-{node}\"", format!("\"127.0.0.1:{ipmi}\"")),
        ("/etc/pki/bmc-ca.pem", path("ca.pem")),
        ("/etc/fence_recorder/secrets/{node}", path("password")),
        ("cipher_suite = 17", "cipher_suite = 3".to_owned()),
        ("\"{node}\"", "\"node1\"".to_owned()),
        ("\"15s\"", "\"10s\"".to_owned()),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, &to);
    }
    text
}
