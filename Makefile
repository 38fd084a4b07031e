# `make run` and `make test` set up what they need: a virtual environment and the Rust build.
# The second time they start at once.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := .make

# Installs Debian packages, with sudo only where it is needed.
debian  = as=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$as apt-get update -qq && $$as env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(1)

RUST   := Cargo.toml Cargo.lock $(shell find crates -name '*.rs' -o -name Cargo.toml)

.PHONY: run capi capi-install test test-realtime golden lint deny fuzz lock fidelity bench costs papers suite reality atlas docs gallery site wheel clean help

help:
	@echo "make run       a paper's experiment, shortened; says where its report is"
	@echo "make test      every test but those in real time"
	@echo "make test-realtime  real packets over a link; void where the machine is busy"
	@echo "make fuzz      every parser for FUZZ_S seconds (needs a nightly toolchain)"
	@echo "make deny      licences and sources of the Rust libraries"
	@echo "make lock      renew requirements-dev.lock"
	@echo "make golden    renew the golden results where numbers are meant to move"
	@echo "make lint      formatters, linters and type checks"
	@echo "make fidelity  docs/fidelity*.md: our runs beside ns-2's and Linux's (needs the reference)"
	@echo "make bench     speed beside ns-2 and ns-3 (Debian's ns2, libns3-dev); the link beside its prototype"
	@echo "make costs     instructions per packet of laws, queues and senders (needs valgrind)"
	@echo "make papers    every experiment of the papers, and docs/papers.md"
	@echo "make suite     docs/rfc7928.md: every law in the scenarios of RFC 7928"
	@echo "make reality   docs/reality*.md: the simulator beside real flows, in real time (65 min)"
	@echo "make atlas     docs/atlas.md: which law, where, from 51,200 runs (an hour on two cores)"
	@echo "make docs      the generated pages of docs/"
	@echo "make capi      the library for C; make capi-install PREFIX=/usr/local puts it there"
	@echo "make gallery   the pictures of docs/gallery.md, from its commands"
	@echo "make site      site/: the documentation as pages with search"
	@echo "make wheel     dist/: the wheel, and the source distribution"

run: $(STAMPS)/native
	$(BIN)/forebay run experiments/pi-pd/load.toml --seeds 3 --out results/pi-pd-load

# A worker per core; one that has nothing left takes tests from another. What runs in real time has
# the machine for itself.
test: $(STAMPS)/native $(STAMPS)/tools
	cargo test --workspace --quiet
	$(BIN)/python -m pytest -m "not realtime" -n logical --dist worksteal

# Real packets in real time. What fails while the machine is busy is void, and shown as such.
test-realtime: $(STAMPS)/native $(STAMPS)/tools
	$(BIN)/python -m pytest -m realtime -rx

# Licences, sources and bans of the Rust libraries.
deny: $(STAMPS)/venv
	PATH="$(abspath $(BIN)):$$PATH" cargo deny check licenses bans sources

FUZZ_S ?= 30
# The same inputs each time; another seed looks elsewhere.
FUZZ_SEED ?= 1
FUZZED := $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))

