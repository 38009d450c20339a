#!/bin/sh
# Makes a bundle for nodes without internet: wheels, an interpreter, the scripts, the site's settings.
# Run it where there is internet, with Python 3.11 or later.
#
#   build_bundle.sh [--out FOLDER] [--site FOLDER] [--interpreter jammy|none|TREE.tar.gz] [--controller] [--arch x86_64|aarch64] [--wheel FILE]
#
#   --out          where to: FOLDER/holdfast-bundle and FOLDER/holdfast-bundle.tar.gz (default: build/)
#   --site         a folder with any of holdfast.conf, agent.toml, ca.pem, provisioning_parameters.json, and nothing else: a bundle goes to
#                  every node. The head node's settings come by HOLDFAST_HEAD_FROM (holdfast.conf.example), or by hand.
#   --interpreter  jammy: python3.11 out of Ubuntu 22.04's universe, as packages that are only unpacked (needs apt-get; default).
#                  TREE.tar.gz: a relocatable Python that you bring (python/bin/python3.N in it). none: the nodes have one.
#   --controller   also what the head node needs
#   --wheel        Holdfast's own wheel, where this is no checkout
set -eu
umask 022

HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
SOURCE=$(dirname "$HERE")
out=$SOURCE/build site='' wheel='' interpreter=jammy lock=agent arch=x86_64
while [ $# -gt 0 ]; do
	case $1 in
	--out | --site | --interpreter | --arch | --wheel)
		[ $# -ge 2 ] || { echo "$1: a value is needed" >&2 && exit 2; }
		case $1 in --out) out=$2 ;; --site) site=$2 ;; --interpreter) interpreter=$2 ;; --arch) arch=$2 ;; --wheel) wheel=$2 ;; esac
		shift
		;;
	--controller) lock=controller ;;
	*) sed -n '2,14s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
	esac
	shift
done
case $arch in x86_64) debs=amd64 ubuntu=http://archive.ubuntu.com/ubuntu ;; aarch64) debs=arm64 ubuntu=http://ports.ubuntu.com/ubuntu-ports ;; *) echo "unknown --arch $arch" >&2 && exit 2 ;; esac
ubuntu=${UBUNTU_MIRROR:-$ubuntu}
PYTHON=${PYTHON:-python3}

say() { printf '%s\n' "$*" >&2; }

refuse() { # what lies on every node is root's of every node
	say "$1: not put into a bundle, which goes to every node. $2"
	exit 2
}

fit_for_nodes() { # fit_for_nodes FOLDER: the known files alone, and no secret in them
	for _file in "$1"/* "$1"/.[!.]*; do
		[ -e "$_file" ] || [ -L "$_file" ] || continue
		case ${_file##*/} in
		holdfast.conf | agent.toml | ca.pem | provisioning_parameters.json) ;;
		controller.toml | actor.toml)
			refuse "$_file" "It is the head node's alone (database password, addresses of people): take it out of there and put it where HOLDFAST_HEAD_FROM says (docs/install.md)"
			;;
		*) refuse "$_file" "A site folder holds holdfast.conf, agent.toml, ca.pem, provisioning_parameters.json and nothing else: take it out of there" ;;
		esac
		[ -f "$_file" ] || refuse "$_file" "It is no plain file"
		if grep -qaE 'PRIVATE KEY-----|://[^/@[:space:]]*:[^/@[:space:]]+@' "$_file"; then
			refuse "$_file" "There is a private key or a password in it: take it out"
		fi
	done
}

if [ -n "$site" ]; then
	[ -d "$site" ] || { say "--site $site: no such folder" && exit 2; }
	fit_for_nodes "$site"
fi

bundle=$out/holdfast-bundle
rm -rf "$bundle" "$bundle.tar.gz"
mkdir -p "$bundle/wheels" "$bundle/interpreter" "$bundle/lib"

# shellcheck disable=SC1091 # checked separately
. "$HERE/lib/packages.sh"

