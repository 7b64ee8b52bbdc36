#!/usr/bin/env bash
# Runs the test stages, all of them or the named ones, and stops at the first that fails.
#   tools/test.sh [ctest|asan|tsan|fuzz|single|parallel|launcher|packaging]...
# Variables: SANITIZE_TESTS  regex of the C++ tests that the sanitizer builds run (default: all)
#            RANKS           world sizes of the parallel Python tests (default: 1 2 3 4 8)
#            REPEAT          how often each C++ and parallel test is run (default: 1)
#            FUZZ_SECONDS    time for every fuzzer (default: 10)
set -euo pipefail
cd "$(dirname "$0")/.."

bin=.venv/bin
jobs=${JOBS:-$(nproc)}
repeat=${REPEAT:-1}
pytest=("$bin/python" -m pytest -q)

cpp() {  # preset, arguments of ctest
  local preset=$1
  shift
  [ -f "build/$preset/build.ninja" ] || cmake --preset "$preset" >/dev/null
  cmake --build "build/$preset" -j "$jobs" | tail -n 1
  ctest --preset "$preset" -j "$jobs" --repeat "until-fail:$repeat" --no-tests=error "$@" | tail -n "${CTEST_LINES:-8}"
}

ctest_stage() { cpp release; }
asan_stage() { cpp asan -R "${SANITIZE_TESTS:-.}"; }
tsan_stage() { cpp tsan -R "${SANITIZE_TESTS:-.}"; }
fuzz_stage() { tests/fuzz/run.sh "${FUZZ_SECONDS:-10}"; }
single_stage() { "${pytest[@]}" tests/python/single; }
parallel_stage() {
  for ((round = 0; round < repeat; ++round)); do
    for ranks in ${RANKS:-1 2 3 4 8}; do
      echo "-- $ranks ranks"
      "$bin/horovodrun" -np "$ranks" "${pytest[@]}" -p no:cacheprovider tests/python/parallel
    done
  done
}
launcher_stage() { "${pytest[@]}" tests/launcher; }
packaging_stage() { "${pytest[@]}" tests/packaging; }

[ $# -gt 0 ] || set -- ctest asan tsan fuzz single parallel packaging launcher
began=$SECONDS
previous=""
for stage in "$@"; do
  printf '\n== %s ==%s\n' "$stage" "${previous:+ ($previous took $((SECONDS - stage_began)) s, $((SECONDS - began)) s so far)}"
  stage_began=$SECONDS
  "${stage}_stage"
  previous=$stage
done
