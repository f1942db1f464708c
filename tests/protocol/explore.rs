//! Tries every order in which processes can make their system calls, and every moment to die.
//!
//! A process is a function that is deterministic but for what its calls give back, so its state is
//! what it has seen. It is run from its beginning with what it has seen so far, up to its next call,
//! which is then made in the simulated world. States that were met before are not gone on with.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use indexmap::map::Entry;
use indexmap::{IndexMap, IndexSet};

use crate::rules::{Ghost, at_the_end};
use crate::world::{Call, Seen, Time, World};

/// What a process has seen so far, while it is run up to its next call.
#[derive(Debug, Default)]
pub struct Replay {
    seen: Vec<Seen>,
    at: Cell<usize>,
    next: RefCell<Option<Call>>,
}

/// Unwinds a process at a call that was not made yet.
struct NotYet;

impl Replay {
    pub fn call(&self, call: Call) -> Seen {
        let at = self.at.get();
        if let Some(seen) = self.seen.get(at) {
            self.at.set(at + 1);
            return seen.clone();
        }
        self.next.replace(Some(call));
        resume_unwind(Box::new(NotYet))
    }
}

/// How a process ends: whether it says that the node is fenced.
pub type Success = bool;

/// A process of the protocol.
#[derive(Clone, Copy)]
pub struct Process {
    pub name: &'static str,
    pub run: fn(&Replay) -> Success,
    pub can_die: bool,
}

/// Where a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Next {
    Calls(Call),
    Ended(Success),
}

/// A process's own state: what it has seen since the state before.
struct Local {
    before: Option<(usize, Seen)>,
    next: Next,
    made: usize,
}

/// The states of one process that were met.
struct Locals {
    process: Process,
    all: Vec<Local>,
    after: HashMap<(usize, Seen), usize>,
}

impl Locals {
    fn new(process: Process) -> Self {
        let mut locals = Self {
            process,
            all: Vec::new(),
            after: HashMap::new(),
        };
        locals.add(None);
        locals
    }

    fn after(&mut self, local: usize, seen: &Seen) -> usize {
        let key = (local, seen.clone());
        if let Some(known) = self.after.get(&key) {
            return *known;
        }
        let added = self.add(Some(key.clone()));
        self.after.insert(key, added);
        added
    }

    fn add(&mut self, before: Option<(usize, Seen)>) -> usize {
        let made = before.as_ref().map_or(0, |(local, seen)| {
            self.all[*local].made + usize::from(matches!(seen, Seen::Inode(_)))
        });
        let mut seen = Vec::new();
        let mut at = before.as_ref();
        while let Some((local, one)) = at {
            seen.push(one.clone());
            at = self.all[*local].before.as_ref();
        }
        seen.reverse();
        let next = self.run(seen);
        self.all.push(Local { before, next, made });
        self.all.len() - 1
    }

    fn run(&self, seen: Vec<Seen>) -> Next {
        let replay = Replay {
            seen,
            ..Replay::default()
        };
        match catch_unwind(AssertUnwindSafe(|| (self.process.run)(&replay))) {
            Ok(success) => Next::Ended(success),
            Err(cause) if cause.is::<NotYet>() => {
                Next::Calls(replay.next.take().expect("it was left there"))
            }
            Err(cause) => resume_unwind(cause),
        }
    }
}

/// Killed.
const DEAD: u32 = u32::MAX;

/// The most processes: there are millions of states, so their size counts.
const MOST: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    world: u32,
    locals: [u32; MOST],
    deaths_left: u8,
    ghost: Ghost,
}

/// What happened in a step.
#[derive(Debug, Clone, Copy)]
enum Step {
    Call(u8),
    Dies(u8),
    TimePasses,
}

/// What was tried.
#[derive(Debug, Default, Clone, Copy)]
pub struct Explored {
    pub states: usize,
    pub steps: usize,
    pub ends: usize,
    pub successes: usize,
    pub races: usize,
}

/// Everything that was met on the way.
pub struct Exploration {
    locals: Vec<Locals>,
    worlds: IndexSet<World>,
    /// Each with the number of the state before it, and the step from there.
    states: IndexMap<State, (u32, Step)>,
    explored: Explored,
}

impl Exploration {
    /// Tries everything that `processes` can do in `world`, with at most so many `deaths`.
    ///
    /// # Errors
    /// The shortest way to a state that breaks a rule.
    pub fn run(world: World, processes: &[Process], deaths: u8) -> Result<Explored, String> {
        let mut exploration = Self {
            locals: processes
                .iter()
                .map(|process| Locals::new(*process))
                .collect(),
            worlds: IndexSet::new(),
            states: IndexMap::new(),
            explored: Explored::default(),
        };
        let world = exploration.number_of(world);
        let start = State {
            world,
            locals: [0; MOST],
            deaths_left: deaths,
            ghost: Ghost::default(),
        };
        exploration.meet(start, 0, Step::TimePasses);
        let mut at = 0;
        while at < exploration.states.len() {
            exploration
                .go_on_from(at)
                .map_err(|(fault, step)| exploration.tell(at, step, &fault))?;
            at += 1;
        }
        exploration.explored.states = exploration.states.len();
        Ok(exploration.explored)
    }

