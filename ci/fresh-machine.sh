#!/usr/bin/env bash
# The README's promise on a machine that has nothing: a minimal Debian, only the packages that the README lists, an
# ordinary user with an empty home, no KVM. Clones the repository there and runs the README's two commands.
#
# The machine is a folder with its own mount and process namespaces (root is needed to make it, and only for that).
# Everything that is mounted or started lives in those namespaces and goes with them, however this script ends.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: sudo ci/fresh-machine.sh [options]

  --suite bookworm|trixie|all   which Debian (default: all)
  --only demo|tests             one of the README's two commands (default: both)
  --mirror ADDRESS              Debian archive (default: the one in this machine's apt configuration)
  --rust auto|rustup|host       how Rust gets there: the README's rustup line, or this machine's toolchain mounted
                                read-only; auto (default) tries the first and says when it took the second
  --cargo-config FILE           copied to the user's ~/.cargo/config.toml (for a mirror of the crate registry)
  --folder FOLDER               where the machines are made (default: $TMPDIR or /var/tmp); about 8 GB each
  --time-limit SECONDS          for each of the two commands (default: 7200)
  --keep                        leave the machine's folder behind for a look

Handed on: variables that steer cargo's network and registry (CARGO_HTTP_*, CARGO_NET_*, CARGO_REGISTR*,
CARGO_SOURCE_*), *_proxy, and certificate authorities from /usr/local/share/ca-certificates. What is not committed is
not tested.

exit: 0 everything passed, 1 a step failed, 2 usage, 3 this machine cannot do it
TEXT
}

say() { printf '\n=== %s\n' "$*"; }
refuse() { printf 'fresh-machine: %s\n' "$1" >&2; exit "${2:-3}"; }
one_of() { [[ " $3 " == *" $2 "* ]] || refuse "$1 takes one of: $3 (not '$2')" 2; }

# ---------------------------------------------------------------------------------------------- outside

parse() {
    suite=all only='' mirror=${RNIC_MIRROR:-} rust=auto cargo_config='' folder=${TMPDIR:-/var/tmp} limit=7200 keep='' work='' machine=''
    while (($#)); do
        case $1 in
            --help | -h) usage; exit 0 ;;
            --keep) keep=1; shift; continue ;;
            --suite | --only | --mirror | --rust | --cargo-config | --folder | --time-limit) ;;
            *) refuse "unknown option '$1'; see --help" 2 ;;
        esac
        (($# > 1)) || refuse "$1 needs a value" 2
        case $1 in
            --suite) one_of "$1" "$2" 'bookworm trixie all'; suite=$2 ;;
            --only) one_of "$1" "$2" 'demo tests'; only=$2 ;;
            --mirror) mirror=$2 ;;
            --rust) one_of "$1" "$2" 'auto rustup host'; rust=$2 ;;
            --cargo-config) [[ -r $2 ]] || refuse "$2 cannot be read" 2; cargo_config=$(realpath "$2") ;;
            --folder) [[ -d $2 ]] || refuse "$2 is no folder" 2; folder=$(realpath "$2") ;;
            --time-limit) [[ $2 =~ ^[0-9]+$ ]] || refuse "$1 takes seconds (not '$2')" 2; limit=$2 ;;
        esac
        shift 2
    done
}

# The Debian archive that apt uses here: component main, a plain release name.
archive() {
    apt-get indextargets --no-release-info --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' 'Component: main' |
        awk '$1 !~ /[-\/]/ && $2 ~ /\/debian\/?$/ { print $2; exit }'
}

check_this_machine() {
    ((EUID == 0)) || refuse "making a machine needs root (mounts and namespaces); what runs in it does not"
    command -v mmdebstrap debootstrap >/dev/null || refuse "mmdebstrap or debootstrap is needed: apt-get install mmdebstrap"
    local tool
    for tool in git unshare pivot_root setpriv timeout; do
        command -v $tool >/dev/null || refuse "$tool is needed"
    done
    [[ -n $mirror ]] || mirror=$(archive)
    [[ -n $mirror ]] || refuse "apt's configuration names no Debian archive; give --mirror"
}

