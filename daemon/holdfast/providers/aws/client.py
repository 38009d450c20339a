"""How every call to AWS is bounded."""

from __future__ import annotations

from botocore.config import Config


def bounds(connect_timeout_s: float, read_timeout_s: float, attempts: int) -> Config:
    """Configuration of a client: seconds to connect and to wait for an answer, and most attempts of a call, the first one included."""
    return Config(
        connect_timeout=connect_timeout_s,
        read_timeout=read_timeout_s,
        retries={"mode": "standard", "total_max_attempts": attempts},
        user_agent_extra="holdfast",
    )
