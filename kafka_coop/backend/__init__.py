"""The membership backend: what runs a member, behind a protocol that the façade knows."""