wheels() {
	if [ -z "$wheel" ] && [ ! -f "$SOURCE/pyproject.toml" ]; then
		say "this is no checkout: name Holdfast's own wheel with --wheel (it is never taken from an index by its name)"
		return 1
	fi
	own_wheel "${wheel:-$SOURCE}" "$bundle/wheels" "$PYTHON" "$HERE/locks"
	for _lock in "$lock" pip; do
		# shellcheck disable=SC2046 # one argument per platform
		"$PYTHON" -m pip download -q --disable-pip-version-check -d "$bundle/wheels" --require-hashes --no-deps -r "$HERE/locks/$_lock.txt" \
			--only-binary=:all: --implementation cp --python-version 3.11 \
			$(for glibc in 2_17 2_28 2_34; do echo "--platform manylinux_${glibc}_$arch"; done) --platform "manylinux2014_$arch"
	done
	ours_alone "$bundle/wheels" >/dev/null
	"$PYTHON" "$HERE/sbom.py" "$bundle/wheels" >"$bundle/sbom.cdx.json"
}

ubuntu_packages() { # from its own package index: neither this machine's sources nor its installed packages matter
	apt=$(mktemp -d)
	mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/etc/preferences.d"
	: >"$apt/status"
	keys=${UBUNTU_KEYRING:-/usr/share/keyrings/ubuntu-archive-keyring.gpg}
	if [ -f "$keys" ]; then trust="signed-by=$keys"; elif [ "${UBUNTU_UNSIGNED:-}" = yes ]; then trust=trusted=yes; else
		echo "no $keys: install ubuntu-keyring (Debian: apt-get install ubuntu-archive-keyring), or set UBUNTU_UNSIGNED=yes" >&2
		return 1
	fi
	for suite in jammy jammy-updates jammy-security; do
		echo "deb [$trust arch=$debs] $ubuntu $suite main universe"
	done >"$apt/etc/sources.list"
	set -- -q -o Dir::State="$apt" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt" -o Dir::Etc="$apt/etc" \
		-o Dir::Etc::sourcelist="$apt/etc/sources.list" -o Dir::Etc::sourceparts=- -o APT::Architecture="$debs" \
		-o APT::Sandbox::User= -o Acquire::Languages=none -o Acquire::Retries=3
	apt-get "$@" update >"$apt/log" 2>&1 || { cat "$apt/log" >&2 && return 1; }
	(cd "$bundle/interpreter" && apt-get "$@" download python3.11-minimal libpython3.11-minimal libpython3.11-stdlib >"$apt/log" 2>&1) ||
		{ cat "$apt/log" >&2 && return 1; }
	rm -rf "$apt"
}

wheels
case $interpreter in
jammy) ubuntu_packages ;;
none) rmdir "$bundle/interpreter" ;;
*) cp "$interpreter" "$bundle/interpreter/python.tar.gz" ;;
esac
cp "$HERE"/on_create.sh "$HERE"/bootstrap.sh "$HERE"/enrol.sh "$HERE"/holdfast.conf.example "$bundle/"
cp "$HERE"/lib/*.sh "$HERE"/lib/*.py "$bundle/lib/"
[ "$lock" != controller ] || echo "The wheels of the head node are in here, too (--controller)." >"$bundle/for-the-head"
for name in holdfast.conf agent.toml ca.pem provisioning_parameters.json; do
	if [ -n "$site" ] && [ -f "$site/$name" ]; then cp "$site/$name" "$bundle/$name"; fi
done
(cd "$bundle" && find . -type f ! -name provisioning_parameters.json | LC_ALL=C sort | xargs sha256sum) >"$out/SHA256SUMS"
mv "$out/SHA256SUMS" "$bundle/SHA256SUMS"
tar -C "$out" --owner=0 --group=0 --numeric-owner --sort=name -czf "$bundle.tar.gz" holdfast-bundle
sha256sum "$bundle.tar.gz"
