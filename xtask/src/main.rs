//! Checks of the workspace itself: `cargo run -p xtask -- dependencies`.

mod dependencies;

fn main() -> std::process::ExitCode {
    let result = match std::env::args().nth(1).as_deref() {
        Some("dependencies") => dependencies::check(),
        _ => Err("usage: cargo run -p xtask -- dependencies".to_string()),
    };
    match result {
        Ok(report) => {
            println!("{report}");
            std::process::ExitCode::SUCCESS
        }
        Err(what) => {
            eprintln!("{what}");
            std::process::ExitCode::FAILURE
        }
    }
}
