#!/usr/bin/env bash
# Runs the test stages, all of them or the named ones, and stops at the first that fails.
#   tools/test.sh [ctest|asan|tsan|fuzz|single|runner|parallel|packaging|launcher|testbed|hosts]...
# Variables: SUITES          folders of tests/cpp to build and run (default: all, but under TSan only those with threads)
#            RANKS           world sizes of the parallel Python tests (default: 1 2 3 4 8)
#            HOSTS           worlds of several pretended hosts for them, ranks of each (default: 1,1 2,2 1,2,1)
#            REPEAT          how often each C++ and parallel test is run (default: 1)
#            FUZZ_SECONDS    time for every fuzzer (default: 10)
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

cpp() {  # preset, suites, arguments of ctest
  local build=build/$1 suites=($2)
  [ -f "$build/build.ninja" ] || cmake --preset "$1" >/dev/null
  quietly "$build/build.log" cmake --build "$build" -j "$jobs" --target "${suites[@]/#/test_}"
  local names
  names="^($(IFS='|' && echo "${suites[*]}"))/"
  quietly "$build/ctest.log" ctest --preset "$1" -j "$jobs" --repeat "until-fail:$repeat" --no-tests=error -R "$names" "${@:3}"
}

every=$(find tests/cpp -mindepth 1 -maxdepth 1 -type d -not -name support -printf '%f ')
[ "${SUITES:-}" = all ] && SUITES=$every
threaded="net transport rendezvous collectives engine capi"
ctest_stage() { cpp release "${SUITES:-$every}"; }
asan_stage() { cpp asan "${SUITES:-$every}"; }
# Not the kernels: they are pure functions, and slow there.
tsan_stage() { cpp tsan "${SUITES:-$threaded}" -E 'Kernels|HalfTest'; }
fuzz_stage() { tests/fuzz/run.sh "${FUZZ_SECONDS:-10}"; }
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
launcher_stage() { "${pytest[@]}" tests/launcher; }
packaging_stage() { "${pytest[@]}" tests/packaging; }
testbed_stage() { "${pytest[@]}" tests/testbed; }  # what the hosts themselves can do
hosts_stage() { "${pytest[@]}" tests/hosts; }      # what a world on them survives

[ $# -gt 0 ] || set -- ctest asan tsan fuzz single runner parallel packaging launcher testbed hosts
began=$SECONDS
previous=""
for stage in "$@"; do
  printf '\n== %s ==%s\n' "$stage" "${previous:+ ($previous took $((SECONDS - stage_began)) s, $((SECONDS - began)) s so far)}"
  stage_began=$SECONDS
  "${stage}_stage"
  previous=$stage
done
