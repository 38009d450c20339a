"""A local EC2 emulator for practice and tests: moto's server in a separate process, extended where moto lacks a behavior.

``python -m holdfast.practice.aws --port P --state FILE`` runs it; ``client.py`` starts it and calls its control
endpoint, ``seed.py`` creates one instance per node in it, ``cloud.py`` turns its instances into emulated hosts.
Importing this package loads neither moto nor boto3.
"""

from __future__ import annotations

CONTROL_PREFIX = "/_practice/"
"""Paths of the control endpoint."""
REGION = "us-east-1"
"""The only region that the practice uses; moto creates its default network there."""


def practice_env(endpoint: str) -> dict[str, str]:
    """Environment in which boto3 calls only the emulator at ``endpoint``.

    Keeps boto3 away from the caller's own credentials, profiles, instance metadata and proxies."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "practice",
        "AWS_SECRET_ACCESS_KEY": "practice",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }
