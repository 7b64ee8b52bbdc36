#!/usr/bin/env bash
# Runs the test stages, all of them or the named ones, in three lanes side by side (stages.py). The end has a table of them.
#   tools/test.sh [STAGE]...                                those of make test: the lists below
#   tools/test.sh mpi5                                      the suites with newer MPIs than Debian's: make soak
#   tools/test.sh tensorflow215 torch21                     the suites with an older TensorFlow, PyTorch: make soak
#   tools/test.sh sanitized                                 random programs under the sanitizers: make soak
#   tools/test.sh aarch64                                   the C++ tests for another processor, emulated: make soak
#   tools/test.sh images                                    builds the CPU image and trains in it: make soak
#   tools/test.sh cloud                                     whole deployments, minutes each: make soak
# Variables: SUITES          folders of tests/cpp to build and run (default: all; under ASan and TSan those with threads
#                            or memory of their own; all: every one, everywhere)
#            RANKS           world sizes of the parallel Python tests (default: 1 2 3 8; all: 1 2 3 4 8)
#            FRAMEWORK_RANKS world sizes of the PyTorch, TensorFlow and Keras tests (default: 2, and 3 for those files
#                            where the number of ranks matters)
#            HOSTS           worlds of several pretended hosts for them, ranks of each (default: 2,2 1,2,1; all: 1,1 2,2 1,2,1)
#            REPEAT          how often each C++ and parallel test is run (default: 1)
#            PROGRAMS        random programs of the stages differential (default: 300) and sanitized (500 for each sanitizer)
#            FUZZ_SECONDS    time for every fuzzer (default: 3)
#            TEST_FULL       1, as in make soak: also cases marked `soak` in Python, all rounds of long C++ tests
#                            (test::full), and what is "all" here
#            WORKERS         processes that share the cases of a stage that mostly waits (default: 3)
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONDONTWRITEBYTECODE  # as in the Makefile

# The stages of make test, a list for each lane. To add a stage NAME: write a function NAME_stage below and add NAME to a
# list, longest stages first; a new lane would only help if processors were idle. tools/touched.py finds the stage of a
# folder by its name. Python packages that it needs belong to TEST_REQUIREMENTS in the Makefile, Debian's to TEST_PACKAGES.
compile="ctest asan tsan fuzz packaging plain"
wait="hosts launcher elastic gpu runner deploy docs testbed"
compute="single torch torchdist tensorflow jax mxnet keras mpi parallel differential"

bin=.venv/bin
jobs=${JOBS:-$(nproc)}
repeat=${REPEAT:-1}
pytest=("$bin/python" -m pytest -q)
# For tests that wait for processes or for silence: some of them side by side, if pytest-xdist is installed (make test).
shared_pytest=("${pytest[@]}")
[ -z "$("$bin/python" -c 'import importlib.util as i; print(i.find_spec("xdist") or "")')" ] ||
  shared_pytest+=(-n "${WORKERS:-3}" --dist worksteal)

quietly() {  # log file, command: shows the end of the output, or all of it when the command fails
  local log=$1
  shift
  "$@" >"$log" 2>&1 || {
    cat "$log"
    return 1
  }
  tail -n 4 "$log"
}

every=$(find tests/cpp -mindepth 1 -maxdepth 1 -type d -not -name support -printf '%f ')
[ "${SUITES:-}" = all ] && SUITES=$every
# Parsers under negotiation, rendezvous and net are fuzzed with ASan and UBSan (stage fuzz).
threaded="net transport rendezvous collectives engine capi"
suites_of() {  # preset
  case $1 in
    tsan) set -- "$threaded" ;;
    asan) set -- "base $threaded" ;;
    *) set -- "$every" ;;
  esac
  echo "${SUITES:-$1}"
}

build() {  # preset
  local targets
  read -ra targets <<<"$(suites_of "$1")"
  [ -f "build/$1/build.ninja" ] || cmake --preset "$1" >/dev/null
  quietly "build/$1/build.log" cmake --build "build/$1" -j "$jobs" --target "${targets[@]/#/test_}"
}

cpp() {  # preset, arguments of ctest
  build "$1"
  local names end log=build/$1/Testing/Temporary/LastTest.log
  names="^($(suites_of "$1" | sed -E 's/ +$//; s/ +/|/g'))/"
  end=$(quietly "build/$1/ctest.log" ctest --preset "$1" -j "$((2 * jobs))" --repeat "until-fail:$repeat" --no-tests=error \
    -R "$names" "${@:2}") || {
    echo "$end"
    return 1
  }
  echo "in processes of up to 16 test cases: $(grep -c '^\[       OK \]' "$log") cases passed," \
    "$(grep -c '^\[  SKIPPED \] .*(' "$log" || true) skipped"
  echo "$end"
}

