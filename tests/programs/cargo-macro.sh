#!/bin/bash
# needs: cargo gcc
# ignore: /target/|/cargo/
# A procedural macro: the compiler loads the library that it has just made, by the kernel's way.
mkdir -p w/m/src w/src && cd w || exit
printf '[package]\nname = "m"\nversion = "0.1.0"\nedition = "2021"\n[lib]\nproc-macro = true\n' >m/Cargo.toml
cat >m/src/lib.rs <<'R'
use proc_macro::TokenStream;
#[proc_macro_derive(Name)]
pub fn name(item: TokenStream) -> TokenStream {
    let name = item.to_string().split_whitespace().nth(1).unwrap_or("?").trim_end_matches(';').to_string();
    format!("impl {name} {{ fn name() -> &'static str {{ {name:?} }} }}").parse().unwrap()
}
R
printf '[package]\nname = "w"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nm = { path = "m" }\n' >Cargo.toml
printf '#[derive(m::Name)]\nstruct Short;\nfn main() { println!("{}", Short::name()); }\n' >src/main.rs
tool=$(command -v cargo)
home=${tool%/.cargo/bin/cargo}
[ ! -d "$home/.rustup" ] || export RUSTUP_HOME="$home/.rustup" RUSTUP_TOOLCHAIN="$(ls "$home/.rustup/toolchains" | head -1)"
export CARGO_HOME="$PWD/cargo" CARGO_NET_OFFLINE=true CARGO_TERM_COLOR=never
cargo build -q --offline
echo "exit $?"
target/debug/w
touch src/main.rs
cargo run -q --offline
cargo clean -q
ls
