#!/usr/bin/env bash
# Builds stand-ins for what docker-compose.observe.yml needs beside the brokers, from Debian and
# PyPI, for machines that reach no image registry: kafka-coop-example, and prom/prometheus of the
# version named there. Grafana is in neither: name the other services to `up`.
#
#   containers/build-observe.sh
#
# Needs what build-image.sh does, and Debian's prometheus on this machine.
#
#   UV            uv, or where it is
#   DEBIAN, DEBIAN_MIRROR   see base-image.sh
set -euo pipefail
cd "$(dirname "$0")/.."

UV="${UV:-uv}"
for tool in prometheus "$UV"; do
  command -v "$tool" >/dev/null || { echo "$tool is needed: apt-get install prometheus, pip install uv" >&2; exit 1; }
done
base="$(containers/base-image.sh)"

work="$(mktemp -d)"
trap 'rm -rf --one-file-system "$work"' EXIT

# image NAME DOCKERFILE
image() {
  DOCKER_BUILDKIT=0 docker build -q -t "$1" --build-arg "BASE=$base" -f "containers/observe/$2" "$work" >/dev/null 2>"$work/log" ||
    { cat "$work/log" >&2; exit 1; }
  echo "$1"
}

# The wheels are chosen here for the Python in there: a build then needs no network.
inside="$(docker run --rm "$base" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
"$UV" pip install -q --target "$work/site" --python-version "$inside" .
cp -r examples "$work/"
image kafka-coop-example example.Dockerfile

tag="$(sed -n 's/.*prom\/prometheus:${PROMETHEUS_VERSION:-\(.*\)}/\1/p' docker-compose.observe.yml)"
prometheus="prom/prometheus:${PROMETHEUS_VERSION:-$tag}"
if docker image inspect "$prometheus" >/dev/null 2>&1 || timeout 120 docker pull -q "$prometheus" 2>/dev/null; then exit; fi
cp "$(command -v prometheus)" "$work/"
image "$prometheus" prometheus.Dockerfile
