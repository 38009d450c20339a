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

try_token() { # try_token TOKEN: 0 a controller takes it, 1 it is refused, 2 none could be asked; _why says why
	_python=$(any_python) || return 2
	_ca=
	[ ! -f "$R/etc/holdfast/ca.pem" ] || _ca=$R/etc/holdfast/ca.pem
	# shellcheck disable=SC2154 # controllers, CONFIG, MARK: identity.sh
	_urls=$(printf '%s' "$controllers" | tr ',' ' ')
	if [ -z "$_urls" ] || { [ -f "$CONFIG" ] && ! grep -qxF "$MARK" "$CONFIG"; }; then own_controllers; fi
	# shellcheck disable=SC2086 # one argument per URL
	_why=$(printf '%s' "$1" | timeout -k 2 15 "$_python" "$LIB/try_token.py" "$node" "$_ca" $_urls 2>&1)
	case $? in 0) return 0 ;; 1) return 1 ;; *) return 2 ;; esac
}

own_controllers() { # sets _urls, and _ca where one is named: as an agent.toml that an operator wrote, here or in the bundle, has them
	for _file in "$CONFIG" "$R/etc/holdfast/agent.site.toml"; do
		_own=$("$R/opt/holdfast/bin/python" -c '
import os, sys, tomllib
with open(sys.argv[1], "rb") as file:
    found = tomllib.load(file)
ca = os.path.join("/etc/holdfast", found["ca_file"]) if "ca_file" in found else ""
print(ca, *found["controllers"])
' "$_file" 2>/dev/null) || continue
		[ -z "${_own%% *}" ] || _ca=$R${_own%% *}
		_urls=${_own#* }
		return
	done
}

keep_token() { # keep_token TOKEN SOURCE
	printf '%s\n' "$node" | replace_file "$TOKEN_OF" 0644 || true
	printf '%s\n' "$1" | replace_file "$TOKEN" 0600 || true
	say "token of $node from ${2%%:*}"
}

# The first source's token that a controller takes. Where none can be asked, the token that is here stays, else the first source's is
# taken. 0: done; 75: there is none, or none that is taken; 76: one is here that could not be tried, so ask again.
fetch_token() {
	if [ -s "$TOKEN" ] && [ "$(cat "$TOKEN_OF" 2>/dev/null)" != "$node" ] && [ -f "$TOKEN_OF" ]; then
		say "the token here belongs to $(cat "$TOKEN_OF"), not to $node: removed"
		rm -f "$TOKEN" "$TOKEN_OF"
	fi
	_here=$(tr -d '[:space:]' 2>/dev/null <"$TOKEN") || _here=
	_here_is=
	_untried=
	for _source in ${HOLDFAST_TOKEN_FROM:-}; do
		_source=$(fill_in "$_source")
		case $_source in enrol:*) # once for each machine, so not where a token works, or may work
			[ -z "$_untried" ] || continue
			if [ -n "$_here" ]; then
				[ -n "$_here_is" ] || here_is
				[ "$_here_is" = 1 ] || continue
			fi
			;;
		esac
		_token=$(read_source "$_source" | tr -d '[:space:]') || true
		case $_token in
		'' | None | *[!A-Za-z0-9_-]*) continue ;; # the aws command prints None for a missing field
		esac
		_is=0
		case $_source in enrol:*) ;; *) try_token "$_token" || _is=$? ;; esac
		case $_is in
		0)
			keep_token "$_token" "$_source"
			return 0
			;;
		1) say "the token of $node from ${_source%%:*} is refused: $_why" ;;
		2) [ -n "$_untried" ] || _untried=$_token _untried_from=$_source ;;
		esac
		[ "$_token" != "$_here" ] || _here_is=$_is
	done
	_token=
	if [ -n "$_here" ]; then
		[ -n "$_here_is" ] || here_is
		case $_here_is in
		0) return 0 ;;
		1) ;;
		*)
			[ -n "$_untried" ] && [ "$_untried" != "$_here" ] || return 0
			say "no controller could be asked which token of $node it takes: the one that is here stays, and is tried again in five minutes"
			return 76
			;;
		esac
	fi
	if [ -n "$_untried" ]; then
		keep_token "$_untried" "$_untried_from"
		return 0
	fi
	if [ -n "$_here" ]; then
		say "the token of $node is refused, and HOLDFAST_TOKEN_FROM has no other: docs/how-to-tokens.md; asked again every five minutes"
		return 75
	fi
	say "no token for $node yet (HOLDFAST_TOKEN_FROM=${HOLDFAST_TOKEN_FROM:-}); asked again every five minutes"
	return 75
}

here_is() { # sets _here_is
	_here_is=0
	try_token "$_here" || _here_is=$?
	[ "$_here_is" != 1 ] || say "the token of $node that is here is refused: $_why"
}

token_refused() { # by what the running agent says of itself
	grep -q '"not_reporting".*the token is refused (401' "$R/run/holdfast/agent-status.json" 2>/dev/null
}
