"""The four boards: the group, one rebalance, a member, lag and balance."""

from __future__ import annotations

from collections.abc import Callable

from grafana_foundation_sdk.builders.dashboard import Dashboard

from grafana.panels import GROUP, MEMBER, board, lines, number, states

_RATE = "$__rate_interval"
_UNOWNED = (
    f"max by (group) (kafka_coop_group_partitions{{{GROUP}}})"
    f" - sum by (group) (kafka_coop_assigned_partitions{{{GROUP}}}"
    f" and kafka_coop_generation{{{GROUP}}} >= 0)"
)


def _quantile(q: str, histogram: str, where: str, by: str) -> str:
    buckets = f"sum by ({by}, le) (rate(kafka_coop_{histogram}_bucket{{{where}}}[{_RATE}]))"
    return f"histogram_quantile({q}, {buckets})"


def _sum(by: str, function: str, counter: str, where: str = GROUP) -> str:
    return f"sum by ({by}) ({function}(kafka_coop_{counter}{{{where}}}[{_RATE}]))"


def _mean(histogram: str, where: str) -> str:
    name = f"kafka_coop_{histogram}"
    return f"rate({name}_sum{{{where}}}[{_RATE}]) / rate({name}_count{{{where}}}[{_RATE}])"


def group() -> Dashboard:
    """The group at a glance."""
    return (
        board(
            "group",
            "kafka_coop: group",
            "Is the group whole, quiet and keeping up?",
            by_member=False,
        )
        .with_panel(
            number(
                "Members",
                f"count by (group) (kafka_coop_generation{{{GROUP}}} >= 0)",
                "Members that are in the group.",
            )
        )
        .with_panel(number("Unowned partitions", _UNOWNED, "Subscribed to, and owned by nobody."))
        .with_panel(
            number(
                "Members amid a rebalance",
                f"sum by (group) (1 - kafka_coop_stable{{{GROUP}}})",
                "Joining, revoking, or outside the group.",
            )
        )
        .with_panel(
            number(
                "Lag",
                f"sum by (group) (kafka_coop_partition_lag{{{GROUP}}})",
                "Records still to come.",
            )
        )
        .with_panel(
            lines(
                "Partitions per member",
                "Who owns how many.",
                (f"kafka_coop_assigned_partitions{{{GROUP}}}", "{{client_id}}"),
                stacked=True,
            )
        )
        .with_panel(
            states(
                "Stable",
                f"kafka_coop_stable{{{GROUP}}}",
                "{{client_id}}",
                "1: in the group and no rebalance under way.",
            )
        )
        .with_panel(
            lines(
                "Rebalance rounds a minute",
                "Completed rounds; each member counts its own, shown is the busiest.",
                (
                    (
                        "60 * max by (group) (rate("
                        f"kafka_coop_rebalance_latency_seconds_count{{{GROUP}}}[{_RATE}]))"
                    ),
                    "{{group}}",
                ),
                (
                    "60 * " + _sum("group", "rate", "rebalance_failures_total"),
                    "{{group}} failed",
                ),
            )
        )
        .with_panel(
            lines(
                "How long a round takes",
                "From the first wish to join until the last callback returned.",
                (_quantile("0.5", "rebalance_latency_seconds", GROUP, "group"), "median"),
                (_quantile("0.99", "rebalance_latency_seconds", GROUP, "group"), "99 %"),
                unit="s",
            )
        )
        .with_panel(
            lines(
                "Unowned partition seconds",
                "What rebalances cost, as the leader saw it: partitions times seconds.",
                (
                    _sum("group", "increase", "unowned_partition_seconds_total"),
                    "{{group}}",
                ),
                unit="s",
            )
        )
        .with_panel(
            lines(
                "Lag per member",
                "Records still to come, over the partitions that a member owns.",
                (
                    f"sum by (client_id) (kafka_coop_partition_lag{{{GROUP}}})",
                    "{{client_id}}",
                ),
                stacked=True,
            )
        )
    )


