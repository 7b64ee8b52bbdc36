# Everything a developer does with the project. `make help` lists it.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory

PYTHON ?= python3
export PYTHON
export JOBS ?= $(shell nproc)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Images often set this. Every process that imports PyTorch would then compile all of it: 13 s of CPU instead of 5.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
STAMPS := .venv/stamps
SOAK_REPEAT ?= 20
SOAK_FUZZ_SECONDS ?= 600
SOAK_FAULTS ?= 500
SOAK_GPU_FAULTS ?= 300
SOAK_GPU_JOBS ?= 200
SOAK_PROGRAMS ?= 20000
CXX_FILES = $(shell git ls-files --cached --others --exclude-standard '*.cc' '*.h')

.PHONY: all
all: $(BIN)/horovodrun library ## Set up the environment and build (default)

.PHONY: help
help: ## List these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

# ---- environment

PACKAGES := packages-build packages-fuzz packages-lint packages-browser packages-bench packages-mpi packages-testbed packages-images packages-cloud packages-aarch64
.PHONY: $(PACKAGES)
$(PACKAGES): packages-%:
	@tools/packages.sh $*

# The package is used in place: a .pth file puts python/ on the path of the environment.
$(STAMPS)/venv: | packages-build
	@echo "creating .venv"
	@$(PYTHON) -m venv .venv
	@echo "$(CURDIR)/python" > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/horovod-in-place.pth"
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/tensorflow: PIP_FLAGS := --no-deps --no-compile
$(STAMPS)/%: requirements/%.txt requirements/runtime.txt $(STAMPS)/venv
	@echo "installing $<"
	@$(BIN)/pip install -q $(PIP_FLAGS) -r $<
	@touch $@

# A separate environment, also with the package in place, for an older TensorFlow than that of .venv.
.venv-tf215/stamp: requirements/tensorflow215.txt | packages-build
	@echo "creating .venv-tf215"
	@$(PYTHON) -m venv --clear .venv-tf215
	@echo "$(CURDIR)/python" > "$$(.venv-tf215/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/horovod-in-place.pth"
	@.venv-tf215/bin/pip install -q -r $<
	@touch $@

# MXNet, likewise: it needs an older numpy.
.venv-mxnet/stamp: requirements/mxnet.txt | packages-build
	@echo "creating .venv-mxnet"
	@$(PYTHON) -m venv --clear .venv-mxnet
	@echo "$(CURDIR)/python" > "$$(.venv-mxnet/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/horovod-in-place.pth"
	@.venv-mxnet/bin/pip install -q -r $<
	@touch $@

