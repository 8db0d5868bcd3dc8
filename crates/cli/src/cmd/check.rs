//! `bypath check IMG`: exit code 0 clean, 1 damaged, 2 could not be checked.

use crate::check;
use crate::cmd::{print, print_json};
use crate::failure::{Failure, Result};
use crate::progress;
use serde::Serialize;
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

/// Verifies an image and reports what it finds.
pub fn check(image: &Path, repair: bool, json: bool) -> Result<u8> {
    let shown = image.display();
    if repair {
        return Err(Failure::new(format!(
            "{shown}: --repair is not in this version; copy what can be read with `bypath export`"
        ))
        .code(2));
    }
    let bar = progress::bar(json, "checking", 1000);
    let verdict = check::verify(image, &bar).map_err(|failure| failure.code(2));
    bar.finish_and_clear();
    let verdict = verdict?;
    let clean = verdict.issues.is_empty();
    if json {
        print_json(&Report {
            image: shown.to_string(),
            clean,
            issues: verdict
                .issues
                .iter()
                .map(|issue| Finding { kind: issue.kind.name(), at: issue.at, detail: &issue.detail })
                .collect(),
            more: verdict.more,
            files: verdict.files,
            directories: verdict.directories,
            names: verdict.names,
            orphans: verdict.orphans,
            blocks_used: verdict.blocks_used,
            pending: verdict.pending,
        })?;
    } else if clean {
        let mut text = format!("{shown}: clean; {} files, {} of them directories", verdict.files, verdict.directories);
        if verdict.orphans > 0 {
            text.push_str(&format!("; {} without a name", verdict.orphans));
        }
        if verdict.pending > 0 {
            text.push_str(&format!("; {} interrupted operations, which the next user finishes", verdict.pending));
        }
        print(format!("{text}\n").as_bytes())?;
    } else {
        let mut text = String::new();
        for issue in &verdict.issues {
            text.push_str(&format!("{shown}: {issue}\n"));
        }
        let more = if verdict.more { " and more" } else { "" };
        text.push_str(&format!(
            "{shown}: damaged: {} findings{more}; copy what can be read with `bypath export`\n",
            verdict.issues.len()
        ));
        print(text.as_bytes())?;
    }
    Ok(u8::from(!clean))
}
