//! Goal: the header is good C and C++, and a C program works with it.
//! Method: compile both ways with all warnings on, run the example.

use std::path::{Path, PathBuf};
use std::process::Command;

fn manifest() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo has put the library for this test: beside it, and a folder up
/// after `cargo build`. The newer one is of today's source.
fn library_directory() -> PathBuf {
    let test = std::env::current_exe().expect("own path");
    let made = |dir: &Path| std::fs::metadata(dir.join("libbypath.so")).and_then(|m| m.modified()).ok();
    let newest = test.ancestors().skip(1).take(2).max_by_key(|dir| made(dir));
    newest.expect("target directory").to_path_buf()
}

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("bypath-capi-{}-{name}", std::process::id()));
    // A killed run's, whose process had this number.
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("scratch directory");
    path
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether `program` is on this machine; says so past the test harness if not, so that the run shows what it left out.
fn have(program: &str, check: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("skip {check}: no {program} here\n").as_bytes());
    }
    found
}

fn compile_header(compiler: &str, standard: &str, file: &str) {
    let dir = scratch(file);
    let source = dir.join(file);
    std::fs::write(&source, "#include \"bypath.h\"\nint main(void) { return bp_open_namespace() == 0; }\n").expect("source");
    let mut command = Command::new(compiler);
    command.args([standard, "-D_GNU_SOURCE", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-I"]);
    run(command.arg(manifest().join("include")).arg(&source));
    let _ = std::fs::remove_dir_all(dir);
}

#[test]
fn header_compiles_as_c() {
    compile_header("cc", "-std=gnu99", "t.c");
}

#[test]
fn header_compiles_as_cxx() {
    if have("c++", "bypath.h as C++") {
        compile_header("c++", "-std=c++11", "t.cc");
    }
}

fn build_example(dir: &Path) -> PathBuf {
    build(dir, "examples/hello.c")
}

fn build(dir: &Path, source: &str) -> PathBuf {
    let program = dir.join("program");
    let mut command = Command::new("cc");
    command.args(["-std=gnu99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-o"]).arg(&program);
    command.arg("-I").arg(manifest().join("include")).arg(manifest().join(source));
    run(command.arg("-L").arg(library_directory()).arg("-lbypath"));
    program
}

fn run_example(program: &Path, image: Option<&Path>) -> String {
    run(Command::new(program).args(image).env("LD_LIBRARY_PATH", library_directory()))
}

#[test]
fn example_runs_in_memory() {
    let dir = scratch("memory");
    let program = build_example(&dir);
    assert_eq!(run_example(&program, None), "hello: hello, world\n");
    let _ = std::fs::remove_dir_all(dir);
}

#[test]
#[cfg(feature = "native")]
fn example_runs_on_an_image() {
    let dir = scratch("image");
    let program = build_example(&dir);
    let image = dir.join("image");
    let path = format!("{}\0", image.display());
    // Whoever runs this test may write to the root directory.
    let options = engine::mkfs::Options { limit: 64 << 20, mode: 0o777, ..Default::default() };
    engine::mkfs::make(path.as_bytes(), &options).expect("mkfs");
    for _ in 0..2 {
        assert_eq!(run_example(&program, Some(&image)), "hello: hello, world\n");
    }
    let _ = std::fs::remove_dir_all(dir);
}

#[test]
#[cfg(feature = "native")]
fn overwrites_are_whole() {
    let dir = scratch("whole");
    let program = build(&dir, "tests/whole.c");
    let image = dir.join("image");
    let path = format!("{}\0", image.display());
    let options = engine::mkfs::Options { limit: 256 << 20, mode: 0o777, ..Default::default() };
    engine::mkfs::make(path.as_bytes(), &options).expect("mkfs");
    assert_eq!(run_example(&program, Some(&image)), "whole\n");
    let _ = std::fs::remove_dir_all(dir);
}
