//! What the linker is told.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A name of ours that we use ourselves (`open64` is `open`) is ours: the loader looks up
    // 70 names fewer each time a program starts, and no program's `open` gets in between.
    println!("cargo::rustc-link-arg-cdylib=-Wl,-Bsymbolic");
    // What a C compiler adds to the start and end of a library is not needed (there are no frames to register, no
    // destructors but ours), and lies on pages that nothing else at start is on.
    println!("cargo::rustc-link-arg-cdylib=-nostartfiles");
    // What a start runs lies together.
    let directory = std::env::var("CARGO_MANIFEST_DIR").expect("Cargo says where the package is");
    println!("cargo::rerun-if-changed=start.ld");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-T,{directory}/start.ld");
    // Started as a program by the loader, it maps the one that it is told of.
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        println!("cargo::rustc-link-arg-cdylib=-Wl,-e,bypath_mapped_start");
        // Where the system's C library is another one, ours comes along.
        println!("cargo::rustc-link-arg-cdylib=-Wl,-rpath,$ORIGIN/glibc");
    }
}
