#!/usr/bin/env bash
# Joins and kills members of docker-compose.observe.yml at random, until Ctrl-C.
#
#   PAUSE=20 examples/chaos.sh        seconds between two events, 15 where not said
#   EVENTS=10 examples/chaos.sh       so many events, and the end
set -euo pipefail
cd "$(dirname "$0")/.."
export COMPOSE_HTTP_TIMEOUT="${COMPOSE_HTTP_TIMEOUT:-300}" # version 1 gives up after a minute, on busy machines
if docker compose version >/dev/null 2>&1; then compose=(docker compose); else compose=(docker-compose); fi
compose+=(-f docker-compose.yml -f docker-compose.observe.yml)

# Version 1 lists members that were stopped, too.
members() { "${compose[@]}" ps -q service | xargs -r docker inspect -f '{{if .State.Running}}{{.Id}}{{end}}' | grep . || true; }
victim() { members | shuf -n 1; }

# Those who were killed stay away until a scale-out brings them back: as many as before, and one.
more() {
  local wanted=$(($(members | wc -l) % 6 + 1))
  echo "members: $wanted"
  "${compose[@]}" up -d --no-build --no-recreate --no-deps --scale "service=$wanted" service
}

[ -n "$(members)" ] || { echo "no member is up: make observe" >&2; exit 1; }
for ((event = 0; event < ${EVENTS:-1000000000}; event++)); do
  [ "$event" = 0 ] || sleep "${PAUSE:-15}"
  case $((RANDOM % 3)) in
    0) more ;;
    1) one="$(victim)"
       [ -z "$one" ] || { echo "killed: ${one:0:12}"; docker kill "$one" >/dev/null; } ;;
    2) one="$(victim)"
       [ -z "$one" ] || { echo "stopped in order: ${one:0:12}"; docker stop "$one" >/dev/null; } ;;
  esac
done
