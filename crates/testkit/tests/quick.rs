//! Goal: each test of the whole runs, in small; `make test` runs them in full.
//! Method: start the program as `make test` does.

use std::process::Command;

fn testkit(args: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_testkit")).args(args).output().expect("testkit starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "testkit {}:\n{text}{}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    println!("{text}");
}

/// Comparing under several users needs root.
fn root() -> bool {
    // SAFETY: takes no arguments.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        eprintln!("NOT RUN: needs root");
    }
    root
}

#[test]
fn differential_model() {
    if root() {
        testkit(&["differential", "--backend", "mem", "--ops", "20000"]);
    }
}

#[test]
fn differential_image() {
    if root() {
        testkit(&["differential", "--backend", "native", "--ops", "20000"]);
    }
}

#[test]
fn random() {
    testkit(&["random", "--ops", "20000"]);
}

#[test]
fn append() {
    testkit(&["append", "--records", "5000"]);
}

#[test]
fn visible() {
    testkit(&["visible", "--rounds", "200"]);
}

#[test]
fn kill() {
    testkit(&["kill", "--rounds", "40"]);
}

#[test]
fn flat() {
    testkit(&["flat", "--entries", "20000"]);
}
