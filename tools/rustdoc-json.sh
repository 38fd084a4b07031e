#!/bin/sh
# rustdoc, allowed to write JSON by a stable toolchain; the compiler itself stays as it is.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@" -Z unstable-options --output-format json --cap-lints allow