# The oldest PyTorch, likewise.
.venv-torch21/stamp: requirements/torch21.txt tools/stub_cuda.py | packages-build
	@echo "creating .venv-torch21"
	@$(PYTHON) -m venv --clear .venv-torch21
	@.venv-torch21/bin/pip install -q --no-deps -r $<
	@site=$$(.venv-torch21/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	  echo "$(CURDIR)/python" > "$$site/horovod-in-place.pth" && .venv-torch21/bin/python tools/stub_cuda.py "$$site/torch"
	@touch $@

# MPIs that are newer than Debian's. Tests run their programs and link their libraries, and import nothing from here.
MPIS := .venv-openmpi5/stamp .venv-mpich5/stamp
$(MPIS): .venv-%/stamp: requirements/%.txt | packages-build
	@echo "creating .venv-$*"
	@$(PYTHON) -m venv --clear .venv-$*
	@.venv-$*/bin/pip install -q -r $<
	@touch $@

# Terraform and Ansible: tests run their programs, and import nothing from here.
.venv-cloud/stamp: requirements/cloud.txt | packages-build
	@echo "creating .venv-cloud"
	@$(PYTHON) -m venv --clear .venv-cloud
	@.venv-cloud/bin/pip install -q --no-compile -r $<
	@touch $@

# ---- build

build/%/build.ninja: CMakePresets.json | packages-build
	@cmake --preset $*

.PHONY: library
library: build/release/build.ninja $(STAMPS)/runtime
	@cmake --build build/release -j $(JOBS) --target horovod horovod_tensorflow horovod_jax horovod_mxnet horovodrun
	@cmake --install build/release --prefix python/horovod --component runtime | { grep Installing || true; }

.PHONY: standin
standin: library
	@cmake --build build/release -j $(JOBS) --target standin_cuda standin_nccl_2_18 standin_nccl_2_27 standin_nccl_2_30 standin_hip standin_rccl gpu_probes bench_gpu

$(BIN)/horovodrun: | $(STAMPS)/venv
	@ln -sfn ../../python/horovod/bin/horovodrun $@

.PHONY: wheel
wheel: packages-build $(STAMPS)/build ## Build the wheel into dist/
	@CC=$${CC:-cc} CXX=$${CXX:-c++} $(BIN)/python -m build --wheel --no-isolation --outdir dist .

# ---- use

.PHONY: torch
torch: all $(STAMPS)/demo $(STAMPS)/torch ## Install PyTorch, Lightning and what the examples need into .venv

.PHONY: tensorflow
tensorflow: all $(STAMPS)/demo $(STAMPS)/tensorflow ## Install TensorFlow, Keras and what the examples need into .venv

.PHONY: demo
demo: all $(STAMPS)/demo $(STAMPS)/torch ## Train a small network with one process, then with two
	@tools/demo.sh

.PHONY: test
test: $(BIN)/horovodrun $(STAMPS)/runtime ## Run all tests
	@$(MAKE) -j 3 packages-test requirements-test standin
	@tools/test.sh

# What the stages need besides the library, installed while that is compiled.
TEST_PACKAGES := fuzz mpi testbed browser
TEST_REQUIREMENTS := test mpi build torch tensorflow jax tracking demo docs deploy
.PHONY: packages-test requirements-test
packages-test:
	@tools/packages.sh $(TEST_PACKAGES)

# All lists that are new in one run of pip; TensorFlow's without dependencies, as above. Modules are compiled when they are
# imported: most never are.
requirements-test: $(STAMPS)/runtime
	@new=(); for name in $(filter-out tensorflow,$(TEST_REQUIREMENTS)); do \
	  [ $(STAMPS)/$$name -nt requirements/$$name.txt ] || new+=("$$name"); done; \
	if [ $${#new[@]} -gt 0 ]; then \
	  echo "installing requirements: $${new[*]}"; \
	  files=("$${new[@]/#/-rrequirements/}"); \
	  $(BIN)/pip install -q --no-compile "$${files[@]/%/.txt}"; \
	  touch "$${new[@]/#/$(STAMPS)/}"; \
	fi
	@$(MAKE) $(STAMPS)/tensorflow
	@$(MAKE) .venv-cloud/stamp .venv-mxnet/stamp

.PHONY: check
check: all standin packages-testbed $(STAMPS)/test ## Run the tests of what has changed
	@chosen=$$($(BIN)/python tools/touched.py) && { read -r stages; read -r suites || true; } <<<"$$chosen" && \
	  echo "stages: $$stages" && SUITES="$$suites" RANKS=2 HOSTS=1,1 FRAMEWORK_RANKS=2 PROGRAMS=100 tools/test.sh $$stages

.PHONY: test-gpu
test-gpu: all standin $(STAMPS)/test ## Run the suites of tests/gpu on the GPUs of this machine
	@$(BIN)/python tests/gpu/run.py

.PHONY: soak
soak: all standin packages-fuzz packages-mpi packages-testbed packages-images packages-cloud packages-aarch64 $(STAMPS)/test $(STAMPS)/mpi $(STAMPS)/torch $(STAMPS)/tensorflow $(STAMPS)/jax $(STAMPS)/tracking $(STAMPS)/demo $(STAMPS)/deploy .venv-tf215/stamp .venv-torch21/stamp .venv-mxnet/stamp .venv-cloud/stamp $(MPIS) ## Run tests again and again, fuzzers for long, and faults by the hundred
	@TEST_FULL=1 SUITES=all FRAMEWORK_RANKS="2 3 4" REPEAT=$(SOAK_REPEAT) FUZZ_SECONDS=$(SOAK_FUZZ_SECONDS) tools/test.sh ctest asan tsan fuzz single gpu mpi parallel torch tensorflow jax mxnet keras mpi5 tensorflow215 torch21 images cloud aarch64
	@$(BIN)/python tests/differential/run.py --programs $(SOAK_PROGRAMS)
	@tools/test.sh sanitized
	@$(BIN)/python tests/elastic/faults.py --faults $(SOAK_FAULTS)
	@$(BIN)/python tests/gpu/random_jobs.py --jobs $(SOAK_GPU_JOBS)
	@$(BIN)/python tests/gpu/faults.py --faults $(SOAK_GPU_FAULTS)

.PHONY: bench
bench: all standin packages-bench packages-mpi packages-testbed $(STAMPS)/bench $(STAMPS)/torch $(STAMPS)/tensorflow $(STAMPS)/jax ## Measure against MPI, Gloo, DDP and MultiWorkerMirrored
	@$(BIN)/python benchmarks/run.py
	@cmake --build build/release -j $(JOBS) --target bench_hosts
	@build/release/benchmarks/bench_hosts 2,2
	@$(BIN)/python benchmarks/startup.py
	@$(BIN)/python benchmarks/mpi.py
	@$(BIN)/python benchmarks/torch_train.py
	@$(BIN)/python benchmarks/elastic.py
	@$(BIN)/python benchmarks/tensorflow_train.py
	@$(BIN)/python benchmarks/jax_train.py
	@$(BIN)/python benchmarks/gpu.py

.PHONY: docs
docs: packages-build $(STAMPS)/docs ## Build the documentation into build/docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "build/docs/index.html"

# Builds compile the files of a folder in batches; here each is read on its own, as clang-tidy does, so that an include that
# is missing is found. The kernels are left out: clang does not know their CPUs.
.PHONY: lint
lint: all packages-lint packages-fuzz $(STAMPS)/lint $(STAMPS)/test $(STAMPS)/torch $(STAMPS)/tensorflow $(STAMPS)/jax $(STAMPS)/demo $(STAMPS)/docs ## Check format, style and types
	clang-format-14 --dry-run --Werror $(CXX_FILES)
	tools/plain.sh h cc
	cmake --preset plain > /dev/null  # the files of each folder as they are now
	run-clang-tidy-14 -quiet -j $(JOBS) -p build/plain "^(?!.*/kernels).*/src/.*\.cc" > build/clang-tidy.log 2>&1 || { cat build/clang-tidy.log; exit 1; }
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: clean
clean: ## Remove everything that was built, also .venv and its like
	rm -rf build dist .venv .venv-tf215 .venv-torch21 .venv-mxnet .venv-cloud $(dir $(MPIS)) python/horovod/lib python/horovod/bin
