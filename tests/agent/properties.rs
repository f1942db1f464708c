//! What holds for any input at all, of the library's parts that read what others wrote.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use fence_recorder::agent::input::Given;
use fence_recorder::spool::name::{FileName, NodeName};
use fence_recorder::spool::response::Response;
use fence_recorder::text::{MAX_TEXT_BYTES, one_line, one_word};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

const ID: &str = "0190b5a3-5d1c-4c55-9f0e-5b1f8c3a7e21";

fn uuids() -> impl Strategy<Value = Uuid> {
    any::<u128>().prop_map(Uuid::from_u128)
}

/// Names of nodes, many of which end like the files that are named after them.
fn node_names() -> impl Strategy<Value = String> {
    let plain = "[a-zA-Z0-9_ü][a-zA-Z0-9_.ü -]{0,60}";
    let with_uuid = || (plain, uuids()).prop_map(|(start, id)| format!("{start}-{id}"));
    let with_suffix = with_uuid().prop_map(|name| name + ".json");
    let anything =
        "\\PC{1,60}".prop_filter("no name of a node", |name| NodeName::parse(name).is_ok());
    prop_oneof![plain, with_uuid(), with_suffix, anything]
}

/// Lines that are like those of a configuration, and some that are not.
fn lines() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![
        Just("action"),
        Just("plug"),
        Just("response-timeout"),
        Just("poll_interval"),
        Just("quiet"),
        Just("request_path"),
        Just("#"),
        Just("bogus"),
    ];
    let value = prop_oneof![any::<String>(), "[0-9.e+-]{0,25}", Just("\"".to_owned())];
    let line = (name, value).prop_map(|(name, value)| format!("{name}={value}\n").into_bytes());
    vec(prop_oneof![line, vec(any::<u8>(), 0..40)], 0..12).prop_map(|lines| lines.concat())
}

fn words() -> impl Strategy<Value = OsString> {
    prop_oneof![
        vec(any::<u8>(), 0..20).prop_map(OsString::from_vec),
        "--?[a-z-]{0,12}(=[a-z0-9]{0,5})?".prop_map(OsString::from),
        "(off|status|1|-v+|-q|--plug|--quiet=0)".prop_map(OsString::from),
    ]
}

/// Responses that mostly are right, so that each single rule is hit.
fn responses() -> impl Strategy<Value = Value> {
    let odd = || {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-z]{0,8}".prop_map(Value::from),
            Just(json!([])),
            Just(json!({"a": 1})),
        ]
    };
    let id = prop_oneof![4 => Just(Some(json!(ID))), 1 => odd().prop_map(Some), 1 => Just(None)];
    let success = prop_oneof![
        4 => any::<bool>().prop_map(|success| Some(json!(success))),
        1 => odd().prop_map(Some),
        1 => Just(None)
    ];
    let node =
        prop_oneof![2 => Just(Some(json!("n1"))), 1 => odd().prop_map(Some), 2 => Just(None)];
    let more = proptest::option::of(odd());
    (id, success, node, more.clone(), more).prop_map(|(id, success, node, message, action)| {
        [
            ("request_id", id),
            ("success", success),
            ("target_node", node),
            ("message", message),
            ("action_performed", action),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect::<serde_json::Map<_, _>>()
        .into()
    })
}

/// Design 3.2 in the words of a JSON document.
fn should_count(response: &Value) -> bool {
    response["request_id"] == ID
        && response["success"].is_boolean()
        && response.get("target_node").is_none_or(|node| node == "n1")
}

fn disturbs_a_line(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202e}')
}

