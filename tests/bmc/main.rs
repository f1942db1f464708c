//! BMC tasks on real servers: sushy-tools' Redfish emulator, OpenIPMI's and pyghmi's IPMI.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod certificate;
#[path = "../agent/env.rs"]
// the rest of it is for the agent
#[allow(dead_code)]
mod env;
mod faults;
mod hostile;
mod ipmi;
mod job;
mod media;
mod redfish;
mod responder;
mod run;
#[path = "../responder/scene.rs"]
// the rest of it is for the responder
#[allow(dead_code)]
mod scene;
// one in another network is for the cluster's tests
#[allow(dead_code)]
mod server;
mod trust;
