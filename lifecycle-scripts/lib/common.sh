# shellcheck shell=sh
# Sourced by the scripts in the parent folder: log lines, settings, files that are replaced as a whole.
# HOLDFAST_ROOT is put before every path that is written, for images and tests; empty on a running machine.

R=${HOLDFAST_ROOT:-}
LOG=

say() { # one line to standard error and, once it is open, to the log
	_line="$(date -u +%Y-%m-%dT%H:%M:%SZ) holdfast: $*"
	printf '%s\n' "$_line" >&2
	[ -z "$LOG" ] || printf '%s\n' "$_line" >>"$LOG"
}

have() { command -v "$1" >/dev/null 2>&1; }

open_log() { # HyperPod ships /var/log/provision/ to CloudWatch (stream LifecycleConfig/GROUP/INSTANCE)
	[ -z "${HOLDFAST_LOGGED:-}" ] || return 0 # standard error is the log already
	if [ -d "$R/opt/ml/config" ] || [ -d "$R/var/log/provision" ]; then
		_log=$R/var/log/provision/provisioning.log
	else
		_log=$R/var/log/holdfast-install.log
	fi
	if mkdir -p "${_log%/*}" 2>/dev/null && : 2>/dev/null >>"$_log"; then LOG=$_log; fi
}

logged() { # run a command with its output in the log; without a log, on standard error
	if [ -n "$LOG" ]; then "$@" >>"$LOG" 2>&1; else "$@" >&2; fi
}

replace_file() { # replace_file PATH MODE <TEXT: never half written; false when it was already so
	mkdir -p "${1%/*}" || return 2
	_new=$1.new.$$
	if ! (umask 077 && cat >"$_new" && chmod "$2" "$_new"); then
		rm -f "$_new"
		return 2
	fi
	if [ -f "$1" ] && cmp -s "$_new" "$1"; then
		chmod "$2" "$1"
		rm -f "$_new"
		return 1
	fi
	mv -f "$_new" "$1"
}

SETTINGS="HOLDFAST_CONTROLLERS HOLDFAST_TOKEN_FROM HOLDFAST_NODE HOLDFAST_HEAD_FROM HOLDFAST_ROLES HOLDFAST_METADATA HOLDFAST_METADATA_USERS HOLDFAST_HEAD_METADATA HOLDFAST_REGION HOLDFAST_STS_HOST HOLDFAST_PYTHON HOLDFAST_DEADLINE_S"

load_settings() { # KEY=value lines, not a script: a value is taken literally. What the environment already says goes first.
	[ -f "$1" ] || return 0
	while IFS= read -r _entry || [ -n "$_entry" ]; do
		_entry=${_entry%"$(printf '\r')"}
		case $_entry in '' | '#'*) continue ;; esac
		_key=${_entry%%=*}
		case " $SETTINGS " in
		*" $_key "*) ;;
		*)
			say "$1: unknown key '$_key' passed over; known: $SETTINGS"
			continue
			;;
		esac
		_value=${_entry#*=}
		_value=${_value#[\"\']}
		_value=${_value%[\"\']}
		eval "_old=\${$_key-}"
		# shellcheck disable=SC2154 # set by the eval above
		[ -n "$_old" ] || eval "$_key=\$_value"
	done <"$1"
}

any_python() { # some python3, however old, to read JSON with
	for _python in "$R/opt/holdfast/bin/python" python3 /usr/libexec/platform-python "${BUNDLED_PYTHON:-}"; do
		[ -n "$_python" ] || continue
		if have "$_python" && "$_python" -c 'import json, sys; sys.exit(sys.version_info < (3, 6))' 2>/dev/null; then
			command -v "$_python"
			return 0
		fi
	done
	return 1
}

refused_settings() { # refused_settings FILE: false, and why, where the agent that is installed would not start with this agent.toml
	PYTHONDONTWRITEBYTECODE=1 "$R/opt/holdfast/bin/python" -c '
import sys
from pathlib import Path
from holdfast.config.agent import load_agent_config
from holdfast.model.errors import ConfigError
try:
    load_agent_config(Path(sys.argv[1]))
except ConfigError as error:
    sys.exit(str(error))
' "$1" 2>&1
}

systemd_runs() { [ -z "$R" ] && [ -d /run/systemd/system ]; }

unit_enable() { # also in an image that is not booted
	if [ -n "$R" ] || ! systemd_runs; then
		if have systemctl; then logged systemctl --root="${R:-/}" enable "$@"; else say "no systemctl: enable by hand: $*"; fi
	else
		logged systemctl enable "$@"
	fi
}