# Ends what still runs in the machine, then removes its files.
clean_up() {
    [[ -n $work ]] || return 0
    local first
    if [[ -n $machine ]] && first=$(cat "/proc/$machine/task/$machine/children" 2>/dev/null); then
        kill -KILL "$machine" 2>/dev/null || true
        wait "$machine" 2>/dev/null || true
        # The namespaces end with their first process.
        while [[ -n $first ]] && kill -0 $first 2>/dev/null; do sleep 0.1; done
    fi
    # No mount of the machine is visible here; if one ever is, nothing must be deleted through it.
    if grep -qF " $work/" /proc/self/mounts; then
        printf 'fresh-machine: something is still mounted under %s: left alone\n' "$work" >&2
    elif [[ -n $keep ]]; then
        printf 'fresh-machine: the machines are in %s\n' "$work" >&2
    else
        rm -rf --one-file-system "$work"
    fi
}

main() {
    parse "$@"
    check_this_machine
    work=$(mktemp -d "$folder/rnic-fresh-machine-XXXXXX")
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    chmod 755 "$work"
    local repository suites name failed=0
    repository=$(cd "$(dirname "$0")/.." && pwd)
    git -C "$repository" bundle create -q "$work/rnic.bundle" HEAD
    git -C "$repository" show HEAD:README.md >"$work/README.md"
    [[ -z $(git -C "$repository" status --porcelain) ]] || say "NOTE: changes that are not committed are not tested"
    suites=$suite
    [[ $suite != all ]] || suites='bookworm trixie'
    for name in $suites; do
        say "$name: commit $(git -C "$repository" rev-parse --short HEAD)"
        # In the background, so that a signal is heard at once; it dies with this script, and its namespaces with it.
        setpriv --pdeathsig KILL unshare --mount --propagation private --pid --fork --kill-child \
            env suite="$name" only="$only" mirror="$mirror" rust="$rust" cargo_config="$cargo_config" limit="$limit" \
            work="$work" bash "$0" --inside &
        machine=$!
        wait $machine || { failed=1; say "$name: FAILED"; }
        machine=''
        [[ -n $keep ]] || rm -rf --one-file-system "${work:?}/$name"
    done
    exit $failed
}

# ---------------------------------------------------------------------------------------------- inside the namespaces

times=()
# step NAME COMMAND...: prints how long it took and how it ended, and hands the end on.
step() {
    local name=$1 start=$SECONDS code=0
    shift
    say "$suite: $name"
    "$@" || code=$?
    times+=("$(printf '%6d s  exit %-3d  %s' $((SECONDS - start)) $code "$name")")
    return $code
}

