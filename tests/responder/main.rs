//! The responder as systemd runs it: real processes, real files, real fence agents.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod agents;
mod approval;
mod config;
mod crash;
// the agent's tests use all of it
#[allow(dead_code)]
#[path = "../agent/env.rs"]
mod env;
mod packaging;
mod records;
mod scene;
mod service;
mod spool;
mod tasks;
