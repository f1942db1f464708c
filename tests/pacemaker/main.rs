//! Drives the built agent with real Pacemaker clusters, each in namespaces of its own.
//!
//! Every test starts its own cluster (a single node is up in about four seconds), so tests can
//! run side by side and none sees another's devices. Needs root and Debian's packages of
//! [`tools`]; without them the tests fail and say what to install.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod audit;
mod cluster;
mod command;
mod configuration;
mod log;
mod node;
mod report;
mod responder;
mod scene;
mod spool;
mod switch;
mod tether;
mod tools;
mod wait;

mod chain;
mod cleanup;
mod death;
mod failure;
mod fencing;
mod killed;
mod metadata;
mod target;
mod validation;
