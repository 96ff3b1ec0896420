#!/usr/bin/env bash
# Makes the image that all stand-ins share, where it is not there yet, and prints its name: a
# Debian with a Java runtime and Python, 290 MB, from debootstrap. Needs root.
#
#   DEBIAN        the release, bookworm by default
#   DEBIAN_MIRROR where from, debootstrap's own choice by default
set -euo pipefail

DEBIAN="${DEBIAN:-bookworm}"
IMAGE="kafka-coop/base:${DEBIAN}"

for tool in docker debootstrap; do
  command -v "$tool" >/dev/null || { echo "$tool is needed: apt-get install docker.io debootstrap" >&2; exit 1; }
done
docker info >/dev/null 2>&1 || { echo "no Docker daemon answers: start dockerd, or see \`docker info\`" >&2; exit 1; }

if ! docker image inspect "$IMAGE" >/dev/null 2>&1; then
  work="$(mktemp -d)"
  trap 'rm -rf --one-file-system "$work"' EXIT
  debootstrap --variant=minbase --include=openjdk-17-jre-headless,python3 "$DEBIAN" "$work/rootfs" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$work/debootstrap.log" ||
    { tail -5 "$work/debootstrap.log" >&2; exit 1; }
  rm -rf "$work"/rootfs/var/cache/apt/* "$work"/rootfs/var/lib/apt/lists/*
  tar -C "$work/rootfs" -c . | docker import - "$IMAGE" >/dev/null
fi
echo "$IMAGE"
