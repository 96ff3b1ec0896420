#!/usr/bin/env bash
# Makes containers/secrets/: an authority (ca.pem), the brokers' key and certificate (broker.pem)
# and a client's (client.pem, client.key), valid for a year, for docker-compose.yml. Needs openssl.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p secrets
cd secrets

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

openssl req -x509 -newkey rsa:2048 -nodes -days 365 -subj '/CN=kafka_coop test authority' \
  -keyout "$work/ca.key" -out ca.pem 2>/dev/null

# signed NAME EXTENSIONS: NAME.key (PKCS 8) and NAME.pem
signed() {
  openssl req -newkey rsa:2048 -nodes -subj "/CN=$1" -keyout "$1.key" -out "$work/$1.csr" 2>/dev/null
  openssl x509 -req -in "$work/$1.csr" -CA ca.pem -CAkey "$work/ca.key" -CAcreateserial \
    -CAserial "$work/serial" -days 365 -extfile <(printf '%s' "$2") -out "$1.pem" 2>/dev/null
}
signed broker 'subjectAltName=DNS:localhost,DNS:broker-1,DNS:broker-2,DNS:broker-3,IP:127.0.0.1'
signed client 'extendedKeyUsage=clientAuth'

# Kafka reads key and certificates from one file (KIP-651), in the container as another user.
cat broker.key broker.pem >"$work/broker.pem" && mv "$work/broker.pem" broker.pem && rm broker.key
chmod 644 ./*
ls -l
