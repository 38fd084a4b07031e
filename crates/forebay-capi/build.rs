//! The name under which the dynamic linker finds the shared library: it has the number of the
//! binary interface, so that programs keep the one they were linked with.

fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // FOREBAY_ABI in include/forebay.h.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libforebay.so.1");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
