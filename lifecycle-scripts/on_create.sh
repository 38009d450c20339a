#!/bin/sh
# Puts Holdfast on this machine out of the bundle that this script lies in (build_bundle.sh): from nothing to an agent that
# reports, without internet, and twice in a row with the same result. For HyperPod (a last line in the cluster's own
# on_create.sh, or OnInitComplete), EC2 user data and ParallelCluster (through bootstrap.sh), and by hand.
#
# It always exits with 0: a node without Holdfast is better than no node. What happened is in the log:
# /var/log/provision/provisioning.log on HyperPod, else /var/log/holdfast-install.log.
# shellcheck disable=SC1091 # what is sourced is checked separately
set -u
umask 022

HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P) || exit 0
LIB=$HERE/lib
if ! [ -f "$LIB/common.sh" ] || ! [ -f "$LIB/setup.sh" ]; then
	echo "holdfast: $LIB is not complete: nothing installed" >&2
	exit 0
fi
. "$LIB/common.sh"
load_settings "$HERE/holdfast.conf"
open_log

deadline_s=${HOLDFAST_DEADLINE_S:-300}
case $deadline_s in '' | *[!0-9]*) deadline_s=300 ;; esac

# The child writes to the log alone: one that is left behind must not block a caller that waits for the end of our own output.
if [ -n "$LOG" ]; then
	shown=$(wc -c <"$LOG")
	HOLDFAST_LOGGED=yes sh "$LIB/setup.sh" "$HERE" </dev/null >>"$LOG" 2>&1 &
else
	sh "$LIB/setup.sh" "$HERE" </dev/null >/dev/null 2>&1 &
fi
child=$!
waited_s=0
tenths=0
while kill -0 "$child" 2>/dev/null && [ "$waited_s" -lt "$deadline_s" ]; do
	if [ "$waited_s" -eq 0 ] && sleep 0.1 2>/dev/null; then # a boot does not wait a second for what took none
		tenths=$((tenths + 1))
		waited_s=$((tenths / 10))
	else
		sleep 1
		waited_s=$((waited_s + 1))
	fi
done
[ -z "$LOG" ] || tail -c +$((shown + 1)) "$LOG" >&2
if kill -0 "$child" 2>/dev/null; then # not waited for: what hangs in a dead file system cannot even be killed
	say "not done after ${deadline_s} s: abandoned; the node continues without Holdfast"
	kill -TERM "$child" 2>/dev/null
else
	wait "$child" || say "not installed (status $?); the node continues without Holdfast"
fi
exit 0
