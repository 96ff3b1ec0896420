#!/usr/bin/env bash
# Joins and kills members of docker-compose.observe.yml at random, until Ctrl-C.
#
#   PAUSE=20 examples/chaos.sh        seconds between two events, 15 where not said
set -euo pipefail
cd "$(dirname "$0")/.."
if docker compose version >/dev/null 2>&1; then compose=(docker compose); else compose=(docker-compose); fi
compose+=(-f docker-compose.yml -f docker-compose.observe.yml)

members() { "${compose[@]}" ps -q service; }

while :; do
  count="$(members | wc -l)"
  case $((RANDOM % 3)) in
    0) echo "one more member: $((count + 1))"
       "${compose[@]}" up -d --no-recreate --scale "service=$((count % 6 + 1))" service ;;
    1) victim="$(members | shuf -n 1)"
       [ -z "$victim" ] || { echo "killed: ${victim:0:12}"; docker kill "$victim" >/dev/null; } ;;
    2) victim="$(members | shuf -n 1)"
       [ -z "$victim" ] || { echo "stopped in order: ${victim:0:12}"; docker stop "$victim" >/dev/null; } ;;
  esac
  sleep "${PAUSE:-15}"
done
