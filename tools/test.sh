#!/usr/bin/env bash
# Runs the test stages, all of them or the named ones. One that fails does not keep the next from running: the end
# names all that failed.
#   tools/test.sh [ctest|single|runner|launcher|elastic|testbed|hosts|deploy|docs|parallel|mpi|torch|tensorflow|keras|asan|tsan|fuzz|packaging]...
#   tools/test.sh mpi5                                      the suites with newer MPIs than Debian's: make soak
#   tools/test.sh tensorflow215                             the suites with an older TensorFlow: make soak
#   tools/test.sh aarch64                                   the C++ tests for another processor, emulated: make soak
#   tools/test.sh images                                    builds the CPU image and trains in it: make soak
#   tools/test.sh cloud                                     whole deployments, minutes each: make soak
#   tools/test.sh compile [asan|tsan|fuzz|packaging]...     only builds what these need
# What the last four need is compiled while the stages before them run, most of which wait more than they work.
# Variables: SUITES          folders of tests/cpp to build and run (default: all, but under TSan only those with threads)
#            RANKS           world sizes of the parallel Python tests (default: 1 2 3 4 8)
#            FRAMEWORK_RANKS world sizes of the PyTorch, TensorFlow and Keras tests (default: 2 3)
#            HOSTS           worlds of several pretended hosts for them, ranks of each (default: 1,1 2,2 1,2,1)
#            REPEAT          how often each C++ and parallel test is run (default: 1)
#            FUZZ_SECONDS    time for every fuzzer (default: 5)
set -euo pipefail
cd "$(dirname "$0")/.."

bin=.venv/bin
jobs=${JOBS:-$(nproc)}
repeat=${REPEAT:-1}
pytest=("$bin/python" -m pytest -q)

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
threaded="net transport rendezvous collectives engine capi"
suites_of() {  # preset
  [ "$1" != tsan ] || set -- tsan "$threaded"
  echo "${SUITES:-${2:-$every}}"
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
  end=$(quietly "build/$1/ctest.log" ctest --preset "$1" -j "$jobs" --repeat "until-fail:$repeat" --no-tests=error \
    -R "$names" "${@:2}") || {
    echo "$end"
    return 1
  }
  echo "in processes of up to 16 test cases: $(grep -c '^\[       OK \]' "$log") cases passed," \
    "$(grep -c '^\[  SKIPPED \] .*(' "$log" || true) skipped"
  echo "$end"
}

compile() {  # stages
  local stage
  for stage in "$@"; do
    echo "-- $stage"
    case $stage in
      asan | tsan) build "$stage" ;;
      fuzz) tests/fuzz/run.sh build ;;
      packaging) "$bin/python" -m pip wheel -q --no-deps --no-build-isolation -w build/ahead . ;;
      *) echo "nothing to compile for $stage" && return 1 ;;
    esac
  done
}

