//! JSON as the spool wants it: one object in the whole file, no key twice, at any depth.

use std::collections::HashSet;
use std::fmt;

use serde::Serialize;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor,
};

/// Reads the one JSON object that `bytes` holds (design 3.2).
///
/// # Errors
/// When the bytes aren't UTF-8, aren't exactly one object, hold a key twice at any depth, or lack
/// what `T` needs.
pub fn read_object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    json.deserialize_map(WithoutDuplicates)?;
    json.end()?;
    serde_json::from_slice(bytes)
}

/// `value` as the bytes of a file, one field a line, so that a shell script can read it too.
#[must_use]
pub fn pretty(value: &impl Serialize) -> Vec<u8> {
    // the protocol's structs have string keys and finite numbers only, which always serialize
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Walks a value and fails at the first key that an object holds twice; keeps nothing.
struct WithoutDuplicates;

impl<'de> DeserializeSeed<'de> for WithoutDuplicates {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for WithoutDuplicates {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            map.next_value_seed(WithoutDuplicates)?;
            if let Some(key) = keys.replace(key) {
                return Err(A::Error::custom(format_args!(
                    "the key {key:?} is there twice"
                )));
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(WithoutDuplicates)?.is_some() {}
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn fault(text: &str) -> String {
        read_object::<Value>(text.as_bytes())
            .expect_err(text)
            .to_string()
    }

    #[test]
    fn one_object_counts() {
        let value: Value =
            read_object(b" {\"a\": [1, -2, 0.5, null, true, {\"a\": \"\\u00fc\"}]}\n").unwrap();
        assert_eq!(value["a"][5]["a"], "ü");
    }

    #[test]
    fn duplicate_keys_at_any_depth_do_not() {
        assert!(fault(r#"{"a": 1, "a": 1}"#).contains("\"a\" is there twice"));
        assert!(fault(r#"{"b": [{"c": {"a": 1, "\u0061": 2}}]}"#).contains("is there twice"));
    }

    #[test]
    fn anything_else_does_not() {
        for text in [
            "",
            "{",
            "[]",
            "true",
            "\"x\"",
            "{} {}",
            "{}x",
            "{}\0",
            "\u{feff}{}",
            "{'a': 1}",
            "{\"a\": 1,}",
        ] {
            fault(text);
        }
        assert!(read_object::<Value>(b"{\"a\": \"\xff\"}").is_err());
        fault(&format!(
            "{{\"a\": {}{}}}",
            "[".repeat(200_000),
            "]".repeat(200_000)
        ));
    }
}
