//! Keeps secrets out of what is shown, in whatever form a program or a BMC gives them back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// What is shown in place of one.
const HIDDEN: &str = "[secret]";

/// `text` without any of the secrets: as they are, without white space around them (an agent may have
/// stripped its input), as JSON has them, encoded for a URL or a form, or in base64. Longer ones go
/// first, so that no end is left of one that begins like another.
#[must_use]
pub fn redacted(text: &str, secrets: &[String]) -> String {
    let mut forms = forms(secrets);
    forms.sort_unstable_by_key(|form| std::cmp::Reverse(form.len()));
    forms
        .into_iter()
        .fold(text.to_owned(), |text, form| text.replace(&form, HIDDEN))
}

/// The most bytes that one of the secrets takes in any form.
#[must_use]
pub fn longest(secrets: &[String]) -> usize {
    forms(secrets).iter().map(String::len).max().unwrap_or(0)
}

fn forms(secrets: &[String]) -> Vec<String> {
    let all = secrets.iter().flat_map(|secret| {
        let plain = [secret.clone(), secret.trim().to_owned(), escaped(secret)];
        let encoded =
            [("", "%20"), ("/", "%20"), ("", "+")]
                .into_iter()
                .flat_map(|(kept, blank)| {
                    [false, true].map(|small| encoded(secret, kept, blank, small))
                });
        plain
            .into_iter()
            .chain(encoded)
            .chain([STANDARD.encode(secret)])
            .collect::<Vec<_>>()
    });
    all.filter(|form| !form.is_empty()).collect()
}

/// As JSON, and much the same Python's repr, writes it.
fn escaped(secret: &str) -> String {
    let quoted = serde_json::Value::from(secret).to_string();
    let inner = quoted
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or(&quoted).to_owned()
}

/// Encoded for a URL (RFC 3986), but for the characters in `kept`, with `blank` for a blank, and
/// with `small` letters in what is encoded or capitals.
fn encoded(secret: &str, kept: &str, blank: &str, small: bool) -> String {
    let one = |byte: u8| match byte {
        b' ' => blank.to_owned(),
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        byte if kept.as_bytes().contains(&byte) => char::from(byte).to_string(),
        byte if small => format!("%{byte:02x}"),
        byte => format!("%{byte:02X}"),
    };
    secret.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_hidden() {
        let secret = "pa ss/w+rd\"ü".to_owned();
        for form in [
            "pa ss/w+rd\"ü",
            "pa ss/w+rd\\\"ü",
            "pa%20ss%2Fw%2Brd%22%C3%BC",
            "pa%20ss/w%2Brd%22%C3%BC",
            "pa+ss%2Fw%2Brd%22%C3%BC",
            "pa%20ss%2fw%2brd%22%c3%bc",
            "pa+ss%2fw%2brd%22%c3%bc",
            "cGEgc3MvdytyZCLDvA==",
        ] {
            let told = redacted(&format!("<{form}>"), std::slice::from_ref(&secret));
            assert_eq!(told, "<[secret]>", "{form}");
        }
        assert_eq!(redacted("no SECRET", &["SECRET".to_owned()]), "no [secret]");
        assert_eq!(redacted("no secret", &["SECRET".to_owned()]), "no secret");
        assert_eq!(redacted("none", &[String::new()]), "none");
    }

    #[test]
    fn the_longest_form_is_known() {
        assert_eq!(longest(&["////".to_owned(), "a".to_owned()]), 12);
    }
}
