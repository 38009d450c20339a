# shellcheck shell=sh
# Sourced where there is an index of packages. Ours is never looked up there, under any name: an index may have another project's.
# Our wheel is built from the checkout and installed by its path; everything else comes by the hashes in locks/ (./dev lock).
# Needs say; WITH is pip (default) or uv.

ours_alone() { # ours_alone FOLDER: prints our wheel; false where there is none, more than one, or a file of that name that is not ours
	_found=
	for _file in "$1"/[Hh][Oo][Ll][Dd][Ff][Aa][Ss][Tt]*; do
		[ -e "$_file" ] || continue
		case ${_file##*/} in
		holdfast_slurm-*-py3-none-any.whl) ;;
		*)
			say "$_file is no wheel of Holdfast's own: remove it"
			return 1
			;;
		esac
		[ -z "$_found" ] || {
			say "two wheels of Holdfast in $1: remove one"
			return 1
		}
		_found=$_file
	done
	[ -n "$_found" ] || {
		say "no wheel of Holdfast (holdfast_slurm-VERSION-py3-none-any.whl) in $1"
		return 1
	}
	printf '%s' "$_found"
}

into() { # into PYTHON ARGUMENT …: what this interpreter's environment gets
	_python=$1
	shift
	if [ "${WITH:-pip}" = uv ]; then uv pip install -q --python "$_python" "$@"; else
		"$_python" -m pip install -q --disable-pip-version-check --no-warn-script-location "$@"
	fi
}

own_wheel() { # own_wheel SOURCE FOLDER PYTHON LOCKS: our wheel in FOLDER, from a checkout or a wheel
	mkdir -p "$2"
	if [ -f "$1" ]; then
		cp "$1" "$2/"
	elif [ -f "$1/pyproject.toml" ]; then
		_builder=$(mktemp -d)
		if [ "${WITH:-pip}" = uv ]; then uv venv -q "$_builder/venv" --python "$3"; else "$3" -m venv "$_builder/venv"; fi &&
			into "$_builder/venv/bin/python" --require-hashes --no-deps -r "$4/build.txt" &&
			(cd "$1" && "$_builder/venv/bin/python" -m hatchling build -t wheel -d "$2" >"$_builder/log" 2>&1 || { cat "$_builder/log" >&2 && false; }) ||
			{ rm -rf "$_builder" && return 1; }
		rm -rf "$_builder"
	else
		say "$1 is neither a checkout of Holdfast nor a wheel of it"
		return 1
	fi
	ours_alone "$2" >/dev/null
}

no_stranger() { # no_stranger PYTHON: the distribution "holdfast" is not installed there; an earlier Holdfast, which was called so, is removed
	_other=$("$1" -c '
import re
from importlib.metadata import distributions
for one in distributions():
    if re.sub(r"[-_.]+", "-", one.metadata["Name"] or "").lower() == "holdfast":
        mine = any(str(f).endswith("holdfast/agent/__init__.py") for f in one.files or ())
        print("ours" if mine else one.version)
') || return 1
	case $_other in
	'') return 0 ;;
	ours)
		if [ "${WITH:-pip}" = uv ]; then uv pip uninstall -q --python "$1" holdfast; else "$1" -m pip uninstall -q -y holdfast; fi
		;;
	*)
		say "$1 has the package 'holdfast' $_other, which is not this Holdfast: look how it came there, then remove it"
		return 1
		;;
	esac
}
