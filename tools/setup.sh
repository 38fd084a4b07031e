#!/bin/sh
# What the Makefile asks for before it builds: programs from Debian's packages, and Rust.
#
#   setup.sh venv FOLDER 3.11                    a virtual environment of $PYTHON
#   setup.sh programs needed cc=gcc,libc6-dev    installs what is missing, or says so and fails
#   setup.sh programs tests ps=procps            the same, but tests do without
#   setup.sh rust FOLDER 1.88                    rustc of that version or newer, or rustup's in FOLDER
#   setup.sh component FOLDER clippy rustfmt     parts of Rust that only some targets call
#
# For `rust`, RUST, RUSTUP, RUSTUP_VERSION and RUSTUP_SHA256 say what is fetched; the Makefile has them.
set -eu

is_there() {
	command -v "$1" >/dev/null 2>&1 || return 1
	# A compiler without the C library's headers and start files links nothing.
	[ "$1" != cc ] || echo 'int main(void) { return 0; }' | cc -x c -o /dev/null - 2>/dev/null
}

# Debian's packages, by who may install them.
install_packages() {
	command -v apt-get >/dev/null 2>&1 || return 1
	if [ "$(id -u)" = 0 ]; then
		as=
	elif ! command -v sudo >/dev/null 2>&1; then
		return 1
	elif [ -t 0 ]; then
		as=sudo # may ask for a password
	else
		as='sudo -n'
	fi
	echo "installing Debian packages: $*"
	# Lists that cannot be renewed may still be good enough.
	$as apt-get update -qq || true
	$as env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

programs() {
	purpose=$1
	shift
	missing='' packages=''
	for pair; do
		is_there "${pair%%=*}" && continue
		missing="$missing ${pair%%=*}"
		packages="$packages $(echo "${pair#*=}" | tr , ' ')"
	done
	[ -n "$missing" ] || return 0
	# Words on purpose.
	# shellcheck disable=SC2086
	install_packages $packages && return 0
	if [ "$purpose" = tests ]; then
		echo "not installed:$missing; tests that need them are skipped (Debian: apt-get install$packages)"
	else
		echo "missing:$missing; install them, then try again (Debian: apt-get install$packages)" >&2
		return 1
	fi
}

# Debian's Python comes without venv.
venv() {
	if ! "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; then
		install_packages "${PYTHON##*/}-venv" || true
	fi
	found=$("$PYTHON" -c 'import platform; print(platform.python_version())' 2>/dev/null) || found=
	if [ -z "$found" ] || ! at_least "$found" "$2"; then
		echo "Python: found ${found:-none}, needed $2 or newer; name it: make run PYTHON=python3.12" >&2
		return 1
	fi
	if ! "$PYTHON" -m venv "$1" >/dev/null 2>&1; then
		rm -rf "$1"
		echo "Python: $PYTHON makes no virtual environment; install its venv" \
			"(Debian: apt-get install ${PYTHON##*/}-venv), then try again" >&2
		return 1
	fi
}

# True where the first version is at least the second.
at_least() {
	[ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]
}

rust() {
	folder=$1 wanted=$2
	found=$(rustc --version 2>/dev/null | cut -d ' ' -f 2) || found=
	if [ -n "$found" ] && cargo --version >/dev/null 2>&1 && at_least "$found" "$wanted"; then
		return 0
	fi
	hint="install Rust $wanted or newer (https://rustup.rs), then try again"
	machine=$(uname -m)
	sum=$(echo "$RUSTUP_SHA256" | tr ' ' '\n' | sed -n "s/^$machine=//p")
	if [ -z "$sum" ] || [ "$(uname -s)" != Linux ] || ldd --version 2>&1 | grep -q musl; then
		echo "Rust: found ${found:-none}; nothing to fetch for $(uname -s) on $machine: $hint" >&2
		return 1
	fi
	address=$RUSTUP/$RUSTUP_VERSION/$machine-unknown-linux-gnu/rustup-init
	echo "Rust: found ${found:-none}, needed $wanted; fetching $RUST into $folder: $address"
	# A bare Debian trusts nobody.
	if [ ! -e /etc/ssl/certs/ca-certificates.crt ]; then
		install_packages ca-certificates || true
	fi
	mkdir -p "$folder"
	init=$folder/rustup-init
	if ! "${PYTHON:-python3}" - "$address" "$init" 2>"$folder/log" <<-'FETCH'; then
		import sys, urllib.request
		urllib.request.urlretrieve(sys.argv[1], sys.argv[2])
	FETCH
		echo "Rust: not fetched ($(tail -n 1 "$folder/log")): $hint" >&2
		return 1
	fi
	if ! echo "$sum  $init" | sha256sum --check --status; then
		rm -f "$init"
		echo "Rust: $address is not the file that the Makefile names: $hint" >&2
		return 1
	fi
	chmod +x "$init"
	# Nothing outside the folder: no line in a profile, no other toolchain's settings.
	if ! CARGO_HOME=$folder/cargo RUSTUP_HOME=$folder/rustup RUSTUP_TOOLCHAIN='' \
		RUSTUP_INIT_SKIP_PATH_CHECK=yes "$init" -y --quiet --no-modify-path --profile minimal \
		--default-toolchain "$RUST" >"$folder/log" 2>&1; then
		echo "Rust: rustup failed ($(grep -m 1 '^error' "$folder/log" || tail -n 1 "$folder/log")): $hint" >&2
		return 1
	fi
	rm -f "$init"
	wrap "$folder"
}

# Commands that find their toolchain wherever they are called from, and where the clone has moved to.
wrap() {
	mkdir -p "$1/bin"
	for tool in "$1"/cargo/bin/*; do
		name=${tool##*/}
		cat >"$1/bin/$name" <<-WRAPPER
			#!/bin/sh
			here=\$(cd "\$(dirname "\$0")/.." && pwd)
			CARGO_HOME=\$here/cargo RUSTUP_HOME=\$here/rustup exec "\$here/cargo/bin/$name" "\$@"
		WRAPPER
		chmod +x "$1/bin/$name"
	done
}

component() {
	folder=$1
	shift
	for part; do
		name=$part
		[ "$part" = clippy ] && name=cargo-clippy
		# Rust keeps these tools in a folder that is not in the path.
		[ "$part" = llvm-tools ] && name=$(rustc --print target-libdir)/../bin/llvm-profdata
		"$name" --version >/dev/null 2>&1 && continue
		if [ ! -x "$folder/bin/rustup" ]; then
			echo "missing: $part; with rustup: rustup component add $part" >&2
			return 1
		fi
		"$folder/bin/rustup" --quiet component add "$part"
	done
}

"$@"
