# `make run` and `make test` set up what they need: a virtual environment and the Rust build.
# The second time they start at once.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := .make

# The Rust that is fetched, into the clone, where there is none or one older than Cargo.toml asks for.
RUST           := 1.95.0
RUSTUP         := https://static.rust-lang.org/rustup/archive
RUSTUP_VERSION := 1.28.2
RUSTUP_SHA256  := \
  x86_64=20a06e644b0d9bd2fbdbfd52d42540bdde820ea7df86e92e533c073da0cdd43c \
  aarch64=e3853c5a252fca15252d07cb23a1bdd9377a8c6f3efa01531109281ae47f841c
RUST_FOLDER := $(abspath .rust)
# Where rustup leaves it comes last, for a shell that was open while Rust was installed.
export PATH := $(RUST_FOLDER)/bin:$(PATH):$(HOME)/.cargo/bin

# What tests call, as Debian packages it.
TESTED_WITH := ps=procps iperf3=iperf3 ping=iputils-ping setpriv=util-linux script=bsdutils \
  c++=g++ pkg-config=pkg-config tc=iproute2 bpftool=bpftool clang=clang,libbpf-dev chromium=chromium octave-cli=octave

SOURCES := Cargo.toml Cargo.lock $(shell find crates -name '*.rs' -o -name Cargo.toml)

.PHONY: artifacts check check-crates check-site check-wheel quic setup template fidelity-guest run native guest guests machine test-kernel api test-build fresh lock-check release-notes capi capi-install test test-alone test-realtime golden lint deny fuzz fuzz-rust fuzz-python mutants lock fidelity bench costs papers suite reality reality-kernel reality-page reality-drawn reality-attached reality-realtime atlas evidence docs gallery site wheel clean help

help:
	@echo "make run       a paper's experiment, shortened; says where its report is"
	@echo "make test      every test but those of the next three"
	@echo "make test-alone     laws in the kernel of this machine, one test at a time (needs root)"
	@echo "make test-realtime  real packets in real time; void where the machine is busy"
	@echo "make test-kernel  runs on real Linux; builds the guest that they need (minutes)"
	@echo "make guest     the first process of the guests of --engine kernel; \`forebay guest setup\` calls it"
	@echo "make machine   what test-kernel runs qdiscs of BPF in (qemu); without it they are skipped"
	@echo "make fuzz      every parser and the C API for FUZZ_S seconds each (Rust needs a nightly toolchain)"
	@echo "make mutants PACKAGE=forebay-theory SHARD=0/10  which changes of a crate its tests notice (needs cargo-mutants)"
	@echo "make deny      licences and sources of the Rust libraries"
	@echo "make fresh     make run and make test on a bare Debian (needs root, debootstrap)"
	@echo "make lock      renew requirements/; make lock-check: they serve every Python promised"
	@echo "make golden    renew the golden results where numbers are meant to move"
	@echo "make lint      formatters, linters, type checks, and the order of source and documents"
	@echo "make check     public names of the crates, the site, the wheel"
	@echo "make fidelity  docs/evidence/fidelity*.md: our runs compared with ns-2's and Linux's (needs the reference)"
	@echo "make fidelity-guest  docs/evidence/fidelity-guest.md: Linux in our guests beside the reference (needs it)"
	@echo "make bench     speed beside ns-2 and ns-3 (Debian's ns2, libns3-dev); the link beside its prototype"
	@echo "make costs     instructions per packet of laws, queues and senders (needs valgrind)"
	@echo "make papers    every experiment of the papers, and docs/evidence/papers.md"
	@echo "make suite     docs/evidence/rfc7928.md: every law in the scenarios of RFC 7928"
	@echo "make reality   docs/evidence/reality.md: every law simulated and on real Linux (an hour or two)"
	@echo "make reality-page  the same page from what Linux did when it was last measured (3 min)"
	@echo "make reality-drawn  docs/evidence/reality-drawn.md: a hundred drawn cases of Linux's queues, simulated and on real Linux"
	@echo "make reality-attached  docs/evidence/reality-attached.md: laws that forebay attach puts into a kernel, compared with the simulator and with --engine kernel"
	@echo "make reality-realtime  docs/evidence/reality-realtime.md: the simulator compared with real flows in real time (90 min)"
	@echo "make atlas     docs/evidence/atlas.md: which law, where, from 51,200 runs (an hour on two cores)"
	@echo "make evidence  every page of docs/evidence, one after the other; resumes after an interruption"
	@echo "make api       docs/reference/api/: the public names of Python and of each crate"
	@echo "make docs      the generated pages of docs/"
	@echo "make capi      the library for C; make capi-install PREFIX=/usr/local puts it there"
	@echo "make gallery   the pictures of docs/images/gallery, from the commands of the pages that show them"
	@echo "make site      site/: the documentation as pages with search"
	@echo "make release-notes VERSION=0.2.0  its section of the changelog"
	@echo "make wheel     dist/: the wheel, and the source distribution; PGO=1 optimises it for the runs of bench/train.py"

