//! What must never happen, whatever the order of calls (design 5).

use crate::processes::{AGENT, NAME, REQUEST, is_answer};
use crate::world::{Call, REQUESTS, RESPONSES, Seen, World};

/// What an all-seeing observer remembers; part of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ghost {
    /// A bit for each process that fences the node just now.
    executing: u8,
    /// An execution succeeded, or somebody has vouched for the node.
    fenced: bool,
    withdrawal: Withdrawal,
    /// A bit for each process whose last look at its claim has found it.
    holds: u8,
    /// A bit for each process whose last such look came before the withdrawal.
    looked_before: u8,
    /// An execution began between such a look and the end.
    raced: bool,
}

/// What became of the request by the agent's hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Withdrawal {
    #[default]
    NotYet,
    /// Somebody had claimed it before, or there was nothing to withdraw.
    Claimed,
    /// Nobody had claimed it.
    Won,
}

impl Ghost {
    /// Takes note of a call that was made.
    ///
    /// # Errors
    /// The rule it breaks.
    pub fn note(
        &mut self,
        before: &World,
        after: &World,
        process: usize,
        call: &Call,
        seen: &Seen,
    ) -> Result<(), String> {
        let bit = 1 << process;
        match (call, seen) {
            (Call::Entry(place, name), _) if *place != RESPONSES && name == NAME => {
                self.holds &= !bit;
                self.looked_before &= !bit;
                if matches!(seen, Seen::File(..)) {
                    self.holds |= bit;
                }
            }
            (Call::Begin, _) => self.begin(bit)?,
            (Call::End(success), _) => {
                self.executing &= !bit;
                self.fenced |= success;
            }
            (Call::Vouch, _) => self.fenced = true,
            (Call::Withdrew { while_waiting }, _) => {
                self.withdrawn(*while_waiting);
            }
            // from the removal on, not only from its return
            (Call::Remove(place, name), Seen::Done)
                if process == AGENT && name == NAME && *place != RESPONSES =>
            {
                self.withdrawn(*place == REQUESTS || self.withdrawal == Withdrawal::Won);
            }
            _ => {}
        }
        all_is_whole(after)?;
        no_answer_changes(before, after)
    }

    fn withdrawn(&mut self, has_won: bool) {
        self.withdrawal = if has_won {
            Withdrawal::Won
        } else {
            Withdrawal::Claimed
        };
        self.looked_before = self.holds;
    }

    fn begin(&mut self, bit: u8) -> Result<(), String> {
        if self.executing != 0 {
            return Err("two processes execute one request at once".to_owned());
        }
        if self.withdrawal == Withdrawal::Won {
            return Err(
                "executed after a withdrawal that nobody's claim had come before".to_owned(),
            );
        }
        let is_withdrawn = self.withdrawal != Withdrawal::NotYet;
        if is_withdrawn && self.looked_before & bit == 0 {
            return Err("executed without a look at the claim after its withdrawal".to_owned());
        }
        self.raced |= is_withdrawn;
        self.executing |= bit;
        Ok(())
    }

    /// The agent says that the node is fenced.
    ///
    /// # Errors
    /// When it can't know.
    pub fn at_success(self) -> Result<(), String> {
        if self.fenced {
            Ok(())
        } else {
            Err("the agent says success, and the node was not fenced".to_owned())
        }
    }

    /// The process is no more.
    pub fn dies(&mut self, process: usize) {
        self.executing &= !(1 << process);
    }

    /// Whether an execution began after a withdrawal, its look at the claim having come before.
    pub fn is_race(self) -> bool {
        self.raced
    }
}

/// Nothing more will happen.
///
/// # Errors
/// What was left behind.
pub fn at_the_end(world: &World, is_alive: &[bool]) -> Result<(), String> {
    let is_left = world
        .places()
        .any(|place| place != RESPONSES && world.holds(place, NAME));
    if is_alive[AGENT] && is_left {
        return Err("the agent has ended, and its request is still there".to_owned());
    }
    Ok(())
}

/// Every file under a final name is a whole request or a whole answer.
fn all_is_whole(world: &World) -> Result<(), String> {
    for place in world.places() {
        for (name, file) in world.visible(place) {
            let is_whole = if place == RESPONSES {
                is_answer(&file.bytes)
            } else {
                file.bytes == REQUEST.with(Clone::clone)
            };
            if !is_whole {
                return Err(format!("{place}/{name} is torn"));
            }
        }
    }
    Ok(())
}

/// An answer that was there is there, and says the same.
fn no_answer_changes(before: &World, after: &World) -> Result<(), String> {
    for (name, file) in before.visible(RESPONSES) {
        if !(after.visible(RESPONSES)).any(|(other, now)| other == name && now.bytes == file.bytes)
        {
            return Err(format!("the answer {name} was replaced or removed"));
        }
    }
    Ok(())
}
