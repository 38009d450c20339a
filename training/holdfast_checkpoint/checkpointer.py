"""The job's side: resume, save, commit. Standard library only, no daemon needed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast_checkpoint import commit, durable, fence, going_back, statements
from holdfast_checkpoint.base.confined import Bad, Walk, open_root
from holdfast_checkpoint.base.manifest import CheckpointManifest, FileEntry, folder_name, parse_folder_name, rank_folder
from holdfast_checkpoint.base.model import (
    Checkpoint,
    CheckpointError,
    CheckpointVerdict,
    FencedOff,
    Layout,
    RanksMissing,
    Unreadable,
)
from holdfast_checkpoint.base.runs import RunId, run_from_env
from holdfast_checkpoint.judge import must_know, survey
from holdfast_checkpoint.presence import must_be_there
from holdfast_checkpoint.ranks import RankPlace, agree_on_run, place_of
from holdfast_checkpoint.turns import SaveTurns


class Checkpointer:
    """One rank's handle on the job's checkpoint directory.

    Call ``resume()`` first, then ``save(step)`` and ``progress(step)`` at any time. Rank and world size are torch's where it has them
    (an initialized ``torch.distributed``, torchrun's environment), else Slurm's (:mod:`holdfast_checkpoint.ranks`); the run is
    Slurm's. Every rank creates its own; rank 0 decides, commits and reports to the agent."""

    def __init__(
        self,
        directory: str | Path,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        run: RunId | None = None,
        save_signal: str | None = None,
        timeout_s: float = 600.0,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        """``save_signal``: name of the signal (``USR1``) on which the job saves and continues; reported to the agent.

        ``timeout_s``: how long rank 0 waits for the other ranks' files, and they for rank 0's decision.

        ``rank`` and ``world_size`` are given together or not at all. Raises CheckpointError where they cannot be determined."""
        self.directory = os.path.abspath(directory)
        if (rank is None) != (world_size is None):
            raise CheckpointError("give both rank and world_size, or neither")
        self._env = env if rank is None else None
        self._elastic = "TORCHELASTIC_RESTART_COUNT" in env
        place = place_of(env) if rank is None or world_size is None else RankPlace(rank, world_size)
        self.rank, self.world_size = place.rank, place.world_size
        self.run = run or run_from_env(env)
        self._timeout_s = timeout_s
        self._save_signal = save_signal
        self._resumed = False
        self._turns = SaveTurns(self.rank, self.world_size)
        self._committed: dict[str, int] = {}
        """Rank 0's commits of this process (folder → step), without those abandoned by returning to an earlier step."""
        self._teller = statements.Teller(env.get(statements.SOCKET_ENV))
        if not 0 <= self.rank < self.world_size:
            raise CheckpointError(f"rank {self.rank} of {self.world_size} ranks")

    def latest(self) -> Checkpoint | None:
        """The newest complete checkpoint, for information only: ``resume`` decides. Raises Unreadable."""
        return must_know(survey(self.directory), ignore_unknown=True)

    def resume(self) -> Checkpoint | None:
        """Take the directory for this run and return the checkpoint to continue from; None: start from zero. The same for every rank.

        Raises FencedOff when a newer run has the directory, Unreadable when the directory cannot be read, or is missing in a run
        that was started again (starting from zero would lose work), RanksMissing when rank 0 does not decide in time,
        CheckpointError when torch.distributed was initialized with another rank since. A collective of ``torch.distributed`` where
        that is initialized."""
        if self._resumed:
            raise CheckpointError("resume() was called twice")
        place = RankPlace(self.rank, self.world_size)
        if self._env is not None and (now := place_of(self._env)) != place:
            raise CheckpointError(
                f"this was rank {place.rank} of {place.world_size}, now it is rank {now.rank} of {now.world_size}"
            )
        start = self._decide_for_all(place) if self.rank == 0 else self._follow(place)
        self._resumed = True
        if self.rank == 0:
            self._teller.tell(
                statements.register(
                    self.directory, self.run, layout="holdfast", fenced=True, save_signal=self._save_signal
                )
            )
            step, path = (start.step or 0, start.path) if start else (0, None)
            self._teller.tell(statements.resumed(step, path, self.run))
        elif self._save_signal is not None:
            self._teller.tell(statements.takes_signal(self._save_signal, self.run))
            self._teller.close()  # a rank that sends nothing more keeps no connection
        return start

    def progress(self, step: int) -> None:
        """Report a finished step to the agent, at most five times a second. Never blocks, never fails."""
        if self.rank == 0:
            self._teller.tell(statements.progress(step, self.run))

    def rank_path(self, checkpoint: Checkpoint, rank: int | None = None) -> Path:
        """The folder of the files that a rank (default: this one) saved in a checkpoint of Holdfast's layout.

        Raises CheckpointError when ``rank`` is not given and the checkpoint was saved by another number of ranks: the caller must then
        choose the shards with ``rank``."""
        if rank is None:
            self._same_world(checkpoint)
        return Path(checkpoint.path, rank_folder(self.rank if rank is None else rank))

    def _same_world(self, checkpoint: Checkpoint) -> None:
        name = "the checkpoint" if checkpoint.step is None else f"the checkpoint of step {checkpoint.step}"
        wrote = commit.world_that_wrote(Path(checkpoint.path), self.rank)
        if wrote != self.world_size:
            ranks = "fewer ranks" if wrote is None else f"{wrote} ranks"
            raise CheckpointError(
                f"{name} was saved by {ranks}, this run has {self.world_size}: say whose files to read, rank_path(checkpoint, rank)"
            )

    @contextmanager
    def save(self, step: int) -> Iterator[Path]:
        """Context manager with this rank's folder for the files of a save; at its end they are made durable and handed in.

        Rank 0 waits for all ranks and commits; when its block has ended, the checkpoint is complete. The others continue at once. An
        exception in the block commits nothing. A step that is saved again, by all ranks alike, is a separate checkpoint that counts as
        the newer one; so is one whose block is entered while another of the step is open (a thread, a signal handler). A step
        below one that was complete when the block was entered returns to it: the later checkpoints are abandoned.

        Raises FencedOff, RanksMissing, OSError; CheckpointError where the ranks would no longer refer to the same save."""
        if not self._resumed:
            raise CheckpointError("call resume() before save()")
        self._check_fence()
        number = self._turns.begin(step)
        later = [name for name, other in list(self._committed.items()) if other > step]
        try:
            folder = Path(self.directory, folder_name(step, self.run, number))
            if commit.handed_in(folder, self.rank):
                raise self._started_again(step)
            own = commit.empty_folder(folder / rank_folder(self.rank))
            yield own
            durable.sync_folder(self.directory)
            names = [f"{own.name}/{path.name}" for path in own.iterdir()]
            files = commit.hand_in(folder, names, step, self.run, self.rank, self.world_size)
        except BaseException:
            self._turns.break_off(step, number)
            raise
        if self.rank == 0:
            self._commit(folder, step, files, later)

    def close(self) -> None:
        """Close the connection to the agent."""
        self._teller.close()

    def _decide_for_all(self, place: RankPlace) -> Checkpoint | None:
        try:
            start = self._decide()
        except BaseException:
            self._tell_run(place, decided=False)
            raise
        self._tell_run(place, decided=True)
        return start

    def _tell_run(self, place: RankPlace, *, decided: bool) -> None:
        if self._env is not None:
            agree_on_run(place, self.run, decided=decided)

    def _decide(self) -> Checkpoint | None:
        must_be_there(self.directory, self.run)
        os.makedirs(self.directory, exist_ok=True)
        start = self.latest()
        if start is not None and start.run is None:
            raise CheckpointError(f"{start.path} is not of Holdfast's layout; resume it with its own library")
        fences = self._fences()
        if self.world_size == 1:
            while any(f.run == self.run for f in fences) and fence.fenced_off(fences, self.run) is None:
                self.run = self.run.next_attempt()
        step, name = (start.step or 0, start.name) if start else (0, "")
        try:
            with open_root(self.directory, Walk()) as root:
                fence.add_fence(self.directory, root, self.run, resumed_step=step, resumed_name=name)
        except Bad as error:
            raise Unreadable(f"{self.directory}: {error.reason}") from error
        return start

    def _follow(self, place: RankPlace) -> Checkpoint | None:
        """Wait for rank 0's fence, which names the chosen checkpoint."""
        if self._env is not None:
            self.run = agree_on_run(place, self.run, decided=False) or self.run
        ends_at = time.monotonic() + self._timeout_s
        while time.monotonic() < ends_at:
            decided = self._own_fence()
            if decided is not None:
                self._refuse_second_life()
                return self._chosen(decided)
            time.sleep(commit.POLL_S)
        hint = "; under torchrun call torch.distributed.init_process_group() before resume()" if self._elastic else ""
        raise RanksMissing(f"rank 0 did not say within {self._timeout_s:g} s where to resume{hint}")

    def _refuse_second_life(self) -> None:
        """Raise FencedOff if this rank has saved in this run before: the others are beyond the step at which the run started."""
        mine = (
            (own[0], name)
            for name in os.listdir(self.directory)
            if (own := parse_folder_name(name)) and own[1] == self.run
        )
        saved = [step for step, name in mine if commit.handed_in(Path(self.directory, name), self.rank)]
        if saved:
            raise self._started_again(max(saved))

    def _started_again(self, step: int) -> FencedOff:
        return FencedOff(
            f"rank {self.rank} of {self.run} has saved step {step} before: a rank that was started again alone cannot join the others; "
            "end all ranks, and give every restart its own HOLDFAST_ATTEMPT"
        )

    def _chosen(self, decided: fence.Fence) -> Checkpoint | None:
        """The checkpoint that rank 0 chose and verified, so that not every rank reads it all again."""
        if not decided.resumed_name:
            return None
        path = os.path.join(self.directory, decided.resumed_name)
        own = parse_folder_name(decided.resumed_name)
        return Checkpoint(
            name=decided.resumed_name,
            path=path,
            layout=Layout.HOLDFAST,
            verdict=CheckpointVerdict.COMPLETE,
            step=decided.resumed_step,
            run=own[1] if own else None,
        )

    def _own_fence(self) -> fence.Fence | None:
        fences = self._fences()
        newer = fence.fenced_off(fences, self.run)
        if newer is not None:
            raise FencedOff(f"{newer.run} has taken over {self.directory}; {self.run} must stop")
        return next((f for f in fences if f.run == self.run), None)

    def _check_fence(self) -> None:
        if self._own_fence() is None:
            raise FencedOff(f"the fence of {self.run} in {self.directory} is gone; this run must stop")

    def _fences(self) -> tuple[fence.Fence, ...]:
        try:
            with open_root(self.directory, Walk()) as root:
                return fence.read_fences(root)[0]
        except FileNotFoundError:
            return ()
        except Bad as error:
            raise Unreadable(f"{self.directory}: {error.reason}") from error

    def _commit(self, folder: Path, step: int, own: Mapping[str, FileEntry], later: Sequence[str]) -> None:
        files = {**own, **commit.receipts(folder, self.world_size, step, self.run, self._timeout_s)}
        if not files:
            raise CheckpointError(
                f"no rank wrote a file for step {step}: nothing is committed; write into the folder that save() gives"
            )
        manifest = CheckpointManifest(step, self.run, self.world_size, files)
        self._abandon(folder.name, later)
        commit.publish(folder, manifest, self._check_fence)
        self._committed[folder.name] = step
        self._teller.tell(statements.saved(step, str(folder), manifest.size_bytes, self.run))

    def _abandon(self, save: str, later: Sequence[str]) -> None:
        """Record abandoned checkpoints before the commit: if the process is killed in between, the run's earlier state remains."""
        if not later:
            return
        self._check_fence()
        going_back.record(self.directory, save, later)
        for name in later:
            self._committed.pop(name, None)
