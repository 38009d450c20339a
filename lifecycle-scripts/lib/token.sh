# shellcheck shell=sh disable=SC2154 # node, instance, cluster, region: identity.sh
# Sourced. The node's bearer token: where from, and where to. Never printed, never in a log, never on a command line.

TOKEN=$R/etc/holdfast/agent.token
TOKEN_OF=$R/etc/holdfast/agent.token.node # whose it is: an image made of a node must not pass its token on

fill_in() { # {node}, {instance} and {cluster} in the text of a source
	printf '%s' "$1" | sed "s|{node}|$node|g; s|{instance}|$instance|g; s|{cluster}|$cluster|g"
}

from_aws() { # from_aws SERVICE ARGUMENT …: the aws command with a deadline; nothing where it is not installed
	have aws || return 1
	[ -z "$region" ] || set -- "$@" --region "$region"
	AWS_MAX_ATTEMPTS=3 timeout -k 2 20 aws "$@" --output text 2>/dev/null
}

enrol_at() { # enrol_at URL: by the machine's own identity; once for each machine, so not where a token is
	_python=$(any_python) || return 1
	_ca=
	[ ! -f "$R/etc/holdfast/ca.pem" ] || _ca=$R/etc/holdfast/ca.pem
	if ! _why=$(HOLDFAST_STS_HOST=${HOLDFAST_STS_HOST:-} timeout -k 2 40 "$_python" "$LIB/enrol.py" "$1" "$node" "$region" "$_ca" 2>&1 >&3); then
		say "no token of $node from $1: $_why"
		return 1
	fi
} 3>&1

read_source() { # read_source KIND:PLACE prints the token
	_place=${1#*:}
	case $1 in
	file:*) timeout -k 2 10 cat "$R$_place" 2>/dev/null ;;
	ssm:*) from_aws ssm get-parameter --with-decryption --name "$_place" --query Parameter.Value ;;
	secretsmanager:*) from_aws secretsmanager get-secret-value --secret-id "$_place" --query SecretString ;;
	enrol:*) enrol_at "$_place" ;;
	*)
		say "HOLDFAST_TOKEN_FROM: '$1' is none of file:PATH, ssm:NAME, secretsmanager:NAME, enrol:URL"
		return 1
		;;
	esac
}

fetch_token() { # the first source that has one; false when none has
	if [ -s "$TOKEN" ] && [ "$(cat "$TOKEN_OF" 2>/dev/null)" != "$node" ] && [ -f "$TOKEN_OF" ]; then
		say "the token here belongs to $(cat "$TOKEN_OF"), not to $node: removed"
		rm -f "$TOKEN" "$TOKEN_OF"
	fi
	for _source in ${HOLDFAST_TOKEN_FROM:-}; do
		_source=$(fill_in "$_source")
		case $_source in enrol:*) [ ! -s "$TOKEN" ] || continue ;; esac
		_token=$(read_source "$_source" | tr -d '[:space:]') || true
		case $_token in
		'' | None | *[!A-Za-z0-9_-]*) continue ;; # the aws command prints None for a missing field
		esac
		printf '%s\n' "$node" | replace_file "$TOKEN_OF" 0644 || true
		printf '%s\n' "$_token" | replace_file "$TOKEN" 0600 || true
		_token=
		say "token of $node from ${_source%%:*}"
		return 0
	done
	if [ -s "$TOKEN" ]; then return 0; fi
	say "no token for $node yet (HOLDFAST_TOKEN_FROM=${HOLDFAST_TOKEN_FROM:-}); asked again every five minutes"
	return 1
}