def rebalance() -> Dashboard:
    """One rebalance in detail: phases, callbacks, who was slow."""
    phase = f"kafka_coop_rebalance_phase_seconds_sum{{{GROUP}}}"
    own = f'kafka_coop_rebalance_phase_seconds_sum{{{GROUP}, phase=~"prepare|revoke|commit"}}'
    return (
        board(
            "rebalance",
            "kafka_coop: one rebalance",
            "Zoom to one rebalance: where did its time go, who was slow, what moved?",
            by_member=False,
        )
        .with_panel(
            lines(
                "Phases",
                "Seconds spent in each phase, over all members.",
                (f"sum by (phase) (increase({phase}[{_RATE}]))", "{{phase}}"),
                unit="s",
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "Who held up the others",
                "Before a member joins again it revokes and commits; the group waits for it.",
                (f"topk(5, sum by (client_id) (increase({own}[{_RATE}])))", "{{client_id}}"),
                unit="s",
            )
        )
        .with_panel(
            lines(
                "Callbacks",
                "Seconds inside the application's callbacks.",
                (
                    _sum("client_id, callback", "increase", "callback_latency_seconds_sum"),
                    "{{client_id}} {{callback}}",
                ),
                unit="s",
            )
        )
        .with_panel(
            lines(
                "Generation",
                "A step is a round. Members that lag behind are late, or out.",
                (f"kafka_coop_generation{{{GROUP}}}", "{{client_id}}"),
            )
        )
        .with_panel(
            lines(
                "Partitions that moved",
                "Came, revoked, lost.",
                (
                    _sum("client_id, kind", "increase", "moved_partitions_total"),
                    "{{client_id}} {{kind}}",
                ),
            )
        )
        .with_panel(
            lines(
                "Moves against the fewest possible",
                "What the leader's plans took from owners.",
                (
                    _sum("kind", "increase", "planned_moves_total"),
                    "{{kind}}",
                ),
            )
        )
        .with_panel(
            lines(
                "Withheld partitions",
                "Given to nobody until those who have them revoked them.",
                (f"sum by (group) (kafka_coop_withheld_partitions{{{GROUP}}})", "{{group}}"),
            )
        )
        .with_panel(
            lines(
                "Join and sync, the slowest",
                "The broker holds JoinGroup back for all members, SyncGroup for the leader.",
                (_quantile("1", "join_latency_seconds", GROUP, "group"), "join"),
                (_quantile("1", "sync_latency_seconds", GROUP, "group"), "sync"),
                unit="s",
            )
        )
        .with_panel(
            lines(
                "Attempts to join",
                "JoinGroup requests, with every retry.",
                (
                    _sum("client_id", "increase", "join_attempts_total"),
                    "{{client_id}}",
                ),
            )
        )
        .with_panel(
            lines(
                "Rounds per rebalance",
                "1 where nothing moved, 2 where partitions changed hands (KIP-429).",
                (
                    _sum("group", "rate", "rebalance_rounds_sum")
                    + " / "
                    + _sum("group", "rate", "rebalance_rounds_count"),
                    "{{group}}",
                ),
            )
        )
    )


