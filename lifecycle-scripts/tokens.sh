#!/bin/sh
# On the head node: makes a token for each node that has none yet, in the place from which on_create.sh reads it. Run it again after
# adding nodes; what is there stays, and is compared with the store.
#
#   tokens.sh --to file:FOLDER|ssm:PREFIX|secretsmanager:PREFIX [NODE …]      (no NODE: all that sinfo names)
#             --replace NODE …      a new token for each of these, in the place of the one that is there
#             --mend [NODE …]       the same for those whose token the store does not take (unknown: restored; ended, revoked), or others may have read
#
# A replaced machine takes the token of its node name: it needs no new one. Run as root.
# Exit status: 0 done; 1 a place or the store does not answer, others can write to the folder, or a token that is there is refused by the
# store or may have been read by others; 2 wrong use.
set -eu
umask 077

HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
HOLDFAST=${HOLDFAST:-/opt/holdfast/bin/holdfast}
usage() {
	sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
	exit 2
}

to='' do=make
while [ $# -gt 0 ]; do
	case $1 in
	--to)
		[ $# -ge 2 ] || usage
		to=$2
		shift 2
		;;
	--replace | --mend)
		do=${1#--}
		shift
		;;
	*) break ;;
	esac
done
case $to in
file:/* | ssm:/* | secretsmanager:?*) ;;
*) usage ;;
esac
[ "$do" != replace ] || [ $# -gt 0 ] || usage
place=${to#*:}
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT

look() { # look NODE: sets state (none, deleted, there) and found, its token; false: the place could not be asked
	state=there
	case $to in
	file:*) if [ -s "$place/$1" ]; then found=$(cat "$place/$1"); else state=none; fi ;;
	ssm:*) ask ParameterNotFound aws ssm get-parameter --with-decryption --name "$place/$1" --query Parameter.Value --output text ;;
	secretsmanager:*)
		ask ResourceNotFoundException aws secretsmanager describe-secret --secret-id "$place/$1" --query DeletedDate --output text || return
		case $state$found in
		none*) ;;
		there | thereNone) ask ResourceNotFoundException aws secretsmanager get-secret-value --secret-id "$place/$1" --query SecretString --output text ;;
		*) state=deleted ;; # delete-secret only says when it will go
		esac
		;;
	esac
}

ask() { # ask CODE COMMAND …: only this code means that there is none; no answer is not "none"
	code=$1
	shift
	found=$("$@" 2>"$errors") && return 0
	found=
	if grep -q "$code" "$errors"; then
		state=none
		return 0
	fi
	cat "$errors" >&2
	return 1
}

keep() { # keep NODE <TOKEN: through standard input, so that it is on no command line
	case $to in
	file:*) rm -f "$place/.$1.new" && cat >"$place/.$1.new" && mv "$place/.$1.new" "$place/$1" ;;
	ssm:*) document Name Value '"Type": "SecureString", "Overwrite": true' "$place/$1" | aws ssm put-parameter --cli-input-json file:///dev/stdin >/dev/null ;;
	secretsmanager:*)
		if [ "$state" = none ]; then
			document Name SecretString '"Description": "Holdfast agent"' "$place/$1" |
				aws secretsmanager create-secret --cli-input-json file:///dev/stdin >/dev/null
			return
		fi
		[ "$state" != deleted ] || aws secretsmanager restore-secret --secret-id "$place/$1" >/dev/null || return
		document SecretId SecretString '"VersionStages": ["AWSCURRENT"]' "$place/$1" |
			aws secretsmanager put-secret-value --cli-input-json file:///dev/stdin >/dev/null
		;;
	esac
}

taken() { # taken NODE: whether the store takes what was found as this node's token
	digest=$(printf '%s' "$found" | tr -d '[:space:]' | sha256sum)
	case " $known " in *" ${digest%% *}:$1 "*) return 0 ;; esac
	return 1
}

read_by_others() { # read_by_others NODE: whether another user has, or may have, what lies in the folder
	case $to in file:*) ;; *) return 1 ;; esac
	if [ ! -O "$place/$1" ] || [ -L "$place/$1" ]; then return 0; fi
	[ -n "$(find "$place" -prune -perm /011)" ] && [ -n "$(find "$place/$1" -prune -perm /077)" ]
}

document() { # a token has only letters, digits, - and _
	read -r secret
	printf '{"%s": "%s", "%s": "%s", %s}' "$1" "$4" "$2" "$secret" "$3"
}

token() { # holdfast token …, as the user that may write the store
	if [ "$(id -u)" -eq 0 ] && id holdfast-controller >/dev/null 2>&1; then
		runuser -u holdfast-controller -- "$HOLDFAST" token "$@"
	else
		"$HOLDFAST" token "$@"
	fi
}

python=${HOLDFAST%/*}/python
[ -x "$python" ] || python=python3
listed=$(token list --json) && known=$(printf '%s' "$listed" | "$python" -c '
import json, sys
print(*(row["hash"] + ":" + row["subject"] for row in json.load(sys.stdin) if row["role"] == "agent" and row["state"] == "valid"))
') || {
	echo "tokens.sh: the store could not be asked for its tokens; nothing done" >&2
	exit 1
}

[ $# -gt 0 ] || {
	names=$(sinfo --noheader --Node --format=%N | sort -u)
	# shellcheck disable=SC2086 # one word per node
	set -- $names
}
for node in "$@"; do
	case $node in *[!A-Za-z0-9._-]* | '') echo "tokens.sh: not a node name: '$node'" >&2 && exit 2 ;; esac
done
case $to in file:*)
	mkdir -p "$place"
	why=$("$python" "$HERE/lib/own_folder.py" "$place" 2>&1) || {
		echo "tokens.sh: $why: others would read the nodes' tokens there; nothing done" >&2
		exit 1
	}
	;;
esac
made=0 had=0 refused='' seen=''
for node in "$@"; do
	found=
	look "$node" || {
		echo "tokens.sh: $to could not be asked about $node; stopped after $made new ones" >&2
		exit 1
	}
	if [ "$state" = there ] && [ "$do" != replace ]; then
		if read_by_others "$node"; then
			if [ "$do" = make ]; then
				seen="$seen $node"
				continue
			fi
		elif taken "$node"; then
			had=$((had + 1))
			continue
		elif [ "$do" = make ]; then
			refused="$refused $node"
			continue
		fi
	fi
	secret=$(token create agent "$node")
	printf '%s\n' "$secret" | keep "$node"
	made=$((made + 1))
done
echo "tokens.sh: $made made, $had there already" >&2
mend="tokens.sh --to $to --mend replaces them"
[ -z "$refused" ] || echo "tokens.sh: the store refuses the tokens in $to of these nodes; $mend:$refused" >&2
[ -z "$seen" ] || echo "tokens.sh: others may have read the tokens in $to of these nodes; $mend, then revoke the old ones:$seen" >&2
[ -z "$seen$refused" ]
