//! Drives the built agent with real Pacemaker clusters, each in namespaces of its own.
//!
//! Every test starts its own cluster (a single node is up in about four seconds), so tests can
//! run side by side and none sees another's devices. Needs root and Debian's packages of
//! [`tools`]; without them the tests fail and say what to install.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod audit;
#[path = "../bmc/certificate.rs"]
// the rest of these three is for the tests of BMCs
#[allow(dead_code)]
mod certificate;
mod cluster;
mod command;
mod configuration;
#[path = "../agent/env.rs"]
#[allow(dead_code)]
mod env;
mod log;
mod node;
mod report;
mod responder;
mod scene;
#[path = "../bmc/server.rs"]
#[allow(dead_code)]
mod server;
mod spool;
mod switch;
mod tether;
mod tools;
mod wait;

mod bmc;
mod chain;
mod check;
mod cleanup;
mod death;
mod failure;
mod fencing;
mod killed;
mod metadata;
mod target;
mod topology;
mod validation;
