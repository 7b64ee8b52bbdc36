#!/bin/sh
# Installs what the build arguments ask for into /opt/horovod: install-frameworks.sh cpu|gpu
#   FRAMEWORKS                                    words among torch and tensorflow; none: NumPy alone
#   PYTORCH_VERSION, TENSORFLOW_VERSION           others than those that requirements/ pins
#   TORCH_INDEX                                   where PyTorch's own builds are, besides the index of pip
set -eu

kind=$1
requirements=/build/requirements
pip() { /opt/horovod/bin/pip install --no-cache-dir "$@"; }
# The pins of a file without those of the frameworks themselves, which follow with the version that is wanted.
without() { sed "/^$2==/d; s|^-c runtime|-c $requirements/runtime|" "$requirements/$1.txt" >"/tmp/$1.txt"; }
pinned() { sed -n "s/^$2==//p" "$requirements/$1.txt"; }

for framework in ${FRAMEWORKS:-}; do
  case $framework in
    torch)
      version=${PYTORCH_VERSION:-$(pinned torch torch)}
      without torch torch
      pip ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -r /tmp/torch.txt "torch==$version"
      ;;
    tensorflow)  # without dependencies: tf_keras would bring a second TensorFlow
      version=${TENSORFLOW_VERSION:-$(pinned tensorflow tensorflow_cpu)}
      without tensorflow tensorflow_cpu
      package=tensorflow
      [ "$kind" = gpu ] || package=tensorflow_cpu
      pip --no-deps -r /tmp/tensorflow.txt "$package==$version"
      ;;
    *)
      echo "FRAMEWORKS has '$framework'; known are torch and tensorflow" >&2
      exit 1
      ;;
  esac
done
pip -r "$requirements/runtime.txt" -r "$requirements/demo.txt"  # what the examples need
