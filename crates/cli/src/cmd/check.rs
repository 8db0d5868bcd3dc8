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
    issues: &'a [check::Issue],
    /// Not all are listed.
    more: bool,
    files: u64,
    directories: u64,
    blocks_used: u64,
}

/// Verifies an image and reports what it finds.
pub fn check(image: &Path, repair: bool, json: bool) -> Result<u8> {
    let shown = image.display();
    if repair {
        return Err(Failure::new(format!("{shown}: --repair is not in this version; copy what can be read with `bypath export`")).code(2));
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
            issues: &verdict.issues,
            more: verdict.more,
            files: verdict.files,
            directories: verdict.directories,
            blocks_used: verdict.blocks_used,
        })?;
    } else if clean {
        let (files, directories) = (verdict.files, verdict.directories);
        print(format!("{shown}: clean; {files} files, of them {directories} directories\n").as_bytes())?;
    } else {
        let mut text = String::new();
        for issue in &verdict.issues {
            text.push_str(&format!("{shown}: {}: {} (at byte {:#x})\n", issue.kind, issue.detail, issue.at));
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
