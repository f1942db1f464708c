//! The commands for people, on real spools with real agents and responders.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod check;
mod completions;
mod desk;
#[path = "../agent/env.rs"]
// the rest of it is for the agent
#[allow(dead_code)]
mod env;
mod fenced;
mod history;
mod jobs;
mod requests;
#[path = "../responder/scene.rs"]
// the rest of it is for the responder
#[allow(dead_code)]
mod scene;
mod terminal;
mod unfence;
