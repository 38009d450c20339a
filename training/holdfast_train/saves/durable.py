"""Checkpoints on disk for a job whose groups heal each other: needed when all groups are lost at once."""

from __future__ import annotations

import enum
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast_checkpoint import Unreadable, lease, statements
from holdfast_checkpoint.base.manifest import parse_folder_name
from holdfast_checkpoint.base.model import CheckpointError
from holdfast_checkpoint.base.runs import run_from_env
from holdfast_train.errors import RankLost, TrainError, Unusable
from holdfast_train.membership import StepPosition
from holdfast_train.ranks import RankGroup
from holdfast_train.saves.interval import interval_s, mtbf_from_env, mtbf_of_all_s, nodes_from_env
from holdfast_train.saves.resuming import CheckpointReader, candidates, take_over
from holdfast_train.saves.saving import Saves, age_s, newest
from holdfast_train.saves.signs import Signs
from holdfast_train.saves.stored import Damaged, StateOrigin
from holdfast_train.settings import TrainSettings
from holdfast_train.tensors.shards import plain
from holdfast_train.world import TrainingWorld, new_name, room_name

log = logging.getLogger(__name__)

_UNREADABLE_S = 120.0
"""How long an unreadable directory delays the start."""
_AGAIN_S = 0.2
_LOOK_S = 1.0
"""Interval of checks whether the group that saves the last state is still doing so."""
_DOUBT_S = 5.0
"""A group that leaves after this long without a quorum does not assume that the others are alive."""


@dataclass(frozen=True, slots=True)
class Training:
    """Parts of a session that are saved and resumed."""

    settings: TrainSettings
    ranks: RankGroup
    parts: Mapping[str, Any]
    """Model, optimizer and further state, by name."""
    about: StateOrigin
    """Its step has no meaning."""
    start_at: Callable[[int], None]
    """Set this group to a step, with the state that it was given."""
    tell: Callable[[str], None]
    """Report the group's phase."""


class FinalSave(enum.Enum):
    """Result of saving the state after the last step."""

    SAVED = enum.auto()
    FAILED = enum.auto()
    ELSEWHERE = enum.auto()
    """Another group saves it."""