ctest_stage() { cpp release; }
asan_stage() { cpp asan; }
# Not the kernels: they are pure functions, and slow there.
tsan_stage() { cpp tsan -E 'Kernels|HalfTest'; }
fuzz_stage() { tests/fuzz/run.sh "${FUZZ_SECONDS:-5}"; }
single_stage() { "${pytest[@]}" tests/python/single; }
runner_stage() { "${pytest[@]}" tests/python/runner; }
parallel_stage() {
  for ((round = 0; round < repeat; ++round)); do
    for ranks in ${RANKS:-1 2 3 4 8}; do
      echo "-- $ranks ranks"
      "$bin/horovodrun" -np "$ranks" "${pytest[@]}" -p no:cacheprovider tests/python/parallel
    done
    for hosts in ${HOSTS:-1,1 2,2 1,2,1}; do
      echo "-- hosts with $hosts ranks"
      "$bin/python" tests/python/placement.py "$hosts" "${pytest[@]}" -p no:cacheprovider tests/python/parallel
    done
  done
}
under_mpirun() {  # MPI, ranks, who carries the data, command
  echo "-- $1, $2 ranks, data by $3"
  "$bin/python" tests/python/mpi/flavours.py "$@"
}
mpi_stage() {
  "${pytest[@]}" tests/python/mpi
  local suite=("${pytest[@]}" -p no:cacheprovider tests/python/parallel)
  under_mpirun openmpi 2 mpi "${suite[@]}"
  under_mpirun mpich 3 mpi "${suite[@]}"
  under_mpirun openmpi 3 engine "${suite[@]}" -k "basics or grouped or moving or process_sets"
  under_mpirun mpich 2 engine "${suite[@]}" -k "basics or grouped or moving or process_sets"
  echo "-- what is too large for one call of MPI"
  HOROVOD_MPI_CHUNK=13 under_mpirun mpich 2 mpi "${suite[@]}" -k "allreduce and sum or grouped or moving"
  HOROVOD_MPI_CHUNK=13 under_mpirun openmpi 3 mpi "${suite[@]}" -k "grouped or moving"
  for flavour in openmpi mpich; do
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
  for ranks in ${FRAMEWORK_RANKS:-2 3}; do
    echo "-- $ranks ranks"
    "$bin/horovodrun" -np "$ranks" "${pytest[@]}" -p no:cacheprovider "tests/python/$1" "${@:2}"
  done
}
torch_stage() { in_ranks torch; }
tensorflow_stage() {
  in_ranks tensorflow
  echo "-- operations in Python"
  FRAMEWORK_RANKS=2 HOROVOD_TENSORFLOW_FALLBACK=1 in_ranks tensorflow -k test_tf_
}
keras_stage() {
  echo "-- Keras 3"
  in_ranks keras
  echo "-- Keras 2 (tf_keras)"
  TF_USE_LEGACY_KERAS=1 in_ranks keras
}
tensorflow215_stage() {  # not among all: make soak makes its environment and asks for it
  local pytest=(.venv-tf215/bin/python -m pytest -q) FRAMEWORK_RANKS=2
  in_ranks tensorflow
  in_ranks keras
}
aarch64_stage() {  # not among all: emulated, it is slow, so once is enough
  local repeat=1
  tools/sysroot.sh arm64 build/aarch64-sysroot
  cpp aarch64 -E 'net/Congestion|capi/Crowds'  # fail under qemu 7.2: TCP_INFO, and 64 or more emulated ranks
  quietly build/aarch64/programs.log cmake --build build/aarch64 -j "$jobs" --target horovod_tensorflow horovodrun
  qemu-aarch64-static -L /usr/aarch64-linux-gnu build/aarch64/src/horovodrun -np 2 echo works
}
launcher_stage() { "${pytest[@]}" tests/launcher; }
elastic_stage() { "${pytest[@]}" tests/elastic; }  # jobs with faults
packaging_stage() { "${pytest[@]}" tests/packaging; }
testbed_stage() { "${pytest[@]}" tests/testbed; }  # what the hosts themselves can do
docs_stage() { "${pytest[@]}" tests/docs; }        # the site, and the commands on its pages
cloud_stage() { "${pytest[@]}" -o faulthandler_timeout=3000 tests/cloud; }
hosts_stage() { "${pytest[@]}" tests/hosts; }      # what a world on them survives
deploy_stage() { "${pytest[@]}" tests/deploy; }    # what can be known of deployments in seconds
images_stage() { "${pytest[@]}" -o faulthandler_timeout=3600 tests/images; }

if [ "${1:-}" = compile ]; then
  compile "${@:2}"
  exit
fi

ahead=""  # the process that compiles
start_compiling() {  # stages: those of them that need it, below everything else and in a group of its own
  local stage wanted=()
  for stage in "$@"; do
    case $stage in asan | tsan | fuzz | packaging) wanted+=("$stage") ;; esac
  done
  [ ${#wanted[@]} -gt 0 ] || return 0
  mkdir -p build
  setsid nice -n 15 tools/test.sh compile "${wanted[@]}" >build/ahead.log 2>&1 &
  ahead=$!
  trap '[ -z "$ahead" ] || kill -- "-$ahead" 2>/dev/null || true' EXIT
}
finish_compiling() {
  [ -n "$ahead" ] || return 0
  echo "waiting for what is being compiled"
  wait "$ahead" || {
    cat build/ahead.log
    return 1
  }
  ahead=""
}

[ $# -gt 0 ] || set -- ctest single runner launcher elastic testbed hosts deploy docs parallel mpi torch tensorflow keras asan tsan fuzz packaging
began=$SECONDS
previous=""
failed=()
for number in $(seq $#); do
  stage=${!number}
  printf '\n== %s ==%s\n' "$stage" "${previous:+ ($previous took $((SECONDS - stage_began)) s, $((SECONDS - began)) s so far)}"
  stage_began=$SECONDS
  case $stage in
    ctest) ;;  # has to compile itself
    asan | tsan | fuzz | packaging)
      finish_compiling || {
        failed+=("compile")
        break
      }
      ;;
    *) [ -n "${compiling:=}" ] || { start_compiling "${@:number}" && compiling=begun; } ;;
  esac
  set +e  # and in a shell of its own, where the first command that fails ends the stage
  (
    set -e
    "${stage}_stage"
  )
  status=$?
  set -e
  [ $status -eq 0 ] || failed+=("$stage")
  previous=$stage
done
[ ${#failed[@]} -eq 0 ] || {
  printf '\nfailed: %s\n' "${failed[*]}"
  exit 1
}
