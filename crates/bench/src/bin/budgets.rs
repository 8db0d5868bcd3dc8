//! Checks the budgets of single calls: `budgets [--flat [ENTRIES]] [--among] [FILE.toml]`.

use bypath_bench::budget;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.first().map(String::as_str) {
        Some("--worker") => budget::serve(&args[1..]).map(|()| true),
        Some("--flat") => budget::check_flat(args.get(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000)),
        Some("--among") => budget::check_among(),
        Some("--help" | "-h") => {
            println!("usage: budgets [FILE.toml]        instructions and lines a call, against budgets.toml");
            println!("       budgets --flat [ENTRIES]   a big directory against one of a thousand entries");
            println!("       budgets --among            an image alone against one beside others, and with another inside");
            Ok(true)
        }
        path => budget::check(path.map(std::path::Path::new)),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("budgets: over");
            ExitCode::FAILURE
        }
        Err(what) => {
            eprintln!("budgets: {what}");
            ExitCode::FAILURE
        }
    }
}
