#!/usr/bin/env bash
# Builds the fuzzers with clang and runs each from the committed corpus: 20000 inputs, or for the given time; as many at
# once as there are cores.
#   tests/fuzz/run.sh [seconds]
#   tests/fuzz/run.sh build       only builds them
#   tests/fuzz/run.sh corpus      writes the committed corpus again, after the messages have changed
# New inputs go to build/fuzz/corpus; one that fails is left as build/fuzz/<fuzzer>-crash-*.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=build/fuzz
fuzzers=(coordinator negotiator aggregator tree_root pair_root handshake frames store agent discovery elastic trace http)

configure() {
  [ -f $build/build.ninja ] ||
    cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g1" -DCMAKE_C_COMPILER=clang-14 \
      -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_UNITY_BUILD=ON -DHVD_FUZZ=ON >/dev/null
}

if [ "${1:-}" = one ]; then  # name, libFuzzer's limit
  log=$build/$2.log
  mkdir -p "$build/corpus/$2"
  "$build/tests/fuzz/fuzz_$2" "$3" -seed=1 -max_len=4096 -timeout=60 -print_final_stats=1 "-artifact_prefix=$build/$2-" \
    "$build/corpus/$2" "tests/fuzz/corpus/$2" >"$log" 2>&1 || { tail -n 60 "$log"; exit 1; }
  echo "$2: $(grep -o 'number_of_executed_units.*' "$log")"
  exit
fi

configure
if [ "${1:-}" = corpus ]; then
  cmake --build $build --target fuzz_make_corpus | tail -n 1
  exec $build/tests/fuzz/fuzz_make_corpus tests/fuzz/corpus
fi
jobs=${JOBS:-$(nproc)}
cmake --build $build -j "$jobs" --target "${fuzzers[@]/#/fuzz_}" | tail -n 1
[ "${1:-}" != build ] || exit 0
printf '%s\n' "${fuzzers[@]}" | xargs -P "$jobs" -I{} tests/fuzz/run.sh one {} "${1:+-max_total_time=}${1:--runs=20000}"
