"""Connections to brokers: sockets, TLS, SASL, discovery."""