    fn number_of(&mut self, world: World) -> u32 {
        let (number, _) = self.worlds.insert_full(world);
        u32::try_from(number).expect("fewer worlds")
    }

    fn meet(&mut self, state: State, before: usize, step: Step) {
        self.explored.steps += 1;
        if let Entry::Vacant(entry) = self.states.entry(state) {
            let before = u32::try_from(before).expect("fewer states");
            entry.insert((before, step));
        }
    }

    fn state(&self, at: usize) -> State {
        *self.states.get_index(at).expect("it was met").0
    }

    fn next(&self, process: usize, state: &State) -> Option<&Next> {
        let local = state.locals[process];
        (local != DEAD).then(|| &self.locals[process].all[local as usize].next)
    }

    fn go_on_from(&mut self, at: usize) -> Result<(), (String, Step)> {
        let state = self.state(at);
        let mut is_over = true;
        for process in 0..self.locals.len() {
            let Some(Next::Calls(call)) = self.next(process, &state).cloned() else {
                continue;
            };
            is_over = false;
            let number = u8::try_from(process).expect("few processes");
            let step = Step::Call(number);
            let fault = |fault| (fault, step);
            for (world, seen) in self.made_of(&state, process, &call) {
                let mut next = state;
                (next.ghost)
                    .note(
                        &self.worlds[state.world as usize],
                        &world,
                        process,
                        &call,
                        &seen,
                    )
                    .map_err(fault)?;
                let local = self.locals[process].after(state.locals[process] as usize, &seen);
                next.locals[process] = u32::try_from(local).expect("fewer states");
                next.world = self.number_of(world);
                self.end_of(process, &mut next).map_err(fault)?;
                self.meet(next, at, step);
            }
            if self.locals[process].process.can_die && state.deaths_left > 0 {
                let next = self.without(process, state);
                self.meet(next, at, Step::Dies(number));
            }
        }
        if is_over {
            self.explored.ends += 1;
            self.explored.races += usize::from(state.ghost.is_race());
            let world = &self.worlds[state.world as usize];
            let is_alive: Vec<bool> = state.locals.iter().map(|local| *local != DEAD).collect();
            return at_the_end(world, &is_alive).map_err(|fault| (fault, Step::TimePasses));
        }
        let world = &self.worlds[state.world as usize];
        let later = match world.time {
            Time::Early => Time::Late,
            Time::Late => Time::Dead,
            Time::Dead => return Ok(()),
        };
        let mut world = world.clone();
        world.time = later;
        let mut next = state;
        next.world = self.number_of(world);
        self.meet(next, at, Step::TimePasses);
        Ok(())
    }

    fn made_of(&self, state: &State, process: usize, call: &Call) -> Vec<(World, Seen)> {
        let made = self.locals[process].all[state.locals[process] as usize].made;
        self.worlds[state.world as usize].call(call, process, made)
    }

    /// A process that ends gives up its lock, and may claim a success.
    fn end_of(&mut self, process: usize, state: &mut State) -> Result<(), String> {
        let Some(Next::Ended(success)) = self.next(process, state) else {
            return Ok(());
        };
        if *success {
            self.explored.successes += 1;
            state.ghost.at_success()?;
        }
        state.world = self.unlocked(state.world, process);
        Ok(())
    }

    fn without(&mut self, process: usize, mut next: State) -> State {
        next.locals[process] = DEAD;
        next.deaths_left -= 1;
        next.ghost.dies(process);
        next.world = self.unlocked(next.world, process);
        next
    }

    fn unlocked(&mut self, world: u32, process: usize) -> u32 {
        if self.worlds[world as usize].locked_by != Some(process) {
            return world;
        }
        let mut unlocked = self.worlds[world as usize].clone();
        unlocked.locked_by = None;
        self.number_of(unlocked)
    }

    fn name(&self, process: u8) -> &'static str {
        self.locals[usize::from(process)].process.name
    }

    /// The way to the state `at`, and the step from there that broke a rule.
    fn tell(&self, at: usize, last: Step, fault: &str) -> String {
        let mut way = vec![(at, last)];
        let mut number = at;
        while number != 0 {
            let (before, step) = self.states[number];
            number = before as usize;
            way.push((number, step));
        }
        way.reverse();
        let mut text = format!("{fault}\n");
        for (from, step) in way {
            let said = match step {
                Step::TimePasses => "time passes".to_owned(),
                Step::Dies(process) => format!("{} is killed", self.name(process)),
                Step::Call(process) => {
                    let call = self.next(usize::from(process), &self.state(from));
                    let mut call = format!("{call:?}");
                    call.truncate(160);
                    format!("{}: {call}", self.name(process))
                }
            };
            let _ = writeln!(text, "  {said}");
        }
        text
    }
}
