#!/usr/bin/env bash
# What a newcomer's machine does: bare Debian roots, a fresh clone of HEAD in each, and make's targets.
#
#   tools/fresh.sh "bookworm trixie" "root user" "run test"
#
# Needs root and debootstrap. Packages come from where apt takes them here; certificates and settings
# of pip that only this machine has go along. FRESH names the folder of the roots, which are
# made anew; MIRROR another source of packages. The logs stay there.
set -euo pipefail

suites=$1 users=$2 targets=$3
here=$(cd "$(dirname "$0")/.." && pwd)
folder=${FRESH:-/var/tmp/forebay-fresh}

[ "$(id -u)" = 0 ] || { echo "make fresh: needs root, for debootstrap and chroot" >&2; exit 2; }
command -v debootstrap >/dev/null ||
	sh "$here/tools/setup.sh" programs needed debootstrap=debootstrap || exit 2
mirror=${MIRROR:-$(apt-get indextargets --format '$(ORIGIN) $(SITE)' 'Created-By: Packages' |
	sed -n 's/^Debian //p' | head -n 1)}
[ -n "$mirror" ] || { echo "make fresh: apt has no source of Debian here; name one: MIRROR=…" >&2; exit 2; }

# Settings by which packages are reached from this machine, and nothing else of its environment.
settings=(LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
while read -r name; do settings+=("$name=${!name}"); done < <(
	compgen -e | grep -E '^(PIP_(INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST|DEFAULT_TIMEOUT)|CARGO_PROFILE_.*|CARGO_.*_(REGISTRY|INDEX)|(https?|no)_proxy)$' || true)

bare_root() { # suite, root
	rm -rf --one-file-system "$2"
	debootstrap --variant=minbase --include=make,git "$1" "$2" "$mirror" >"$folder/$1.debootstrap.log" 2>&1
	cp /etc/resolv.conf /etc/hosts "$2/etc/"
	apt-config dump | grep -E '^Acquire::https?::Proxy' >"$2/etc/apt/apt.conf.d/proxy" || true
	[ ! -e /etc/pip.conf ] || cp /etc/pip.conf "$2/etc/"
	if ls /usr/local/share/ca-certificates/*.crt >/dev/null 2>&1; then
		mkdir -p "$2/usr/local/share/ca-certificates"
		cp /usr/local/share/ca-certificates/*.crt "$2/usr/local/share/ca-certificates/"
		# pip brings its own; the package ca-certificates takes up the folder above.
		cp /etc/ssl/certs/ca-certificates.crt "$2/etc/pip-certificates.crt"
		settings+=(PIP_CERT=/etc/pip-certificates.crt)
	fi
	# A user, for a clone of its own; packages are there when its turn comes.
	chroot "$2" useradd --create-home --shell /bin/sh user
}

# Namespaces of mounts and processes: what is left running ends with it, and nothing stays mounted.
inside() { # root, user, words…
	local root=$1 user=$2 home
	shift 2
	home=$(chroot "$root" sh -c "echo ~$user")
	# shellcheck disable=SC2016
	unshare --mount --pid --fork --kill-child bash -euc '
		root=$1 user=$2; shift 2
		mount -t proc proc "$root/proc"
		mount -t sysfs sysfs "$root/sys"
		mount --rbind /dev "$root/dev"
		exec chroot "$root" setpriv --reuid "$user" --regid "$user" --init-groups "$@"
	' bash "$root" "$user" env -i "${settings[@]}" HOME="$home" "$@"
}

mkdir -p "$folder"
table=$folder/table
: >"$table"
failed=0
for suite in $suites; do
	root=$folder/$suite
	echo "== $suite: debootstrap"
	bare_root "$suite" "$root"
	for user in $users; do
		clone=$(chroot "$root" sh -c "echo ~$user")/forebay
		git clone --quiet --no-hardlinks "$here" "$root$clone"
		chroot "$root" chown -R "$user:" "$clone"
		for target in $targets; do
			log=$folder/$suite.$user.$target.log
			echo "== $suite, $user: make $target (log: $log)"
			start=$SECONDS result=passed
			inside "$root" "$user" make -C "$clone" "$target" >"$log" 2>&1 </dev/null || result=failed
			[ $result = passed ] || { failed=1; tail -n 20 "$log"; }
			printf '%-10s %-5s make %-5s %s in %d s\n' \
				"$suite" "$user" "$target" $result $((SECONDS - start)) | tee -a "$table"
		done
	done
done
echo
cat "$table"
exit $failed
