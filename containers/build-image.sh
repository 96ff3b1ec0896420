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
#   DEBIAN        the release, bookworm by default
#   DEBIAN_MIRROR where from, debootstrap's own choice by default
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON="${PYTHON:-python3}"
DEBIAN="${DEBIAN:-bookworm}"
JRE_IMAGE="kafka-coop/jre:${DEBIAN}"

for tool in docker debootstrap "$PYTHON"; do
  command -v "$tool" >/dev/null || { echo "$tool is needed: apt-get install docker.io debootstrap python3" >&2; exit 1; }
done
docker info >/dev/null 2>&1 || { echo "no Docker daemon answers: start dockerd, or see \`docker info\`" >&2; exit 1; }

work="$(mktemp -d)"
trap 'rm -rf --one-file-system "$work"' EXIT

# A Debian with a Java runtime, 250 MB: made once, all versions of Kafka share it.
if ! docker image inspect "$JRE_IMAGE" >/dev/null 2>&1; then
  debootstrap --variant=minbase --include=openjdk-17-jre-headless "$DEBIAN" "$work/rootfs" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$work/debootstrap.log" ||
    { tail -5 "$work/debootstrap.log" >&2; exit 1; }
  rm -rf "$work"/rootfs/var/cache/apt/* "$work"/rootfs/var/lib/apt/lists/*
  tar -C "$work/rootfs" -c . | docker import - "$JRE_IMAGE" >/dev/null
fi

for version in "${@:-4.1.0}"; do
  context="$work/$version"
  mkdir -p "$context"
  cp -r "$(PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" "$PYTHON" -m kafka_coop.testing.jars "$version")" "$context/libs"
  cp containers/image/run containers/image/server.properties "$context/"
  # The classic builder: BuildKit would fetch its own front end from a registry.
  DOCKER_BUILDKIT=0 docker build -q -t "apache/kafka:$version" \
    --build-arg "JRE_IMAGE=$JRE_IMAGE" -f containers/image/Dockerfile "$context" >/dev/null
  echo "apache/kafka:$version"
done
