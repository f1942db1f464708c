//! The examples for authors of responders, each against the real agent.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../agent/env.rs"]
// the rest of it is for the agent
#[allow(dead_code)]
mod env;
mod example;
mod kubernetes;
#[path = "../responder/scene.rs"]
// the rest of it is for our own responder
#[allow(dead_code)]
mod scene;
mod source;
mod work;
