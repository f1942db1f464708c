//! Virtual media, wherever the BMC has it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use serde_json::json;

use crate::job::run;
use crate::server::Redfish;

/// Serves images until it is dropped.
struct Images {
    port: u16,
    server: Option<JoinHandle<()>>,
}

impl Images {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let mut request = [0; 4096];
                let length = connection.read(&mut request).unwrap_or(0);
                if request[..length].starts_with(b"END") {
                    return;
                }
                let answer =
                    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nimage";
                // who doesn't want it goes away
                let _ = connection.write_all(answer.as_bytes());
            }
        });
        Self {
            port,
            server: Some(server),
        }
    }

    fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/{name}.iso", self.port)
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        let mut end = std::net::TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        end.write_all(b"END").unwrap();
        self.server.take().unwrap().join().unwrap();
    }
}

fn insert(url: &str) -> String {
    format!("virtual_media = {{ kind = \"CD\", url = \"{url}\" }}")
}

const EJECT: &str = "virtual_media = { kind = \"CD\" }";

fn goes_in_and_out(redfish: &Redfish, drive: &str) {
    let images = Images::start();
    let bmc = redfish.by_node();
    let (rescue, other) = (images.url("{node}"), images.url("other"));
    let rescue_of_node1 = images.url("node1");
    let words = format!("{rescue_of_node1} is in the virtual CD");
    run(&bmc, &[&insert(&rescue)], "node1").says(&words);
    let seen = redfish.read(drive);
    assert_eq!(
        (&seen["Inserted"], &seen["Image"]),
        (&json!(true), &json!(rescue_of_node1))
    );
    redfish.changes();
    run(&bmc, &[&insert(&rescue)], "node1").says("is in the virtual CD already");
    assert_eq!(redfish.changes(), [""; 0]);
    run(&bmc, &[&insert(&other)], "node1").says(&format!("{other} is in the virtual CD"));
    assert_eq!(redfish.read(drive)["Image"], other);
    run(&bmc, &[EJECT], "node1").says("nothing is in the virtual CD");
    assert_eq!(redfish.read(drive)["Inserted"], false);
    run(&bmc, &[EJECT], "node1").says("nothing is in the virtual CD");
}

#[test]
fn media_under_the_system_goes_in_and_out() {
    let system = "/redfish/v1/Systems/11111111-1111-1111-1111-111111111111";
    goes_in_and_out(&Redfish::start(), &format!("{system}/VirtualMedia/Cd"));
}

#[test]
fn media_under_the_manager_goes_in_and_out() {
    let redfish = Redfish::start_old();
    let manager = "/redfish/v1/Managers/11111111-1111-1111-1111-111111111111";
    assert!(redfish.system("node1")["VirtualMedia"].is_null());
    goes_in_and_out(&redfish, &format!("{manager}/VirtualMedia/Cd"));
}

#[test]
fn media_that_can_not_be_had_has_failed_with_the_reason() {
    let redfish = Redfish::start();
    let bmc = redfish.by_node();
    let dead = insert("http://127.0.0.1:1/none.iso");
    run(&bmc, &[&dead], "node1").fails(&[
        "POST",
        "VirtualMedia.InsertMedia: ",
        "Connection refused",
    ]);
    let floppy =
        json!({"path": ".*/VirtualMedia/Floppy", "body": "{\"MediaTypes\": [\"Floppy\"]}"});
    redfish.0.knobs(&json!({"answers": [floppy]}));
    let stick = "virtual_media = { kind = \"USBStick\" }";
    let words = ["no virtual drive for USBStick; it has CD, DVD, Floppy"];
    run(&bmc, &[stick], "node1").fails(&words);
}

#[test]
fn media_that_is_accepted_and_not_shown_has_failed() {
    let redfish = Redfish::start();
    let post = "/redfish/v1/Systems/.*/VirtualMedia/Cd/Actions/.*";
    redfish
        .0
        .knobs(&json!({"answers": [{"method": "POST", "path": post, "status": 204}]}));
    let words = ["the BMC accepted http://x/y.iso, and shows nothing in the virtual CD"];
    run(&redfish.by_node(), &[&insert("http://x/y.iso")], "node1").fails(&words);
    fs::remove_file(redfish.0.path("knobs.json")).unwrap();
    let images = Images::start();
    run(&redfish.by_node(), &[&insert(&images.url("a"))], "node1").says("a.iso");
    redfish
        .0
        .knobs(&json!({"answers": [{"method": "POST", "path": post, "status": 204}]}));
    run(&redfish.by_node(), &[EJECT], "node1")
        .fails(&["accepted the eject, and shows CD inserted"]);
}
