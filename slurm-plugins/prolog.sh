#!/bin/sh
# Slurm's Prolog and Epilog: no job starts on a node on which the agent knows of a fatal fault. See docs/slurm-plugins.md.
#
#   Prolog=/usr/local/share/holdfast/slurm-plugins/prolog.sh      Epilog=…/epilog.sh
#
# Exit status 1, upon which Slurm drains the node (and requeues the job, from Prolog), only when the agent of this node says that a
# fatal finding stands. No agent, one of another version, one that is slow, no helper: 0. Takes milliseconds, a second at most;
# never calls scontrol, never kills, never waits for the network.
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
	printf 'holdfast: a fatal finding stands on %s: %s\n' "${SLURMD_NODENAME:-this node}" "$found" >&2
	exit 1
fi
exit 0
