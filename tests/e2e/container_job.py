"""Training in an image that holds nothing of Holdfast: ``container_job.py DIRECTORY``, with the library from the mounted folder."""

from __future__ import annotations

import sys
import time

import holdfast_checkpoint

EVERY = 10
STEP_S = 0.1


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    say(f"library {holdfast_checkpoint.__file__}")
    checkpoints = holdfast_checkpoint.Checkpointer(sys.argv[1])
    start = checkpoints.resume()
    first = start.step or 0 if start else 0
    if start and (checkpoints.rank_path(start) / "state").read_text() != str(first):
        sys.exit("another step's state")
    say(f"resumed from step {first}")
    for step in range(first + 1, 10**6):
        time.sleep(STEP_S)
        checkpoints.progress(step)
        if step % EVERY == 0:
            with checkpoints.save(step) as folder:
                (folder / "state").write_text(str(step))
            say(f"checkpoint step {step}")


if __name__ == "__main__":
    main()
