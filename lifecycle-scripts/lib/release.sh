# shellcheck shell=sh
# Sourced. Puts a bundle's programs under /opt/holdfast without any network. Each bundle has its own folder and
# /opt/holdfast is a link that changes last: an installation that is broken off never becomes the current one.

RELEASES=$R/opt/holdfast-releases

works() { # an interpreter that is new enough and whole
	"$1" -c 'import sys, venv, ssl, ctypes, zlib, socket; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

bundle_id() { sha256sum "$1/SHA256SUMS" | cut -c1-16; }

intact() { # every file that the bundle's list names is there and unchanged
	[ -s "$1/SHA256SUMS" ] && (cd "$1" && logged sha256sum --check --quiet --strict SHA256SUMS)
}

unpack_interpreter() { # unpack_interpreter BUNDLE INTO: prints the bundle's own python, if it runs here
	_into=$2
	for _archive in "$1"/interpreter/*.tar.gz; do
		if [ -f "$_archive" ]; then mkdir -p "$_into" && logged tar -xzf "$_archive" -C "$_into" --no-same-owner; fi
	done
	for _archive in "$1"/interpreter/*.deb; do
		if [ -f "$_archive" ] && have dpkg-deb; then mkdir -p "$_into" && logged dpkg-deb -x "$_archive" "$_into"; fi
	done
	for _python in "$_into"/usr/bin/python3.[0-9]* "$_into"/python/bin/python3.[0-9]* "$_into"/bin/python3.[0-9]*; do
		case $_python in *-config) continue ;; esac
		if [ -x "$_python" ] && works "$_python"; then
			printf '%s' "$_python"
			return 0
		fi
	done
	return 1
}

system_python() { # of the distribution; not from an administrator's PATH, which may lead into a home or a conda
	for _python in "${HOLDFAST_PYTHON:-}" /usr/bin/python3.1[1-9] /usr/local/bin/python3.1[1-9] /usr/bin/python3; do
		if [ -n "$_python" ] && [ -x "$_python" ] && works "$_python"; then
			printf '%s' "$_python"
			return 0
		fi
	done
	return 1
}

make_release() { # make_release BUNDLE FOLDER EXTRA
	mkdir -p "$2" || return 1
	if [ -n "${HOLDFAST_PYTHON:-}" ] || ! _python=$(unpack_interpreter "$1" "$2/python"); then
		rm -rf "$2/python"
		_python=$(system_python) || {
			say "no Python 3.11 or later: not in the bundle (or it does not run here), not in /usr/bin"
			return 1
		}
	fi
	say "interpreter: $_python ($("$_python" -V 2>&1))"
	logged "$_python" -I -m venv --without-pip "$2/venv" || return 1
	_wheel=$(ours_alone "$1/wheels") || return 1
	set -- "$1" "$2" "$3" "$1"/wheels/pip-*.whl
	[ -f "$4" ] || {
		say "the bundle has no pip"
		return 1
	}
	logged "$2/venv/bin/python" -I "$4/pip" --no-cache-dir --disable-pip-version-check --isolated install \
		--no-index --no-warn-script-location --find-links "$1/wheels" "$_wheel$3" || return 1
	case $3 in
	*controller*) _proof='import sqlite3, holdfast.head.wiring' ;;
	*) _proof='import holdfast.agent.agent' ;;
	esac
	logged "$2/venv/bin/python" -I -c "$_proof" || return 1
	printf '%s\n' "$3" >"$2/complete"
}

install_release() { # install_release BUNDLE EXTRA: 0 new, 1 already current, 2 failed; EXTRA is [stacks] or [controller,quorum]
	intact "$1" || {
		say "the bundle is damaged: its files do not match SHA256SUMS"
		return 2
	}
	_folder=$RELEASES/$(bundle_id "$1")$(printf '%s' "$2" | tr -d '[]' | sed 's/^./-&/')
	if [ ! -f "$_folder/complete" ]; then
		rm -rf "$_folder"
		say "installing into $_folder"
		make_release "$1" "$_folder" "$2" || {
			rm -rf "$_folder"
			return 2
		}
	fi
	point_to "$_folder"
}

point_to() { # the link last; a plain folder from an installation by hand is set aside
	_target=holdfast-releases/${1##*/}/venv
	if [ "$(readlink "$R/opt/holdfast" 2>/dev/null)" = "$_target" ]; then return 1; fi
	if [ -d "$R/opt/holdfast" ] && [ ! -L "$R/opt/holdfast" ]; then
		say "/opt/holdfast was installed in another way: kept as /opt/holdfast.before"
		rm -rf "$R/opt/holdfast.before" && mv "$R/opt/holdfast" "$R/opt/holdfast.before" || return 2
	fi
	_was=$(readlink "$R/opt/holdfast" 2>/dev/null)
	ln -s "$_target" "$R/opt/holdfast.new.$$" && mv -fT "$R/opt/holdfast.new.$$" "$R/opt/holdfast" || return 2
	for _old in "$RELEASES"/*; do # the one before stays for a way back
		case $_old in "$1" | "$RELEASES/$(printf '%s' "$_was" | cut -d/ -f2)") ;; *) rm -rf "$_old" ;; esac
	done
	return 0
}
