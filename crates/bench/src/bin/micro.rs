//! `bypath bench micro` as a program of its own.

fn main() -> std::process::ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    match bypath_bench::micro(&[], &args) {
        Ok(code) => code.into(),
        Err(what) => {
            eprintln!("micro: {what}");
            std::process::ExitCode::FAILURE
        }
    }
}
