"""The site's policy on nodes that are suspect without evidence. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.settings.option import option, share


@dataclass(frozen=True, slots=True)
class SuspectPolicy:
    """Table ``[suspects]``: a job failed or hung and no finding says why."""

    probe: bool = option(
        True, "Put the nodes of such a job through the pair probe once they are idle; only jobs that opted in."
    )
    port: int = option(
        8462, "TCP port on which a node listens for the seconds of a probe; nodes must reach each other on it."
    )
    transport: str = option(
        "tcp", "tcp needs nothing; gloo and nccl need PyTorch on the nodes (agent.toml: active.python)."
    )
    size_mib: int = option(16, "Size of the vectors that two nodes sum.")
    rounds: int = option(8, "Sums in one probe; each is compared with what it must be.")
    deadline_s: float = option(10.0, "A probe that is not over by then has failed.")
    min_gigabytes_s: float = option(
        0.01,
        "Slower than this is a failure too (bus bandwidth; any network of a GPU cluster carries a hundred times as much).",
    )
    cluster_share: float = share(
        0.1, "Share of the cluster's nodes that may be in a probe at the same time; one pair always may."
    )
    wait_s: float = option(10.0, "How long after the job's end to wait for a finding that explains it.")
    window_s: float = option(600.0, "What could not be asked by then (other jobs took the nodes) stays undecided.")
    jobs_per_hour: int = option(12, "Most failed or hung jobs investigated within an hour.")
    jobs_per_hour_per_user: int = option(4, "The same of one user, so that his jobs do not use up everyone's hour.")
