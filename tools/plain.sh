#!/usr/bin/env bash
# Compiles files of src/ one by one, without output, so that each is known to include what it uses: tools/plain.sh h cc
# Builds compile the files of a folder in batches, which would hide that. Arguments: the endings to look at.
set -euo pipefail
cd "$(dirname "$0")/.."

files=()
for ending in "$@"; do
  mapfile -t -O "${#files[@]}" files < <(git ls-files --cached --others --exclude-standard "src/*.$ending")
done
# Files that need a framework's or MPI's headers are C, and are compiled elsewhere.
printf '%s\n' "${files[@]}" | xargs -P "${JOBS:-$(nproc)}" -n 6 clang++-14 -x c++ -std=c++20 -fsyntax-only -Wall -Wextra \
  -Wno-pragma-once-outside-header -Wno-missing-field-initializers -Wno-unused-function -Wno-unused-const-variable \
  -DHVD_VERSION='""' -I src -I include -isystem /usr/include/eigen3
echo "${#files[@]} files compile on their own"
