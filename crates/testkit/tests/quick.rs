//! Goal: each test of the whole runs, in small; `make test` runs them in full.
//! Method: start the program as `make test` does.

use std::process::Command;

fn testkit(args: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_testkit")).args(args).output().expect("testkit starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "testkit {}:\n{text}{}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    println!("{text}");
    // Past the test harness, so that the run shows what it left out.
    for line in text.lines().filter(|line| line.starts_with("skip ")) {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{line}\n").as_bytes());
    }
}

#[test]
fn differential_model() {
    testkit(&["differential", "--backend", "mem", "--ops", "20000"]);
}

#[test]
fn differential_image() {
    testkit(&["differential", "--backend", "native", "--ops", "20000"]);
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
fn storm() {
    testkit(&["storm", "--kills", "100"]);
}

#[test]
fn restless_storm() {
    testkit(&["storm", "--kills", "100", "--restless"]);
}

#[test]
fn deaths() {
    testkit(&["deaths", "--rounds", "60"]);
}

#[test]
fn flat() {
    testkit(&["flat", "--entries", "20000"]);
}

#[test]
fn recover() {
    testkit(&["recover", "--files", "20000"]);
}
