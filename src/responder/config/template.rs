//! Values of the configuration that take the request's node, action or id.

use std::fmt;

use thiserror::Error;

/// A text with `{node}`, `{action}` and `{request_id}` in it; `{{` and `}}` are braces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Node,
    Action,
    RequestId,
}

/// What templates are filled with.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The request's node.
    pub node: &'a str,
    /// What was asked for.
    pub action: &'a str,
    /// The request's id.
    pub request_id: &'a str,
}

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TemplateFault {
    /// Nothing has that name.
    #[error(
        "{{{0}}} is unknown: there are {{node}}, {{action}} and {{request_id}}; a brace itself is written {{{{ or }}}}"
    )]
    Unknown(String),
    /// A brace without its other half.
    #[error("a single {0} means nothing: a brace itself is written {0}{0}")]
    Brace(char),
    /// It would end the line that a fence agent reads.
    #[error("a value can't hold line breaks or NUL")]
    LineBreak,
}

/// A node whose name could turn a value into something else: `compute-1@evil.example` in a host's
/// name would be sent the password.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the node name \"{0}\" can't be put into a value: {{node}} takes only letters, digits, '.', '_' and '-'"
)]
pub struct OddNode(String);

impl Template {
    /// Takes `text` apart.
    ///
    /// # Errors
    /// When a name in braces is unknown, a brace is alone, or the text can't be one line.
    pub fn parse(text: &str) -> Result<Self, TemplateFault> {
        if text.contains(['\n', '\r', '\0']) {
            return Err(TemplateFault::LineBreak);
        }
        let (mut parts, mut literal, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            rest = &rest[at..];
            if rest.starts_with("{{") || rest.starts_with("}}") {
                literal.push_str(&rest[..1]);
                rest = &rest[2..];
                continue;
            }
            let name = rest.strip_prefix('{').ok_or(TemplateFault::Brace('}'))?;
            let (name, after) = name.split_once('}').ok_or(TemplateFault::Brace('{'))?;
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal)));
            }
            parts.push(match name {
                "node" => Part::Node,
                "action" => Part::Action,
                "request_id" => Part::RequestId,
                other => return Err(TemplateFault::Unknown(other.to_owned())),
            });
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(Self { parts })
    }

    /// The text for `subject`.
    ///
    /// # Errors
    /// When it uses a node whose name isn't `[A-Za-z0-9._-]+`.
    pub fn fill(&self, subject: Subject<'_>) -> Result<String, OddNode> {
        let mut text = String::new();
        for part in &self.parts {
            text.push_str(match part {
                Part::Text(literal) => literal,
                Part::Node if is_plain(subject.node) => subject.node,
                Part::Node => return Err(OddNode(crate::text::one_line(subject.node))),
                Part::Action => subject.action,
                Part::RequestId => subject.request_id,
            });
        }
        Ok(text)
    }

    /// Whether it uses what was asked for.
    #[must_use]
    pub fn takes_action(&self) -> bool {
        self.parts.contains(&Part::Action)
    }

    /// The text, if it is the same for every request.
    #[must_use]
    pub fn literal(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Text(text) => f.write_str(&text.replace('{', "{{").replace('}', "}}"))?,
                Part::Node => f.write_str("{node}")?,
                Part::Action => f.write_str("{action}")?,
                Part::RequestId => f.write_str("{request_id}")?,
            }
        }
        Ok(())
    }
}

fn is_plain(node: &str) -> bool {
    !node.is_empty()
        && node
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBJECT: Subject<'_> = Subject {
        node: "n-1.example",
        action: "off",
        request_id: "id",
    };

    #[test]
    fn names_are_filled_and_doubled_braces_are_braces() {
        let text = "{{bmc}}-{node}:{action}{request_id}";
        let template = Template::parse(text).unwrap();
        assert_eq!(template.fill(SUBJECT).unwrap(), "{bmc}-n-1.example:offid");
        assert_eq!(template.to_string(), text);
        assert_eq!(Template::parse("a{{b").unwrap().literal(), Some("a{b"));
        assert_eq!(Template::parse("").unwrap().literal(), Some(""));
        assert_eq!(template.literal(), None);
    }

    #[test]
    fn anything_else_in_braces_is_a_fault() {
        let unknown = |name: &str| Err(TemplateFault::Unknown(name.to_owned()));
        assert_eq!(Template::parse("{nodes}"), unknown("nodes"));
        assert_eq!(Template::parse("{}"), unknown(""));
        assert_eq!(Template::parse("{ node }"), unknown(" node "));
        assert_eq!(Template::parse("a{node"), Err(TemplateFault::Brace('{')));
        assert_eq!(Template::parse("node}"), Err(TemplateFault::Brace('}')));
        assert_eq!(Template::parse("a\nb"), Err(TemplateFault::LineBreak));
    }

    #[test]
    fn an_odd_node_is_refused_only_where_it_is_used() {
        for node in ["compute-1@evil.example", "a b", "a:1", "ü", "a%2f"] {
            let odd = Subject { node, ..SUBJECT };
            assert!(Template::parse("bmc-{node}").unwrap().fill(odd).is_err());
            assert!(Template::parse("{action}").unwrap().fill(odd).is_ok());
        }
    }
}
