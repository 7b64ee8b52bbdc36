#!/bin/bash
# Makes the key pairs of a release, once: the one the driver logs in with, and the one by which it knows the workers.
set -euo pipefail

if kubectl get secret "$SECRET" --namespace "$NAMESPACE" >/dev/null 2>&1; then
  echo "make-keys.sh: secret $SECRET is there already"
  exit 0
fi
keys=$(mktemp -d)
trap 'rm -rf "$keys"' EXIT
for name in host-key server-key; do
  ssh-keygen -q -t ed25519 -N '' -C "$SECRET" -f "$keys/$name"
  mv "$keys/$name.pub" "$keys/$name-pub"
done
kubectl create secret generic "$SECRET" --namespace "$NAMESPACE" --from-file="$keys"
