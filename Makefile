# Everything a person or CI does here, one command each. `make help` lists them.
#
# Works on a fresh Debian with Rust and make, as root or not: what is missing is
# installed if that is allowed, else the checks that need it are left out, loudly.

SHELL := /bin/bash
CARGO ?= cargo
# Options for cargo, such as --offline or --locked.
CARGO_FLAGS ?=
RELEASE := $(or $(CARGO_TARGET_DIR),target)/release
STEP := ./.ci/step
export LC_ALL := C

.PHONY: crash crash-night crash-core crash-ci crash-persists crash-mutants cache-power cache-storm cache-pairs cache-others cache-editors cache-deaths cache-restless cache-stale
.PHONY: all build help demo test bench starts figures ci tools clean \
    fmt clippy docs dependencies unit preload-tests ways-tests conformance-tests program-tests program-tests-all direct-tests python-tests mount-tests mount-tools suites system-tests system-native system-nested system-model system-host \
    dist dist-files dist-try dist-ci newcomer install damage flips system-damage system-flips system-random system-append system-visible system-storm system-stops system-deaths system-recover system-flat recover deaths stops held fuzz fuzz-ci loom shuttle budgets tiny-bench tiny-figures tiny-demo nightly programs-patched

all: build

help:
	@echo 'make          build bypath, libbypath_preload.so, bypath-objects, libbypath_daemon.so and libbypath.so (release) into $(RELEASE)'
	@echo 'make demo     a real tree, seven programs, side by side with tmpfs (TREE=dir FILES=n ROUNDS=n)'
	@echo 'make install  puts it into PREFIX (/usr/local)'
	@echo 'make dist     a .deb, tarballs and wheels, for glibc 2.17 and newer and for musl, in $(PACKAGES)'
	@echo 'make newcomer  these, installed and used by an ordinary user in bare Debians without network and /dev/fuse, beside tmpfs (PROGRAMS=names)'
	@echo 'make test     all tests'
	@echo 'make program-tests-all  real programs on each way, beside tmpfs (PROGRAMS=names)'
	@echo 'make suites   other projects'"'"' own suites beside tmpfs: LTP, coreutils, CPython (SUITES=names)'
	@echo 'make crash    every state that a crash may leave, for all sequences of two operations (crash-night: of three, crash-core: of three core ones)'
	@echo 'make bench    single calls, side by side with tmpfs'
	@echo 'make starts   what a program and a session cost to start (NAMES=numbers)'
	@echo "make figures  the papers' figures beside the papers' numbers, a quarter of an hour (FULL=1: their sizes)"
	@echo 'make damage   10,000 damaged images repaired; make flips: a million single bits turned'
	@echo 'make deaths   all users of an image killed at once, 50,000 times, while they are interrupted at random'
	@echo 'make recover  attaching after the death of all users, with a thousand files and with a million'
	@echo 'make docs     the documents: links, paths, words, the commands of the guide; and the crates'"'"' own'
	@echo 'make nightly  what CI has no time for: all cases and programs with patched system calls, the model, small figures'
	@echo 'make ci       all that CI does: format, lints, tests, docs, budgets, a tiny bench and demo'

# It waits for the network: optimising across its 150 crates takes minutes and gains nothing.
OBJECTS = CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=2 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16

# Several builds, not one: the preload library is no_std and must not get the
# features that the others ask of the crates they share; and of a crate that is a library for
# Rust as well, the one for C is linked without optimising across crates (decision 0077).
build:
	$(CARGO) build --release $(CARGO_FLAGS) -p bypath-preload
	$(CARGO) rustc --release $(CARGO_FLAGS) -p bypath-capi --crate-type cdylib
	$(CARGO) build --release $(CARGO_FLAGS) -p bypath-daemon
	$(CARGO) build --release $(CARGO_FLAGS) -p bypath-cli
	$(OBJECTS) $(CARGO) build --release $(CARGO_FLAGS) -p bypath-objects

# ---- what people install (packaging/README) ----

PREFIX ?= /usr/local
DESTDIR ?=
install:
	@[ -x $(RELEASE)/bypath ] || { echo 'make install: build it first: make'; exit 1; }
	packaging/install $(RELEASE) $(DESTDIR)$(PREFIX)

