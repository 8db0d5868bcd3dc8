//! `bypath doctor [CMD…]`

use crate::cmd::{print, print_json};
use crate::doctor::program::{self, By, Program, Way};
use crate::doctor::{Finding, State, machine};
use crate::failure::{Failure, Result};
use serde::Serialize;
use std::ffi::OsString;

#[derive(Serialize)]
struct Report {
    machine: Vec<Finding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<Program>,
}

/// Says what was found: exit code 0 if sessions work and the program is served, 1 if not.
pub fn doctor(command: &[OsString], json: bool) -> Result<u8> {
    let program = match command.first() {
        Some(name) => {
            let not_there = || Failure::new(format!("{}: command not found", name.display())).code(127);
            let path = program::find(name).ok_or_else(not_there)?;
            Some(program::look(&path).map_err(|error| Failure::io(path.display(), &error))?)
        }
        None => None,
    };
    let report = Report { machine: machine::look(), program };
    let is_served = report.program.as_ref().is_none_or(|program| match program.way {
        Way::Library | Way::LibraryInPart | Way::Mapped => true,
        Way::Kernel => report.machine.iter().any(|finding| finding.name == "fuse" && finding.state == State::Good),
        Way::None => false,
    });
    let works = report.machine.iter().all(|finding| finding.state != State::Bad);
    if json {
        print_json(&report)?;
    } else {
        print(text(&report, is_served).as_bytes())?;
    }
    Ok(u8::from(!(works && is_served)))
}

fn text(report: &Report, is_served: bool) -> String {
    let mut text = String::new();
    for Finding { name, state, found, advice } in &report.machine {
        let mark = match state {
            State::Good => "ok ",
            State::Limited => "-  ",
            State::Bad => "BAD",
        };
        text += &format!("{mark} {name:<21} {found}\n");
        if !advice.is_empty() {
            text += &format!("    {:<21} {advice}\n", "");
        }
    }
    if let Some(program) = &report.program {
        let by = program.interpreter.as_ref().map_or_else(String::new, |path| format!(", run by {}", path.display()));
        let way = match program.way {
            Way::Library => "served by the library",
            Way::LibraryInPart => "served by the library in part",
            Way::Mapped => "mapped by the library, and served by it",
            Way::Kernel if is_served => "served by a kernel mount only",
            Way::Kernel => "not served here: by a kernel mount only",
            Way::None => "not served",
        };
        text += &format!("\n{}{by}: {way}\n    {}\n", program.path.display(), program.why);
        for object in &program.objects {
            let by = match object.by {
                By::Functions => "by the C library's functions",
                By::HandedBack => "makes system calls of its own: handed back, those that come often by a jump",
                By::Filter => "makes system calls of its own: a filter hands them back, those that come often by a jump",
                By::Past => "makes system calls of its own, which go past the library",
            };
            text += &format!("    {}: {by}\n", object.path.display());
        }
        if program.libraries_with_own_calls.len() + usize::from(program.own_calls) > 1 {
            text += "    where one range of addresses cannot hold all that make such calls, a line says so at its start\n";
        }
    }
    text
}