ctest_stage() { cpp release; }
asan_stage() { cpp asan; }
# Not the kernels: they are pure functions, and slow there.
tsan_stage() { cpp tsan -E 'Kernels|HalfTest'; }
plain_stage() { tools/plain.sh h; }  # each header on its own; make lint: each source file, too
fuzz_stage() { tests/fuzz/run.sh "${FUZZ_SECONDS:-3}"; }
single_stage() { "${shared_pytest[@]}" tests/python/single; }
runner_stage() { "${shared_pytest[@]}" tests/python/runner; }
parallel_stage() {
  for ((round = 0; round < repeat; ++round)); do
    for ranks in ${RANKS:-1 2 3 ${TEST_FULL:+4} 8}; do
      echo "-- $ranks ranks"
      "$bin/horovodrun" -np "$ranks" "${pytest[@]}" -p no:cacheprovider tests/python/parallel
    done
    for hosts in ${HOSTS:-${TEST_FULL:+1,1} 2,2 1,2,1}; do
      echo "-- hosts with $hosts ranks"
      "$bin/python" tests/python/placement.py "$hosts" "${pytest[@]}" -p no:cacheprovider tests/python/parallel
    done
  done
}
differential_stage() { DIFFERENTIAL_PROGRAMS=${PROGRAMS:-300} "${pytest[@]}" tests/differential; }  # random programs against a serial model
python_under() {  # asan or tsan, arguments of Python
  local kind=$1
  [ -f "build/$kind/build.ninja" ] || cmake --preset "$kind" >/dev/null
  quietly "build/$kind/library.log" cmake --build "build/$kind" -j "$jobs" --target horovod
  # Python is not made with a sanitizer, so the runtime comes first by force, and with it the C++ library that it wraps.
  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1 \
    LD_PRELOAD="$(gcc -print-file-name="lib$kind.so") $(gcc -print-file-name=libstdc++.so.6)" \
    HOROVOD_LIBRARY=$PWD/build/$kind/src/libhorovod.so "$bin/python" "${@:2}"
}
sanitized_stage() {  # not among all: programs run many times as long there
  local kind
  for kind in asan tsan; do
    echo "-- $kind"
    python_under "$kind" tests/differential/run.py --programs "${PROGRAMS:-500}" --hang-seconds 300
    # The stand-in is that of the release build: the sanitizers look at the engine and at the NCCL backend.
    python_under "$kind" tests/gpu/random_jobs.py --jobs 50
  done
}
under_mpirun() {  # MPI, ranks, what moves the data, command
  echo "-- $1, $2 ranks, data by $3"
  "$bin/python" tests/python/mpi/flavours.py "$@"
}
mpi_stage() {
  "${shared_pytest[@]}" tests/python/mpi
  local suite=("${pytest[@]}" -p no:cacheprovider tests/python/parallel)
  under_mpirun openmpi 2 mpi "${suite[@]}"
  under_mpirun mpich 3 mpi "${suite[@]}"
  under_mpirun openmpi 3 engine "${suite[@]}" -k "basics or grouped or moving or process_sets"
  [ -z "${TEST_FULL:-}" ] || under_mpirun mpich 2 engine "${suite[@]}" -k "basics or grouped or moving or process_sets"
  echo "-- what is too large for one call of MPI"
  HOROVOD_MPI_CHUNK=13 under_mpirun mpich 2 mpi "${suite[@]}" -k "allreduce and sum or grouped or moving"
  HOROVOD_MPI_CHUNK=13 under_mpirun openmpi 3 mpi "${suite[@]}" -k "grouped or moving"
  local flavour
  for flavour in openmpi ${TEST_FULL:+mpich}; do
    under_mpirun "$flavour" 2 mpi "${pytest[@]}" -p no:cacheprovider tests/python/torch/test_convergence.py
  done
}
mpi5_stage() {  # not among all: make soak makes its environments and asks for it
  local suite=("${pytest[@]}" -p no:cacheprovider tests/python/parallel)
  FLAVOURS="openmpi5 mpich5" "${pytest[@]}" tests/python/mpi
  for flavour in openmpi5 mpich5; do
    under_mpirun "$flavour" 2 mpi "${suite[@]}"
    under_mpirun "$flavour" 3 mpi "${suite[@]}"
    under_mpirun "$flavour" 3 engine "${suite[@]}"
  done
}
in_ranks() {  # folder of a framework's suite, arguments of pytest
  for ranks in ${FRAMEWORK_RANKS:-2}; do
    echo "-- $ranks ranks"
    "$bin/horovodrun" -np "$ranks" "${pytest[@]}" -p no:cacheprovider "tests/python/$1" "${@:2}"
  done
}
with_three() {  # folder, files without test_: those where an odd number of ranks makes a difference; make soak has all
  [ -z "${FRAMEWORK_RANKS:-}" ] || return 0
  echo "-- 3 ranks"
  local files=("${@:2}")
  files=("${files[@]/#/tests/python/$1/test_}")
  "$bin/horovodrun" -np 3 "${pytest[@]}" -p no:cacheprovider "${files[@]/%/.py}"
}
torch_stage() {
  in_ranks torch
  with_three torch allreduce moving_verbs gradient_verbs optimizer sharded convergence sync_batch_norm elastic_agreement
}
torchdist_stage() {  # torch.distributed over the engine
  FRAMEWORK_RANKS=${FRAMEWORK_RANKS:-3} in_ranks torchdist
  echo "-- jobs"
  "${shared_pytest[@]}" -p no:cacheprovider tests/python/torchdist_jobs
}
tensorflow_stage() {
  in_ranks tensorflow
  with_three tensorflow tf_allreduce tf_moving tf_gradients tf_sync_batch_norm convergence
  echo "-- operations in Python"
  FRAMEWORK_RANKS=2 HOROVOD_TENSORFLOW_FALLBACK=1 in_ranks tensorflow -k test_tf_
}
keras_stage() {
  echo "-- Keras 3"
  in_ranks keras
  with_three keras optimizer values
  echo "-- Keras 2 (tf_keras)"
  # What differs most between the two; make soak has all.
  local chosen=(-k "optimizer or saving or values or full_batch")
  [ -z "${TEST_FULL:-}" ] || chosen=()
  TF_USE_LEGACY_KERAS=1 in_ranks keras "${chosen[@]}"
}
jax_stage() {
  export JAX_PLATFORMS=cpu
  in_ranks jax
  with_three jax verbs traced_verbs optimizer convergence sharded random_calls
  echo "-- callbacks in place of custom calls"
  FRAMEWORK_RANKS=2 HOROVOD_JAX_FALLBACK=1 in_ranks jax -k "traced_verbs or random_calls"
}
tensorflow215_stage() {  # not among all: make soak makes its environment and asks for it
  local pytest=(.venv-tf215/bin/python -m pytest -q) FRAMEWORK_RANKS=2
  in_ranks tensorflow
  in_ranks keras
}
mxnet_stage() {
  local pytest=(.venv-mxnet/bin/python -m pytest -q --disable-warnings)
  in_ranks mxnet
  with_three mxnet verbs errors training
  echo "-- jobs"
  "${pytest[@]}" -p no:cacheprovider tests/python/mxnet_jobs
  "${pytest[@]}" -p no:cacheprovider tests/python/single/test_framework_imports.py -k mxnet
}
torch21_stage() {  # likewise. Other tests use what came with later versions of PyTorch, or Lightning.
  # compiled_verbs comes last: torch.compile of 2.1 takes the hooks off all optimizers' steps for good
  local files=() name
  for name in allreduce async_verbs gradient_verbs moving_verbs functions optimizer optimizer_final \
    optimizer_methods optimizer_worlds elastic_agreement compiled_verbs; do
    files+=("tests/python/torch/test_$name.py")
  done
  "$bin/horovodrun" -np 2 .venv-torch21/bin/python -m pytest -q -p no:cacheprovider "${files[@]}"
}
aarch64_stage() {  # not among all: emulated, it is slow, so once is enough
  local repeat=1
  tools/sysroot.sh arm64 build/aarch64-sysroot
  cpp aarch64 -E 'net/Congestion|capi/Crowds'  # fail under qemu 7.2: TCP_INFO, and 64 or more emulated ranks
  quietly build/aarch64/programs.log cmake --build build/aarch64 -j "$jobs" --target horovod_tensorflow horovod_jax horovodrun
  qemu-aarch64-static -L /usr/aarch64-linux-gnu build/aarch64/src/horovodrun -np 2 echo works
}
launcher_stage() { "${shared_pytest[@]}" tests/launcher; }
elastic_stage() { "${shared_pytest[@]}" tests/elastic; }  # jobs with faults
gpu_stage() { "${shared_pytest[@]}" tests/gpu; }  # with the stand-in for CUDA and NCCL
packaging_stage() { "${pytest[@]}" -o faulthandler_timeout=3000 tests/packaging; }  # compiles, if ccache is empty
testbed_stage() { "${pytest[@]}" tests/testbed; }  # what the hosts themselves can do
docs_stage() { "${shared_pytest[@]}" tests/docs; } # the site, and the commands on its pages
cloud_stage() { "${pytest[@]}" -o faulthandler_timeout=3000 tests/cloud; }
hosts_stage() { "${shared_pytest[@]/worksteal/loadfile}" tests/hosts; }  # what a world on them survives: one for a file
deploy_stage() { "${shared_pytest[@]}" tests/deploy; } # what can be known of deployments in seconds
images_stage() { "${pytest[@]}" -o faulthandler_timeout=3600 tests/images; }

if [ "${1:-}" = --alone ]; then  # what stages.py calls
  "${2}_stage"
  exit
fi
in_lane() {  # list of a lane: those of the wanted stages that are in it, in its order
  local stage
  for stage in $1; do
    [[ " $wanted " != *" $stage "* ]] || echo "$stage"
  done
}
wanted="${*:-$compile $wait $compute}"
others=""  # those of make soak
for stage in $wanted; do
  [[ " $compile $wait $compute " == *" $stage "* ]] || others+="$stage "
done
exec "$bin/python" tools/stages.py "$(in_lane "$compile")" "$(in_lane "$wait")" "$(in_lane "$compute") $others"
