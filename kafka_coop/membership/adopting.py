"""What a round gave and took: a member makes way for others first, then adopts the rest.

Who takes long to give up does not hold up the others meanwhile: it outlives its round.
"""

from __future__ import annotations

from kafka_coop.errors import AssignorFailedError, text_of
from kafka_coop.membership import events as ev
from kafka_coop.membership.core import BlockingStep, Effects, MemberCore
from kafka_coop.membership.effects import IdentityChanged, PrefetchOffsets, WithdrawStep
from kafka_coop.membership.failures import failure_of_exception
from kafka_coop.membership.states import State
from kafka_coop.membership.steps import GivingUp, gain, prepare, revoke
from kafka_coop.types import NO_GENERATION, NO_PARTITIONS, Assignment, Partitions

_PATIENCE_WITH_A_STEP = 0.2
"""Seconds for which the others wait for our user to give up what a round took."""


class Adopting(MemberCore):
    """The part of a member that carries out what a round has decided."""

    # --- the round is over -------------------------------------------------------------------

    def _complete(self, assignment: Assignment, now: float, *, is_marked: bool) -> Effects:
        """The round is over; what it gave us, and what it took."""
        assigned = assignment.partitions
        out = self._blocking
        going = out.gives_up.released if out is not None else NO_PARTITIONS
        kept = NO_PARTITIONS if self._pulse.forfeited else assigned & (self.owned - going)
        added = assigned - kept
        current = self._begin_round(now)
        current.kept, current.assigned = kept, added
        current.follow_up = self._marks.follow_up
        self._pulse.suggest(self._marks.heartbeat_interval)
        self._adopt_matches(assigned)
        opened: Effects = (IdentityChanged(metadata=self.metadata, commits_open=True),)
        if added - going:  # the rest is about to be committed
            opened += (
                PrefetchOffsets(partitions=added - going, generation=self.generation, ahead=True),
            )
        if current.follow_up and not self._gives_up(assigned, now):
            # Nobody goes ahead who has a step to finish: it is told by heartbeats, as ever.
            self._pulse.announce(now, ahead=self._marks.ahead and out is None)
        way = self._make_way(assignment, now)
        if self._blocking is not None:
            self._blocking.is_marked = is_marked
        return opened + way

    def _gives_up(self, assigned: Partitions, now: float) -> bool:
        """Whether others wait for what we claimed: we must join again without it."""
        return self._pulse.forfeited or bool(self._begin_round(now).claimed - assigned)

    def _make_way(self, assignment: Assignment, now: float) -> Effects:
        """Gives up what went to others, first; then adopts the rest."""
        out = self._blocking
        if out is not None:  # a step that has outlived its round comes first
            self._enter(State.ADOPTING)
            out.adopts = assignment
            return ()
        forfeited = self._pulse.forfeited
        kept = NO_PARTITIONS if forfeited else assignment.partitions & self.owned
        if kept == self.owned:
            return self._adopt(assignment, now)
        self._enter(State.ADOPTING)
        if forfeited:
            giving = self._losing()
        else:
            giving = revoke(self.owned - kept, auto_commit=self.settings.auto_commit)
        offered, out = self._offer_blocking(giving, now)
        out.adopts = assignment
        return offered

    def _adopt(self, assignment: Assignment, now: float) -> Effects:
        """Ownership changes. What was revoked is gone by now; what was added begins."""
        assigned = assignment.partitions
        added = assigned - self.owned
        gave_up = self._gives_up(assigned, now)
        self._enter(State.STABLE)
        self.owned, self.applied = assigned, self.generation
        self._given |= frozenset(assigned.topics())
        self._attendance.applied()
        self.vouched = self.metadata
        regained = self._pulse.regain()
        if added:
            self._gained_at = now
        told = self._tell_assignor(assignment)
        offered, step_id = self._offer(gain(added, self.generation))
        self._announcing[step_id] = [self._begin_round(now)]
        self._round, self._joined = None, None
        if gave_up:
            self._force_rejoin("need to revoke partitions and re-join", now)
            if self._asks_for_relief and not assigned:
                self._linger(now)
        return regained + told + offered

    def _tell_assignor(self, assignment: Assignment) -> Effects:
        joined = self._joined
        assignor = self._assignors.get((joined and joined.answer.protocol_name) or "")
        if assignor is None:
            return ()
        try:
            assignor.on_assignment(assignment, self.metadata)
        except BaseException as error:  # noqa: BLE001  # a user's code may raise anything
            wrapped = AssignorFailedError(
                f"{assignor.name}: on_assignment raised {text_of(error)}: fix the assignor"
            )
            wrapped.__cause__ = error
            return self._fail(failure_of_exception(wrapped))
        return ()

    def _adopt_matches(self, assigned: Partitions) -> None:
        """The leader may have seen topics that match our patterns before we did."""
        if self._interest.patterns:
            new = {t for t in assigned.topics() if not self._interest_covers(t)}
            if new:
                matched = tuple(sorted({*self._interest.matched, *new}))
                self._interest = self._interest.matching(matched)

    # --- a user who takes long to give up ----------------------------------------------------
    #
    # on_revoke may wait for a batch of half a minute, or the user may not poll for so long. A
    # JoinGroup that waited for that would keep the whole group in its next round, and what others
    # have given up by then without an owner. KIP-429 has no need of it: what we claim is withheld
    # from its next owner, round after round, until we have given it up and join again. The price
    # is that further round, so a callback of ordinary length is waited for.

    def _outlive_at(self) -> float | None:
        """When to join the others, the step still out; None: not before it is done."""
        out = self._blocking
        if out is None or not out.others_wait or self.state is not State.ADOPTING:
            return None
        return out.offered_at + _PATIENCE_WITH_A_STEP if self._may_outlive(out) else None

    def _may_outlive(self, out: BlockingStep) -> bool:
        """Whether the next JoinGroup may go out before this step is done.

        What is lost is not ours to claim, nor what was not withheld for us; and what the user no
        longer wants goes before a join.
        """
        if out.withdrawing or out.gives_up.lost or self._pulse.forfeited:
            return False
        if self._preparation().actions:
            return False
        if self.state is State.ADOPTING:
            return self._attendance.was_heard(by_ours=out.is_marked)
        return bool(out.outlived)

    def _outlive(self, now: float) -> Effects:
        """On to the next round, as the owner of what the step gives up and of what we keep.

        With this generation, of which we apply what we keep: with the one before it our claims
        would be older than those of the others, and there are leaders that give away what is (Java
        before KAFKA-14639). Nobody else can claim it, for this generation's plan has withheld it
        for us. What the plan has added was never begun with, and is claimed by nobody.

        Where the user has not begun with the step, it is taken back: the next plan may differ.
        """
        out, ended = self._blocking, self._begin_round(now)
        assert out is not None
        assert out.adopts is not None
        # A strategy that remembers its generation claims with that.
        told = self._tell_assignor(out.adopts)
        ended.assigned = NO_PARTITIONS
        out.outlived.append(ended)
        out.others_wait, out.adopts = False, None
        self._round, self._joined = None, None
        self.applied = self.generation
        self._attendance.applied()
        self._go_and_join()
        self._begin_round(now)
        return (*told, WithdrawStep(step_id=out.step_id))

    def _announce_outlived(
        self, out: BlockingStep, now: float, *, after: ev.StepDone | None
    ) -> Effects:
        """What was outlived ends with the step, as every round with its last callback.

        ``after``: the step was carried out; None: it was taken back, and nothing was revoked.
        """
        first, *_ = out.outlived
        if after is not None:
            first.gave_up(out.gives_up, after)
        elif self._announcing:  # rounds before these, whose on_assign has yet to be called
            self._announcing[max(self._announcing)] += out.outlived
            return ()
        return tuple(self._announcement(ended, now) for ended in out.outlived)

    def _look_up_what_came_back(self, out: BlockingStep) -> Effects:
        """Of what a step has given up and committed by now, while the next round gave it to us."""
        if not out.outlived or out.adopts is None:
            return ()
        back = out.gives_up.released & out.adopts.partitions
        return (PrefetchOffsets(partitions=back, generation=self.generation),) if back else ()

    # --- on to the next round ---------------------------------------------------------------

    def _go_and_join(self) -> None:
        """From a place in the group on to its next round."""
        self._enter(State.UNJOINED)
        self._prepared = False
        self._retries = 0

    def _preparation(self) -> GivingUp:
        if self.generation == NO_GENERATION:
            return GivingUp()
        return prepare(
            protocol=self.protocol,
            owned=self.owned,
            unsubscribed=self._not_covered(),
            vanished=self._watch.vanished(self.owned, since=self._gained_at),
            auto_commit=self.settings.auto_commit,
        )
