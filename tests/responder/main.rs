//! The responder as systemd runs it: real processes, real files, real fence agents.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod agents;
mod answers;
mod approval;
mod config;
mod crash;
mod deadline;
// the agent's tests use all of it
#[allow(dead_code)]
#[path = "../agent/env.rs"]
mod env;
mod order;
mod packaging;
mod place;
mod records;
mod restart;
mod scene;
mod service;
mod spool;
mod tasks;
mod withdrawal;