proptest! {
    #[test]
    fn any_stdin_is_read_without_a_panic(bytes in lines(), environment in proptest::option::of(any::<String>())) {
        if let Ok(given) = Given::from_stdin(&bytes) {
            let resolved = given.resolve(|_| environment.clone().map(OsString::from));
            for fault in resolved.faults {
                prop_assert!(!fault.to_string().chars().any(char::is_control), "{fault}");
            }
        } else {
            prop_assert!(bytes.contains(&0) || std::str::from_utf8(&bytes).is_err());
        }
    }

    #[test]
    fn any_arguments_are_read_without_a_panic_and_a_fault_is_one_line(words in vec(words(), 0..8)) {
        match Given::from_arguments(words) {
            Ok(given) => {
                let resolved = given.resolve(|_| None);
                prop_assert!(resolved.warnings.is_empty(), "{resolved:?}");
            }
            Err(fault) => {
                let said = fault.to_string();
                prop_assert!(!said.chars().any(char::is_control), "{said:?}");
            }
        }
    }

    #[test]
    fn the_order_of_lines_of_different_names_does_not_matter(
        (before, after) in vec(
            prop_oneof![
                ("(plug|port|nodename|separator)", "[a-z0-9,=\" ]{0,8}"),
                ("(recorder_timeout|response_timeout|delay|poll-interval)", "[0-9]{0,6}"),
                ("(action|option)", "(off|on|status|x)"),
                ("(request_dir|request_path|response_path)", "/?[a-z]{1,3}"),
            ],
            0..12,
        )
        .prop_map(|mut lines| {
            let mut seen = HashSet::new();
            lines.retain(|(name, _)| seen.insert(name.clone()));
            lines
        })
        .prop_flat_map(|lines| (Just(lines.clone()), Just(lines).prop_shuffle()))
    ) {
        let resolve = |lines: &[(String, String)]| {
            let text: Vec<_> = lines.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
            Given::from_stdin(text.concat().as_bytes()).unwrap().resolve(|_| None)
        };
        let (before, after) = (resolve(&before), resolve(&after));
        prop_assert_eq!(before.settings, after.settings);
        prop_assert_eq!(before.faults, after.faults);
        prop_assert_eq!(before.warnings, after.warnings);
    }

    #[test]
    fn a_file_name_gives_back_the_node_and_id_it_was_made_from(node in node_names(), id in uuids()) {
        let name = FileName::new(&NodeName::parse(&node).unwrap(), id);
        let parsed = FileName::parse(OsStr::new(name.as_str()));
        prop_assert_eq!(parsed.as_ref(), Some(&name));
        prop_assert_eq!(name.node(), node);
        prop_assert_eq!(name.request_id(), id.to_string());
        prop_assert!(FileName::parse(name.temporary().as_ref()).is_none());
        prop_assert!(!name.as_str().contains('/'));
    }

    #[test]
    fn a_name_that_is_parsed_is_node_dash_uuid_dot_json(bytes in prop_oneof![
        vec(any::<u8>(), 0..80),
        ("[a-zü./-]{0,4}", "-?", "[0-9a-fA-Fg]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "\\.json|\\.json\\.tmp|")
            .prop_map(|(node, dash, id, end)| (node + &dash + &id + &end).into_bytes()),
    ]) {
        if let Some(name) = FileName::parse(OsStr::from_bytes(&bytes)) {
            let again = format!("{}-{}.json", name.node(), name.request_id());
            prop_assert_eq!(again.as_bytes(), bytes);
            prop_assert!(NodeName::parse(name.node()).is_ok());
            prop_assert!(Uuid::try_parse(name.request_id()).is_ok());
        }
    }

    #[test]
    fn a_node_name_is_safe_in_a_path_and_fits_a_file_name(text in prop_oneof![any::<String>(), "[./a-]{0,220}"]) {
        if let Ok(name) = NodeName::parse(&text) {
            prop_assert_eq!(name.as_str(), &text);
            let temporary = FileName::new(&name, Uuid::nil()).temporary();
            prop_assert!(temporary.len() <= 255 && !temporary.contains(['/', '\0', '\n']));
            prop_assert!(!text.starts_with(['.', '-']));
        }
    }

    #[test]
    fn any_bytes_are_looked_at_as_a_response_without_a_panic(bytes in vec(any::<u8>(), 0..200)) {
        // so few random bytes are no response to anything
        prop_assert!(Response::from_bytes(&bytes, ID, "n1").is_err());
    }

    #[test]
    fn a_response_counts_just_if_id_success_and_node_are_right(response in responses()) {
        let bytes = serde_json::to_vec(&response).unwrap();
        let counted = Response::from_bytes(&bytes, ID, "n1");
        prop_assert_eq!(counted.is_ok(), should_count(&response), "{:?}", counted);
        if let Ok(counted) = counted {
            prop_assert_eq!(json!(counted.success), response["success"].clone());
        }
    }

    #[test]
    fn a_damaged_response_counts_only_if_it_still_says_the_same(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = valid_response();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if Response::from_bytes(&bytes, ID, "n1").is_ok() {
            let response: Value = serde_json::from_slice(&bytes).unwrap();
            prop_assert!(should_count(&response), "{response}");
        }
    }

    #[test]
    fn text_from_outside_stays_one_line_of_bounded_length(text in prop_oneof![any::<String>(), "[\n\u{202e}\u{1b}ü]{0,3000}"]) {
        for line in [one_line(&text), one_word(&text)] {
            prop_assert!(line.len() <= MAX_TEXT_BYTES);
            prop_assert!(!line.contains(disturbs_a_line));
            prop_assert_eq!(one_line(&line), line.clone());
        }
        prop_assert!(!one_word(&text).contains(char::is_whitespace));
    }
}

fn valid_response() -> Vec<u8> {
    let response = json!({
        "request_id": ID,
        "success": true,
        "message": "done \u{fc}",
        "action_performed": "off",
        "target_node": "n1",
        "timestamp": "2026-01-01T00:00:00+00:00",
    });
    serde_json::to_vec(&response).unwrap()
}

#[test]
fn no_beginning_of_a_response_counts() {
    let bytes = valid_response();
    assert!(Response::from_bytes(&bytes, ID, "n1").is_ok());
    for length in 0..bytes.len() {
        let cut = Response::from_bytes(&bytes[..length], ID, "n1");
        assert!(cut.is_err(), "{length} bytes: {cut:?}");
    }
}

#[test]
fn nothing_but_white_space_may_follow_a_response() {
    let followed_by = |more: &str| [&valid_response(), more.as_bytes()].concat();
    for (more, counts) in [(" \n", true), ("{}", false), ("x", false), ("\0", false)] {
        let response = Response::from_bytes(&followed_by(more), ID, "n1");
        assert_eq!(response.is_ok(), counts, "{more:?}");
    }
}