class DurableCheckpoints:
    """Give it to a session: ``Session(model, optimizer, batch, checkpoints=DurableCheckpoints("/scratch/me/run7"))``.

    One group writes, the lowest of the quorum, without delaying the others; the interval follows from the cost of a save and the
    rate at which all groups are lost at once. When no group has the state, the first group reads the newest complete checkpoint
    and heals the others. Old checkpoints are kept unless ``keep`` sets their number."""

    def __init__(
        self,
        directory: str | Path,
        *,
        keep: int | None = None,
        mtbf_s: float | None = None,
        least_s: float = 60.0,
        most_s: float = 3600.0,
        sign_s: float = 10.0,
        env: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``mtbf_s``: mean time between losses of all groups at once (else ``HOLDFAST_MTBF_S``, else an estimate,
        :mod:`holdfast_train.saves.interval`). ``least_s``, ``most_s``: bounds of the interval. ``sign_s``: interval of the job's signs
        of life in the directory. Raises Unusable."""
        self.directory = os.path.abspath(directory)
        self._keep, self._least_s, self._most_s = keep, least_s, most_s
        self._mtbf_s = mtbf_from_env(env) if mtbf_s is None else mtbf_s
        self._nodes = nodes_from_env(env)
        self._resume_from = env.get("HOLDFAST_RESUME_FROM") or None
        self._env, self._clock = env, clock
        self._run = run_from_env(env)
        self._teller = statements.Teller(env.get(statements.SOCKET_ENV))
        self._signs = Signs(self.directory, sign_s, self._show_life, clock)
        if keep is not None and keep < 1:
            raise Unusable(f"keep={keep}: at least one checkpoint must be kept")
        if not 0 < least_s <= most_s or (self._mtbf_s is not None and self._mtbf_s <= 0):
            raise Unusable(
                f"checkpoints at least every {least_s:g} s, at most every {most_s:g} s, mtbf_s={self._mtbf_s}"
            )

    def open(self, training: Training) -> Mapping[str, TrainingWorld]:
        """Called before the group requests its first quorum, and again for another session. Returns what is sent along with the state."""
        settings = training.settings
        self._training, self._ranks = training, training.ranks
        self._member = f"{settings.group}~{settings.incarnation}"
        self._world = TrainingWorld(room_name(settings.token) if settings.ours else new_name(), of_room=settings.ours)
        self._saves = Saves(self.directory, self._member, self._run, self._ranks.rank, self._keep)
        self._standing: StepPosition | None = None
        self._begun = self._closed = self._ending = False
        self._committed, self._staged_step = (0, 0), 0
        self._last_s: float | None = None
        self._stood_s = self._clock()
        self._unreadable_s: float | None = None
        self._signs.stop()
        if self._ranks.rank == 0:
            register = statements.register(self.directory, self._run, layout="holdfast", fenced=True)
            self._teller.tell(register)
        return {} if settings.ours else {"checkpoints": self._world}

    def ready(self, standing: StepPosition, step: int) -> bool:
        """Called at the start of each step, after the quorum. False: the step must be started again.

        Raises TrainError when the job cannot continue: no place to write, a checkpoint of another model, another job here."""
        self._standing, self._stood_s = standing, self._clock()
        self._world.observe(standing.quorum_id, step)
        if self._saves.taken_over is not None:
            raise TrainError(f"{self._saves.taken_over}; give each job a separate directory")
        if step > 0:
            self._begun = True
        return self._begun or self._begin(standing)

    def after_step(self, step: int) -> None:
        """Called after a committed step: save if it is time."""
        self._tell_news()
        self._stood_s = self._clock()
        if self._standing is not None:
            self._committed = (self._standing.quorum_id, step)
        if self._standing is None or self._standing.rank:
            self._last_s = None
            return
        if self._ranks.rank == 0:
            self._signs.start()
        if self._ranks.any(self._due(self._standing.present)):
            self._last_s = self._clock()
            self._save(step)

    @property
    def saving(self) -> bool:
        """Whether a save is running."""
        return self._saves.busy

    def wait(self) -> None:
        """Wait until the running save has ended or failed."""
        self._saves.wait()

    @property
    def present(self) -> int:
        """Groups in the last quorum."""
        return self._standing.present if self._standing is not None else 0

    def finish(self, step: int) -> None:
        """Called when this group ends on its own: the first group saves the state."""
        standing = self._end()
        if standing is not None and not standing.rank and step:
            self._save_and_wait(step, lambda: self._staged_step != step, over=False)

    def leave(self, step: int) -> bool:
        """Called when this group leaves the quorum: the last one to leave saves, since no group has the state afterwards. Returns
        whether rank 0 then found it on disk."""
        standing = self._end()
        if standing is None or not step:
            return False
        self._save_and_wait(step, lambda: self._last(standing, step), over=True)
        try:
            return self._ranks.rank == 0 and self._on_disk(step)
        except CheckpointError as error:
            log.error("event=not_known_what_is_saved reason=%r", str(error))
            return False

    def _save_and_wait(self, step: int, needed: Callable[[], bool], *, over: bool) -> None:
        """``needed`` is called only in rank 0. A rank that is lost now must not make this one end differently from the others."""
        try:
            needs = self._ranks.any(self._ranks.rank == 0 and needed())
        except RankLost as error:
            log.error("event=last_state_not_saved step=%d reason=%r", step, str(error))
            return
        if needs:
            log.info("event=saving_the_last_state step=%d", step)
            self._save(step, over=over)
        self._saves.wait()
        self._tell_news()
        if needs or not over:
            self._show_life(ended=True)

    # The start

    def _begin(self, standing: StepPosition) -> bool:
        """Resume when no group has the state: the first group reads it; the others wait, and are healed by it."""
        paths: list[str] = []
        said = self._ranks.told(self._look(standing, paths) if self._ranks.rank == 0 else "")
        if said.startswith("!"):
            raise TrainError(said[1:])
        if said == "wait":
            time.sleep(_AGAIN_S)
            return False
        if said == "load":
            self._resume(paths)
            return False
        if said == "begin":
            self._hold(0, "")
            self._begun = True
        return True

    def _look(self, standing: StepPosition, paths: list[str]) -> str:
        try:
            paths.extend(candidates(self.directory, self._resume_from))
        except Unreadable as error:
            now_s = self._clock()
            if self._unreadable_s is None:
                self._unreadable_s = now_s
                log.warning("event=checkpoints_unreadable reason=%r", str(error))
            return (
                "wait"
                if now_s < self._unreadable_s + _UNREADABLE_S
                else f"!the checkpoints cannot be read: {error}"[:400]
            )
        self._unreadable_s = None
        if standing.rank:
            return "wait" if paths else "join"
        return "load" if paths else "begin"

    def _resume(self, paths: list[str]) -> None:
        """Read the newest readable checkpoint; rank 0 decides which is tried. Raises TrainError when there is none."""
        for number in range(1 << 20):
            path = self._ranks.told((paths[number] if number < len(paths) else "") if self._ranks.rank == 0 else "")
            if not path:
                break
            if self._take(path):
                return
        raise TrainError(
            f"no complete checkpoint in {self.directory} can be read; move them away to begin from the start"
        )

    def _take(self, path: str) -> bool:
        began_s, reader, state = self._clock(), None, None
        self._training.tell("checkpoint")
        try:
            reader = CheckpointReader(path, self._training.parts, self._training.about, self._ranks.rank)
        except Damaged as error:
            log.error("event=checkpoint_passed_over path=%s reason=%r", path, str(error))
        if not self._ranks.all(reader is not None) or reader is None:
            return False
        try:
            state = reader.read()
        except Damaged as error:
            log.error("event=checkpoint_passed_over path=%s reason=%r", path, str(error))
        if not self._ranks.all(state is not None) or state is None:
            return False
        take_over(self._training.parts, state)
        step = reader.about.step
        self._training.start_at(step)
        self._hold(step, path)
        self._begun = True
        log.info("event=resumed step=%d path=%s took_ms=%d", step, path, round(1000 * (self._clock() - began_s)))
        if self._ranks.rank == 0:
            self._teller.tell(statements.resumed(step, path, self._run))
        return True

    def _hold(self, step: int, path: str) -> None:
        """Take the directory for this world. Raises TrainError."""
        refused = self._ranks.told(self._refused(step, path) if self._ranks.rank == 0 else "")
        if refused:
            raise TrainError(refused)
        self._last_s = self._clock()

    def _refused(self, step: int, path: str) -> str:
        term = replace(self._world.term(), began_step=step)
        name = os.path.basename(path) if os.path.dirname(path) == self.directory else ""
        try:
            other = lease.alive_elsewhere(self.directory, term.rooms, self._signs.watch_s, time.sleep)
            if other is not None:
                return f"another elastic job ({other}) is alive in {self.directory}; give each job a separate directory"
            lease.start(self.directory, term, self._member, resumed_name=name)
            lease.show_life(self.directory, term.room, time.time_ns())
        except (CheckpointError, OSError) as error:
            return f"no checkpoint can be written to {self.directory}: {error}"[:400]
        return ""

    # During the training

    def _due(self, present: int) -> bool:
        if self._ranks.rank or self._saves.busy:
            return False
        if self._last_s is None:  # another group was the writer until now
            self._saves.beside(self._look_at_newest)
            return False
        mtbf_s = mtbf_of_all_s(present, self._nodes) if self._mtbf_s is None else self._mtbf_s
        wanted_s = interval_s(self._saves.cost_s, self._saves.took_s, mtbf_s, self._least_s, self._most_s)
        return self._clock() - self._last_s >= wanted_s

    def _look_at_newest(self) -> None:
        try:
            age = age_s(newest(self.directory))
        except Unreadable as error:
            log.warning("event=checkpoints_unreadable reason=%r", str(error))
            age = 0.0
        self._last_s = self._clock() - age

    def _save(self, step: int, *, over: bool = False) -> None:
        self._training.tell("checkpoint")
        self._staged_step = step
        state = plain({name: part.state_dict() for name, part in self._training.parts.items()})
        self._saves.start(self._world.term(over=over), state, replace(self._training.about, step=step))

    def _show_life(self, *, ended: bool = False) -> None:
        standing = self._standing
        if self._ranks.rank or standing is None or (standing.rank and not ended) or not self._begun:
            return
        try:
            lease.show_life(self.directory, self._world.term().room, time.time_ns(), ended=ended)
        except OSError as error:
            log.debug("event=no_sign_of_life reason=%r", str(error))

    def _tell_news(self) -> None:
        while self._saves.news:
            self._teller.tell(self._saves.news.popleft())

    # The end

    def place(self, step: int) -> int | None:
        """This group's rank in the quorum that committed this step; None: it received the state later."""
        standing = self._standing
        return standing.rank if standing is not None and self._committed == (standing.quorum_id, step) else None

    def end(self, step: int) -> FinalSave:
        """Called after the last step, again in each quorum until it is not ``ELSEWHERE``: save if that is this group's task. Only
        rank 0 knows the result; the others are done with their part."""
        self._ending = True
        whose = self._ranks.told(self._whose_end(step) if self._ranks.rank == 0 else "")
        if whose == "theirs":
            return FinalSave.ELSEWHERE
        self._closed = True
        if whose == "ours":
            log.info("event=saving_the_last_state step=%d", step)
            if self._ranks.rank == 0:
                self._signs.start()
            if self._staged_step != step:
                self._save(step)
            self._saves.wait()
            self._tell_news()
        self._signs.stop()
        self._show_life(ended=True)
        failed = self._ranks.rank == 0 and whose == "ours" and self._saves.saved_step != step
        return FinalSave.FAILED if failed else FinalSave.SAVED

    def _whose_end(self, step: int) -> str:
        """Who saves the last state: the first group of the quorum that did the last step. If that is lost, the first present
        group; the former may be out of the quorum, and still saving."""
        standing = self._standing
        if standing is None or standing.rank:
            return "theirs"
        if self.place(step) == 0:
            return "ours"
        try:
            if self._signs.of_another(self._world.term().rooms):
                time.sleep(_LOOK_S)
                return "theirs"
            return "saved" if self._on_disk(step) else "ours"
        except (CheckpointError, OSError) as error:
            log.warning("event=not_known_who_saves reason=%r", str(error))
            return "ours"

    def _on_disk(self, step: int) -> bool:
        """Whether this job saved this state already. Raises Unreadable."""
        found = newest(self.directory)
        name = parse_folder_name(os.path.basename(found.path)) if found is not None else None
        return name is not None and name[0] == step and name[1].job_id in self._world.term().rooms

    def _end(self) -> StepPosition | None:
        """The last standing of this group; None: there is nothing to save, or this was called before."""
        self._signs.stop()
        closed, self._closed = self._closed, True
        return None if closed or not self._begun else self._standing

    def _last(self, standing: StepPosition, step: int) -> bool:
        """Whether all members of the last quorum have left it, or may be gone, and their state is not on disk."""
        in_doubt = self._clock() - self._stood_s > _DOUBT_S
        try:
            if in_doubt and self._ending:  # it only waited for the group that saves the end
                in_doubt = lease.alive_elsewhere(self.directory, frozenset(), self._signs.watch_s, time.sleep) is None
            last = lease.left(self.directory, self._world.term(), standing.rank, standing.present) or in_doubt
            found = newest(self.directory) if last else None
        except (CheckpointError, OSError) as error:
            log.error("event=not_known_who_left reason=%r", str(error))
            return standing.present == 1 or in_doubt
        return last and (found is None or (found.step or 0) < step)
