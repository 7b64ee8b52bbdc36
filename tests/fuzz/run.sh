#!/usr/bin/env bash
# Builds the fuzzers with clang and runs each from the committed corpus: 20000 inputs, or for the given time.
#   tests/fuzz/run.sh [seconds]
#   tests/fuzz/run.sh corpus      writes the committed corpus again, after the messages have changed
# New inputs go to build/fuzz/corpus; one that fails is left as build/fuzz/<fuzzer>-crash-*.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=build/fuzz
fuzzers=(coordinator negotiator aggregator tree_root handshake frames store agent)

configure() {
  [ -f $build/build.ninja ] ||
    cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g" -DCMAKE_C_COMPILER=clang-14 \
      -DCMAKE_CXX_COMPILER=clang++-14 -DHVD_FUZZ=ON >/dev/null
}

configure
if [ "${1:-}" = corpus ]; then
  cmake --build $build --target fuzz_make_corpus | tail -n 1
  exec $build/tests/fuzz/fuzz_make_corpus tests/fuzz/corpus
fi
limit=(-runs=20000)
[ $# -eq 0 ] || limit=(-max_total_time="$1")
cmake --build $build -j "${JOBS:-$(nproc)}" --target "${fuzzers[@]/#/fuzz_}" | tail -n 1
for fuzzer in "${fuzzers[@]}"; do
  mkdir -p $build/corpus/$fuzzer
  log=$build/$fuzzer.log
  $build/tests/fuzz/fuzz_$fuzzer "${limit[@]}" -seed=1 -max_len=4096 -timeout=10 -print_final_stats=1 \
    -artifact_prefix=$build/$fuzzer- $build/corpus/$fuzzer tests/fuzz/corpus/$fuzzer >$log 2>&1 || { tail -n 60 $log; exit 1; }
  echo "$fuzzer: $(grep -o 'number_of_executed_units.*' $log)"
done