PACKAGES = target/packages
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
dist: build
	packaging/tools target/tools/zig
	CARGO_FLAGS='$(CARGO_FLAGS)' packaging/build target/tools/zig target/dist
	@$(MAKE) --no-print-directory dist-files
	CARGO_FLAGS='$(CARGO_FLAGS)' SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 0) packaging/musl $(RELEASE) target/dist-musl $(PACKAGES) $(VERSION)
# The preload library of this build is for glibc 2.34 and newer, the other one for those before.
dist-files: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
dist-files:
	cp $(RELEASE)/libbypath_preload.so target/dist/out/
	strip --strip-unneeded target/dist/out/*
	packaging/check-symbols 2.34 target/dist/out/libbypath_preload.so
	packaging/check-symbols 2.17 target/dist/out/bypath target/dist/out/libbypath_preload-* target/dist/out/libbypath_daemon.so target/dist/out/libbypath.so $(wildcard target/dist/out/bypath-objects)
	rm -rf $(PACKAGES) && mkdir -p $(PACKAGES)
	packaging/deb target/dist/out $(PACKAGES) $(VERSION)
	packaging/tarball target/dist/out $(PACKAGES) $(VERSION)
	packaging/wheel target/dist/out $(PACKAGES) $(VERSION)

# Needs root: Debian 11's tree is made by debootstrap.
dist-try:
	packaging/try $(PACKAGES) target/tools/bullseye
	packaging/try-musl $(PACKAGES)
# What `make dist` made, as a newcomer uses it in bare trees of Debian 12 and 13: minutes, and gigabytes the first time.
newcomer:
	tests/newcomer/run.sh $(PACKAGES) target/tools/newcomer $(DEBIANS)
# The same without the minutes that optimising takes, and those of bypath-objects, in CI.
dist-ci: build
	@if packaging/tools target/tools/zig; then \
	    $(STEP) 'packages: for glibc 2.17' sh -c 'export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0; \
	        WITHOUT=objects CARGO_FLAGS="$(CARGO_FLAGS)" packaging/build target/tools/zig target/dist && $(MAKE) --no-print-directory dist-files' && \
	    $(STEP) 'packages: installed and used' packaging/try $(PACKAGES) target/tools/bullseye; \
	else echo 'skip packages: Zig could not be installed: LEFT OUT, not passed'; fi

demo: build
	BYPATH=$(RELEASE)/bypath demo/demo.sh

starts: build
	BYPATH=$(RELEASE)/bypath demo/starts.py

bench: build
	$(RELEASE)/bypath bench micro $(BENCH)

# The papers' figures beside the papers' numbers: tables, CSV, SVG and figures.html in $(FIGURES). The kernel's file systems call by call
# come from a virtual machine, where there is QEMU (demo/vm/run.sh). FULL=1: the papers' sizes, an hour.
FIGURES ?= docs/results
TRACES ?= target/figures/vm
figures: build
	@echo 'make figures: a quiet machine gives the better numbers; root drops caches of the kernel for all programs'
	@if [ -e $(TRACES)/trace ] && [ -e $(TRACES)/symbols ]; then echo 'the virtual machine has run already: $(TRACES)'; \
	else demo/vm/run.sh $(TRACES) || echo "the kernel's file systems by instructions and lines: LEFT OUT"; fi
	$(RELEASE)/bypath bench figures --out $(FIGURES) $(if $(FULL),--full) $$([ ! -e $(TRACES)/symbols ] || echo --traces $(TRACES))

# ---- tests ----

test: tools unit preload-tests ways-tests conformance-tests program-tests direct-tests python-tests mount-tests system-tests

unit:
	$(STEP) 'unit and integration tests' $(CARGO) test $(CARGO_FLAGS) --workspace --exclude bypath-preload --exclude bypath-objects --no-fail-fast
	$(STEP) 'unit tests of bypath-objects' env $(OBJECTS) $(CARGO) test --release $(CARGO_FLAGS) -q -p bypath-objects

preload-tests: build
	$(STEP) 'preload: C programs in a mount and beside it' tests/preload.sh $(RELEASE)/bypath
	$(STEP) 'a session on an image that may not be written' tests/rescue.sh $(RELEASE)/bypath

ways-tests: build
	$(STEP) 'the patched way beside the symbols' tests/ways.sh $(RELEASE)/bypath

program-tests: build
	$(STEP) 'real programs in a mount and beside it' env BYPATH=$(RELEASE)/bypath tests/programs/run.sh
programs-patched: build
	$(STEP) 'real programs on the patched way' env BYPATH_WAYS=patched BYPATH=$(RELEASE)/bypath tests/programs/run.sh awk-sed bash findutils node rsync vim

# Cases that outside suites, hostile neighbours and public bug reports found: `CASES='name …'` for some. In CI the patched way is
# tried by the cases that are about it.
conformance-tests: build
	$(STEP) 'conformance: as on tmpfs, on every way' env BYPATH=$(RELEASE)/bypath WITHOUT=$(WITHOUT) tests/conformance/run.sh $(CASES)

# Each program on each way; CI has time for all of them on the first and the last, `make nightly` for a selection on the others.
program-tests-all:
	@$(MAKE) --no-print-directory -k programs-run programs-run-patched programs-both programs-both-patched programs-mount
programs-%: build
	$(STEP) 'real programs, way: $*' env $(if $(findstring -patched,$*),BYPATH_WAYS=patched) WAY=$(*:-patched=) BYPATH=$(RELEASE)/bypath tests/programs/run.sh $(PROGRAMS)

# FUSE daemons, directories of the kernel's and images in one namespace.
direct-tests: build
	$(CARGO) build --release $(CARGO_FLAGS) -q -p bypath-testkit
	$(STEP) 'several file systems in one namespace' env BYPATH=$(RELEASE)/bypath tests/direct/run.sh
	$(STEP) 'real programs on a directory of the kernel'"'"'s' env BYPATH=$(RELEASE)/bypath SOURCE='host:%' tests/programs/run.sh bash coreutils dash findutils gzip make-gcc perl sqlite3 tar
	$(STEP) 'real programs on a cached directory' env BYPATH=$(RELEASE)/bypath SOURCE='host:%' OPTIONS=',cache=%.cache:1G' tests/programs/run.sh bash coreutils dash findutils git gzip lmdb make-gcc perl sqlite3 tar vim
	$(STEP) 'a bucket as a directory' env BYPATH=$(RELEASE)/bypath tests/objects/run.sh
	@if command -v bindfs >/dev/null; then $(STEP) 'real programs on a FUSE daemon' env BYPATH=$(RELEASE)/bypath SOURCE='fuse:bindfs -f % @' tests/programs/run.sh bash dash findutils gzip make-gcc perl tar; \
	else echo 'skip real programs on a FUSE daemon: bindfs is not installed: LEFT OUT, not passed'; fi
	@if command -v bindfs >/dev/null; then $(STEP) 'programs and FUSE daemons killed at random' $(TESTKIT) daemons --seconds 12 --bypath $(RELEASE)/bypath; \
	else echo 'skip programs and FUSE daemons killed at random: bindfs is not installed: LEFT OUT, not passed'; fi

# The Python module; fsspec is installed from Python's registry where that can be reached.
python-tests: build
	$(STEP) 'the Python module' env BYPATH=$(RELEASE)/bypath TOOLS=$(CURDIR)/$(TOOLS) tests/python/run.sh

# Random sequences against tmpfs, on images and on the plain model; several processes; kills; sizes.
TESTKIT = $(CARGO) run --release $(CARGO_FLAGS) -q -p bypath-testkit --
OPERATIONS ?= 500000
system-tests: system-damage system-flips system-native system-nested system-host system-random system-append system-visible system-storm system-stops system-deaths system-recover system-flat

system-native:
	$(STEP) 'random calls, images beside tmpfs' $(TESTKIT) differential --backend native --ops $(OPERATIONS)
system-nested:
	$(STEP) 'random calls, an image inside an image' $(TESTKIT) differential --backend native --nested --ops 100000
system-model:
	$(STEP) 'random calls, the model inside the model' $(TESTKIT) differential --backend mem --nested --ops 20000
	$(STEP) 'random calls, the model beside tmpfs' $(TESTKIT) differential --backend mem --ops $(OPERATIONS)
system-host:
	$(STEP) 'random calls, a directory of the kernel beside tmpfs' $(TESTKIT) differential --backend host --ops 50000
	$(STEP) 'random calls, a cached directory, with rounds between' $(TESTKIT) differential --backend cached --ops 50000 --len 120
	$(STEP) 'the same with rounds all the time' $(TESTKIT) differential --backend cached-busy --ops 50000 --len 120
system-random:
	$(STEP) 'four processes at random' $(TESTKIT) random
system-append:
	$(STEP) 'four processes appending' $(TESTKIT) append
system-visible:
	$(STEP) 'two processes see each other' $(TESTKIT) visible
system-storm:
	$(STEP) '10,000 kills' $(TESTKIT) storm
	$(STEP) 'kills, interrupted at random' $(TESTKIT) storm --kills 2000 --restless
	$(STEP) 'kills, with few cachelets' $(TESTKIT) storm --kills 5000 --cachelets 256
# Everybody of a session with a cache killed, the process that writes back too: FS is ext4, xfs or btrfs, on a loop device.
# Then the same with programs that write below all the time, beside programs of the session in the same files.
cache-storm: build
	$(STEP) 'sessions with a cache, killed at random' env KILLS=$(or $(KILLS),300) FS=$(or $(FS),ext4) BYPATH=$(RELEASE)/bypath tests/conformance/run.sh cached_storm
	$(STEP) 'the same beside other writers' env KILLS=$(or $(KILLS),300) FS=$(or $(FS),ext4) OTHERS=1 JOBS=0 BYPATH=$(RELEASE)/bypath tests/conformance/run.sh cached_storm
# Power failures below a cached directory whose image is kept: FS is ext4, xfs or btrfs. One process keeps all that it has mapped.
cache-power:
	@for seed in $$(seq 1 100 $(or $(KILLS),500)); do \
	    $(STEP) "power failures below a cached directory, from $$seed on" env BYPATH_CASES=100 BYPATH_SEED=$$seed BYPATH_POWER_FS=$(or $(FS),ext4) $(CARGO) test $(CARGO_FLAGS) -q -p bypath-writeback --test power -- --nocapture || exit 1; \
	done
# All pairs of operations behind a cache, the round after them cut off at each step; and without the image, by its journal.
cache-pairs:
	@for first in $$(seq 0 38); do \
	    $(STEP) "all pairs with operation $$first, cut off everywhere" env BYPATH_FIRST=$$first $(CARGO) test $(CARGO_FLAGS) -q -p bypath-writeback --test rounds --test journal pairs_cut_off || exit 1; \
	done
# Each operation of a session with each of another program on the directory below, at each point in time; then random ones.
cache-others:
	@for first in $$(seq 0 38); do \
	    $(STEP) "operation $$first, and all of another program" env BYPATH_FIRST=$$first $(CARGO) test $(CARGO_FLAGS) -q -p bypath-writeback --test others pairs || exit 1; \
	done
	$(STEP) 'random operations of two writers' env BYPATH_SEED=$(or $(SEED),1) BYPATH_CASES=$(or $(CASES),5000) $(CARGO) test $(CARGO_FLAGS) -q -p bypath-writeback --test others random
# Changes below before, during and after the start of a session.
cache-stale: build
	$(STEP) 'no change below is seen late' env ROUNDS=$(or $(ROUNDS),100) SEED=$(or $(SEED),1) BYPATH=$(RELEASE)/bypath tests/conformance/run.sh cached_stale
# Editors, git and log writers in a session and outside of it.
cache-editors: build
	$(STEP) 'a day with editors on both sides' env ROUNDS=$(or $(ROUNDS),1000) BYPATH=$(RELEASE)/bypath tests/conformance/run.sh cached_editors
# Programs that work all through rounds, some of which are cut off.
cache-restless:
	$(STEP) 'programs that work in the midst of rounds' env BYPATH_SEED=$(or $(SEED),1) BYPATH_CASES=$(or $(CASES),10000) $(CARGO) test $(CARGO_FLAGS) -q -p bypath-writeback --test restless
# Programs, and processes that write back, that die at so many accesses of each operation.
cache-deaths:
	$(STEP) 'deaths at any access to a cache' env BYPATH_POINTS=$(or $(POINTS),400) $(CARGO) test $(CARGO_FLAGS) -q -p bypath-writeback --test deaths
# A portion of `make stops`.
system-stops:
	$(STEP) 'processes stopped at random' $(TESTKIT) stops --stops 200
# A portion of `make deaths`.
system-deaths:
	$(STEP) 'all users killed at once, interrupted at random' $(TESTKIT) deaths --rounds 1000
# A portion of `make recover`.
system-recover:
	$(STEP) 'recovery does not depend on the number of files' $(TESTKIT) recover --files 200000
# Portions of `make damage` and `make flips`.
system-damage:
	$(STEP) 'damaged images are repaired' $(TESTKIT) damage --seconds 45
system-flips:
	$(STEP) 'single bits turned' $(TESTKIT) flips --seconds 30
system-flat:
	$(STEP) 'a million entries' $(TESTKIT) flat

# The kernel's way in. Two suites come as crates; where they cannot be installed, that is said.
TOOLS = target/tools
mount-tools:
	@for tool in pjdfstest@0.2.2 fsx@0.3.2; do \
	    [ -x $(TOOLS)/bin/$${tool%@*} ] || $(CARGO) install -q --locked --root $(TOOLS) $$tool || echo "skip $${tool%@*}: it cannot be installed"; \
	done
mount-tests: build mount-tools
	$(CARGO) build --release $(CARGO_FLAGS) -q -p bypath-testkit
	$(STEP) 'the kernel mount, alone and beside the short way' env BYPATH=$(RELEASE)/bypath TOOLS=$(CURDIR)/$(TOOLS)/bin tests/mount/run.sh
	$(STEP) 'real programs through the kernel mount' env WAY=mount BYPATH=$(RELEASE)/bypath tests/programs/run.sh
	$(STEP) 'real programs on the short way beside the kernel mount' env WAY=both BYPATH=$(RELEASE)/bypath tests/programs/run.sh bash busybox daemon dpkg-deb fio-uring git-more go make-gcc pass-descriptor python3 xargs

# Other projects' own suites, minutes each: LTP, coreutils, CPython (SUITES='ltp …').
suites: build
	SOURCES=$(CURDIR)/$(TOOLS)/suites BYPATH=$(RELEASE)/bypath tests/suites/run.sh $(SUITES)

# What the dead had open and locked, 4,000 rounds (decision 0065).
held:
	for seed in $$(seq 100); do $(TESTKIT) held --rounds 40 --seed $$seed || exit 1; done

# All users killed, again and again; and 1,000 short storms.
deaths:
	$(TESTKIT) deaths --rounds 50000
	for seed in $$(seq 1000); do $(RELEASE)/testkit storm --kills 60 --restless --seed $$seed >$(RELEASE)/storm.log || { cat $(RELEASE)/storm.log; exit 1; }; done

# Processes stopped at random moments, 1,000 times.
stops:
	$(TESTKIT) stops

# A million files, all users killed.
recover:
	$(TESTKIT) recover --files 1000000

# The whole of it: 10,000 damaged images; a million single bits.
damage:
	$(TESTKIT) damage --images 10000
flips:
	$(TESTKIT) flips --count 1000000

# The crash-state explorer (docs/internals/testing.md): all sequences of one and two operations; of three; of three, all of
# the core operations and some of the others; what CI has time for.
CRASH = $(TESTKIT) crash --jobs $(shell nproc)
crash: crash-persists crash-mutants
	$(STEP) 'crash states, sequences of two' $(CRASH) --depth 2 --pairs 2000
	$(STEP) 'crashes of the system, an image in the page cache' $(TESTKIT) crash --pages --cap 40
# In parts: a run that is cut off goes on where it was. Some three hours of one processor; states that are alike to one
# that was tried are tried once in 32 times.
NIGHT = $(RELEASE)/crash-night
crash-night:
	$(STEP) 'crash states, sequences of three' $(CRASH) --depth 3 --shortest 3 --pairs 0 --alike 32 --parts 40 --journal $(NIGHT)
	rm $(NIGHT)
CORE = $(RELEASE)/crash-core
crash-core:
	$(STEP) 'crash states, core sequences of three' $(CRASH) --depth 3 --shortest 3 --every 500 --pairs 0 --parts 40 --journal $(CORE)
	rm $(CORE)
crash-ci: crash-persists
	$(STEP) 'crash states that once were bad' $(TESTKIT) crash --regressions crates/testkit/crash-regressions.txt
	$(STEP) 'crash states' $(CRASH) --depth 2 --every 4 --pairs 1000 --seconds 60
	$(STEP) 'the crash explorer notices what is missing' $(TESTKIT) crash --mutants --every 8 --every-pair 64
crash-persists:
	$(STEP) 'ordered persists per operation' $(TESTKIT) crash --persists
crash-mutants:
	$(STEP) 'the crash explorer notices what is missing' $(TESTKIT) crash --mutants

tools:
	@./.ci/tools

# ---- fuzzing: hostile images and peers ----

# The kept inputs, then new ones from a fixed seed; any compiler will do.
FUZZ_SECONDS ?= 6
fuzz-ci:
	$(STEP) 'fuzz: kept inputs and new ones' sh -c 'cd fuzz && exec $(CARGO) run --release $(CARGO_FLAGS) -q --bin replay -- --seconds $(FUZZ_SECONDS)'

# libFuzzer with the address sanitizer, FUZZ_LONG seconds a target (cargo-fuzz and a nightly compiler).
# What an input maps stays mapped, and the sanitizer keeps what is freed: hence the limit of memory.
FUZZ_LONG ?= 600
FUZZ_TARGETS ?= open operations checker resolver peer mutator daemon requests journal cached
fuzz:
	for target in $(FUZZ_TARGETS); do mkdir -p fuzz/corpus-grown/$$target fuzz/corpus/$$target; (cd fuzz && ASAN_OPTIONS=detect_leaks=0 $(CARGO) +nightly fuzz run --features libfuzzer $$target \
	    corpus-grown/$$target corpus/$$target -- -max_total_time=$(FUZZ_LONG) -timeout=10 -max_len=500 -rss_limit_mb=8192) || exit 1; done

# Every schedule of the lock-free protocols' models.
loom:
	$(STEP) 'loom: all schedules of the models' sh -c 'cd models && exec $(CARGO) test -q $(CARGO_FLAGS)'

# Schedules of more threads than loom can exhaust, drawn from one seed; threads die anywhere. SEED=n draws others,
# ROUNDS=n so many of each, SCHEDULE=… runs the one that a failure has printed.
shuttle:
	$(STEP) 'shuttle: drawn schedules of the models, with deaths' sh -c 'cd models && exec $(CARGO) test -q $(CARGO_FLAGS) --features many'

# ---- CI ----

ci: tools
	@WITHOUT=patched $(MAKE) --no-print-directory -k fmt clippy dependencies unit preload-tests ways-tests conformance-tests program-tests direct-tests python-tests mount-tests system-tests crash-ci fuzz-ci loom shuttle docs budgets tiny-bench tiny-demo dist-ci

# What is long and has rarely found anything that CI does not find.
nightly: tools
	@$(MAKE) --no-print-directory -k conformance-tests programs-patched system-model tiny-figures

fmt:
	$(STEP) 'format' $(CARGO) fmt --all --check

clippy:
	$(STEP) 'clippy' $(CARGO) clippy $(CARGO_FLAGS) --workspace --exclude bypath-preload --all-targets -- -D warnings
	$(STEP) 'clippy, preload' $(CARGO) clippy --release $(CARGO_FLAGS) -p bypath-preload -- -D warnings

dependencies:
	$(STEP) 'dependencies point downwards' $(CARGO) run -q $(CARGO_FLAGS) -p xtask -- dependencies

# What the documents say, and the crates' own documentation.
docs: build
	$(STEP) 'docs: links, paths and words' tests/docs/run.sh pages
	$(STEP) 'docs: the commands of the guide' tests/docs/run.sh commands $(RELEASE)/bypath
	$(STEP) 'docs' env RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' $(CARGO) doc $(CARGO_FLAGS) --workspace --exclude bypath-cli --no-deps --document-private-items

budgets: build
	$(STEP) 'budgets: instructions and lines per call' $(CARGO) run --release $(CARGO_FLAGS) -q -p bypath-bench --bin budgets
	$(STEP) 'budgets: what other mounts cost' $(CARGO) run --release $(CARGO_FLAGS) -q -p bypath-bench --bin budgets -- --among

tiny-bench: build
	$(STEP) 'tiny bench' $(RELEASE)/bypath bench micro --quick
tiny-figures: build
	$(STEP) "tiny bench of filebench's loads" $(RELEASE)/bypath bench melo --quick
	$(STEP) "tiny bench of ByVFS's figures" $(RELEASE)/bypath bench byvfs --quick --in /dev/shm
	$(STEP) "tiny bench of DenseFS's figures" $(RELEASE)/bypath bench densefs --quick --figure 4 --figure inode --in /dev/shm
	@if [ -e /usr/include/fuse3/fuse.h ]; then $(STEP) 'tiny bench of FUSE file systems' $(RELEASE)/bypath bench directfuse --quick; \
	else echo 'skip tiny bench of FUSE file systems: libfuse3-dev is not installed: LEFT OUT, not passed'; fi

tiny-demo: build
	$(STEP) 'tiny demo' env BYPATH=$(RELEASE)/bypath FILES=2000 ROUNDS=1 demo/demo.sh

clean:
	$(CARGO) clean