summary() {
    local code=$?
    say "$suite: where the time went"
    ((${#times[@]} == 0)) || printf '%s\n' "${times[@]}"
    exit $code
}

# The folder becomes the root of a mount namespace, as it is on a machine: a process in a mere chroot may make no user
# namespace, which the guest image with RDMA programs is built in.
in_machine() {
    unshare --mount --propagation private bash -ec '
        cd "$0"; pivot_root . mnt; umount --lazy /mnt
        exec /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "$@"' "$root" "${network[@]}" "$@"
}

# The README's user: nothing in the environment but what a login gives.
as_user() {
    in_machine /usr/bin/setpriv --reuid=1000 --regid=1000 --init-groups --inh-caps=-all --no-new-privs \
        /usr/bin/env HOME=/home/newcomer USER=newcomer LOGNAME=newcomer SHELL=/bin/bash bash -c "
            set -eo pipefail; cd; [ ! -e .profile ] || . ./.profile; ${*}"
}

install_debian() {
    if command -v mmdebstrap >/dev/null; then
        mmdebstrap --quiet --variant=minbase "$suite" "$root" "$mirror"
    else
        debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$work/debootstrap.log" ||
            { tail -n 20 "$work/debootstrap.log" >&2; return 1; }
    fi
}

# What a running machine has beside its files. No /dev/kvm.
mount_devices() {
    local name
    mount -t proc proc "$root/proc"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount -t tmpfs -o mode=755 tmpfs "$root/dev"
    for name in null zero full random urandom tty; do
        touch "$root/dev/$name"
        mount --bind "/dev/$name" "$root/dev/$name"
    done
    mkdir "$root/dev/pts" "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$root/dev/pts"
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    cp /etc/hosts "$root/etc/hosts"
}

# The README's own lines, so that they cannot go stale unseen.
readme_line() { grep -m1 -E "$1" "$work/README.md" || { echo "the README has no line '$1'" >&2; return 1; }; }

install_packages() {
    local line
    line=$(readme_line '^sudo apt-get install ') || return
    echo "\$ ${line#sudo }"
    in_machine apt-get -qq update || return
    # shellcheck disable=SC2086
    in_machine DEBIAN_FRONTEND=noninteractive ${line#sudo } --yes -qq -o=Dpkg::Use-Pty=0 >"$work/apt.log" 2>&1 ||
        { tail -n 20 "$work/apt.log" >&2; return 1; }
    trust_what_this_machine_trusts
}

# Certificate authorities that this machine's administrator added, where a proxy opens all connections.
trust_what_this_machine_trusts() {
    local own=/usr/local/share/ca-certificates
    compgen -G "$own/*.crt" >/dev/null || return 0
    cp "$own"/*.crt "$root$own/" && in_machine update-ca-certificates >/dev/null 2>&1
}

rust_by_rustup() {
    local line
    line=$(readme_line '^curl .*rustup') || return
    line=$(sed 's/ *#.*//' <<<"$line")
    echo "\$ $line"
    as_user "$line -s -- -y --quiet --profile minimal"
}

rust_of_host() {
    local sysroot
    sysroot=$(rustc --print sysroot) || refuse "this machine has no Rust to lend"
    mkdir -p "$root/opt/rust" && mount --bind "$sysroot" "$root/opt/rust" || return
    mount -o remount,bind,ro "$root/opt/rust" || return
    as_user 'echo PATH=/opt/rust/bin:\$PATH >> ~/.profile' || return
    echo "NOT the README's way: $(rustc --version) of this machine, mounted read-only"
}

install_rust() {
    case $rust in
        rustup) rust_by_rustup ;;
        host) rust_of_host ;;
        auto) rust_by_rustup || { echo "rustup could not be fetched"; rust_of_host; } ;;
    esac || return
    as_user 'cargo --version'
}

make_user() {
    in_machine useradd --create-home --skel /dev/null --shell /bin/bash --uid 1000 newcomer || return
    if [[ -n $cargo_config ]]; then
        install -d -o 1000 -g 1000 "$root/home/newcomer/.cargo" || return
        install -o 1000 -g 1000 -m 644 "$cargo_config" "$root/home/newcomer/.cargo/config.toml"
    fi
}

clone() {
    install -m 644 "$work/rnic.bundle" "$root/srv/rnic.bundle" || return
    as_user 'git -c advice.detachedHead=false clone -q /srv/rnic.bundle rnic && git -C rnic log -1 --oneline'
}

readme_command() {
    local line
    line=$(readme_line "$1") || return
    echo "\$ $line"
    local code=0
    as_user "cd rnic && timeout --kill-after=30 $limit $line" || code=$?
    # 124 is timeout's own number; cargo's build counts too.
    ((code != 124)) || echo "the time limit of $limit s passed, building included (--time-limit)" >&2
    return $code
}

nothing_is_left_running() {
    local left
    left=$(ps -eo pid=,user=,args= | awk '$2 == "1000" || $2 == "newcomer"')
    [[ -z $left ]] || { printf 'still running:\n%s\n' "$left" >&2; return 1; }
}

inside() {
    root=$work/$suite
    local name failed=0
    network=()
    for name in $(compgen -e | grep -E '^CARGO_(HTTP|NET|REGISTR|SOURCE)|_(proxy|PROXY)$' || true); do
        network+=("$name=${!name}")
    done
    trap summary EXIT
    mkdir "$root"
    step "a minimal Debian" install_debian
    # The processes of this namespace, not those of the machine outside.
    mount -t proc proc /proc
    mount --bind "$root" "$root"
    mount_devices
    step "the README's packages" install_packages
    step "an ordinary user" make_user
    step "Rust" install_rust
    step "a clone" clone
    [[ $only == tests ]] || step "cargo run --release -- demo" readme_command '^cargo run --release -- demo$' || failed=1
    [[ $only == demo ]] || step "cargo test --workspace" readme_command '^cargo test --workspace$' || failed=1
    step "nothing is left running" nothing_is_left_running || failed=1
    exit $failed
}

if [[ ${1:-} == --inside ]]; then inside; else main "$@"; fi
