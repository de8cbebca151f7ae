# The front door. Everything is built by meson; this file only names the ways in.
#
#   build/        what `make build` leaves: release flags, the program is build/weir
#   build-test/   the same code with expensive assertions on, and all tests
#   build-asan/, build-tsan/   under AddressSanitizer and UBSan, and under ThreadSanitizer (clang)

PREFIX  ?= /usr/local
DESTDIR ?=
WERROR  ?= false
# What runs under a sanitizer, with fewer seeds: everything there takes several times as long. The
# simulator not under ThreadSanitizer: it has one thread.
SANITIZED_SUITES = --suite unit --suite conformance --suite differential --suite engine \
  --suite claims_memory --suite claims_many_memory --suite claims_sqlite \
  --timeout-multiplier 10
SANITIZED_SEEDS  = WEIR_DIFFERENTIAL_SEEDS=100 WEIR_SIM_SEEDS=50

.PHONY: help start test build check asan tsan soak mutants bench install clean deps test-deps

help:
	@sed -n 's/^## \([a-z-]*\): /  make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 18

## start: install what is missing, build, and show it at work on an SQLite file
start: deps
	@[ -x build/weir ] || echo "Compiling the library and the program into build/. It takes a minute or two."
	@$(MAKE) --no-print-directory build
	@tools/demo build/weir

## test: install what is missing, build, run every test
test: test-deps build-test/build.ninja
	@tools/run-suites build-test

## build: build the program (build/weir) and the libraries; installs nothing
# On a terminal ninja shows how far it is.
build: build/build.ninja
	@ninja -C build $(if $(MAKE_TERMOUT),,--quiet)
	@echo "built: build/weir"

## check: formatting, static analysis, layers, spelling
check: test-deps build-test/build.ninja
	@tools/check.sh build-test

## asan: unit, conformance, differential, engine and sim suites under ASan and UBSan
asan: test-deps build-asan/build.ninja
	@$(SANITIZED_SEEDS) tools/run-suites build-asan $(SANITIZED_SUITES) --suite sim

## tsan: the same, but sim, under ThreadSanitizer
tsan: test-deps build-tsan/build.ninja
	@$(SANITIZED_SEEDS) tools/run-suites build-tsan $(SANITIZED_SUITES)

## soak: storms, kills and random work for much longer than `make test`; SOAK_SECONDS each (300)
SOAK_SECONDS ?= 300
soak: test-deps build-test/build.ninja
	@WEIR_STORM_SECONDS=$(SOAK_SECONDS) WEIR_SIM_SEEDS=$$(($(SOAK_SECONDS) * 20)) \
	  WEIR_DIFFERENTIAL_SEEDS=$$(($(SOAK_SECONDS) * 5)) \
	  tools/run-suites build-test --suite soak --timeout-multiplier 40

## mutants: break each promise on purpose and see its test fail
mutants: test-deps
	@tools/mutants

## bench: measure, and compare with the reference programs
bench: test-deps build
	@bench/run

## install: install to $(DESTDIR)$(PREFIX)
install: build
	@meson configure build -Dprefix=$(abspath $(PREFIX))
	@log=$$(DESTDIR=$(DESTDIR) meson install -C build 2>&1) || { echo "$$log"; exit 1; }
	@echo "installed: $(DESTDIR)$(abspath $(PREFIX))/bin/weir and what belongs to it"

## clean: remove everything that was built
clean:
	rm -rf build build-test build-asan build-tsan

deps:
	@tools/install-deps.sh build

test-deps:
	@tools/install-deps.sh build test

# meson lists at length what it found; that is of interest only when something is missing.
DIRECTORIES = build/build.ninja build-test/build.ninja build-asan/build.ninja build-tsan/build.ninja
$(DIRECTORIES):
	@log=$$(meson setup -Dwerror=$(WERROR) $(OPTIONS) $(@D)) || { echo "$$log"; exit 1; }

build/build.ninja:      OPTIONS = -Dbuildtype=release -Dtests=false -Dprefix=$(abspath $(PREFIX))
build-test/build.ninja: OPTIONS = -Dbuildtype=debugoptimized -Dchecks=true
SANITIZE                        = -Dbuildtype=debugoptimized -Dchecks=true -Db_lundef=false
build-asan/build.ninja: OPTIONS = $(SANITIZE) -Db_sanitize=address,undefined
build-tsan/build.ninja: OPTIONS = $(SANITIZE) -Db_sanitize=thread
build-asan/build.ninja build-tsan/build.ninja: export CC = clang
