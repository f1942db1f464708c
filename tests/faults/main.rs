//! Every system call of a fence and of a sweep fails once, and every one is the last before a crash: the promises hold.
//!
//! A sample runs always; `tests/run --all` (FAULTS=all) runs everything.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod agent;
mod calls;
#[path = "../agent/env.rs"]
// the rest of it is for the agent
#[allow(dead_code)]
mod env;
mod job;
mod many;
#[path = "../responder/scene.rs"]
#[allow(dead_code)]
mod scene;
mod sweep;
