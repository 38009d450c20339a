#!/bin/sh
# On the head node: makes a token for each node that has none yet where on_create.sh will look for it. Run it again after
# adding nodes; what is there stays.
#
#   tokens.sh --to file:FOLDER|ssm:PREFIX|secretsmanager:PREFIX [NODE …]      (no NODE: all that sinfo names)
#
# A replaced machine takes the token of its node name: it needs none of its own. Run as root.
set -eu
umask 077

HOLDFAST=${HOLDFAST:-/opt/holdfast/bin/holdfast}
to=
if [ "${1:-}" = --to ] && [ $# -ge 2 ]; then
	to=$2
	shift 2
fi
case $to in
file:/* | ssm:/* | secretsmanager:?*) ;;
*)
	sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
place=${to#*:}

there() { # 0: it has one; 1: it has none; else the place could not be asked
	case $to in
	file:*) [ -s "$place/$1" ] ;;
	ssm:*) absent_is ParameterNotFound aws ssm get-parameter --name "$place/$1" ;;
	secretsmanager:*) absent_is ResourceNotFoundException aws secretsmanager describe-secret --secret-id "$place/$1" ;;
	esac
}

absent_is() { # absent_is CODE COMMAND …: only this answer means that there is none; no answer is not "none"
	code=$1
	shift
	said=$("$@" 2>&1 >/dev/null) && return 0
	case $said in *"$code"*) return 1 ;; esac
	printf '%s\n' "$said" >&2
	return 2
}

keep() { # keep NODE <TOKEN: through standard input, so that it is on no command line
	case $to in
	file:*) mkdir -p "$place" && cat >"$place/.$1.new" && mv "$place/.$1.new" "$place/$1" ;;
	ssm:*) document Name Value '"Type": "SecureString"' "$place/$1" | aws ssm put-parameter --cli-input-json file:///dev/stdin >/dev/null ;;
	secretsmanager:*) document Name SecretString '"Description": "Holdfast agent"' "$place/$1" |
		aws secretsmanager create-secret --cli-input-json file:///dev/stdin >/dev/null ;;
	esac
}

document() { # a token has only letters, digits, - and _
	read -r secret
	printf '{"%s": "%s", "%s": "%s", %s}' "$1" "$4" "$2" "$secret" "$3"
}

make() { # as the user that may write the store
	if [ "$(id -u)" -eq 0 ] && id holdfast-controller >/dev/null 2>&1; then
		runuser -u holdfast-controller -- "$HOLDFAST" token create agent "$1"
	else
		"$HOLDFAST" token create agent "$1"
	fi
}

[ $# -gt 0 ] || {
	names=$(sinfo --noheader --Node --format=%N | sort -u)
	# shellcheck disable=SC2086 # one word per node
	set -- $names
}
made=0 had=0
for node in "$@"; do
	case $node in *[!A-Za-z0-9._-]* | '') echo "tokens.sh: not a node name: '$node'" >&2 && exit 2 ;; esac
	answer=0
	there "$node" || answer=$?
	case $answer in
	0) had=$((had + 1)) ;;
	1)
		token=$(make "$node")
		printf '%s\n' "$token" | keep "$node"
		made=$((made + 1))
		;;
	*)
		echo "tokens.sh: $to could not be asked about $node; stopped after $made new ones" >&2
		exit 1
		;;
	esac
done
echo "tokens.sh: $made made, $had there already" >&2
