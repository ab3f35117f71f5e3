# The commands of the README. Everything a target needs, it sets up itself and says so.
SHELL := /bin/sh
CARGO ?= cargo
CACHE ?= $(or $(HYPERNIC_CACHE),$(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME)/hypernic,$(HOME)/.cache/hypernic))
DENY_VERSION := 0.20.2
KANI_VERSION := 0.68.0
DENY := $(CACHE)/tools/bin/cargo-deny
CYCLONEDX_VERSION := 0.5.9
CYCLONEDX := $(CACHE)/tools/bin/cargo-cyclonedx
DEB_VERSION := 3.8.0
DEB := $(CACHE)/tools/bin/cargo-deb
MDBOOK_VERSION := 0.5.4
MDBOOK := $(CACHE)/tools/bin/mdbook
COV_VERSION := 0.9.1
COV := $(CACHE)/tools/bin/cargo-llvm-cov
# Seconds for each fuzz target, and which: all that fuzz/run lists, if none is named.
FUZZ_SECONDS ?= 3600
FUZZ_TARGETS ?=
# Which modules of the bench, and its options; `make bench BENCH=list` names them.
BENCH ?= all
# The command, and the programs it runs as its commands.
PROGRAMS := -p hypernic -p hypernic-pkt-gen
# Where cargo builds, and where packages go.
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
MUSL := $(shell uname -m)-unknown-linux-musl
# Crates that make no system call, and the one whose unsafe code they stand on: what Miri runs.
PURE := guest-mem wire regs pci snapshot frame model datapath intel eswitch
# A model has no unsafe code; what Miri can find there is what it does to guest memory. So of its tests those
# that move frames, and those whose threads meet; the others take Miri hours.
MIRI_E1000 := smoke registers leases threads finishing segmentation receive loopback transmit
# Likewise of an 82576, by the beginning of their names.
MIRI_IGB := tx::tests::offloads rx::tests::descriptors rx::replicate
# Crates whose tests run several threads against each other: what ThreadSanitizer runs.
SHARED := guest-mem port vale e1000
TSAN = RUSTFLAGS=-Zsanitizer=thread CARGO_PROFILE_DEV_OPT_LEVEL=1 HYPERNIC_SOAK_SECONDS=30 \
    TSAN_OPTIONS=suppressions=$(CURDIR)/scripts/tsan-suppressions $(CARGO) +$(NIGHTLY)
TSAN_FOR = -Zbuild-std --target $$(rustc -vV | sed -n 's/^host: //p') --target-dir target/tsan
NIGHTLY ?= nightly
# Crates whose tests have a module `loom` that goes through every order of their threads' steps.
LOOM := scheduler lease csb port

.PHONY: all build demo test test-long upgrades lint check fmt clippy deny docs book man deb static oci sbom bench fuzz fuzz-quick loom miri kani \
    coverage clean help

all: build

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

build: ## build the release binaries: target/release/hypernic and what it runs
	@scripts/setup build
	$(CARGO) build --release $(PROGRAMS)

demo: build ## two real Linux guests on one hypernic: addresses, ping, TCP, a file, the host
	$(CARGO) run --release -q -p hypernic-tests --bin demo

# A revision that cannot be had (3; the script says so) stops `make upgrades` only.
test: ## everything CI runs: lint, then all tests (real guests included), upgrades from the build before and back
	@scripts/setup test
	@$(MAKE) --no-print-directory lint
	$(CARGO) build --workspace --bins --tests
	$(CARGO) test --workspace --no-fail-fast
	@before=$$(scripts/before); case $$? in \
	    0) HYPERNIC_BEFORE=$$before $(CARGO) test --workspace --test daemon -- --ignored --nocapture long_another_build ;; \
	    3) ;; \
	    *) exit 1 ;; esac
	@$(MAKE) --no-print-directory loom
	@$(MAKE) --no-print-directory fuzz-quick
	@$(MAKE) --no-print-directory kani

# Linking each test as tightly as the daemon takes longer than they run.
test-long: build deb oci ## the long tests: every setting of the stock drivers, endurance, the page in a browser
	@scripts/setup long
	CARGO_PROFILE_RELEASE_LTO=off $(CARGO) test --release --workspace --no-fail-fast -- --ignored long_

