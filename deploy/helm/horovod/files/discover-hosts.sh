#!/bin/bash
# Prints the workers of the moment for horovodrun --host-discovery-script: pods that are ready and not being deleted.
set -euo pipefail
# shellcheck source=/dev/null
. "$(dirname "$0")/settings.sh"

command -v kubectl >/dev/null || {
  echo "discoverHosts.sh: there is no kubectl in this image; docs/docker.md tells how to build one that has it" >&2
  exit 1
}
columns='{.metadata.name} {.status.conditions[?(@.type=="Ready")].status} {.metadata.deletionTimestamp}'
pods=$(kubectl get pods --namespace "$NAMESPACE" --selector "$SELECTOR" --request-timeout=10s \
  --output "jsonpath={range .items[*]}$columns{\"\\n\"}{end}")
while read -r name ready deleted; do
  if [ "$ready" = True ] && [ -z "$deleted" ]; then
    echo "$name.$SERVICE:$SLOTS"
  fi
done <<<"$pods" | sort -V
