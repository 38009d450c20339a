#!/bin/sh
# Makes holdfast-agent_VERSION_ARCH.deb and holdfast-controller_VERSION_ARCH.deb: /opt/holdfast as a virtual environment, units,
# users, folders and example configuration. No network on the machine that installs them. The interpreter comes from the
# distribution, so build with that of the target (3.11 on Debian 12 and, from universe, on Ubuntu 22.04; 3.13 on Debian 13).
#
#   build_deb.sh [--out FOLDER] [--python /usr/bin/python3.N]
#
# The controller's package installs its files next to the agent's, so it depends on that package; the agent's service stays off until enabled.
set -eu
umask 022

HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
SOURCE=$(dirname "$HERE")
out=$SOURCE/build target=/usr/bin/python3.11
[ -x "$target" ] || target=$(readlink -f /usr/bin/python3) # Debian 13: 3.13
while [ $# -ge 2 ]; do
	case $1 in --out) out=$2 ;; --python) target=$2 ;; *) break ;; esac
	shift 2
done
[ $# -eq 0 ] || {
	sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
mkdir -p "$out"
out=$(CDPATH='' cd -- "$out" && pwd -P)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
agent=$work/agent controller=$work/controller
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$SOURCE/daemon/holdfast/__init__.py")
arch=$(dpkg --print-architecture)

say() { printf '%s\n' "$*" >&2; }
# shellcheck disable=SC1091 # checked separately
. "$HERE/lib/packages.sh"

pip_into() { # pip_into TREE WHAT …
	tree=$1
	shift
	"${PYTHON:-python3}" -m pip --python "$tree/opt/holdfast/bin/python" install -q --no-compile --disable-pip-version-check \
		--no-warn-script-location "$@"
}

settle() { # paths as they will be on the target, not those of this folder
	sed -i "1s|^#!.*|#!/opt/holdfast/bin/python|" "$1"/opt/holdfast/bin/holdfast*
	find "$1/opt/holdfast/bin" -type f ! -name 'holdfast*' -exec sed -i "1s|^#!$1/opt|#!/opt|" {} +
	find "$1" -name direct_url.json -delete
	"$target" -m compileall -q -s "$1" -p / "$1/opt/holdfast/lib" || true # a package may ship code for other Pythons
}

control() { # control TREE NAME DEPENDS TEXT
	mkdir -p "$1/DEBIAN"
	cat >"$1/DEBIAN/control" <<CONTROL
Package: $2
Version: $version
Architecture: $arch
Maintainer: The Holdfast authors <holdfast@localhost>
Section: admin
Priority: optional
Depends: $3
Installed-Size: $(du -sk --exclude=DEBIAN "$1" | cut -f1)
Description: $4
CONTROL
}

scripts() { # scripts TREE UNITS PREPARE: PREPARE is what postinst does first
	cat >"$1/DEBIAN/postinst" <<POSTINST
#!/bin/sh
set -e
[ "\$1" = configure ] || exit 0
units='$2'
$3
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	systemctl try-restart \$units || true
fi
POSTINST
	cat >"$1/DEBIAN/prerm" <<PRERM
#!/bin/sh
set -e
if [ "\$1" = remove ] && [ -d /run/systemd/system ]; then
	systemctl disable --now $2 || true
fi
PRERM
	cat >"$1/DEBIAN/postrm" <<'POSTRM'
#!/bin/sh
set -e
# Configuration, tokens and the record of incidents stay, also when purged: /etc/holdfast, /var/lib/holdfast.
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
POSTRM
	chmod 0755 "$1"/DEBIAN/postinst "$1"/DEBIAN/prerm "$1"/DEBIAN/postrm
}

put() { install -D -m 0644 "$HERE/$2" "$1/$3"; }

mkdir -p "$agent/opt"
"$target" -m venv --without-pip "$agent/opt/holdfast"
rm -f "$agent"/opt/holdfast/bin/[Aa]ctivate*
sed -i '/^command/d' "$agent/opt/holdfast/pyvenv.cfg"
own_wheel "$SOURCE" "$work/wheels" "${PYTHON:-python3}" "$HERE/locks"
wheel=$(ours_alone "$work/wheels")
holds() { # holds TREE LOCK: what the lock names, by hash, and our own wheel by its path
	pip_into "$1" --require-hashes --no-deps -r "$HERE/locks/$2.txt"
	pip_into "$1" --no-index --no-deps "$wheel"
}
holds "$agent" agent
mkdir "$controller" && cp -a "$agent/opt" "$controller/"
holds "$controller" controller # the agent's lock is a part of it: nothing of the agent's changes

settle "$agent"
settle "$controller"
"$agent/opt/holdfast/bin/python" -m holdfast.agent --example >"$work/agent.toml"
"$controller/opt/holdfast/bin/python" -m holdfast.cli config example controller >"$work/controller.toml"
mkdir -p "$work/man1"
"$controller/opt/holdfast/bin/python" -m holdfast.cli.man "$work/man1"
for tree in "$agent" "$controller"; do
	mkdir -p "$tree/usr/share/doc/holdfast-${tree##*/}"
	"${PYTHON:-python3}" "$HERE/sbom.py" "$tree"/opt/holdfast/lib/python3*/site-packages >"$tree/usr/share/doc/holdfast-${tree##*/}/sbom.cdx.json"
done
(cd "$agent" && find . ! -type d) | (cd "$controller" && xargs -d '\n' rm -f)
find "$controller" -type d -empty -delete
mkdir -p "$controller/usr/share/man/man1"
cp "$work"/man1/*.1 "$controller/usr/share/man/man1/"
gzip -9n "$controller"/usr/share/man/man1/*.1

for unit in holdfast-agent.service holdfast-agent-reporting.path holdfast-agent-reporting.service holdfast-enrol.service holdfast-enrol.timer \
	holdfast-metadata.service; do
	put "$agent" "$unit" "lib/systemd/system/$unit"
done
for unit in holdfast-controller.service holdfast-actor.service holdfast-quorum.service holdfast-tls-renew.service holdfast-tls-renew.timer; do
	put "$controller" "$unit" "lib/systemd/system/$unit"
done
put "$agent" holdfast-logrotate.conf etc/logrotate.d/holdfast
put "$agent" holdfast-node-tmpfiles.conf usr/lib/tmpfiles.d/run-holdfast.conf
install -D -m 0755 "$HERE/holdfast-enroot-hook.sh" "$agent/etc/enroot/hooks.d/50-holdfast.sh" # read by enroot alone
put "$controller" holdfast-sysusers.conf usr/lib/sysusers.d/holdfast.conf
put "$controller" holdfast-tmpfiles.conf usr/lib/tmpfiles.d/holdfast.conf
# The SPANK plug-in as source, under its own licence: it is compiled for the Slurm that loads it (docs/slurm-plugins.md).
mkdir -p "$agent/usr/share/holdfast/slurm-plugins"
(cd "$SOURCE/slurm-plugins" && find . -name '*.so' -prune -o -name holdfast-ask -prune -o -type f -print | tar -cf - -T -) |
	tar -xf - --no-same-owner -C "$agent/usr/share/holdfast/slurm-plugins"
put "$agent" holdfast.conf.example usr/share/doc/holdfast-agent/examples/enrol.conf
install -D -m 0644 "$work/agent.toml" "$agent/usr/share/doc/holdfast-agent/examples/agent.toml"
install -D -m 0755 "$SOURCE/docs/examples/provider-ipmi.sh" "$controller/usr/share/doc/holdfast-controller/examples/provider-ipmi.sh"
install -D -m 0644 "$work/controller.toml" "$controller/usr/share/doc/holdfast-controller/examples/controller.toml"
install -D -m 0644 "$SOURCE/LICENSE" "$agent/usr/share/doc/holdfast-agent/copyright"
install -D -m 0644 "$SOURCE/LICENSE" "$controller/usr/share/doc/holdfast-controller/copyright"
put "$controller" prometheus/holdfast.rules.yml usr/share/holdfast/prometheus/holdfast.rules.yml
put "$controller" grafana/holdfast.json usr/share/holdfast/grafana/holdfast.json
mkdir -p "$agent/usr/bin"
for name in holdfast holdfast-agent holdfast-checks; do ln -s "/opt/holdfast/bin/$name" "$agent/usr/bin/$name"; done

control "$agent" holdfast-agent "$(basename "$target")" "Holdfast agent: watches a GPU node and reports to the controller"
control "$controller" holdfast-controller "holdfast-agent (= $version), $(basename "$target"), systemd" \
	"Holdfast controller, actor and quorum service, for the head node of a Slurm cluster"
printf '%s\n' /etc/logrotate.d/holdfast /etc/enroot/hooks.d/50-holdfast.sh >"$agent/DEBIAN/conffiles"
scripts "$agent" 'holdfast-agent-reporting.path holdfast-agent.service' 'mkdir -p /etc/holdfast
[ -d /run/holdfast ] || ! command -v systemd-tmpfiles >/dev/null || systemd-tmpfiles --create run-holdfast.conf || true
sh /opt/holdfast/share/holdfast/lifecycle-scripts/agent_settings.sh || units=holdfast-agent-reporting.path'
scripts "$controller" 'holdfast-tls-renew.timer holdfast-quorum.service holdfast-controller.service holdfast-actor.service' \
	'if command -v systemd-sysusers >/dev/null; then systemd-sysusers holdfast.conf && systemd-tmpfiles --create holdfast.conf; fi
sh /opt/holdfast/share/holdfast/lifecycle-scripts/metadata.sh head || true'
cat >"$agent/DEBIAN/preinst" <<'PREINST'
#!/bin/sh
set -e
if [ -L /opt/holdfast ] || { [ -e /opt/holdfast/bin/python ] && ! dpkg-query -L holdfast-agent >/dev/null 2>&1; }; then
	echo "/opt/holdfast was installed in another way (on_create.sh, install.sh): remove it first" >&2
	exit 1
fi
PREINST
chmod 0755 "$agent/DEBIAN/preinst"
for tree in "$agent" "$controller"; do
	name=holdfast-$(basename "$tree")
	dpkg-deb --root-owner-group -Zgzip --build "$tree" "$out/${name}_${version}_$arch.deb"
done
