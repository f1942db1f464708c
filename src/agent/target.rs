//! Which nodes an action is about, from plug, port and nodename.

use thiserror::Error;

use super::parameters::Settings;
use crate::spool::name::{NodeName, NodeNameFault};
use crate::text::one_line;

/// Why it can't be said which node is meant (design 4.1).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TargetFault {
    /// Nothing names one.
    #[error("plug: no node to fence is given: set plug (--plug NODE)")]
    None,
    /// Two names, and nothing tells which of them Pacemaker filled in.
    #[error("plug: plug is \"{}\" and port is \"{}\": to guess could fence the wrong node, give one of them", one_line(.0), one_line(.1))]
    Ambiguous(String, String),
    /// No name of a node.
    #[error("{parameter}: \"{}\" names no node: {fault}", one_line(.value))]
    Name {
        /// Where the name came from.
        parameter: &'static str,
        /// The name.
        value: String,
        /// What is wrong with it.
        fault: NodeNameFault,
    },
}

/// The nodes that are meant, each once, in the order given.
///
/// # Errors
/// When none is named, two disagree, or one can't be a node's name.
pub fn targets(settings: &Settings) -> Result<Vec<NodeName>, TargetFault> {
    let Some((parameter, value)) = chosen(settings)? else {
        return Err(TargetFault::None);
    };
    let parse = |name: &str| {
        NodeName::parse(name).map_err(|fault| TargetFault::Name {
            parameter,
            value: value.to_owned(),
            fault,
        })
    };
    if parameter == "nodename" {
        return Ok(vec![parse(value)?]);
    }
    let mut targets: Vec<NodeName> = Vec::new();
    for name in value.split(settings.plug_separator.as_str()) {
        let name = parse(name)?;
        if !targets.contains(&name) {
            targets.push(name);
        }
    }
    Ok(targets)
}

/// The parameter that names the target, and its value as it was given; for the audit of a fault.
///
/// # Errors
/// When plug and port disagree.
pub fn chosen(settings: &Settings) -> Result<Option<(&'static str, &str)>, TargetFault> {
    let nodename = settings.nodename.as_deref();
    Ok(match (settings.plug.as_deref(), settings.port.as_deref()) {
        (Some(plug), Some(port)) if plug != port => {
            // Pacemaker fills in the one of the two that its version knows, beside the other
            if nodename == Some(plug) {
                Some(("port", port))
            } else if nodename == Some(port) {
                Some(("plug", plug))
            } else {
                return Err(TargetFault::Ambiguous(plug.to_owned(), port.to_owned()));
            }
        }
        (Some(plug), _) => Some(("plug", plug)),
        (None, Some(port)) => Some(("port", port)),
        (None, None) => nodename.map(|name| ("nodename", name)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(plug: &str, port: &str, nodename: &str) -> Result<Vec<String>, TargetFault> {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let settings = Settings {
            plug: given(plug),
            port: given(port),
            nodename: given(nodename),
            ..Settings::default()
        };
        targets(&settings).map(|nodes| nodes.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_administrators_choice_beats_pacemakers() {
        assert_eq!(of("n1", "", "").unwrap(), ["n1"]);
        assert_eq!(of("", "n1", "").unwrap(), ["n1"]);
        assert_eq!(of("", "", "n1").unwrap(), ["n1"]);
        assert_eq!(of("n1", "n1", "other").unwrap(), ["n1"]);
        assert_eq!(of("n1", "psu-1", "n1").unwrap(), ["psu-1"]);
        assert_eq!(of("psu-1", "n1", "n1").unwrap(), ["psu-1"]);
        assert_eq!(of("psu-1", "", "n1").unwrap(), ["psu-1"]);
    }

    #[test]
    fn nothing_is_guessed() {
        assert_eq!(
            of("a", "b", "n1"),
            Err(TargetFault::Ambiguous("a".into(), "b".into()))
        );
        assert_eq!(
            of("a", "b", ""),
            Err(TargetFault::Ambiguous("a".into(), "b".into()))
        );
        assert_eq!(of("", "", ""), Err(TargetFault::None));
    }

    #[test]
    fn several_plugs_are_divided_and_counted_once() {
        assert_eq!(of("p1,p2,p1", "", "n1").unwrap(), ["p1", "p2"]);
        assert!(matches!(
            of("p1,,p2", "", ""),
            Err(TargetFault::Name {
                fault: NodeNameFault::Empty,
                ..
            })
        ));
        assert!(of("p1,../etc/passwd", "", "").is_err());
        assert_eq!(of("", "", "a,b").unwrap(), ["a,b"]);
    }
}
