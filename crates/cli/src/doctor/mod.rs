//! What `bypath doctor` finds out: what this machine lets a session do, and how a program will get at its mounts.

pub mod machine;
pub mod program;

use serde::Serialize;

/// How a thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Good,
    /// Something does without it.
    Limited,
    /// Sessions will not work.
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// Its name, for programs too.
    pub name: &'static str,
    /// How it stands.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What that means, or what to do; empty if all is well.
    pub advice: String,
}

impl Finding {
    fn good(name: &'static str, found: impl Into<String>) -> Finding {
        Finding { name, state: State::Good, found: found.into(), advice: String::new() }
    }

    fn not_good(name: &'static str, state: State, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { name, state, found: found.into(), advice: advice.into() }
    }
}
