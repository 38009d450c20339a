#!/bin/sh
# Closes EC2's instance metadata, and with it the machine's role, to users of this machine, now and after each boot. on_create.sh does so on
# the nodes (HOLDFAST_METADATA in holdfast.conf); whatever installs the controller does so on the head node.
#
#   metadata.sh close [--user NAME] …    all but root, NAME, and those known to need it that are here: see KNOWN below
#   metadata.sh head [--user NAME] …     on a head node on EC2: as close, and the actor's user, SlurmUser and HOLDFAST_METADATA_USERS; the names
#                                        are kept for the next time, in the place of those before; HOLDFAST_HEAD_METADATA=open (in the
#                                        environment or /etc/holdfast/enrol.conf) leaves it open, =closed closes it also after "open"
#   metadata.sh open                     takes that back, and an upgrade leaves it so
#
# Exit status: 0 done; 1 it could not be done, and why.
# shellcheck disable=SC1091 # checked separately
set -u
umask 022

HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
. "$HERE/lib/common.sh"
. "$HERE/lib/units.sh"

# CloudWatch's agent; sshd's question for keys of EC2 Instance Connect; ParallelCluster's daemon on its nodes.
KNOWN="cwagent ec2-instance-connect pcluster-admin"
RULES=/etc/holdfast/metadata.nft
NAMED=/etc/holdfast/metadata.users # names given to "head"
OPENED=/etc/holdfast/metadata.open # "open" was said here
UNIT=holdfast-metadata.service

usage() {
	sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
	exit 2
}

uids() { # uids NAME|UID …: those that are here, each once; of one that was asked for by name and is not, a word
	_uids=0
	for _user in "$@"; do
		case $_user in *[!0-9]*) _uid=$(id -u "$_user" 2>/dev/null) ;; *) _uid=$_user ;; esac
		if [ -z "$_uid" ]; then
			case " $KNOWN " in *" $_user "*) ;; *) say "no user $_user here: passed over" ;; esac
		else
			case ", $_uids," in *", $_uid,"*) ;; *) _uids="$_uids, $_uid" ;; esac
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
	rm -f "$R$OPENED"
	[ -f "$R/lib/systemd/system/$UNIT" ] || replace_file "$R/etc/systemd/system/$UNIT" 0644 <"$HERE/$UNIT" || true
	if systemd_runs; then logged systemctl daemon-reload; fi
	unit_enable "$UNIT" || say "could not enable: $UNIT"
	[ -z "$R" ] || return 0
	if [ "$what" = head ] && ! systemd_runs; then # an image is being made: these rules would be the host's that makes it
		say "EC2's instance metadata is closed to users from the next boot on"
		return 0
	fi
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

on_ec2() { # by the firmware's own tables
	for _name in sys_vendor bios_vendor bios_version; do
		case $(cat "$R/sys/class/dmi/id/$_name" 2>/dev/null) in [Aa]mazon | "Amazon EC2" | *.amazon) return 0 ;; esac
	done
	return 1
}

slurm_users() { # SlurmUser runs programs that use the head's role (power saving, ParallelCluster), and may do all that Holdfast may
	echo slurm
	for _conf in "$R/etc/slurm/slurm.conf" "$R/opt/slurm/etc/slurm.conf"; do
		sed -n 's/^[[:space:]]*[Ss]lurm[Uu]ser[[:space:]]*=[[:space:]]*\([A-Za-z0-9._-]*\).*/\1/p' "$_conf" 2>/dev/null
	done
}

head_users() { # head_users NAME …: with those that a head node needs and that are here; each once
	_actor=
	if systemd_runs; then _actor=$(systemctl show -p User --value holdfast-actor.service 2>/dev/null); fi
	for _user in holdfast-actor $_actor $(slurm_users); do
		id -u "$_user" >/dev/null 2>&1 && set -- "$@" "$_user"
	done
	[ $# -eq 0 ] || printf '%s\n' "$@" | sort -u
}

named() { # named NAME …: these, kept for the next time; without any, those of last time
	[ $# -eq 0 ] || printf '%s\n' "$@" | replace_file "$R$NAMED" 0644 || true
	cat "$R$NAMED" 2>/dev/null
}

see_to_head() { # see_to_head NAME …
	on_ec2 || return 0
	wanted=closed
	[ ! -f "$R$OPENED" ] || wanted=open
	case ${HOLDFAST_HEAD_METADATA:-$wanted} in
	closed)
		# shellcheck disable=SC2046,SC2086 # one argument per name
		close_it $(head_users $(named "$@") ${HOLDFAST_METADATA_USERS:-})
		;;
	open)
		if [ -f "$R$RULES" ]; then open_it; else say "EC2's instance metadata stays open to users of this head node (HOLDFAST_HEAD_METADATA, or metadata.sh open)"; fi
		;;
	*)
		say "HOLDFAST_HEAD_METADATA: '$HOLDFAST_HEAD_METADATA' is neither closed nor open: nothing done"
		return 1
		;;
	esac
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
head)
	load_settings "$R/etc/holdfast/enrol.conf"
	see_to_head $users
	;;
open)
	open_it || exit 1
	echo '# metadata.sh open was said on this machine; metadata.sh close, or HOLDFAST_HEAD_METADATA=closed, takes it back' |
		replace_file "$R$OPENED" 0644 || true
	;;
*) usage ;;
esac
