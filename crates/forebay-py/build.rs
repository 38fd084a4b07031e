//! Copies the experiments to where maturin takes them for the wheel from: it includes files of the
//! checkout only under their own paths (`docs/contribute/decisions/017`).

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let from = Path::new("../../experiments");
    println!("cargo::rerun-if-changed={}", from.display());
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    let to = PathBuf::from(out).join("experiments");
    // What was removed from the checkout goes from the wheel, too.
    if to.exists() {
        fs::remove_dir_all(&to)?;
    }
    copy(from, &to)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
