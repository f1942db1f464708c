//! Which node is asked for, when the device's options have a say in it.

use crate::responder::Answer;
use crate::scene::Scene;

#[test]
fn a_configured_plug_is_the_target_beside_the_port_and_nodename_of_pacemaker() {
    check_target("pcmk_host_list=compute-1 plug=blade-7", "blade-7");
}

#[test]
fn a_configured_port_is_the_target_beside_the_nodename_of_pacemaker() {
    check_target("pcmk_host_list=compute-1 port=blade-8", "blade-8");
}

#[test]
fn a_host_map_makes_the_mapped_name_the_target() {
    check_target("pcmk_host_map=compute-1:blade-9", "blade-9");
}

/// Fences compute-1 by a device with these options: the request must be for `target`.
#[track_caller]
fn check_target(options: &str, target: &str) {
    let scene = Scene::set(Answer::Success, options);

    scene.node().run("stonith_admin --reboot compute-1").ok();

    let request = scene.responder.only();
    assert_eq!(request.text("target_node"), target);
    assert_eq!(request.text("nodename"), "compute-1");
    let name = request.file_name;
    assert!(name.starts_with(&format!("{target}-")), "{name}");
    assert_eq!(scene.node().log().agent_stderr(), [""; 0]);
}
