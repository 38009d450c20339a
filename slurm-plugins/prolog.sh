#!/bin/sh
# Slurm's Prolog and Epilog: no job starts on a node that Holdfast has decided to drain. See docs/slurm-plugins.md.
#
#   Prolog=/usr/local/share/holdfast/slurm-plugins/prolog.sh      Epilog=…/epilog.sh
#
# Exit status 1, upon which Slurm drains the node (and requeues the job, from Prolog), only when the agent of this node says both: a
# fatal finding is open, and the controller said within the last minute that it drains this node. The controller says so only with
# prolog = "act" and mode = "act" in controller.toml, and never while paused, under a brake, or for what is suppressed or acknowledged.
# Anything else is 0: a finding for which nothing is done (it is printed), no agent, one of another version, one that is slow, no helper.
# Takes milliseconds, a second at most; never calls scontrol, never kills, never waits for the network.
set -u

helper=${HOLDFAST_ASK:-}
if [ -z "$helper" ]; then
	for candidate in /usr/local/bin/holdfast-ask /usr/bin/holdfast-ask /opt/holdfast/bin/holdfast-ask; do
		if [ -x "$candidate" ]; then
			helper=$candidate
			break
		fi
	done
fi
[ -n "$helper" ] && [ -x "$helper" ] || exit 0

# The helper keeps a deadline of a second; timeout is for a helper that cannot even be loaded.
found=$(timeout -k 1 2 "$helper" standing "${HOLDFAST_AGENT_SOCKET:-/run/holdfast/agent.sock}" 2>/dev/null)
status=$?
if [ "$status" -eq 1 ] && [ -n "$found" ]; then
	printf 'holdfast: %s is being drained: %s\n' "${SLURMD_NODENAME:-this node}" "$found" >&2
	exit 1
fi
if [ "$status" -eq 0 ] && [ -n "$found" ]; then
	printf 'holdfast: a fatal finding on %s, nothing is done about it: %s\n' "${SLURMD_NODENAME:-this node}" "$found" >&2
fi
exit 0