fuzz: $(STAMPS)/venv
	@if ! cargo +nightly --version >/dev/null 2>&1; then \
	  echo "not fuzzed: there is no nightly toolchain (rustup toolchain install nightly)"; exit 0; \
	fi; set -e; mkdir -p fuzz/corpus/scenario; \
	cp crates/forebay-scenario/tests/good/*.toml crates/forebay-scenario/tests/bad/*.toml fuzz/corpus/scenario/; \
	export PATH="$(abspath $(BIN)):$$PATH"; for target in $(FUZZED); do \
	  cargo +nightly fuzz run $$target -- -max_total_time=$(FUZZ_S) -seed=$(FUZZ_SEED) -verbosity=0; done

lock: $(STAMPS)/venv
	$(BIN)/python bench/lock.py

golden:
	FOREBAY_RENEW_GOLDEN=1 cargo test --quiet -p forebay-batch --test golden -- --nocapture

lint: $(STAMPS)/native
	cargo fmt --check
	# Modules that a macro names, which cargo fmt does not see.
	rustfmt --edition 2021 --check crates/forebay-core/src/laws/*.rs crates/forebay-core/src/disciplines/*.rs
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	# As it is built where there is no Linux.
	cargo clippy -p forebay-py --no-default-features --quiet -- -D warnings
	$(BIN)/ruff format --check python bench examples
	$(BIN)/ruff check python bench examples
	$(BIN)/mypy

REFERENCE ?= ../shared/reference

fidelity: $(STAMPS)/native
	$(BIN)/python bench/fidelity.py --reference $(REFERENCE)/ns2.json bench/ns2.json \
		--out docs/fidelity.md
	# A figure outside is known, and bold in the page.
	-$(BIN)/python bench/fidelity_linux.py --reference $(REFERENCE)/linux.json \
		--out docs/fidelity-linux.md

TRACES ?= ../shared/traces

bench: $(STAMPS)/native $(STAMPS)/tools
	$(BIN)/python bench/speed.py --reference $(REFERENCE)
	$(BIN)/python bench/ns3.py
	$(BIN)/python bench/link.py --reference $(REFERENCE) --traces $(TRACES)

# Instructions per packet of laws, queues and senders (needs valgrind).
costs: $(STAMPS)/venv
	cargo build --release --quiet -p forebay-sim --example simulate
	$(BIN)/python bench/costs.py

papers: $(STAMPS)/native
	$(BIN)/forebay replay all --page docs/papers.md

suite: $(STAMPS)/native
	$(BIN)/forebay suite rfc7928 --law all --page docs/rfc7928.md

reality: $(STAMPS)/native $(STAMPS)/tools
	$(BIN)/forebay validate $(addprefix experiments/reality/,reno.toml cubic.toml load.toml short.toml) \
	  --repeats 5 --links 2 --page docs/reality.md --out results/reality
	$(BIN)/forebay validate experiments/reality/modern.toml \
	  --repeats 3 --links 2 --page docs/reality-modern.md --out results/reality-modern

# Goes on where it was stopped: the runs are in results/.store.
atlas: $(STAMPS)/native
	$(BIN)/forebay study studies/atlas --no-report
	$(BIN)/python -m forebay.atlas docs

docs: $(STAMPS)/native
	$(BIN)/python -m forebay.docs docs

# The library for programs in C: docs/capi.md.
PREFIX       ?= /usr/local
CAPI         := crates/forebay-capi
CAPI_PROFILE ?= release
# Cargo has one folder for its profiles of tests and development.
CAPI_BUILT   := target/$(if $(filter release,$(CAPI_PROFILE)),release,debug)
CAPI_ABI     := $(shell sed -n 's/^.define FOREBAY_ABI //p' $(CAPI)/include/forebay.h)
CAPI_VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)

capi:
	cargo build --quiet -p forebay-capi --profile $(CAPI_PROFILE)
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(CAPI_VERSION)|' \
	  $(CAPI)/forebay.pc.in > $(CAPI_BUILT)/forebay.pc

capi-install: capi
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include
	install -s -m 755 $(CAPI_BUILT)/libforebay.so $(DESTDIR)$(PREFIX)/lib/libforebay.so.$(CAPI_ABI)
	ln -sf libforebay.so.$(CAPI_ABI) $(DESTDIR)$(PREFIX)/lib/libforebay.so
	install -m 644 $(CAPI_BUILT)/libforebay.a $(DESTDIR)$(PREFIX)/lib/libforebay.a
	install -m 644 $(CAPI)/include/forebay.h $(DESTDIR)$(PREFIX)/include/forebay.h
	install -m 644 $(CAPI_BUILT)/forebay.pc $(DESTDIR)$(PREFIX)/lib/pkgconfig/forebay.pc

gallery: $(STAMPS)/native
	$(BIN)/python -m forebay.docs.gallery

site: $(STAMPS)/native
	$(BIN)/python -m forebay.docs.site

# For systems older than this one: pip install ziglang, and
# make wheel WHEEL='--zig --compatibility manylinux_2_17'
WHEEL ?=

wheel: $(STAMPS)/native
	$(BIN)/maturin build --release --locked --out dist $(WHEEL)
	$(BIN)/maturin sdist --out dist
	@ls -l dist

# Debian's Python comes without venv; its package is the one thing that may need root.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV) || { \
	  rm -rf $(VENV); \
	  $(call debian,python3-venv) && $(PYTHON) -m venv $(VENV); }

# Real traffic for the tests of `forebay link`; without it they skip and say so.
$(STAMPS)/tools:
	@mkdir -p $(STAMPS)
	@command -v iperf3 ping setpriv >/dev/null || { $(call debian,iperf3 iputils-ping util-linux); } || \
	  echo "not installed: iperf3, ping or setpriv; tests that need them are skipped"
	@touch $@

$(STAMPS)/venv: requirements-dev.lock | $(VENV)/bin/python
	@mkdir -p $(STAMPS)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --requirement requirements-dev.lock
	@touch $@

$(STAMPS)/native: $(STAMPS)/venv $(RUST)
	@echo "building the Rust core: two to three minutes the first time"
	@PIP_QUIET=1 VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --release --quiet \
	  > $(STAMPS)/native.log 2>&1 || { cat $(STAMPS)/native.log; exit 1; }
	@rm -rf python/forebay/experiments # a copy; those of a checkout are at its root
	@touch $@

clean:
	rm -rf $(VENV) $(STAMPS) target results dist site python/forebay/experiments
