"""A plan as JSON-able values."""

from __future__ import annotations

from typing import Any

from kafka_coop.planning import Balance, GroupPlan


def plan_json(plan: GroupPlan) -> dict[str, Any]:
    """All of a plan but the partitions that stay."""
    totals = plan.totals
    return {
        "assignor": plan.strategy,
        "eager": plan.eager,
        "rounds": plan.rounds,
        "partitions": totals.partitions,
        "kept": totals.kept,
        "moved": totals.moved,
        "fewest_moves": totals.fewest_moves,
        "placed": totals.placed,
        "unassigned": totals.unassigned,
        "withheld": totals.withheld,
        "interrupted": totals.interrupted,
        "balance": {"before": _balance(plan.balance_before), "after": _balance(plan.balance_after)},
        "members": [
            {
                "member": m.member,
                "topics": m.topics,
                "before": m.before,
                "after": m.after,
                "gives": m.gives,
                "gets": m.gets,
                "waits": m.waits,
                "load_before": m.load_before,
                "load_after": m.load_after,
            }
            for m in plan.by_member
        ],
        "changes": [
            {
                "from": way.source,
                "to": way.destination,
                "reason": way.reason.value,
                "withheld": way.withheld,
                "partitions": {t: indices.tolist() for t, indices in way.partitions.items()},
            }
            for way in plan.ways()
        ],
        "warnings": list(plan.warnings),
    }


def _balance(balance: Balance) -> dict[str, float]:
    return {"least": balance.least, "most": balance.most, "mean": balance.mean}
