#!/usr/bin/env python3
"""Print what is wrong now, then each incident as it is opened or closed. For HOLDFAST_URL and a viewer's HOLDFAST_TOKEN.

Give the number of the last record that was printed to continue where another run has stopped: follow_incidents.py 4711
"""

import sys

from holdfast.client import Holdfast, HoldfastError

KINDS = ["incident.opened", "incident.closed"]


def main() -> int:
    holdfast = Holdfast()
    after_id = int(sys.argv[1]) if len(sys.argv) > 1 else None
    for incident in holdfast.incidents(only_open=True):
        print(f"open: {incident.id} {incident.node} {incident.headline}", flush=True)
    for event in holdfast.stream(after_id=after_id, kind=KINDS):
        print(f"{event.id} {event.at:%Y-%m-%d %H:%M:%S} {event.kind} {event.incident_id} {event.node}", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HoldfastError as error:
        sys.exit(f"follow_incidents.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
