"""The training loop's interface to an elastic job: one replica group that shares each step with the other present groups.

Built on torchft's Manager and its flat allreduce; torchft's DDP wrapper ends the survivors of a fault in 0.2.0."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Any

import torch
from torch.distributed import ReduceOp

from holdfast_train.errors import Refused, TrainError, TransferFailed, tell
from holdfast_train.failure.events import REQUEUE, SignalWatch
from holdfast_train.failure.quick import end_quickly
from holdfast_train.failure.restart import Era, KeptState, current, goes_on_after
from holdfast_train.membership import Membership, StepPosition
from holdfast_train.peers.likeness import Likeness
from holdfast_train.peers.replica import Replica, Stateful
from holdfast_train.peers.sharing import Sharing
from holdfast_train.progress import ProgressReporter
from holdfast_train.ranks import RankGroup
from holdfast_train.samples.batch import GlobalBatch
from holdfast_train.samples.rng import seed_of
from holdfast_train.saves.durable import DurableCheckpoints, Training
from holdfast_train.saves.ending import TrainingEnd
from holdfast_train.saves.stored import StateOrigin
from holdfast_train.settings import TrainSettings, settings_from_env
from holdfast_train.tensors.buckets import Buckets
from holdfast_train.tensors.codec import pack
from holdfast_train.tensors.shards import check_sendable, local, model_state, optimizer_state, plain

log = logging.getLogger(__name__)

TRANSFERS_MAX = 3
"""Consecutive failed transfers after which a group gives up: retries do not help."""
_ALONE_S = 0.2


class Attempt:
    """One attempt at a step: this group's share of its micro-batches."""

    def __init__(
        self, step: int, seed: int, share: range, standing: StepPosition, after_each: Callable[[], None]
    ) -> None:
        self.step = step
        """From 0; the same until the step is committed."""
        self.share = share
        self.present = standing.present
        """Groups that take part."""
        self.quorum_id = standing.quorum_id
        """The quorum of this attempt; a repeated step may have another one."""
        self.done = 0
        self._seed, self._after_each = seed, after_each

    @property
    def micro_batches(self) -> Iterator[int]:
        """The numbers of this group's micro-batches. Torch's random number generator is seeded for each."""
        for number in self.share:
            torch.manual_seed(seed_of(self._seed, self.step, number))
            yield number
            self._after_each()
            self.done += 1


