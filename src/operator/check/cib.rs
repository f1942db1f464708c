//! What the cluster's configuration (the CIB) says of fencing.

use std::collections::BTreeMap;
use std::process::Command;

use roxmltree::{Document, Node};

/// How long cibadmin may take; a cluster that is just starting keeps it waiting.
const SECONDS: &str = "15";

/// Values by name.
pub type Values = BTreeMap<String, String>;

/// Everything that the checks look at.
#[derive(Debug, Default)]
pub struct Cib {
    /// The cluster's properties.
    pub properties: Values,
    /// All nodes: full ones, remote ones and guests.
    pub nodes: Vec<String>,
    /// The stonith devices.
    pub devices: Vec<StonithDevice>,
    /// Where resources may run.
    pub locations: Vec<Location>,
    /// The levels of fencing topologies.
    pub levels: Vec<FencingLevel>,
}

/// One stonith device.
#[derive(Debug, Clone, Default)]
pub struct StonithDevice {
    /// Its id, and those of groups and clones around it.
    pub ids: Vec<String>,
    /// The fence agent.
    pub agent: String,
    /// Its parameters.
    pub parameters: Values,
    /// Its meta attributes.
    pub meta: Values,
    /// The intervals of its monitor operations.
    pub monitors: Vec<String>,
}

/// One location constraint.
#[derive(Debug)]
pub struct Location {
    /// Of this resource; none for a pattern or a set.
    pub resource: Option<String>,
    /// On this node; none for a rule.
    pub node: Option<String>,
    /// How much it is wanted there.
    pub score: String,
}

/// One level of a fencing topology.
#[derive(Debug)]
pub struct FencingLevel {
    /// The node; none for a pattern or an attribute.
    pub target: Option<String>,
    /// The devices.
    pub devices: Vec<String>,
}

impl StonithDevice {
    /// Its own id.
    pub fn id(&self) -> &str {
        self.ids.first().map_or("", String::as_str)
    }
}

/// The running cluster's configuration; cibadmin obeys CIB_file, too.
///
/// # Errors
/// In words, why there is none.
pub fn query() -> Result<String, String> {
    let output = Command::new("timeout")
        .args([SECONDS, "cibadmin", "--query"])
        .output()
        .map_err(|error| format!("cibadmin can't be run: {error}"))?;
    if output.status.success() {
        return String::from_utf8(output.stdout).map_err(|error| error.to_string());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().next().unwrap_or_default().to_owned();
    Err(match output.status.code() {
        Some(124) => format!("cibadmin did not answer within {SECONDS} s"),
        _ if first.is_empty() => "cibadmin failed".to_owned(),
        _ => first,
    })
}

impl Cib {
    /// Takes the XML apart.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let document = Document::parse(text).map_err(|error| error.to_string())?;
        let find = |name: &'static str| {
            document
                .descendants()
                .filter(move |node| node.has_tag_name(name))
        };
        let configuration = find("configuration")
            .next()
            .ok_or("it has no <configuration>")?;
        let inside = |name: &'static str| {
            let parents = configuration
                .children()
                .filter(move |node| node.has_tag_name(name));
            parents.flat_map(|parent| parent.children().filter(Node::is_element))
        };
        let mut cib = Self {
            nodes: inside("nodes")
                .filter_map(|node| attribute(node, "uname"))
                .collect(),
            locations: inside("constraints")
                .filter(|node| node.has_tag_name("rsc_location"))
                .map(location)
                .collect(),
            levels: inside("fencing-topology").map(level).collect(),
            ..Self::default()
        };
        // an earlier set's value counts
        for set in inside("crm_config").collect::<Vec<_>>().into_iter().rev() {
            cib.properties.extend(values(set));
        }
        let templates: Vec<_> = find("template").collect();
        for primitive in find("primitive") {
            cib.take(primitive, &templates);
        }
        cib.nodes.sort();
        cib.nodes.dedup();
        Ok(cib)
    }

    fn take(&mut self, primitive: Node<'_, '_>, templates: &[Node<'_, '_>]) {
        let template = attribute(primitive, "template");
        let template = template.and_then(|id| {
            templates
                .iter()
                .find(|node| attribute(**node, "id").as_ref() == Some(&id))
        });
        let described = template.copied().unwrap_or(primitive);
        let parts: Vec<_> = template.copied().into_iter().chain([primitive]).collect();
        let sets = |name: &'static str| {
            let sets = parts.iter().flat_map(move |part| {
                part.children()
                    .filter(move |node| node.has_tag_name(name))
                    .rev()
            });
            sets.flat_map(values).collect::<Values>()
        };
        let meta = sets("meta_attributes");
        // a guest node is named by the resource that holds it
        self.nodes.extend(meta.get("remote-node").cloned());
        let is_remote = attribute(described, "type").as_deref() == Some("remote");
        self.nodes
            .extend(attribute(primitive, "id").filter(|_| is_remote));
        if attribute(described, "class").as_deref() != Some("stonith") {
            return;
        }
        let monitors = parts.iter().flat_map(Node::descendants);
        let is_monitor = |node: &Node<'_, '_>| {
            node.has_tag_name("op") && attribute(*node, "name").as_deref() == Some("monitor")
        };
        self.devices.push(StonithDevice {
            ids: primitive
                .ancestors()
                .filter_map(|node| attribute(node, "id"))
                .collect(),
            agent: attribute(described, "type").unwrap_or_default(),
            parameters: sets("instance_attributes"),
            meta,
            monitors: monitors
                .filter(is_monitor)
                .filter_map(|node| attribute(node, "interval"))
                .collect(),
        });
    }
}