run: $(STAMPS)/native
	$(BIN)/forebay run experiments/pi-pd/load.toml --seeds 3 --out results/pi-pd-load

# A worker per core; one that has nothing left takes tests from another. Tests in real time have the
# machine for themselves.
test: $(STAMPS)/native $(STAMPS)/test $(STAMPS)/programs artifacts
	cargo test --workspace --quiet
	$(BIN)/python -m pytest python/tests -m "not realtime and not alone" -n logical --dist worksteal

# One test at a time, since they change what all processes of this machine share. They mostly wait
# for other programs, so that they may run in parallel with `test`, but not with `test-realtime`.
test-alone: $(STAMPS)/native $(STAMPS)/test $(STAMPS)/programs
	$(BIN)/python -m pytest python/tests -m "alone and not realtime"

native: $(STAMPS)/native

# Built alone, so that it can go on in parallel with `native`.
test-build: $(STAMPS)/rust
	cargo test --workspace --quiet --no-run

# What tests of Python use of Rust, built by the very commands that the tests call: they compile none
# of it again. It shares libraries with the tests of Rust.
artifacts: test-build quic template
	$(MAKE) --no-print-directory capi CAPI_PROFILE=test
	cargo test --quiet -p forebay-capi --test bottleneck --no-run

# The example of an unmodified program.
quic: $(STAMPS)/rust
	cargo build --quiet --profile test -p quic-transfer

# A copy of templates/rust outside the workspace; it asks no registry, and finds libraries fetched.
template: test-build
	$(PYTHON) tools/template_copy.py --no-run

# Real packets in real time. A test that fails while the machine is busy is void, and shown as such.
test-realtime: $(STAMPS)/native $(STAMPS)/test $(STAMPS)/programs quic
	$(BIN)/python -m pytest python/tests -m realtime -rx

# The engine `kernel`: a guest's first process, a static program, beside the package.
GUEST := python/forebay/linux/forebay-guest

guest: $(GUEST)

# Guests are kept here, so that tests meet the one of this checkout.
KERNELS ?= $(abspath $(STAMPS)/kernels)

guests: $(STAMPS)/native $(STAMPS)/kernel-programs $(GUEST)
	FOREBAY_KERNELS=$(KERNELS) $(BIN)/forebay guest setup

# A virtual machine, in which BPF is tested: tests of it are skipped without.
MACHINE ?= $(abspath $(STAMPS)/virtual-machine)

machine: $(STAMPS)/native
	@sh tools/setup.sh programs needed qemu-system-x86_64=qemu-system-x86 clang-16=clang-16 \
	  bpftool=bpftool tc=iproute2 iperf3=iperf3 cc=gcc,libc6-dev
	FOREBAY_VIRTUAL_MACHINE=$(MACHINE) $(BIN)/python -m tools.virtual_machine setup

test-kernel: guests $(STAMPS)/test $(STAMPS)/programs quic
	FOREBAY_KERNELS=$(KERNELS) FOREBAY_VIRTUAL_MACHINE=$(MACHINE) $(BIN)/python -m pytest python/tests -m kernel -n logical --dist worksteal

# What CHANGELOG.md says of a version.
release-notes:
	@$(PYTHON) tools/release_notes.py $(or $(VERSION),Unreleased)

# Licences, sources and bans of the Rust libraries.
deny: $(STAMPS)/lint
	PATH="$(abspath $(BIN)):$$PATH" cargo deny check licenses bans sources

