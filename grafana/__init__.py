"""Grafana's dashboards as code. ``python -m grafana`` writes ``grafana/dashboards/*.json``.

`panels` has what all panels share, `dashboards` the four boards. Provisioning for a Grafana of
one's own is in ``grafana/provisioning``; ``docker-compose.observe.yml`` mounts both.
"""