class Session:
    """Makes an existing loop elastic::

        with Session(model, optimizer, GlobalBatch(64, 4)) as session:
            for attempt in session.steps(until=1000):
                for i in attempt.micro_batches:
                    loss(model, order.ids(attempt.step, i)).backward()

    Gradients are summed over the groups and divided by the number of micro-batches, the optimizer steps when all groups
    have theirs, and a step that failed is tried again. ``lr``: factor on the learning rates by samples seen. ``extra``:
    further state that a group needs from its peers, by name. ``checkpoints``: for the loss of all groups at once.
    ``before_step``: called when the parameters have the averaged gradients, to clip them; it must do the same in every
    group. ``after_step``: called when the optimizer has stepped, also in a group that catches up: for state that follows the model
    from step to step, such as an average of its weights (EMA) or a scheduler, which must be in ``extra``. ``exact``: sums in
    float64, with twice the bytes on the wire: the result then does not depend on the number of groups, except for an occasional
    last bit.
    Exits with status 85 after SIGUSR1 or SIGTERM. When :meth:`steps` ends, the training is done for all groups: those that wait
    for a place, or start later, exit with status 0."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        batch: GlobalBatch,
        *,
        seed: int = 0,
        lr: Callable[[int], float] | None = None,
        extra: Mapping[str, Stateful] | None = None,
        checkpoints: DurableCheckpoints | None = None,
        before_step: Callable[[], object] | None = None,
        after_step: Callable[[], object] | None = None,
        exact: bool = False,
        settings: TrainSettings | None = None,
    ) -> None:
        """Raises Unusable for settings, sizes and batches that do not fit together, RankLost. If the rendezvous refuses this group,
        the process exits: with 85 if it was evicted, so that Slurm starts it elsewhere."""
        self._era = current()
        self._settings = settings or settings_from_env(os.environ)
        if self._era is not None:
            self._settings = replace(self._settings, incarnation=self._era.incarnation)
        batch.check(self._settings.sizes)
        self._model, self._optimizer, self._batch, self._seed, self._lr = model, optimizer, batch, seed, lr
        self._base_lr = [float(group["lr"]) for group in optimizer.param_groups]
        self._state: dict[str, Stateful] = {"model": model, "optimizer": optimizer, **(extra or {})}
        self._buckets = Buckets(model.parameters(), exact=exact)
        self._watch, self._progress = self._era.watch if self._era else SignalWatch(), ProgressReporter()
        self._step_s, self._own_s = 0.0, 0.0
        self.present = 0
        """Groups in the last step."""
        self.holders = 0
        """Groups that have our state after the last committed step, including this one."""
        self.differs: tuple[str, ...] = ()
        """Names of ``extra`` whose state last differed between groups."""
        self._changing = self._reached = False
        era = self._era
        with era.lines.noted() if era else nullcontext():
            self._ranks = RankGroup(self._settings)
        interrupted = era.check if era else None
        self._durable = checkpoints
        if checkpoints is not None:
            self._state.update(checkpoints.open(self._training()))
        try:
            self._membership = Membership(self._settings, self._ranks, self._save, self._load, interrupted, self._wait)
        except Refused as error:
            self._end(error)
            raise
        others = {name: part for name, part in self._state.items() if name not in ("model", "optimizer")}
        replica = Replica(model, optimizer, self._buckets, others, before_step, after_step)
        self._likeness = Likeness(extra or {}, self._buckets.device)
        self._sharing = Sharing(replica, self._membership.transport, self._settings.token, self._check)
        if era is not None:
            era.session = self
            self._take_up(era)

    def __enter__(self) -> Session:
        if self._era is None:
            self._watch.install()
        self._tell("init")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._era is not None and goes_on_after(value):
            self.abandon()
            return
        if kind is None and self._reached:
            try:
                self._finish_training()
            except BaseException as error:  # as in any step: asked to leave, refused, a rank lost
                self.__exit__(type(error), error, error.__traceback__)
                raise
            return
        self.close()
        if self._durable is not None and kind is None:
            self._durable.finish(self.step)
        elif self._durable is not None and isinstance(value, SystemExit) and value.code == REQUEUE:
            self._durable.leave(self.step)
        if isinstance(value, TrainError):
            self._end(value)

    def _finish_training(self) -> None:
        """All steps are done. If the last state must be saved, no group leaves before: the saving group may be lost meanwhile."""
        done = self._durable is None or self._see_the_end_saved(self._durable)
        self._membership.leave(told=self._ranks.rank == 0, done=done)  # rank 0 has what the group has on the disk
        self.close()

    def _see_the_end_saved(self, durable: DurableCheckpoints) -> bool:
        """Whether this group must report the training as done."""
        if not self._settings.ours:  # a stock lighthouse cannot be notified of the end
            durable.finish(self.step)
            return False
        return TrainingEnd(durable, self._ranks, self._settings.sizes, self._stand_by, self._agreed).see_through(
            self.step
        )

    def _stand_by(self) -> StepPosition | None:
        """Join a quorum without a step. Returns this rank's standing."""
        self._check()
        self._tell("waiting")
        return self._membership.gather()

    def _end(self, error: TrainError) -> None:
        """Exit with one line and the error's own status; in a restartable start, the restart logic decides."""
        if self._era is None:
            tell(error)
            if error.status == REQUEUE:
                end_quickly(REQUEUE)  # evicted: its new start waits for this process to end
            raise SystemExit(error.status) from error

    @property
    def step(self) -> int:
        """Steps committed so far."""
        return self._membership.step

    @property
    def samples_seen(self) -> int:
        """Samples of all committed steps."""
        return self.step * self._batch.samples

    def elastic_event_detected(self) -> bool:
        """Whether this group was asked to leave, which it does before its next step."""
        return self._watch.detected()

    def steps(self, until: int) -> Iterator[Attempt]:
        """Attempts until this many steps are committed. Raises TransferFailed when no peer's state can be fetched."""
        if self._settings.ranks == 1 and not self._sharing.followed:
            self._sharing.follow(self._membership.peers(), self.step, lambda: self._tell("heal"))
        self._reached = False
        while self.step < until:
            self._check()
            attempt = self._begin()
            if attempt is None:
                continue
            if self.step >= until:  # got the last state from groups that ensure that it is saved
                break
            own_s = time.monotonic()
            yield attempt
            if attempt.done != len(attempt.share):
                raise TrainError(
                    f"{attempt.done} of {len(attempt.share)} micro-batches were done: the loop must do all of them"
                )
            self._own_s = time.monotonic() - own_s
            if self._finish():
                self._step_s = time.monotonic() - own_s
                self._tell("step")
                if self._durable is not None:
                    self._durable.after_step(self.step)
        self._reached = True

    def close(self) -> None:
        """Leave the quorum gracefully."""
        self._membership.leave()
        self._progress.close()
        if self._era is None:
            self._watch.restore()

    def keep(self) -> KeptState | None:
        """For a restart in place: this group's own state, unless its model was being changed then."""
        return None if self._changing else KeptState(self._sharing.ahead_of(self.step) or self.step, pack(self._save()))

    def abandon(self) -> None:
        """For a restart in place: leave in the middle of a step."""
        self._membership.abandon(alone=self.holders < 2)
        self._progress.close()

    def _take_up(self, era: Era) -> None:
        if era.kept is not None:
            step = era.kept.step
            self._load(era.state())
            self._membership.resume(step)

    def _begin(self) -> Attempt | None:
        """None: nothing can be computed now, and the step must be started again."""
        for parameter in self._model.parameters():
            parameter.grad = None
        self._buckets.begin()
        before = self.step
        standing = self._agreed(self._membership.gather())
        if standing is None:
            return None
        if (ours := self._sharing.ahead_of(self.step)) is not None:  # the peers that we caught up with are gone
            self._membership.give_up()
            self._membership.resume(ours)
            return None
        self.present = standing.present
        if self.step > before:
            self.holders = standing.present  # it came from a peer
        if not self._settings.sizes.usable(standing.present):
            self._tell("waiting")
            self._membership.give_up()
            time.sleep(_ALONE_S)
            return None
        if self._durable is not None and not self._durable.ready(standing, self.step):
            self._membership.give_up()
            return None
        if self._progress.phase == "waiting":
            self._tell("step" if self._step_s else "init")
        share = self._batch.share(*standing.part, self._settings.sizes) if standing.part else range(0)
        return Attempt(self.step, self._seed, share, standing, self._buckets.add)

    def _agreed(self, standing: StepPosition | None) -> StepPosition | None:
        """All ranks of the group or none: the others would wait in the model's own collectives for one that starts again."""
        if self._ranks.all(standing is not None):
            return standing
        self._membership.give_up()
        failed = self._membership.transport
        if failed.failure is not None and (failed.failure.final or failed.failures >= TRANSFERS_MAX):
            raise failed.failure
        return None

    def _training(self) -> Training:
        def start_at(step: int) -> None:
            self._membership.manager.load_state_dict({"step": step, "batches_committed": 0})

        about = StateOrigin(0, self._seed, self._batch.samples, self._batch.micro_samples, self._ranks.count)
        return Training(self._settings, self._ranks, dict(self._state), about, start_at, self._tell)

    def _finish(self) -> bool:
        """Whether the step was committed and the model changed."""
        self._membership.summing()
        likeness = self._likeness.begin(self._membership.quorum_id, self._sum)
        self._buckets.reduce(self._sum)
        if likeness is not None:
            likeness.wait()
        factor = 1.0 if self._lr is None else self._lr(self.samples_seen)
        self._changing = True
        if not self._membership.commit():
            self._changing = False
            log.info("event=step_failed step=%d groups=%d", self.step, self.present)
            return False
        flats = self._buckets.divide(self._batch.micro_batches)
        if self._lr is not None:
            for group, base in zip(self._optimizer.param_groups, self._base_lr, strict=True):
                group["lr"] = base * factor
        self._sharing.step(flats, self.step, self._membership.quorum_id)
        self._changing, self.holders = False, self.present
        self.differs = self._likeness.settle(self._membership.quorum_id, self.step) or self.differs
        return True

    def _sum(self, flat: torch.Tensor) -> Any:
        return self._membership.manager.allreduce(flat, reduce_op=ReduceOp.SUM)

    def _check(self) -> None:
        """Raise what ends or restarts the training here."""
        if self._era is not None:
            self._era.check()
        if self._ranks.any(self._watch.detected()):
            self._leave()

    def _wait(self) -> None:
        """Called while waiting for other groups or a place: this group may leave without finishing a step."""
        self._tell("waiting")
        if self._watch.detected():
            self._leave()

    def _leave(self) -> None:
        event = self._watch.event()
        log.info("event=leaving step=%d reason=%s", self.step, event.reason if event else "signal")
        self._tell("leaving")
        end_quickly(REQUEUE)
        raise SystemExit(REQUEUE)

    def _tell(self, phase: str) -> None:
        if self._ranks.rank == 0:
            quorum = self._membership.quorum_id
            self._progress.tell(self.step, phase, self._step_s, self.present, self._own_s, quorum)

    def _save(self) -> dict[str, Any]:
        check_sendable(self._optimizer)
        return {name: plain(part.state_dict()) for name, part in self._state.items()}

    def _load(self, state: dict[str, Any]) -> None:
        """Load a state completely, or not at all if a part does not fit."""
        self._tell("heal")
        if self._sharing.take(state):
            return
        if sorted(state) != sorted(self._state):
            raise TransferFailed(
                f"a peer's state has {sorted(state)} and ours {sorted(self._state)}: is it another program?"
            )
        mine = self._model.state_dict()
        theirs = state["model"]
        wrong = [n for n in {*mine, *theirs} if n not in mine or n not in theirs or not _alike(mine[n], theirs[n])]
        if wrong:
            raise TransferFailed(f"a peer's model differs from ours in {min(wrong)} and {len(wrong) - 1} more places")
        whole = {
            **state,
            "model": model_state(mine, theirs),
            "optimizer": optimizer_state(self._optimizer, state["optimizer"]),
        }
        for name, part in self._state.items():
            part.load_state_dict(whole[name])


def _alike(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, torch.Tensor) and isinstance(theirs, torch.Tensor):
        return local(mine).shape == theirs.shape
    return type(mine) is type(theirs)