FUZZ_S ?= 30
# The same inputs each time; another seed looks elsewhere.
FUZZ_SEED ?= 1
# One input that takes longer is a fault of its own.
FUZZ_SLOWEST_S := 60
FUZZED        := $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
# The driver, and what begins with "_", is shared by the others.
FUZZED_PYTHON := $(filter-out fuzz/python/_% fuzz/python/driver.py,$(wildcard fuzz/python/*.py))

fuzz: fuzz-rust fuzz-python

fuzz-rust: $(STAMPS)/lint
	@if ! cargo +nightly --version >/dev/null 2>&1; then \
	  echo "not fuzzed: there is no nightly toolchain (rustup toolchain install nightly)"; exit 0; \
	fi; set -e; mkdir -p fuzz/corpus/scenario; \
	cp crates/forebay-scenario/tests/good/*.toml crates/forebay-scenario/tests/bad/*.toml fuzz/corpus/scenario/; \
	export PATH="$(abspath $(BIN)):$$PATH"; cargo +nightly fuzz build; \
	printf '%s\n' $(FUZZED) | xargs -P 2 -I TARGET cargo +nightly fuzz run TARGET -- \
	  -max_total_time=$(FUZZ_S) -seed=$(FUZZ_SEED) -timeout=$(FUZZ_SLOWEST_S) -verbosity=0

# Each takes the seconds that it may run, and a seed.
fuzz-python: $(STAMPS)/native $(STAMPS)/test
	@printf '%s\n' $(FUZZED_PYTHON) | xargs -P 2 -I TARGET \
	  sh -c 'echo "TARGET for $(FUZZ_S) s"; $(BIN)/python TARGET $(FUZZ_S) $(FUZZ_SEED)'

# A crate is changed in one place after the other, and its tests should notice each change. SHARD is
# the part of the mutants to try; all of forebay-theory takes half an hour on two idle cores, and a
# fortieth of forebay-aqm an hour.
PACKAGE ?= forebay-theory
SHARD   ?=

mutants: $(STAMPS)/venv $(STAMPS)/rust
	@cargo mutants --version >/dev/null 2>&1 || { \
	  echo "cargo-mutants is missing; install it with: cargo install --locked cargo-mutants"; exit 1; }
	@mkdir -p target
	-CARGO_PROFILE_TEST_DEBUG=0 CARGO_PROFILE_TEST_OPT_LEVEL=$(if $(filter forebay-theory,$(PACKAGE)),0,1) \
	  cargo mutants --package $(PACKAGE) --output target --minimum-test-timeout 20 \
	  $(if $(SHARD),--shard $(SHARD) --sharding round-robin) -- --lib --tests
	$(BIN)/python -m tools.mutants target/mutants.out

lock: $(STAMPS)/lint
	$(BIN)/python tools/lock.py

lock-check: $(STAMPS)/lint
	$(BIN)/python tools/lock.py --check

# Of Debian 12 and 13, each bare, as root and as a user: hours on two cores; less by the variables.
FRESH_SUITES  ?= bookworm trixie
FRESH_USERS   ?= root user
FRESH_TARGETS ?= run test

fresh:
	tools/fresh.sh "$(FRESH_SUITES)" "$(FRESH_USERS)" "$(FRESH_TARGETS)"

golden: $(STAMPS)/rust
	FOREBAY_RENEW_GOLDEN=1 cargo test --quiet -p forebay-batch --test golden -- --nocapture

CASTS := $(addprefix -D clippy::cast_,possible_truncation possible_wrap sign_loss)

lint: $(STAMPS)/native $(STAMPS)/lint
	cargo fmt --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	# Tests cast small numbers that they choose; what is built casts none that may lose something.
	cargo clippy --workspace --lib --bins --quiet -- -D warnings $(CASTS)
	# As it is built where there is no Linux.
	cargo clippy -p forebay-py --no-default-features --quiet -- -D warnings
	$(BIN)/ruff format --check python tools bench examples
	$(BIN)/ruff check python tools bench examples
	$(BIN)/mypy
	$(BIN)/python -m tools.check

# What needs a build: names of the crates, the site, the wheel.
check: check-crates check-site check-wheel

check-crates check-wheel: check-%: $(STAMPS)/native
	PROFILE=$(PROFILE) $(BIN)/python -m tools.check $*

check-site: $(STAMPS)/native $(STAMPS)/site
	$(BIN)/python -m tools.check site

REFERENCE ?= ../shared/reference
# Writes the results version and the commit into a page of evidence.
STAMP = $(BIN)/python -m tools.evidence stamp

fidelity: $(STAMPS)/native
	$(BIN)/python bench/fidelity.py --reference $(REFERENCE)/ns2.json bench/ns2.json \
		--out docs/evidence/fidelity.md
	$(STAMP) fidelity.md
	# A figure outside is known, and bold in the page.
	-$(BIN)/python bench/fidelity_linux.py --reference $(REFERENCE)/linux.json bench/linux.json \
		--out docs/evidence/fidelity-linux.md
	$(STAMP) fidelity-linux.md

# Goes on where it was stopped; what has been run is kept.
fidelity-guest: guests
	-FOREBAY_KERNELS=$(KERNELS) $(BIN)/python bench/fidelity_guest.py \
		--reference $(REFERENCE)/linux.json bench/linux.json \
		--runs bench/fidelity_guest.csv --out docs/evidence/fidelity-guest.md
	$(STAMP) fidelity-guest.md

# Drawn cases: guests run what is not kept, and the page is of all.
reality-drawn: guests
	-FOREBAY_KERNELS=$(KERNELS) $(BIN)/python bench/drawn.py run experiments/reality/drawn.json \
		--runs experiments/reality/drawn.csv --out docs/evidence/reality-drawn.md
	$(STAMP) reality-drawn.md

TRACES ?= ../shared/traces

bench: $(STAMPS)/native $(STAMPS)/test $(STAMPS)/programs
	$(BIN)/python bench/speed.py --reference $(REFERENCE)
	$(BIN)/python bench/ns3.py
	$(BIN)/python bench/link.py --reference $(REFERENCE) --traces $(TRACES)

# Instructions per packet of laws, queues and senders (needs valgrind).
costs: $(STAMPS)/venv $(STAMPS)/rust
	cargo build --release --quiet -p forebay-sim --example simulate
	$(BIN)/python bench/costs.py

papers: $(STAMPS)/native
	$(BIN)/forebay replay all --page docs/evidence/papers.md
	$(STAMP) papers.md

suite: $(STAMPS)/native
	$(BIN)/forebay suite rfc7928 --law all --page docs/evidence/rfc7928.md
	$(STAMP) rfc7928.md

# Goes on where it was stopped: the runs are in results/.store.
reality: reality-kernel
	$(MAKE) reality-page

# What Linux did is kept, and does not move with a version of ours.
reality-kernel: guests
	FOREBAY_KERNELS=$(KERNELS) $(BIN)/forebay study experiments/reality/cells.toml --engine kernel \
	  --no-report --out results/reality-kernel
	$(BIN)/python -m tools.reality keep results/reality-kernel/frame.parquet \
	  --out experiments/reality/kernel.csv

# A guest's wires have no rate.
reality-page: $(STAMPS)/native
	$(BIN)/forebay study experiments/reality/cells.toml --seeds 10 --no-report \
	  --set traffic.0.access=1Tbit/s --set bottleneck.rate_back=1Tbit/s \
	  --out results/reality-packets
	$(BIN)/python -m tools.reality page results/reality-packets/frame.parquet \
	  experiments/reality/kernel.csv --out docs/evidence/reality.md
	$(STAMP) reality.md

# Goes on where it was stopped; about a minute and a half of a core for each cell.
reality-attached: guests machine
	FOREBAY_KERNELS=$(KERNELS) FOREBAY_VIRTUAL_MACHINE=$(MACHINE) $(BIN)/python -m bench.attach_table \
	  experiments/reality/attached.toml --runs experiments/reality/attached.csv --page docs/evidence/reality-attached.md
	$(STAMP) reality-attached.md

reality-realtime: $(STAMPS)/native $(STAMPS)/test $(STAMPS)/programs
	$(BIN)/forebay validate $(addprefix experiments/reality/,reno.toml cubic.toml load.toml short.toml modern.toml) \
	  --repeats 5 --links 2 --page docs/evidence/reality-realtime.md --out results/reality
	$(STAMP) reality-realtime.md

# Goes on where it was stopped: the runs are in results/.store.
atlas: $(STAMPS)/native
	$(BIN)/forebay study studies/atlas --no-report
	$(BIN)/python -m tools.atlas docs/evidence
	$(STAMP) atlas.md

# Says how long it will take before it begins: `python -m tools.evidence --plan`.
evidence: $(STAMPS)/native
	$(BIN)/python -m tools.evidence

docs: $(STAMPS)/native
	$(BIN)/python -m tools.docs docs

# The library for programs in C: docs/reference/capi.md.
PREFIX       ?= /usr/local
CAPI         := crates/forebay-capi
CAPI_PROFILE ?= release
# Cargo has one folder for its profiles of tests and development.
CAPI_BUILT   := $(or $(CARGO_TARGET_DIR),target)/$(if $(filter release,$(CAPI_PROFILE)),release,debug)
CAPI_ABI     := $(shell sed -n 's/^.define FOREBAY_ABI //p' $(CAPI)/include/forebay.h)
CAPI_VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
CAPI_PREFIX  := $(abspath $(PREFIX))
# The loader looks in these by itself; elsewhere a program remembers where the library was.
CAPI_RPATH   := $(if $(filter /usr /usr/local,$(CAPI_PREFIX)),,-Wl,-rpath,$${libdir})

CAPI_PC      := sed -e 's|@PREFIX@|$(CAPI_PREFIX)|' -e 's|@VERSION@|$(CAPI_VERSION)|' \
  -e 's|@RPATH@|$(CAPI_RPATH)|' $(CAPI)/forebay.pc.in

capi: $(STAMPS)/rust
	cargo build --quiet -p forebay-capi --profile $(CAPI_PROFILE)
	$(CAPI_PC) > $(CAPI_BUILT)/forebay.pc
	ln -sf libforebay.so $(CAPI_BUILT)/libforebay.so.$(CAPI_ABI)

capi-install: capi
	install -d $(DESTDIR)$(CAPI_PREFIX)/lib/pkgconfig $(DESTDIR)$(CAPI_PREFIX)/include
	install -s -m 755 $(CAPI_BUILT)/libforebay.so $(DESTDIR)$(CAPI_PREFIX)/lib/libforebay.so.$(CAPI_ABI)
	ln -sf libforebay.so.$(CAPI_ABI) $(DESTDIR)$(CAPI_PREFIX)/lib/libforebay.so
	install -m 644 $(CAPI_BUILT)/libforebay.a $(DESTDIR)$(CAPI_PREFIX)/lib/libforebay.a
	install -m 644 $(CAPI)/include/forebay.h $(DESTDIR)$(CAPI_PREFIX)/include/forebay.h
	# Not the one that is built: two installations at a time may have different prefixes.
	$(CAPI_PC) > $(DESTDIR)$(CAPI_PREFIX)/lib/pkgconfig/forebay.pc
ifeq ($(DESTDIR),)
ifeq ($(CAPI_RPATH),)
	@echo "installed in $(CAPI_PREFIX); run ldconfig as root, so that programs find the library"
else
	@echo "installed in $(CAPI_PREFIX); these lines let compilers (pkg-config) and programs find the library:"
	@echo 'export PKG_CONFIG_PATH="$(CAPI_PREFIX)/lib/pkgconfig$${PKG_CONFIG_PATH:+:$$PKG_CONFIG_PATH}"'
	@echo 'export LD_LIBRARY_PATH="$(CAPI_PREFIX)/lib$${LD_LIBRARY_PATH:+:$$LD_LIBRARY_PATH}"'
endif
endif

# The lists of public names: what goes from them is in the changelog.
api: $(STAMPS)/native
	$(BIN)/python -m tools.public_api

gallery: $(STAMPS)/native
	$(BIN)/python -m tools.docs.gallery

site: $(STAMPS)/native $(STAMPS)/site
	$(BIN)/python -m tools.docs.site

# For systems older than this one: .venv/bin/pip install ziglang (maturin looks for it in PATH), and
# make wheel WHEEL='--zig --compatibility manylinux_2_17'
WHEEL ?=
# make wheel PGO=1: three times the time, for code that is optimised for the runs of bench/train.py.
PGO     ?=
PROFILED := $(STAMPS)/forebay.profdata

$(PROFILED): $(STAMPS)/native bench/train.py bench/costs.py
	@sh tools/setup.sh component $(RUST_FOLDER) llvm-tools
	$(BIN)/python -m tools.training $@

# A wheel for Linux on x86_64 has the first process of the guests.
wheel: $(STAMPS)/native $(if $(filter Linux-x86_64,$(shell uname -sm | tr ' ' -)),$(GUEST)) $(if $(PGO),$(PROFILED))
	PATH="$(abspath $(BIN)):$$PATH" $(if $(PGO),RUSTFLAGS=-Cprofile-use=$(abspath $(PROFILED))) maturin build --release --locked --out dist $(WHEEL)
	$(BIN)/maturin sdist --out dist
	@ls -l dist

$(VENV)/bin/python:
	@PYTHON=$(PYTHON) sh tools/setup.sh venv $(VENV) 3.11

# Exact versions of every package, each with the hashes of its files: pip resolves nothing.
pip = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
  --requirement $(1)

$(STAMPS)/venv: requirements/run.lock | $(VENV)/bin/python
	@mkdir -p $(STAMPS)
	$(call pip,$<)
	@touch $@

# Each of these adds to the one before.
$(STAMPS)/site: requirements/site.lock | $(STAMPS)/venv
	$(call pip,$<)
	@touch $@

$(STAMPS)/test: requirements/test.lock $(STAMPS)/site
	$(call pip,$<)
	@touch $@

$(STAMPS)/programs: Makefile
	@mkdir -p $(STAMPS)
	@sh tools/setup.sh programs tests $(TESTED_WITH)
	@touch $@

# What builds a guest's kernel.
$(STAMPS)/kernel-programs: Makefile
	@mkdir -p $(STAMPS)
	@sh tools/setup.sh programs needed gcc=gcc,libc6-dev flex=flex bison=bison bc=bc xz=xz-utils
	@touch $@

# All that comes from package registries, before stages that run in parallel.
setup: $(STAMPS)/rust $(STAMPS)/programs $(STAMPS)/kernel-programs $(STAMPS)/lint

$(STAMPS)/lint: requirements/lint.lock $(STAMPS)/test $(STAMPS)/rust
	$(call pip,$<)
	@sh tools/setup.sh component $(RUST_FOLDER) clippy rustfmt
	@touch $@

# A C compiler links what Rust compiles.
$(STAMPS)/rust: Cargo.toml tools/setup.sh | $(VENV)/bin/python
	@mkdir -p $(STAMPS)
	@sh tools/setup.sh programs needed cc=gcc,libc6-dev
	@PYTHON=$(BIN)/python RUST=$(RUST) RUSTUP=$(RUSTUP) RUSTUP_VERSION=$(RUSTUP_VERSION) \
	  RUSTUP_SHA256="$(RUSTUP_SHA256)" sh tools/setup.sh rust $(RUST_FOLDER) \
	  "$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)"
	@touch $@

# Cargo's profile of the native module and the wheel: `ci` builds faster and runs a little slower.
PROFILE ?= release

$(STAMPS)/native: $(STAMPS)/venv $(STAMPS)/rust $(SOURCES)
	@echo "building the Rust core: two to three minutes the first time"
	@PIP_QUIET=1 VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --profile $(PROFILE) --quiet \
	  > $(STAMPS)/native.log 2>&1 || { cat $(STAMPS)/native.log; exit 1; }
	@rm -rf python/forebay/experiments # a copy; those of a checkout are at its root
	@touch $@

$(GUEST): $(STAMPS)/rust $(SOURCES)
	RUSTFLAGS="-C target-feature=+crt-static" cargo build --quiet --profile guest \
	  -p forebay-guest --target x86_64-unknown-linux-gnu
	install -m 755 $(or $(CARGO_TARGET_DIR),target)/x86_64-unknown-linux-gnu/guest/forebay-guest $@

clean:
	rm -rf $(VENV) $(STAMPS) $(RUST_FOLDER) target results dist site python/forebay/experiments
