//! What is generated and committed is current: metadata, manual page and JSON schemas.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use fence_recorder::agent::{manual::manual, metadata::metadata};
use fence_recorder::operator::manual::command_manuals;
use fence_recorder::operator::run::manual::run_manual;
use fence_recorder::responder::manual::{configuration_manual, responder_manual};
use fence_recorder::spool::request::Request;
use fence_recorder::spool::response::Response;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

/// The committed file must be what the code makes; `BLESS=1 cargo test --test generated` writes it.
fn is_current(path: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if env::var_os("BLESS").is_some() {
        fs::write(&path, made).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "{} is stale: run BLESS=1 cargo test --test generated",
        path.display()
    );
}

fn schema_of<T: JsonSchema>() -> Value {
    let schema: Schema = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<T>();
    serde_json::to_value(schema).unwrap()
}

fn pretty(schema: &Value) -> String {
    serde_json::to_string_pretty(schema).unwrap() + "\n"
}

fn interop(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/interop")
        .join(name);
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_metadata_is_current() {
    is_current("metadata/fence_recorder.xml", &metadata());
}

#[test]
fn the_binary_prints_the_metadata() {
    for action in ["metadata", "meta-data", "manpage"] {
        let output = Command::new(env!("CARGO_BIN_EXE_fence_recorder"))
            .args(["-o", action])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), metadata());
        assert_eq!(
            (output.status.code(), output.stderr.as_slice()),
            (Some(0), &b""[..])
        );
    }
}

#[test]
fn the_metadata_is_what_fence_agents_call_valid() {
    let xmllint = Command::new("xmllint")
        .args([
            "--noout",
            "--relaxng",
            "/usr/share/cluster/relaxng/metadata.rng",
        ])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("metadata/fence_recorder.xml"))
        .output()
        .expect("xmllint is missing: apt-get install libxml2-utils");
    assert!(
        xmllint.status.success(),
        "{}",
        String::from_utf8_lossy(&xmllint.stderr)
    );
}

/// The committed pages and what the code makes.
fn pages() -> Vec<(String, String)> {
    let answer = fence_recorder::operator::answer::command();
    let mut pages = command_manuals();
    pages.extend(
        [
            ("fence_recorder.8", manual()),
            ("fence_recorder-responder.8", responder_manual(&answer)),
            ("fence_recorder-run.8", run_manual()),
            ("fence_recorder-responder.toml.5", configuration_manual()),
        ]
        .map(|(name, page)| (name.to_owned(), page)),
    );
    let in_man = |(name, page)| (format!("man/{name}"), page);
    pages.into_iter().map(in_man).collect()
}

#[test]
fn the_manual_pages_are_current() {
    for (path, made) in pages() {
        is_current(&path, &made);
    }
}

/// What apropos and whatis find a page by.
#[test]
fn the_manual_pages_name_themselves() {
    for (path, _) in pages() {
        let lexgrog = Command::new("lexgrog")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(&path))
            .output()
            .expect("lexgrog is missing: apt-get install man-db");
        let told = String::from_utf8(lexgrog.stdout).unwrap();
        let (name, _) = path.trim_start_matches("man/").rsplit_once('.').unwrap();
        assert!(told.contains(&format!(": \"{name} - ")), "{told}");
    }
}

/// As a terminal of 80 columns shows them.
#[test]
fn the_manual_pages_fit_80_columns_and_break_no_name() {
    for (path, _) in pages() {
        let shown = Command::new("man")
            .args(["--encoding=ascii", "--no-hyphenation"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(&path))
            .env("MANWIDTH", "80")
            .output()
            .expect("man is missing: apt-get install man-db groff-base");
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(shown.lines().count() > 30, "{path}: {shown}");
        for line in shown.lines() {
            assert!(line.chars().count() <= 80, "{path}: {line}");
        }
    }
}

#[test]
fn the_manual_pages_are_well_formed() {
    for (path, _) in pages() {
        let mandoc = Command::new("mandoc")
            .args(["-T", "lint"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(&path))
            .output()
            .expect("mandoc is missing: apt-get install mandoc");
        assert_eq!(String::from_utf8(mandoc.stdout).unwrap(), "", "{path}");
    }
}

#[test]
fn the_schemas_are_current() {
    is_current(
        "metadata/fence-request.schema.json",
        &pretty(&schema_of::<Request>()),
    );
    is_current(
        "metadata/fence-response.schema.json",
        &pretty(&schema_of::<Response>()),
    );
}

#[test]
fn the_schemas_take_what_the_known_programs_write() {
    let request = jsonschema::draft202012::new(&schema_of::<Request>()).unwrap();
    let response = jsonschema::draft202012::new(&schema_of::<Response>()).unwrap();
    request
        .validate(&interop("fence_dummy-request.json"))
        .unwrap();
    response
        .validate(&interop("nnf-sos-response-in-place.json"))
        .unwrap();
    response
        .validate(&interop("nnf-sos-response-renamed.json"))
        .unwrap();
}

#[test]
fn the_schemas_take_what_the_structs_write_and_refuse_what_they_refuse() {
    let node = fence_recorder::spool::name::NodeName::parse("compute-1").unwrap();
    let action = fence_recorder::spool::request::Action::Reboot;
    let made = Request::new(
        action,
        &node,
        Some("c1"),
        "host",
        std::time::Duration::from_secs(55),
    );
    let made = serde_json::to_value(made).unwrap();
    let schema = jsonschema::options()
        .should_validate_formats(true)
        .build(&schema_of::<Request>())
        .unwrap();
    schema.validate(&made).unwrap();
    let changes = [
        ("action", json!("status")),
        ("target_node", json!("../x")),
        ("target_node", json!("-x")),
        ("target_node", json!("a\nb")),
        ("request_id", json!("none")),
        ("deadline", json!("soon")),
        ("recorder_node", json!(null)),
    ];
    for (field, value) in changes {
        let mut changed = made.clone();
        changed[field] = value;
        assert!(!schema.is_valid(&changed), "{field}: {changed}");
    }
}

#[test]
fn the_response_schema_wants_a_boolean_and_an_id() {
    let schema = jsonschema::draft202012::new(&schema_of::<Response>()).unwrap();
    assert!(schema.is_valid(&json!({"request_id": "x", "success": true, "anything": 1})));
    for odd in [
        json!({"request_id": "x", "success": "true"}),
        json!({"success": true}),
        json!({"request_id": 1, "success": true}),
        json!({"request_id": "x", "success": true, "target_node": null}),
    ] {
        assert!(!schema.is_valid(&odd), "{odd}");
    }
}
