//! `bypath check IMG [--repair]`: exit code 0 clean, 1 damaged, 2 could not be checked.

use crate::attach;
use crate::check;
use crate::cmd::{print, print_json};
use crate::failure::Result;
use crate::progress;
use engine::check::Issue;
use engine::repair::Repair;
use serde::Serialize;
use std::io::IsTerminal;
use std::path::Path;

#[derive(Serialize)]
struct Report<'a> {
    image: String,
    clean: bool,
    issues: Vec<Finding<'a>>,
    /// Not all are listed.
    more: bool,
    files: u64,
    directories: u64,
    names: u64,
    /// Files without a name, still open somewhere or to be freed.
    orphans: u64,
    /// Space that they take.
    orphan_bytes: u64,
    blocks_used: u64,
    /// Operations that a crash interrupted; whoever uses the image next finishes them.
    pending: u32,
}

#[derive(Serialize)]
struct Finding<'a> {
    kind: &'static str,
    /// Byte offset in the image.
    at: u64,
    detail: &'a str,
}

#[derive(Serialize)]
struct Repaired<'a> {
    image: String,
    /// Whether the image is clean now.
    clean: bool,
    /// Whether anything was written.
    repaired: bool,
    /// What was found.
    issues: Vec<Finding<'a>>,
    /// What was done; or what would be done, if nothing was written.
    actions: Vec<Done<'a>>,
    /// Actions beyond those listed.
    more: u64,
    /// Actions that give something up.
    drops: u64,
    files: u64,
    directories: u64,
}

#[derive(Serialize)]
struct Done<'a> {
    kind: &'static str,
    /// Byte offset in the image.
    at: u64,
    detail: &'a str,
    /// A name, contents or attributes are given up.
    drops: bool,
}

fn findings(issues: &[Issue]) -> Vec<Finding<'_>> {
    issues.iter().map(|issue| Finding { kind: issue.kind.name(), at: issue.at, detail: &issue.detail }).collect()
}

/// What the command line asks of a check.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Fix what is found.
    pub repair: bool,
    /// Do not ask.
    pub yes: bool,
    /// Whatever other machine uses it.
    pub force: bool,
    /// As JSON.
    pub json: bool,
}

/// Verifies an image and reports what it finds; fixes it if that is wanted.
pub fn check(image: &Path, options: Options) -> Result<u8> {
    if options.repair { repair(image, options) } else { verify(image, options.json) }
}

fn verify(image: &Path, json: bool) -> Result<u8> {
    let shown = image.display();
    let bar = progress::bar(json, "checking", 1000);
    let verdict = check::verify(image, &bar).map_err(|failure| failure.code(2));
    bar.finish_and_clear();
    let verdict = verdict?;
    let clean = verdict.issues.is_empty();
    if json {
        print_json(&Report {
            image: shown.to_string(),
            clean,
            issues: findings(&verdict.issues),
            more: verdict.more,
            files: verdict.files,
            directories: verdict.directories,
            names: verdict.names,
            orphans: verdict.orphans,
            orphan_bytes: orphan_bytes(&verdict),
            blocks_used: verdict.blocks_used,
            pending: verdict.pending,
        })?;
    } else if clean {
        print(format!("{shown}: {}\n", clean_line(&verdict)).as_bytes())?;
    } else {
        let mut text = String::new();
        for issue in &verdict.issues {
            text.push_str(&format!("{shown}: {issue}\n"));
        }
        let more = if verdict.more { " and more" } else { "" };
        text.push_str(&format!(
            "{shown}: damaged: {} findings{more}; fix it with `bypath check --repair`, after copying the file if you can\n",
            verdict.issues.len()
        ));
        print(text.as_bytes())?;
    }
    Ok(u8::from(!clean))
}

/// Bytes that files without a name take.
fn orphan_bytes(verdict: &engine::check::Report) -> u64 {
    verdict.orphan_lines * 64
}

fn clean_line(verdict: &engine::check::Report) -> String {
    let mut text = format!("clean; {} files, {} of them directories", verdict.files, verdict.directories);
    if verdict.orphans > 0 {
        let kib = orphan_bytes(verdict).div_ceil(1024);
        text.push_str(&format!(
            "; {} removed but not freed ({kib} KiB): still open, or for the next user or --repair to free",
            verdict.orphans
        ));
    }
    if verdict.pending > 0 {
        text.push_str(&format!("; {} interrupted operations, which the next user finishes", verdict.pending));
    }
    text
}

fn repair(image: &Path, options: Options) -> Result<u8> {
    let shown = image.display();
    if options.force {
        attach::take_over(image).map_err(|failure| failure.code(2))?;
    }
    let bar = progress::bar(options.json, "repairing", 1000);
    let plan = check::plan(image, &bar);
    bar.finish_and_clear();
    let plan = plan?;
    if !options.json {
        list(image, &plan)?;
    }
    let allowed = plan.drops == 0 || options.yes || !options.json && is_agreed(image, plan.drops);
    let write = plan.is_needed() && allowed;
    if write {
        plan.apply().map_err(|error| check::not_repaired(image, error))?;
    }
    let clean = write || !plan.is_needed();
    if options.json {
        print_json(&Repaired {
            image: shown.to_string(),
            clean,
            repaired: write,
            issues: findings(&plan.before.issues),
            actions: plan
                .actions
                .iter()
                .map(|action| Done { kind: action.kind.name(), at: action.at, detail: &action.detail, drops: action.drops })
                .collect(),
            more: plan.more,
            drops: plan.drops,
            files: plan.after.files,
            directories: plan.after.directories,
        })?;
    } else if clean {
        let how = if write { "repaired; now " } else { "" };
        print(format!("{shown}: {how}{}\n", clean_line(&plan.after)).as_bytes())?;
    } else {
        print(
            format!("{shown}: damaged, nothing was changed: {} things would be given up; agree with --yes\n", plan.drops)
                .as_bytes(),
        )?;
    }
    Ok(u8::from(!clean))
}

/// Says what will be done, one line each.
fn list(image: &Path, plan: &Repair) -> Result<()> {
    let mut text = String::new();
    for action in &plan.actions {
        let mark = if action.drops { " [gives up]" } else { "" };
        text.push_str(&format!("{}: {action}{mark}\n", image.display()));
    }
    if plan.more > 0 {
        text.push_str(&format!("{}: and {} more\n", image.display(), plan.more));
    }
    print(text.as_bytes())
}

/// Asks whether what can't be kept may be given up. Without a terminal the answer is no.
fn is_agreed(image: &Path, drops: u64) -> bool {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return false;
    }
    eprint!("{}: {drops} things marked [gives up] can't be kept. Repair all the same? (y/N) ", image.display());
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
