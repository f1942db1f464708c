//! What holds for any input: of stdin, node names and responses.

use std::ffi::OsString;

use fence_recorder::agent::input::Given;
use fence_recorder::spool::name::{FileName, MAX_NODE_NAME_BYTES, NodeName};
use fence_recorder::spool::response::Response;
use fence_recorder::text::{MAX_TEXT_BYTES, one_line};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

const ID: &str = "5b8ea502-5f9f-417d-9857-58ae35e69baf";

/// Any JSON, small.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop_oneof![
            Just("true".to_owned()),
            Just(ID.to_owned()),
            Just("n1".to_owned()),
            ".*"
        ]
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| vec(inner, 0..3).prop_map(Value::from))
}

proptest! {
    #[test]
    fn any_bytes_on_stdin_are_taken_or_refused(bytes in vec(any::<u8>(), 0..400)) {
        if let Ok(given) = Given::from_stdin(&bytes) {
            let _ = given.resolve(|_| None);
        }
    }

    #[test]
    fn any_arguments_are_taken_or_refused(words in vec(".{0,20}", 0..6)) {
        if let Ok(given) = Given::from_arguments(words.into_iter().map(OsString::from)) {
            let _ = given.resolve(|_| None);
        }
    }

    #[test]
    fn the_order_of_lines_does_not_matter(
        (lines, shuffled) in Just(vec![
            "action=off", "plug=a", "port=b", "nodename=a", "request_path=/old", "request_dir=/new", "delay=3",
            "recorder_timeout=9", "option=on", "quiet=1", "debug=/x", "foo=1",
        ]).prop_flat_map(|lines| (Just(lines.clone()), Just(lines).prop_shuffle()))
    ) {
        let settings = |lines: &[&str]| Given::from_stdin(lines.join("\n").as_bytes()).unwrap().resolve(|_| None).settings;
        prop_assert_eq!(settings(&lines), settings(&shuffled));
    }

    #[test]
    fn a_node_name_is_safe_or_none(name in "\\PC{0,230}|.{0,10}|[./\\-a]{0,5}") {
        if let Ok(node) = NodeName::parse(&name) {
            let name = node.as_str();
            prop_assert!(!name.is_empty() && name.len() <= MAX_NODE_NAME_BYTES);
            prop_assert!(!name.contains(['/', '\0', '\n']) && !name.starts_with(['.', '-']));
            let file = FileName::new(&node, Uuid::new_v4());
            prop_assert!(file.temporary().len() <= 255);
        }
    }

    #[test]
    fn a_file_name_gives_back_its_node_and_id(name in "[a-z0-9][a-z0-9.\\- üA-F]{0,80}", tail in prop_oneof![Just(""), Just(ID), Just(".json")]) {
        let node = NodeName::parse(&format!("{name}{tail}")).unwrap();
        let id = Uuid::new_v4();
        let file = FileName::parse(FileName::new(&node, id).as_str().as_ref()).unwrap();
        prop_assert_eq!(file.node(), node.as_str());
        prop_assert_eq!(file.request_id(), id.to_string());
    }

    #[test]
    fn any_name_in_a_directory_is_taken_apart_or_none(name in ".{0,300}") {
        if let Some(file) = FileName::parse(name.as_ref()) {
            prop_assert_eq!(file.as_str(), name);
            prop_assert!(NodeName::parse(file.node()).is_ok());
        }
    }

    #[test]
    fn a_response_counts_only_with_the_id_a_boolean_and_the_node(
        id in prop_oneof![Just(json!(ID)), any_json()],
        success in prop_oneof![Just(json!(true)), any_json()],
        target in proptest::option::of(prop_oneof![Just(json!("n1")), any_json()]),
        message in any_json(),
    ) {
        let mut object = json!({"request_id": id, "success": success, "message": message});
        if let Some(target) = &target {
            object["target_node"] = target.clone();
        }
        let counts = id == ID && success.is_boolean() && target.is_none_or(|target| target == "n1");
        let taken = Response::from_bytes(object.to_string().as_bytes(), ID, "n1");
        prop_assert_eq!(taken.is_ok(), counts);
        if let Ok(response) = taken {
            prop_assert_eq!(json!(response.success), success);
        }
    }

    #[test]
    fn a_part_of_a_response_never_counts(message in ".*", cut in any::<prop::sample::Index>()) {
        let whole = json!({"request_id": ID, "success": true, "message": message}).to_string();
        let part = &whole.as_bytes()[..cut.index(whole.len())];
        prop_assert!(Response::from_bytes(part, ID, "n1").is_err());
    }

    #[test]
    fn any_bytes_are_no_success(bytes in vec(any::<u8>(), 0..200)) {
        prop_assert!(Response::from_bytes(&bytes, ID, "n1").is_err());
    }

    #[test]
    fn a_line_stays_one_line_of_bounded_length(text in "(?s).{0,6000}") {
        let line = one_line(&text);
        prop_assert!(line.len() <= MAX_TEXT_BYTES);
        let disturbs = |c: char| c.is_control() || ['\u{2028}', '\u{202e}'].contains(&c);
        prop_assert!(!line.chars().any(disturbs));
    }
}