upgrades: ## whether a daemon goes on as another build of hypernic and back: the last tag's, or that of BEFORE=REVISION
	@scripts/setup build
	$(CARGO) build $(PROGRAMS) --bins && before=$$(scripts/before $(BEFORE)) && HYPERNIC_BEFORE=$$before $(CARGO) test -p hypernic-tests --test daemon -- \
	    --ignored --nocapture long_another_build

lint: fmt clippy deny ## formatting, clippy, licences

check: ## one crate and what depends on it directly: formatting, clippy, tests (CRATE=igb)
	@CARGO="$(CARGO)" scripts/check $(or $(CRATE),$(error which crate? such as: make check CRATE=igb))

fmt:
	$(CARGO) fmt --all --check

clippy:
	@scripts/setup build
	$(CARGO) clippy --workspace --all-targets -- -D warnings

$(DENY):
	@echo "deny: building cargo-deny $(DENY_VERSION) into $(CACHE)/tools"
	$(CARGO) install cargo-deny --version $(DENY_VERSION) --locked --root $(CACHE)/tools -q \
	    --config profile.release.opt-level=0 --config profile.release.lto=false

deny: $(DENY) ## licences and sources of every dependency; advisories where their list can be fetched
	$(DENY) --log-level error check licenses bans sources
	@if $(DENY) --log-level off fetch db >/dev/null 2>&1; \
	    then $(DENY) --offline --log-level error check advisories; \
	    else echo "deny: the advisory list cannot be fetched from here; licences and sources are checked"; fi

$(CYCLONEDX):
	@echo "sbom: building cargo-cyclonedx $(CYCLONEDX_VERSION) into $(CACHE)/tools"
	$(CARGO) install cargo-cyclonedx --version $(CYCLONEDX_VERSION) --locked --root $(CACHE)/tools -q \
	    --config profile.release.opt-level=0 --config profile.release.lto=false

sbom: $(CYCLONEDX) ## what is linked into each program, as CycloneDX: target/sbom
	@CYCLONEDX=$(CYCLONEDX) scripts/sbom target/sbom

$(MDBOOK):
	@echo "book: building mdbook $(MDBOOK_VERSION) into $(CACHE)/tools"
	$(CARGO) install mdbook --version $(MDBOOK_VERSION) --locked --root $(CACHE)/tools -q \
	    --config profile.release.opt-level=0 --config profile.release.lto=false

book: $(MDBOOK) ## all pages as a book with a search: target/book/html
	@MDBOOK=$(MDBOOK) scripts/book

docs: ## write docs/registers/, docs/drops.md, docs/metrics.md, docs/words.md, docs/villains.md, crates/control/idl/ and schema/, docs/api.md, the C header and the crates of ARCHITECTURE.md again from their sources
	$(CARGO) run -q -p hypernic-e1000 --example registers > docs/registers/e1000.md
	$(CARGO) run -q -p hypernic-igb --example registers > docs/registers/igb.md
	$(CARGO) run -q -p hypernic-igb --example vf_registers > docs/registers/igbvf.md
	$(CARGO) run -q -p hypernic-r8169 --example registers > docs/registers/r8169.md
	$(CARGO) run -q -p hypernic --example drops > docs/drops.md
	$(CARGO) run -q -p hypernic --example metrics > docs/metrics.md
	$(CARGO) run -q -p hypernic --example words > docs/words.md
	$(CARGO) run -q -p hypernic-villain --example villains > docs/villains.md
	$(CARGO) run -q -p hypernic-embed-c --example header > crates/embed-c/include/hypernic_nic.h
	HYPERNIC_WRITE=1 $(CARGO) test -q -p hypernic-control fresh
	HYPERNIC_WRITE=1 $(CARGO) test -q -p hypernic-tests --test house the_architecture_page_shows_the_table

kani: ## proofs of range and ring arithmetic, where Kani can be fetched
	@CARGO="$(CARGO)" scripts/kani $(KANI_VERSION)

static: ## programs that need no library, without user networks: target/MACHINE-unknown-linux-musl/release
	@scripts/setup static
	@rustup target list --installed | grep -qx $(MUSL) || rustup -q target add $(MUSL)
	$(CARGO) build --release --target $(MUSL) --no-default-features $(PROGRAMS)

oci: static ## an image for containers, as an OCI layout: target/oci
	@scripts/oci-image $(TARGET)/$(MUSL)/release $(TARGET)/oci

man: ## the manual pages: target/man
	$(CARGO) run -q --release -p hypernic --example man -- target/man

