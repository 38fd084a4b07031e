//! Sets the soname of the shared library. It contains the number of the binary interface, so that a
//! program runs only with a library of the interface that it was linked with.

fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // FOREBAY_ABI in include/forebay.h.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libforebay.so.1");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
