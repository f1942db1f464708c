//! Chooses the face: the agent, unless the first word is a subcommand.
fn main() {}
