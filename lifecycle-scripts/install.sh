#!/bin/sh
# Installs Holdfast on this machine with pip or uv, with its units; for machines with internet and for trying out.
# Machines without internet, and fleets: build_bundle.sh and on_create.sh. Run again, it upgrades.
#
#   install.sh agent|controller [--source WHAT] [--python PYTHON]
#
#   --source  a checkout or a wheel (default: the checkout that this script lies in; needed elsewhere)
#   --python  an interpreter, 3.11 or later (default: the first in /usr/bin; uv, where it is installed, can fetch one)
#
# Starts nothing that is not yet configured, and changes no configuration.
set -eu
umask 022

HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
LIB=$HERE/lib
# shellcheck disable=SC1091 # checked separately
. "$LIB/common.sh"
# shellcheck disable=SC1091
. "$LIB/release.sh"
# shellcheck disable=SC1091
. "$LIB/units.sh"
# shellcheck disable=SC1091
. "$LIB/packages.sh"

usage() {
	sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
	exit 2
}

what=${1:-}
case $what in agent | controller) ;; *) usage ;; esac
shift
source=
while [ $# -gt 0 ]; do
	case $1 in
	--source) source=${2:?} ;;
	--python) export HOLDFAST_PYTHON="${2:?}" ;;
	*) usage ;;
	esac
	shift 2
done
if [ -z "$source" ]; then
	[ -f "$HERE/../pyproject.toml" ] || usage # never by name alone from an index: it may be another project there
	source=$(dirname "$HERE")
fi
target=$R/opt/holdfast
[ ! -L "$target" ] || {
	say "$target was made by on_create.sh; use that, or remove $target and ${target}-releases first"
	exit 1
}

if python=$(system_python); then
	WITH=pip
	[ -x "$target/bin/python" ] || "$python" -m venv "$target" || {
		say "$python has no venv module (Debian, Ubuntu: apt-get install $(basename "$python")-venv)"
		exit 1
	}
elif have uv; then
	WITH=uv python=3.11
	[ -x "$target/bin/python" ] || uv venv -q --python "$python" "$target"
else
	say "no Python 3.11 or later, and no uv that could fetch one (Ubuntu 22.04: apt-get install python3.11 python3.11-venv)"
	exit 1
fi
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
own_wheel "$source" "$wheels" "$python" "$HERE/locks"
wheel=$(ours_alone "$wheels")
no_stranger "$target/bin/python"
into "$target/bin/python" --require-hashes --no-deps -r "$HERE/locks/$what.txt"
into "$target/bin/python" --no-index --no-deps --force-reinstall "$wheel"

mkdir -p "$R/etc/holdfast" "$R/usr/local/bin"
for name in holdfast holdfast-agent holdfast-checks; do ln -sfn "/opt/holdfast/bin/$name" "$R/usr/local/bin/$name"; done
if [ "$what" = agent ]; then
	install_agent_units || true
	services=holdfast-agent.service
	sh "$R$SHARE/agent_settings.sh" || exit 1
	next="write /etc/holdfast/agent.toml (/opt/holdfast/bin/python -m holdfast.agent --example), then systemctl enable --now"
else
	install_controller_units || true
	sh "$R$SHARE/metadata.sh" head || true # on EC2 the head's role is the actor's
	services='holdfast-quorum.service holdfast-controller.service holdfast-actor.service'
	next="write /etc/holdfast/controller.toml (holdfast config example controller; chgrp holdfast and chmod 0640 it), then systemctl enable --now"
fi
if systemd_runs; then
	# shellcheck disable=SC2086 # one word per service
	systemctl try-restart $services
fi
say "installed $("$target/bin/python" -c 'import holdfast; print(holdfast.__version__)'); next, unless done: $next $services"
