# shellcheck shell=sh disable=SC2154 # cluster: identity.sh
# Sourced. The head node's own settings: they hold the database's password and people's addresses, so they are in no bundle, which goes to
# every node, but in a place that the head node's role alone may read. Needs common.sh, token.sh.

HEAD_SETTINGS=$R/etc/holdfast/controller.toml

drop_head_settings() { # drop_head_settings BUNDLE: what an operator copied into it by hand, on whatever machine this is
	for _name in controller.toml actor.toml; do
		[ -e "$1/$_name" ] || [ -L "$1/$_name" ] || continue
		rm -f "$1/$_name"
		say "$_name lay in the bundle, which goes to every node: not used, removed here. Take it out of where the bundle comes from, and" \
			"change the passwords in it (docs/install.md)"
	done
}

fetch_head_settings() { # 0: written, 1: there already, and left as it is, 2: there is none
	if [ -f "$HEAD_SETTINGS" ]; then return 1; fi
	for _source in ${HOLDFAST_HEAD_FROM:-}; do
		_source=$(fill_in "$_source")
		case $_source in
		ssm:/holdfast/* | secretsmanager:holdfast/*)
			say "HOLDFAST_HEAD_FROM: $_source is where the nodes' role reads tokens; name it ${_source%%:*}:…holdfast-head/… (docs/iam)"
			continue
			;;
		ssm:* | secretsmanager:*) ;;
		*)
			say "HOLDFAST_HEAD_FROM: '$_source' is neither ssm:NAME nor secretsmanager:NAME"
			continue
			;;
		esac
		_settings=$(read_source "$_source") || _settings=
		case $_settings in
		*'['*']'*) ;;
		*) continue ;; # nothing, or the aws command's None
		esac
		printf '%s\n' "$_settings" | replace_file "$HEAD_SETTINGS" 0640 || true
		_settings=
		chgrp holdfast "$HEAD_SETTINGS" 2>/dev/null || say "controller.toml: group holdfast could not be given"
		say "controller.toml from ${_source%%:*}"
		return 0
	done
	say "controller: installed, not started: there is no /etc/holdfast/controller.toml (HOLDFAST_HEAD_FROM=${HOLDFAST_HEAD_FROM:-}). Write it" \
		"(holdfast config example controller), or put it there, and run this again"
	return 2
}
