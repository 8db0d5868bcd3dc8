//! `bypath completions SHELL` and `bypath man [DIR]`: made of what the command line takes.

use crate::args::Args;
use crate::cmd::print;
use crate::failure::{Failure, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::path::Path;

/// Prints the completions of a shell.
pub fn completions(shell: Shell) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown(), "bypath", &mut script);
    print(&script).map(|()| 0)
}

/// Prints the manual's first page, or writes all pages.
pub fn man(directory: Option<&Path>) -> Result<u8> {
    let failed = |path: &Path, error| Failure::io(path.display(), &error);
    let Some(directory) = directory else {
        return print(&page(shown(), "bypath")?).map(|()| 0);
    };
    std::fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
    let mut whole = shown();
    whole.build();
    let mut pages = vec![(whole.clone(), "bypath".to_string())];
    for verb in whole.get_subcommands().filter(|verb| verb.get_name() != "help") {
        pages.push((verb.clone(), format!("bypath-{}", verb.get_name())));
    }
    for (command, name) in pages {
        let path = directory.join(format!("{name}.1"));
        std::fs::write(&path, page(command, &name)?).map_err(|error| failed(&path, error))?;
    }
    Ok(0)
}

fn page(command: Command, name: &str) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let title = name.to_uppercase();
    let man = clap_mangen::Man::new(command.display_name(name.to_string())).title(title).section("1").manual("Bypath");
    man.render(&mut text).map_err(|error| Failure::io("manual", &error))?;
    // What stands below the options is written in lines.
    let text = String::from_utf8_lossy(&text);
    let Some((before, after)) = text.split_once("\n.SH EXTRA\n") else { return Ok(text.into_owned().into_bytes()) };
    let (lines, rest) = after.split_once("\n.SH ").unwrap_or((after, ""));
    let rest = if rest.is_empty() { String::new() } else { format!("\n.SH {rest}") };
    Ok(format!("{before}\n.SH NOTES\n.nf\n{lines}\n.fi{rest}").into_bytes())
}

/// The command line without the verbs that only `bypath` itself uses.
fn shown() -> Command {
    let whole = Args::command();
    let verbs: Vec<Command> = whole.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned().collect();
    let mut command = Command::new("bypath").version(env!("CARGO_PKG_VERSION")).subcommands(verbs);
    if let Some(about) = whole.get_about() {
        command = command.about(about.clone());
    }
    if let Some(after) = whole.get_after_help() {
        command = command.after_help(after.clone());
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: completions and manual know each verb that people use and none of the others; each verb says what it does.
    #[test]
    fn verbs() {
        Args::command().debug_assert();
        let manual = String::from_utf8(page(shown(), "bypath").unwrap()).unwrap();
        let shells = [(Shell::Bash, "bypath,", ")"), (Shell::Zsh, "'", ":"), (Shell::Fish, "-a \"", "\"")];
        for (shell, before, after) in shells {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut shown(), "bypath", &mut script);
            let script = String::from_utf8(script).unwrap();
            for verb in Args::command().get_subcommands() {
                let (name, is_shown) = (verb.get_name(), !verb.is_hide_set());
                assert!(verb.get_about().is_some(), "{name}");
                let is_known = script.contains(&format!("{before}{name}{after}"));
                assert_eq!(is_known, is_shown, "{shell} {name}");
                assert_eq!(manual.contains(&format!("bypath\\-{}(1)", name.replace('-', "\\-"))), is_shown, "{name}");
            }
        }
    }
}
