#!/bin/sh
# holdfast-checks as Slurm's HealthCheckProgram, for clusters that do not run the agent. See docs/holdfast-checks.md.
#
#   healthcheck.sh [--drain] [OPTION OF "holdfast-checks run" …]
#
# Runs the checks and prints what they found to standard error (slurmd's log). Only with --drain, and only when a finding calls for
# taking the node out of service, it drains the node with a reason that begins with "holdfast-checks: ". It drains no node with an agent
# (the controller decides there), and none that is already drained, down or failing, so that no reason is overwritten; it never resumes,
# reboots or kills anything. What could not be asked, or not in time, never drains.
#
# Slurm gives a HealthCheckProgram no arguments, so point it at a script of two lines:
#   #!/bin/sh
#   exec /usr/share/holdfast/slurm-plugins/healthcheck.sh --drain --config /etc/holdfast/agent.toml
set -u

PATH=${PATH:-/usr/sbin:/usr/bin:/sbin:/bin}
checks=${HOLDFAST_CHECKS:-holdfast-checks}
folder=${HOLDFAST_HEALTHCHECK_DIR:-/run/holdfast-healthcheck}
node=${SLURMD_NODENAME:-$(hostname -s)}
samples=$folder/$node.json

drain=no
if [ "${1:-}" = --drain ]; then
	drain=yes
	shift
fi

say() { printf 'holdfast-checks: %s\n' "$*" >&2; }

# Only root may write the file that the next run continues from.
umask 077
if ! mkdir -p "$folder" || [ ! -O "$folder" ]; then
	say "cannot use $folder"
	exit 0
fi

# 45 s, more than the run's own deadline of 25 s: slurmd ends a HealthCheckProgram that takes longer than 60 s.
reason=$(timeout -k 5 45 "$checks" run --reason --samples "$samples" --node "$node" "$@")
status=$?
if [ -z "$reason" ]; then
	[ "$status" -le 1 ] || say "nothing to act on (exit status $status)"
	exit 0
fi
say "$node: $reason"
[ "$drain" = yes ] || exit 0
# On a node with an agent the controller decides, by its mode, brakes, pause and suppressions; it has the same checks.
if [ -S "${HOLDFAST_AGENT_SOCKET:-/run/holdfast/agent.sock}" ]; then
	say "$node has a Holdfast agent: it is the controller's to drain"
	exit 0
fi

# What Slurm did not receive must be found again: events are reported once.
forget() {
	rm -f "$samples"
	exit 1
}

shown=$(timeout -k 2 8 scontrol --oneliner show node "$node") || {
	say "scontrol does not answer: $node is not drained"
	forget
}
state=$(printf '%s\n' "$shown" | sed -n 's/.* State=\([A-Z0-9+*~#!%$@^-]*\).*/\1/p' | head -n 1)
case $state in
'')
	say "scontrol shows no state of $node: it is not drained"
	forget
	;;
*DRAIN* | *DOWN* | *FAIL*)
	say "$node is $state already and stays as it is"
	case $shown in
	*" Reason=holdfast-checks: "*) exit 0 ;;
	esac
	forget # another user took it out, for reasons of another kind
	;;
esac
timeout -k 2 8 scontrol update "NodeName=$node" State=DRAIN "Reason=holdfast-checks: $reason" || {
	say "scontrol refuses to drain $node"
	forget
}
say "$node is drained"