def member() -> Dashboard:
    """One member: polls, heartbeats, commits, and librdkafka below."""
    return (
        board("member", "kafka_coop: member", "Does this process do its part?", by_member=True)
        .with_panel(
            lines(
                "Since the last poll",
                "At max.poll.interval.ms the group goes on without the member.",
                (f"time() - kafka_coop_last_poll_timestamp_seconds{{{MEMBER}}}", "{{client_id}}"),
                unit="s",
            )
        )
        .with_panel(
            lines(
                "Time between polls",
                "The mean, and the longest of the last minutes.",
                (_mean("poll_interval_seconds", MEMBER), "{{client_id}} mean"),
                (f"kafka_coop_poll_interval_max_seconds{{{MEMBER}}}", "{{client_id}} max"),
                unit="s",
            )
        )
        .with_panel(
            lines(
                "Idle",
                "The share of time inside poll(), waiting for records.",
                (
                    f"rate(kafka_coop_poll_idle_seconds_total{{{MEMBER}}}[{_RATE}])",
                    "{{client_id}}",
                ),
                unit="percentunit",
            )
        )
        .with_panel(
            lines(
                "Since the last heartbeat",
                "At session.timeout.ms the member's lease ends.",
                (
                    f"time() - kafka_coop_last_heartbeat_timestamp_seconds{{{MEMBER}}}",
                    "{{client_id}}",
                ),
                unit="s",
            )
        )
        .with_panel(
            lines(
                "Heartbeats",
                "Acknowledged ones' latency, and how many were not.",
                (_quantile("0.99", "heartbeat_latency_seconds", MEMBER, "client_id"), "99 %"),
                (
                    f"rate(kafka_coop_heartbeat_failures_total{{{MEMBER}}}[{_RATE}])",
                    "{{client_id}} failed a second",
                ),
                unit="s",
            )
        )
        .with_panel(
            lines(
                "Commits",
                "Their latency, and how many a second.",
                (_quantile("0.99", "commit_latency_seconds", MEMBER, "client_id"), "99 %"),
                (
                    f"rate(kafka_coop_commit_latency_seconds_count{{{MEMBER}}}[{_RATE}])",
                    "{{client_id}} a second",
                ),
            )
        )
        .with_panel(
            lines(
                "Commits given up",
                "By reason.",
                (
                    _sum("client_id, reason", "increase", "commit_failures_total", MEMBER),
                    "{{client_id}} {{reason}}",
                ),
            )
        )
        .with_panel(
            lines(
                "Age of the assignment",
                "Since the set of owned partitions last changed.",
                (
                    f"time() - kafka_coop_last_assignment_timestamp_seconds{{{MEMBER}}}",
                    "{{client_id}}",
                ),
                unit="s",
            )
        )
        .with_panel(
            lines(
                "librdkafka: records a second",
                "Fetched. With statistics.interval.ms alone, like all below.",
                (
                    f"rate(kafka_coop_librdkafka_records_total{{{MEMBER}}}[{_RATE}])",
                    "{{client_id}}",
                ),
            )
        )
        .with_panel(
            lines(
                "librdkafka: queued records",
                "Fetched and not yet delivered.",
                (f"kafka_coop_librdkafka_queued_records{{{MEMBER}}}", "{{client_id}}"),
            )
        )
        .with_panel(
            lines(
                "librdkafka: round trip",
                "To each broker, the 99th percentile.",
                (
                    f"kafka_coop_librdkafka_broker_rtt_p99_seconds{{{MEMBER}}}",
                    "{{client_id}} broker {{broker}}",
                ),
                unit="s",
            )
        )
        .with_panel(
            states(
                "librdkafka: connected",
                f"kafka_coop_librdkafka_broker_up{{{MEMBER}}}",
                "{{client_id}} broker {{broker}}",
                "1: connected to the broker.",
            )
        )
    )


def lag() -> Dashboard:
    """Lag and balance."""
    owned = f"kafka_coop_assigned_partitions{{{GROUP}}}"
    return (
        board(
            "lag",
            "kafka_coop: lag and balance",
            "Where is the group behind, and is the work spread evenly?",
            by_member=False,
        )
        .with_panel(
            lines(
                "Lag per topic",
                "Records still to come.",
                (f"sum by (topic) (kafka_coop_partition_lag{{{GROUP}}})", "{{topic}}"),
            )
        )
        .with_panel(
            lines(
                "The twenty partitions furthest behind",
                "One of many: a hot key or a stuck member; all: too few members.",
                (
                    f"topk(20, sum by (topic, partition) (kafka_coop_partition_lag{{{GROUP}}}))",
                    "{{topic}} {{partition}}",
                ),
            )
        )
        .with_panel(
            lines(
                "Records a second",
                "How fast positions advance.",
                (
                    (
                        "sum by (client_id) (clamp_min(deriv("
                        f"kafka_coop_partition_position{{{GROUP}}}[{_RATE}]), 0))"
                    ),
                    "{{client_id}}",
                ),
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "Balance",
                "Partitions of the fullest, the mean and the emptiest member.",
                (f"max by (group) ({owned})", "most"),
                (f"avg by (group) ({owned})", "mean"),
                (f"min by (group) ({owned})", "least"),
            )
        )
        .with_panel(
            lines(
                "Skew of the lag",
                "The furthest member's lag, as a multiple of the mean.",
                (
                    (
                        "max by (group) (sum by (group, client_id) "
                        f"(kafka_coop_partition_lag{{{GROUP}}}))"
                        " / clamp_min(avg by (group) (sum by (group, client_id) "
                        f"(kafka_coop_partition_lag{{{GROUP}}})), 1)"
                    ),
                    "{{group}}",
                ),
            )
        )
        .with_panel(
            lines(
                "Unowned and unassigned partitions",
                "Owned by nobody now; given to nobody by the strategy.",
                (_UNOWNED, "unowned"),
                (
                    f"max by (group) (kafka_coop_unassigned_partitions{{{GROUP}}})",
                    "unassigned",
                ),
            )
        )
    )


DASHBOARDS: dict[str, Callable[[], Dashboard]] = {
    "group": group,
    "rebalance": rebalance,
    "member": member,
    "lag": lag,
}