$(DEB):
	@echo "deb: building cargo-deb $(DEB_VERSION) into $(CACHE)/tools"
	$(CARGO) install cargo-deb --version $(DEB_VERSION) --locked --root $(CACHE)/tools -q \
	    --config profile.release.opt-level=0 --config profile.release.lto=false

deb: build man $(DEB) ## a Debian package of the release binaries: target/deb
	@scripts/setup deb
	@rm -rf $(TARGET)/deb
	$(DEB) deb -q --no-build --strip -p hypernic --output $(TARGET)/deb/
	@ls $(TARGET)/deb

bench: build ## every figure again (BENCH="peers --quick" for less), in docs/report/; wants an idle machine
	$(CARGO) run --release -q -p hypernic-bench -- $(BENCH)

fuzz: ## every fuzz target for an hour (FUZZ_SECONDS=600 for less, FUZZ_TARGETS=rings for one)
	@scripts/setup fuzz
	@CACHE=$(CACHE) fuzz/run $(FUZZ_SECONDS) $(FUZZ_TARGETS)
	@if rustc +$(NIGHTLY) -V >/dev/null 2>&1; then \
	    echo "fuzz: again for a sixth of the time with the address sanitizer, for the rooms with unsafe"; \
	    CACHE=$(CACHE) ASAN=1 RUSTUP_TOOLCHAIN=$(NIGHTLY) \
	        fuzz/run $$(($(FUZZ_SECONDS) / 6)) rings messages frames; \
	else echo "fuzz: no $(NIGHTLY) toolchain, so nothing was run with the address sanitizer"; fi

fuzz-quick: ## every fuzz target for 3 s with the same seed every time, as CI does
	@scripts/setup fuzz
	@CACHE=$(CACHE) SEED=1 fuzz/run 3 $(FUZZ_TARGETS)

loom: ## what threads do to each other in the lock-free parts, in every order it can happen in
	RUSTFLAGS="--cfg loom" $(CARGO) test --target-dir $(or $(CARGO_TARGET_DIR),target)/loom \
	    $(LOOM:%=-p hypernic-%) --test it

miri: ## the pure crates under Miri, an hour or so (needs a nightly with the components miri and rust-src)
	@sysroot=$$(rustc +$(NIGHTLY) --print sysroot 2>/dev/null) && $(CARGO) +$(NIGHTLY) miri --version >/dev/null 2>&1 \
	    && [ -e "$$sysroot/lib/rustlib/src/rust/library/Cargo.lock" ] \
	    || { echo "miri: not here; run: rustup +$(NIGHTLY) component add miri rust-src" >&2; exit 1; }
	PROPTEST_CASES=4 MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +$(NIGHTLY) miri test $(PURE:%=-p hypernic-%)
	PROPTEST_CASES=2 MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +$(NIGHTLY) miri test -p hypernic-e1000 --lib
	PROPTEST_CASES=2 MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +$(NIGHTLY) miri test -p hypernic-e1000 --test it -- \
	    $(MIRI_E1000:%=%::)
	PROPTEST_CASES=2 MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +$(NIGHTLY) miri test -p hypernic-igb --lib -- $(MIRI_IGB)

tsan: ## threads under ThreadSanitizer: lock-free parts, workers, a daemon in use (needs a nightly with rust-src)
	$(TSAN) test $(TSAN_FOR) --lib $(SHARED:%=-p hypernic-%)
	$(TSAN) test $(TSAN_FOR) --test it -p hypernic-vale -p hypernic-e1000 threads::
	$(TSAN) test $(TSAN_FOR) -p hypernic --lib --tests
	$(TSAN) build $(TSAN_FOR) $(PROGRAMS)
	$(TSAN) test $(TSAN_FOR) -p hypernic-tests --test soak

$(COV):
	@echo "coverage: building cargo-llvm-cov $(COV_VERSION) into $(CACHE)/tools"
	$(CARGO) install cargo-llvm-cov --version $(COV_VERSION) --locked --root $(CACHE)/tools -q \
	    --config profile.release.opt-level=0 --config profile.release.lto=false

coverage: $(COV) ## lines run by the tests: a table per crate, HTML, and the thresholds
	@scripts/setup coverage
	$(CARGO) build $(PROGRAMS)
	COV=$(COV) scripts/coverage $(COVERAGE)

clean: ## what cargo built; the rig's cache stays ($(CACHE))
	$(CARGO) clean
