//! The metadata in XML, made from the tables (fence-agents API; design 4.1).

use std::fmt::Write;

use super::action::{ACTIONS, Action};
use super::parameters::{PARAMETERS, Parameter};

/// What the agent is, in one line.
pub const SUMMARY: &str = "Fence agent that hands fencing over through request and response files";

/// What the agent is, for the metadata and the manual.
pub const DESCRIPTION: &str = "\
fence_recorder is an I/O fencing agent for sites where something else does the actual fencing: a storage controller \
that detaches namespaces, a cloud orchestrator, a Kubernetes operator, a person. It writes a request file into a \
spool directory, waits for the matching response file, and turns it into its exit code. It fences any node whose \
name the responder knows, so always give the device a host list or map (pcmk_host_list, pcmk_host_map).";

/// The XML document that `metadata` prints.
#[must_use]
pub fn metadata() -> String {
    let mut xml = format!(
        "<?xml version=\"1.0\" ?>\n<resource-agent name=\"fence_recorder\" shortdesc=\"{}\" >\n<longdesc>{}</longdesc>\n\
         <vendor-url>https://www.clusterlabs.org/</vendor-url>\n<parameters>\n",
        escaped(SUMMARY),
        escaped(DESCRIPTION)
    );
    for parameter in PARAMETERS {
        add_parameter(&mut xml, parameter);
    }
    xml.push_str("</parameters>\n<actions>\n");
    for info in ACTIONS.iter().filter(|info| info.advertised) {
        // on is never automatic: only a responder knows when a node may come back
        let automatic = if info.action == Action::On {
            " automatic=\"0\""
        } else {
            ""
        };
        line(
            &mut xml,
            1,
            &format!("<action name=\"{}\"{automatic} />", info.names[0]),
        );
    }
    xml.push_str("</actions>\n</resource-agent>\n");
    xml
}

fn add_parameter(xml: &mut String, parameter: &Parameter) {
    let mut attributes = format!(
        "name=\"{}\" unique=\"0\" required=\"{}\"",
        parameter.name,
        u8::from(parameter.required)
    );
    if parameter.deprecated {
        attributes.push_str(" deprecated=\"1\"");
    }
    if let Some(older) = parameter.obsoletes {
        let _ = write!(attributes, " obsoletes=\"{older}\"");
    }
    let default = parameter
        .default
        .map(|default| format!(" default=\"{}\"", escaped(default)))
        .unwrap_or_default();
    line(xml, 1, &format!("<parameter {attributes}>"));
    line(
        xml,
        2,
        &format!("<getopt mixed=\"{}\" />", escaped(&getopt(parameter))),
    );
    line(
        xml,
        2,
        &format!(
            "<content type=\"{}\"{default} />",
            parameter.field.metadata_type()
        ),
    );
    line(
        xml,
        2,
        &format!(
            "<shortdesc lang=\"en\">{}</shortdesc>",
            escaped(parameter.summary)
        ),
    );
    line(xml, 1, "</parameter>");
}

/// How the parameter is written as an option.
#[must_use]
pub fn getopt(parameter: &Parameter) -> String {
    let short = parameter
        .short
        .map(|short| format!("-{short}, "))
        .unwrap_or_default();
    let value = match parameter.value_name {
        "" => String::new(),
        name => format!("=[{name}]"),
    };
    format!("{short}--{}{value}", parameter.option())
}

fn line(xml: &mut String, depth: usize, text: &str) {
    let _ = writeln!(xml, "{}{text}", "\t".repeat(depth));
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
