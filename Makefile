# Everything a developer does with the project. `make help` lists it.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory

PYTHON ?= python3
export PYTHON
export JOBS ?= $(shell nproc)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

BIN := .venv/bin
STAMPS := .venv/stamps
SOAK_REPEAT ?= 20
SOAK_FUZZ_SECONDS ?= 600
CXX_FILES = $(shell git ls-files --cached --others --exclude-standard '*.cc' '*.h')

.PHONY: all
all: $(BIN)/horovodrun library ## Set up the environment and build (default)

.PHONY: help
help: ## List these targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

# ---- environment

PACKAGES := packages-build packages-fuzz packages-lint packages-bench packages-testbed
.PHONY: $(PACKAGES)
$(PACKAGES): packages-%:
	@tools/packages.sh $*

# The package is used in place: a .pth file puts python/ on the path of the environment.
$(STAMPS)/venv: | packages-build
	@echo "creating .venv"
	@$(PYTHON) -m venv .venv
	@echo "$(CURDIR)/python" > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/horovod-in-place.pth"
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/%: requirements/%.txt requirements/runtime.txt $(STAMPS)/venv
	@echo "installing $<"
	@$(BIN)/pip install -q -r $<
	@touch $@

# ---- build

build/%/build.ninja: CMakePresets.json | packages-build
	@cmake --preset $*

.PHONY: library
library: build/release/build.ninja $(STAMPS)/runtime
	@cmake --build build/release -j $(JOBS) --target horovod horovodrun
	@cmake --install build/release --prefix python/horovod --component runtime | { grep Installing || true; }

$(BIN)/horovodrun: | $(STAMPS)/venv
	@ln -sfn ../../python/horovod/bin/horovodrun $@

.PHONY: wheel
wheel: packages-build $(STAMPS)/build ## Build the wheel into dist/
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist .

# ---- use

.PHONY: demo
demo: all $(STAMPS)/demo ## Train a small network with one process, then with two
	@tools/demo.sh

.PHONY: test
test: all packages-fuzz packages-testbed $(STAMPS)/test $(STAMPS)/build ## Run all tests
	@tools/test.sh

.PHONY: soak
soak: all packages-fuzz $(STAMPS)/test ## Run the tests again and again, sanitizers and fuzzers for long
	@SUITES=all REPEAT=$(SOAK_REPEAT) FUZZ_SECONDS=$(SOAK_FUZZ_SECONDS) tools/test.sh ctest asan tsan fuzz parallel

.PHONY: bench
bench: all packages-bench packages-testbed $(STAMPS)/bench ## Measure against MPI and Gloo
	@$(BIN)/python benchmarks/run.py
	@$(BIN)/python benchmarks/startup.py

# clang-tidy reads the files that the sanitizer build makes of each folder: most of its time goes into the headers of the
# standard library, which are then read once per folder. The kernels are not among them: clang does not know their CPUs.
.PHONY: lint
lint: all build/asan/build.ninja packages-lint $(STAMPS)/lint $(STAMPS)/test ## Check format, style and types
	clang-format-14 --dry-run --Werror $(CXX_FILES)
	run-clang-tidy-14 -quiet -j $(JOBS) -p build/asan "build/asan/src/.*Unity" > build/clang-tidy.log 2>&1 || { cat build/clang-tidy.log; exit 1; }
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: clean
clean: ## Remove everything that was built, also .venv
	rm -rf build dist .venv python/horovod/lib python/horovod/bin