fn attribute(node: Node<'_, '_>, name: &str) -> Option<String> {
    node.attribute(name).map(str::to_owned)
}

/// The name-value pairs of a set.
fn values(set: Node<'_, '_>) -> Values {
    let pairs = set.children().filter(|node| node.has_tag_name("nvpair"));
    let pairs =
        pairs.filter_map(|pair| Some((attribute(pair, "name")?, attribute(pair, "value")?)));
    pairs.collect()
}

fn location(node: Node<'_, '_>) -> Location {
    let text = |name| attribute(node, name);
    Location {
        resource: text("rsc"),
        node: text("node"),
        score: text("score").unwrap_or_default(),
    }
}

fn level(node: Node<'_, '_>) -> FencingLevel {
    let devices = node.attribute("devices").unwrap_or_default();
    FencingLevel {
        target: attribute(node, "target"),
        devices: devices
            .split(',')
            .map(|device| device.trim().to_owned())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CIB: &str = r#"<cib><configuration>
        <crm_config>
          <cluster_property_set id="a"><nvpair id="1" name="stonith-timeout" value="90s"/></cluster_property_set>
          <cluster_property_set id="b"><nvpair id="2" name="stonith-timeout" value="10s"/></cluster_property_set>
        </crm_config>
        <nodes><node id="1" uname="n2"/><node id="2" uname="n1"/></nodes>
        <resources>
          <template id="t" class="stonith" type="fence_recorder">
            <instance_attributes id="t-i"><nvpair id="3" name="delay" value="5"/><nvpair id="4" name="plug" value="x"/></instance_attributes>
            <operations><op id="o" name="monitor" interval="60s"/></operations>
          </template>
          <group id="g"><primitive id="d" template="t">
            <instance_attributes id="d-i"><nvpair id="5" name="plug" value="y"/></instance_attributes>
            <meta_attributes id="d-m"><nvpair id="6" name="provides" value="unfencing"/></meta_attributes>
          </primitive></group>
          <primitive id="far" class="ocf" provider="pacemaker" type="remote"/>
          <primitive id="vm" class="ocf" provider="heartbeat" type="VirtualDomain">
            <meta_attributes id="v"><nvpair id="7" name="remote-node" value="guest"/></meta_attributes>
          </primitive>
        </resources>
        <constraints><rsc_location id="l" rsc="g" node="n1" score="-INFINITY"/></constraints>
        <fencing-topology><fencing-level id="f" index="1" target="n1" devices="d,e"/></fencing-topology>
    </configuration><status><node_state uname="ghost"/></status></cib>"#;

    #[test]
    fn templates_groups_guests_and_the_first_property_count() {
        let cib = Cib::parse(CIB).unwrap();
        assert_eq!(cib.nodes, ["far", "guest", "n1", "n2"]);
        assert_eq!(cib.properties["stonith-timeout"], "90s");
        let [device] = cib.devices.as_slice() else {
            panic!("{:?}", cib.devices)
        };
        assert_eq!(device.agent, "fence_recorder");
        assert_eq!(device.ids, ["d", "g"]);
        assert_eq!(
            (
                device.parameters["delay"].as_str(),
                device.parameters["plug"].as_str()
            ),
            ("5", "y")
        );
        assert_eq!(device.meta["provides"], "unfencing");
        assert_eq!(device.monitors, ["60s"]);
        assert_eq!(cib.locations[0].resource.as_deref(), Some("g"));
        assert_eq!(cib.levels[0].devices, ["d", "e"]);
    }

    #[test]
    fn what_is_no_cib_is_said() {
        assert!(Cib::parse("<a/>").is_err());
        assert!(Cib::parse("").is_err());
    }
}
