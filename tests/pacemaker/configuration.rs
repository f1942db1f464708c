//! What corosync and Pacemaker are configured with at their start.

use std::fmt::Write;

/// Pacemaker's first configuration. Two settings only make the start quicker: `dc-deadtime` is
/// how long a node looks for others before it may lead, and without `startup-fencing` nobody is
/// fenced for starting slowly. What happens to a node once seen is as always.
pub const CIB: &str = r#"<cib validate-with="pacemaker-3.0" admin_epoch="1" epoch="1" num_updates="0">
  <configuration>
    <crm_config>
      <cluster_property_set id="options">
        <nvpair id="options-stonith-enabled" name="stonith-enabled" value="true"/>
        <nvpair id="options-startup-fencing" name="startup-fencing" value="false"/>
        <nvpair id="options-dc-deadtime" name="dc-deadtime" value="1s"/>
      </cluster_property_set>
    </crm_config>
    <nodes/>
    <resources/>
    <constraints/>
  </configuration>
  <status/>
</cib>
"#;

/// All but the nodes. The token's timeouts are corosync's defaults, as they are part of what the
/// tests measure. A watchdog must stay off: it is the machine's, and a killed node would reset it.
const COROSYNC: &str = "\
totem {
  version: 2
  cluster_name: test
  transport: knet
  crypto_cipher: none
  crypto_hash: none
}
quorum {
  provider: corosync_votequorum
}
resources {
  watchdog_device: off
}
logging {
  to_logfile: yes
  logfile: /var/log/corosync.log
  to_syslog: no
}
";

/// corosync.conf for the nodes n1, n2, ... of a cluster of this size.
pub fn corosync(size: usize) -> String {
    let mut text = format!("{COROSYNC}nodelist {{\n");
    for number in 1..=size {
        let address = address(number, size);
        let keys = format!("name: n{number}\n    nodeid: {number}\n    ring0_addr: {address}");
        writeln!(text, "  node {{\n    {keys}\n  }}").expect("a string takes text");
    }
    text + "}\n"
}

/// A node's address: on the cluster's own network, on the loopback if it is alone.
pub fn address(number: usize, size: usize) -> String {
    match size {
        1 => "127.0.0.1".to_owned(),
        _ => format!("10.99.0.{number}"),
    }
}
