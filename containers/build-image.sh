#!/usr/bin/env bash
# Builds a stand-in for the image apache/kafka:VERSION from Maven and Debian, for machines that
# reach no image registry:
#
#   containers/build-image.sh [VERSION…]        4.1.0 where none is named
#
# It answers to the same name and the same KAFKA_* variables as the official image, so that
# docker-compose.yml and `pytest --kafka=container` run unchanged. Needs root (debootstrap),
# Docker, debootstrap, and Maven or the Python package jgo. Where a registry is reachable there is
# no need for it: Docker pulls the official image.
#
#   PYTHON        a Python with kafka_coop[testing], python3 by default
#   DEBIAN, DEBIAN_MIRROR   see base-image.sh
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON="${PYTHON:-python3}"
command -v "$PYTHON" >/dev/null || { echo "$PYTHON is needed: apt-get install python3" >&2; exit 1; }
base="$(containers/base-image.sh)"

work="$(mktemp -d)"
trap 'rm -rf --one-file-system "$work"' EXIT

for version in "${@:-4.1.0}"; do
  context="$work/$version"
  mkdir -p "$context"
  cp -r "$(PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" "$PYTHON" -m kafka_coop.testing.jars "$version")" "$context/libs"
  cp containers/image/run containers/image/server.properties "$context/"
  # The classic builder: BuildKit would fetch its own front end from a registry.
  DOCKER_BUILDKIT=0 docker build -q -t "apache/kafka:$version" \
    --build-arg "BASE=$base" -f containers/image/Dockerfile "$context" >/dev/null 2>"$work/log" ||
    { cat "$work/log" >&2; exit 1; }
  echo "apache/kafka:$version"
done
