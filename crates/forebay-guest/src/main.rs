//! Program that User-mode Linux starts as the first process of a guest.

#[cfg(target_os = "linux")]
fn main() -> ! {
    forebay_guest::guest::init()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("a guest is Linux");
    std::process::exit(1);
}
