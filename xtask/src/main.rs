//! Checks of the workspace itself: `cargo run -p xtask -- dependencies`; and
//! `… sites LIBC TABLE`, which makes a table for syscall patching.

mod dependencies;
mod layers;

fn main() -> std::process::ExitCode {
    let result = match std::env::args().nth(1).as_deref() {
        Some("dependencies") => {
            dependencies::check().and_then(|crates| layers::check().map(|modules| format!("{crates}\n{modules}")))
        }
        Some("sites") => sites(),
        _ => Err("usage: cargo run -p xtask -- dependencies | sites LIBC TABLE".to_string()),
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

/// Writes the table of a C library's system-call sites.
fn sites() -> Result<String, String> {
    let mut paths = std::env::args().skip(2);
    let (Some(library), Some(table)) = (paths.next(), paths.next()) else {
        return Err("sites takes the C library and the table's name".into());
    };
    let file = std::fs::read(&library).map_err(|error| format!("{library}: {error}"))?;
    let sites = sites::find(&file, |_| true).map_err(|what| format!("{library}: {what}"))?;
    std::fs::write(&table, sites.encode()).map_err(|error| format!("{table}: {error}"))?;
    Ok(format!("{table}: {} sites, {} calls left out", sites.sites.len(), sites.left_out))
}
