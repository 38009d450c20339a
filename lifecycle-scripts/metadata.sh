#!/bin/sh
# Closes EC2's instance metadata, and with it the machine's role, to users of this machine, now and after each boot. on_create.sh does so on
# the nodes (HOLDFAST_METADATA in holdfast.conf); on a head node run it with the users that need the role.
#
#   metadata.sh close [--user NAME] …    all but root, NAME, and those known to need it that are here: see KNOWN below
#   metadata.sh open                     takes that back
#
# Exit status: 0 done; 1 it could not be done, and why.
# shellcheck disable=SC1091 # checked by itself
set -u
umask 022

HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
. "$HERE/lib/common.sh"
. "$HERE/lib/units.sh"

# CloudWatch's agent; sshd's question for keys of EC2 Instance Connect; ParallelCluster's daemon on its nodes.
KNOWN="cwagent ec2-instance-connect pcluster-admin"
RULES=/etc/holdfast/metadata.nft
UNIT=holdfast-metadata.service

usage() {
	sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
	exit 2
}

uids() { # uids NAME …: those that are here; of one that was asked for by name and is not, a word
	_uids=0
	for _user in "$@"; do
		if _uid=$(id -u "$_user" 2>/dev/null); then _uids="$_uids, $_uid"; else
			case " $KNOWN " in *" $_user "*) ;; *) say "no user $_user here: passed over" ;; esac
		fi
	done
	printf '%s' "$_uids"
}

close_it() {
	have nft || [ -x /usr/sbin/nft ] || {
		say "no nft here: EC2's instance metadata stays open to users (install nftables; docs/iam)"
		return 1
	}
	# shellcheck disable=SC2086 # one argument per name
	sed "s/^define metadata_users = .*/define metadata_users = { $(uids $KNOWN "$@") }/" "$HERE/holdfast-metadata.nft" |
		replace_file "$R$RULES" 0644
	[ $? -ne 2 ] || return 1
	[ -f "$R/lib/systemd/system/$UNIT" ] || replace_file "$R/etc/systemd/system/$UNIT" 0644 <"$HERE/$UNIT" || true
	if systemd_runs; then logged systemctl daemon-reload; fi
	unit_enable "$UNIT" || say "could not enable: $UNIT"
	[ -z "$R" ] || return 0
	if systemd_runs; then logged systemctl restart "$UNIT"; else logged nft -f "$RULES"; fi || {
		say "nft did not take $RULES: EC2's instance metadata stays open to users (nft -f $RULES says why)"
		return 1
	}
	say "EC2's instance metadata is closed to users"
}

open_it() {
	if systemd_runs; then logged systemctl disable --now "$UNIT" || true; fi
	rm -f "$R$RULES" "$R/etc/systemd/system/$UNIT" "$R/etc/systemd/system/multi-user.target.wants/$UNIT"
	if [ -z "$R" ] && have nft && nft list table inet holdfast_metadata >/dev/null 2>&1; then
		logged nft delete table inet holdfast_metadata || return 1
	fi
	say "EC2's instance metadata is open to users, as EC2 has it"
}

what=${1:-}
[ $# -eq 0 ] || shift
users=
while [ $# -gt 0 ]; do
	case $1 in
	--user)
		case ${2:-} in '' | *[!A-Za-z0-9._-]*) usage ;; esac
		users="$users $2"
		shift 2
		;;
	*) usage ;;
	esac
done
open_log
# shellcheck disable=SC2086 # one argument per name
case $what in
close) close_it $users ;;
open) open_it ;;
*) usage ;;
esac
