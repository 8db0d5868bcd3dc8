#!/bin/sh
# needs: cargo gcc
# ignore: /target/|^./cargo/
# A package with a library, a build script and a test: built, run, tested, built again after a change.
tool=$(command -v cargo)
home=${tool%/.cargo/bin/cargo}
[ ! -d "$home/.rustup" ] || export RUSTUP_HOME="$home/.rustup"
export CARGO_HOME="$PWD/cargo" CARGO_NET_OFFLINE=true CARGO_TERM_COLOR=never CARGO_INCREMENTAL=1 RUSTUP_TOOLCHAIN="$(ls "$home/.rustup/toolchains" 2>/dev/null | head -1)"
[ -n "$RUSTUP_TOOLCHAIN" ] || unset RUSTUP_TOOLCHAIN
mkdir -p p/src
cd p || exit
printf '[package]\nname = "tiny"\nversion = "0.1.0"\nedition = "2021"\n[profile.dev]\ndebug = 0\n' >Cargo.toml
echo 'fn main() { std::fs::write(std::path::Path::new(&std::env::var("OUT_DIR").unwrap()).join("made.rs"), "pub const MADE: u32 = 7;").unwrap(); println!("cargo:rerun-if-changed=build.rs"); }' >build.rs
echo 'include!(concat!(env!("OUT_DIR"), "/made.rs")); pub fn f() -> u32 { MADE * 6 }' >src/lib.rs
echo 'fn main() { std::fs::write("out", tiny::f().to_string()).unwrap(); println!("{}", std::fs::read_to_string("out").unwrap()); }' >src/main.rs
cargo build -q
echo "exit $?"
target/debug/tiny
cargo run -q
sleep 0.02
sed -i 's/\* 6/* 5/' src/lib.rs
cargo run -q
echo 'fn' >>src/lib.rs
cargo check -q 2>/dev/null
echo "exit $?"
ls target/debug | sort
cargo clean -q
ls
