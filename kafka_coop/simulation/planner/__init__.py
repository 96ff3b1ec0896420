"""The capacity planner: groups of any size through a deploy, a loss, a scale-out."""
