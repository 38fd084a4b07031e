//! Compiles each header of the kernel's laws for the host under its own name, and a table of the
//! laws.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

const BPF: &str = "../../python/forebay/linux/bpf";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed={BPF}");
    println!("cargo::rerun-if-changed=src/host.c");
    // The headers need <linux/types.h>.
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return Ok(());
    }
    let headers: Vec<_> = fs::read_dir(Path::new(BPF).join("laws"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    let out = PathBuf::from(out);
    let stems = headers.iter().filter_map(|header| header.file_stem());
    let mut names: Vec<_> = stems.filter_map(|stem| stem.to_str()).collect();
    names.sort_unstable();
    let (mut declared, mut listed) = (String::new(), String::new());
    let mut build = cc::Build::new();
    build
        .include(BPF)
        .include("src")
        .opt_level(2)
        .warnings(true);
    for kind in names {
        let name = kind.replace('-', "_");
        let file = out.join(format!("{name}.c"));
        let law = format!(
            "#define FOREBAY_LAW laws/{kind}.h\n#define HOST_KIND \"{kind}\"\n\
             #define HOST_LAW forebay_{name}\n#include \"host.c\"\n"
        );
        fs::write(&file, law)?;
        build.file(file);
        declared += &format!("extern const struct host_law forebay_{name};\n");
        listed += &format!("\t&forebay_{name},\n");
    }
    let table = out.join("table.c");
    let text = format!(
        "#include \"host.h\"\n{declared}const struct host_law *const forebay_laws[] = {{\n{listed}\t0,\n}};\n"
    );
    fs::write(&table, text)?;
    build
        .file(table)
        .flag("-fno-strict-aliasing")
        .compile("forebay_kernel_laws");
    Ok(())
}
