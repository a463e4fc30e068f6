# shellcheck shell=bash
# Shared by the scripts of this directory: progress, packages, a cache keyed by recipe. Sourced by bash, never run.
#
# Messages go to standard error, so that a script's standard output can be its result (a path).

set -euo pipefail
set -E
shopt -s inherit_errexit
trap 'printf "%s: line %s: failed: %s\n" "${BASH_SOURCE[0]##*/}" "$LINENO" "$BASH_COMMAND" >&2' ERR

repository=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
# What is slow to make is kept here, outside the tree, and shared by all checkouts.
cache=${GARBOARD_CACHE:-/var/cache/garboard-test}
# The QEMU of the images, of Debian 12's backports. `scripts/fetch-qemu10` makes $cache/qemu-$qemu_version of it; tests
# (tests/qemu_of_images.rs) read this line.
export qemu_version=10.0
# Parallel checkouts, or a demo beside a test run, must not fight over one package database.
apt_options=(-qq -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0)

say() { printf '%s\n' "$*" >&2; }
warn() { printf 'warning: %s\n' "$*" >&2; }
die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# The comment at the head of the script that sourced this: what it does, and its options.
case ${1:-} in
    -h | --help)
        awk 'NR > 1 && /^# shellcheck/ { next } NR > 1 && /^#/ { sub(/^# ?/, ""); print; next } NR > 1 { exit }' "$0"
        exit
        ;;
esac

# step TEXT COMMAND…: runs the command with its output kept aside; shows time on a terminal, the output on failure.
step() {
    local text=$1 log started=$SECONDS status=0 mark=' '
    shift
    log=$(mktemp)
    if [ -t 2 ]; then
        "$@" >"$log" 2>&1 </dev/null &
        local pid=$!
        while kill -0 "$pid" 2>/dev/null; do
            printf '\r==> %s (%d s)\033[K' "$text" $((SECONDS - started)) >&2
            sleep 0.2
        done
        wait "$pid" || status=$?
        printf '\r' >&2
    else
        printf '==> %s\n' "$text" >&2
        "$@" >"$log" 2>&1 </dev/null &
        wait $! || status=$?
    fi
    [ "$status" = 0 ] || mark=' FAILED '
    printf '==> %s:%s%d s\033[K\n' "$text" "$mark" $((SECONDS - started)) | if [ -t 2 ]; then cat; else sed 's/\x1b\[K//'; fi >&2
    [ "$status" = 0 ] || tail -n 60 "$log" >&2
    rm -f "$log"
    return "$status"
}

apt_lists_present() { compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; }

# Fills apt's lists when there are none yet, or when asked to with `again`. At most once a run.
apt_update() {
    [ "${apt_updated:-}" != yes ] || return 0
    if [ "${1:-}" != again ] && apt_lists_present; then return 0; fi
    step 'asking the package registry what it has' apt-get "${apt_options[@]}" update
    apt_updated=yes
}

missing_packages() {
    local package
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -x installed >/dev/null || printf '%s\n' "$package"
    done
}

# need_packages NAME…: installs those that are missing.
need_packages() {
    command -v dpkg-query >/dev/null || die 'this needs a Debian machine (dpkg-query is missing)'
    local missing
    mapfile -t missing < <(missing_packages "$@")
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] || die "as root, install first: apt-get install ${missing[*]}"
    apt_update
    install_packages "${missing[@]}" && return 0
    # Lists that are older than the archive name files that are gone.
    apt_update again
    install_packages "${missing[@]}" || die "could not install: ${missing[*]}"
}

install_packages() {
    step "installing $*" env DEBIAN_FRONTEND=noninteractive \
        apt-get "${apt_options[@]}" install -y --no-install-recommends "$@"
}

# unpack_packages DIR NAME…: downloads packages and unpacks them into DIR, without installing anything.
unpack_packages() {
    local into=$1 downloads archive
    shift
    apt_update
    downloads=$(mktemp -d)
    if ! (cd "$downloads" && step "downloading $*" apt-get "${apt_options[@]}" download "$@"); then
        apt_update again
        (cd "$downloads" && step "downloading $*" apt-get "${apt_options[@]}" download "$@")
    fi
    for archive in "$downloads"/*.deb; do dpkg-deb -x "$archive" "$into"; done
    rm -rf "$downloads"
}

# need_rust: cargo on PATH, of at least the version that Cargo.toml names.
need_rust() {
    export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
    need_packages gcc libc6-dev
    command -v cargo >/dev/null || die 'cargo is missing: install Rust with rustup (https://rustup.rs), then try again'
    local wanted have
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$repository/Cargo.toml")
    have=$(cd "$repository" && cargo --version | cut -d' ' -f2)
    [ "$(printf '%s\n' "$wanted" "$have" | sort -V | head -n1)" = "$wanted" ] ||
        die "Rust $have is installed, $wanted or newer is needed: rustup update stable"
}

# backports_source: apt's description of Debian 12's backports, on standard output.
backports_source() {
    cat <<SOURCES
Types: deb
URIs: ${GARBOARD_DEBIAN_MIRROR:-http://deb.debian.org/debian}
Suites: bookworm-backports
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCES
}

# Compiled code lies outside the tree, so that a fresh clone of the same state compiles next to nothing. Every call of cargo
# from here on gives programs the same version, so that none of them is compiled twice.
use_target_directory() {
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}
    mkdir -p "$CARGO_TARGET_DIR"
    GARBOARD_VERSION=$("$repository/scripts/version")
    GARBOARD_BUILD=$("$repository/scripts/version" --build)
    export GARBOARD_VERSION GARBOARD_BUILD
}

# Options of `cargo build`: errors and warnings alone where standard error is no terminal.
cargo_progress=()
[ -t 2 ] || cargo_progress=(--quiet)

# build_programs PROFILE [CRATE…]: the programs, in $programs; of the command, the shim and the launcher if no crate is named. `dev`
# for what is only to run: `release` takes three times as long to compile and is for what is measured. In the open,
# because cargo shows its progress better than `step` could; where nobody watches it, without a line for each crate. $building names
# what it is for, and which of how many builds it is.
build_programs() {
    local profile=$1 directory=debug
    [ "$profile" = dev ] || directory=$profile
    shift
    [ $# -gt 0 ] || set -- garboard-cli garboard-launcher garboard-shim
    say "==> building Garboard${building:+: $building}"
    (cd "$repository" && cargo build --locked "${cargo_progress[@]}" --profile "$profile" "${@/#/--package=}" >&2)
    export programs=$CARGO_TARGET_DIR/$directory
}

# build_all_programs: every program of the workspace, quick to compile, in $programs: what tests run. Always the same crates, so
# that cargo compiles what they share once. Nothing is built where $programs is there already.
build_all_programs() {
    [ -z "${programs:-}" ] || return 0
    say '==> building every program'
    (cd "$repository" && cargo build --locked "${cargo_progress[@]}" --workspace --bins >&2) || return
    export programs=$CARGO_TARGET_DIR/debug
}

# recipe_key PATH…: a short name for the present content of the files, and of the files in directories.
recipe_key() {
    find "$@" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum -- | cut -d' ' -f1 | sha256sum | cut -c1-16
}

# How many entries of a name the cache has, with the one that is to be made. Older ones go before it is made, but for those that
# were used in the last hours or are held: who has been given the path of one may open it long after.
entries_kept=3
minutes_kept=180

# is_there ENTRY: whether it is, and notes that it is used now, so that it does not go in the next hours.
is_there() {
    local held
    [ -d "$1" ] && exec {held}<"$1" || return
    flock --shared "$held"
    # Others than its owner may not.
    touch -c "$1" 2>/dev/null || :
    exec {held}<&-
    [ -d "$1" ]
}

# is_held ENTRY: whether a process runs or maps something of it, has something open, or has mounted it. Names with their keys
# are found nowhere else.
is_held() {
    local name=/${1##*/}
    grep -qsF -- "$name" /proc/[0-9]*/maps /proc/[0-9]*/mountinfo ||
        [ -n "$(find /proc/[0-9]*/{cwd,root,fd} -lname "*$name*" -print -quit 2>/dev/null || :)" ]
}

is_unused() { [ -n "$(find "$1" -maxdepth 0 -mmin "+$minutes_kept")" ]; }

# remove_whole DIRECTORY: what cannot be removed, as another user's, keeps nobody from making something else.
remove_whole() {
    rm -rf --one-file-system "$1" 2>/dev/null || warn "$1 could not be removed whole: remove it as the user whose files are left"
}

# remove_entry ENTRY: unless it is used. Renamed first: under its name nobody ever finds a part of it.
remove_entry() {
    local held gone
    if ! is_unused "$1" || is_held "$1" || ! exec {held}<"$1"; then return 0; fi
    gone=$(mktemp -u "$1.XXXXXX")
    # Who uses it keeps it locked (is_there, and `hold` of tests/e2e/garboard_e2e/places.py).
    if flock --nonblock "$held" && is_unused "$1" && mv -T "$1" "$gone"; then remove_whole "$gone"; fi
    exec {held}<&-
}

# remove_older NAME: entries that have to go when another one of this name is made, and what runs that were killed have left.
# The caller has the lock of the name.
remove_older() {
    local directory entry own
    directory=$(dirname "$cache/$1") own=".*/${1##*/}-[0-9a-f]{12,16}"
    [ -d "$directory" ] || return 0
    # A run that was killed may have left a mount in there, too.
    find -H "$directory" -maxdepth 1 -type d -regextype posix-extended -regex "$own\.[[:alnum:]]{6}" | while read -r entry; do
        is_held "$entry" || remove_whole "$entry"
    done
    find -H "$directory" -maxdepth 1 -type d -regextype posix-extended -regex "$own" -printf '%T@ %p\n' | sort -rn |
        tail -n "+$entries_kept" | cut -d' ' -f2- | while read -r entry; do
        [ "$cache/$1" -ef "$entry" ] || remove_entry "$entry"
    done
}

# cached NAME KEY BUILD…: prints the directory $cache/NAME-KEY. If there is none, `BUILD… DIR` fills it first, once for
# all callers at the same time; it appears whole or not at all. $cache/NAME becomes a link to it.
cached() {
    # Named so that no BUILD has a variable of the same name: the trap would see that one.
    local cached_as=$1 entry=$cache/$1-$2 lock cached_into
    shift 2
    if ! is_there "$entry"; then
        mkdir -p "$(dirname "$entry")"
        exec {lock}>"$cache/$cached_as.lock"
        flock -n "$lock" || { say "waiting for another run that makes $cached_as"; flock "$lock"; }
        if ! is_there "$entry"; then
            remove_older "$cached_as"
            cached_into=$(mktemp -d "$entry.XXXXXX")
            # Not `if ! "$@"`: that would switch off errexit inside.
            (trap 'status=$?; [ $status = 0 ] || rm -rf "$cached_into"' EXIT; "$@" "$cached_into")
            chmod 755 "$cached_into"
            # Whatever time its files came with.
            touch "$cached_into"
            mv -T "$cached_into" "$entry"
        fi
        exec {lock}>&-
    fi
    if [ "$(readlink "$cache/$cached_as" 2>/dev/null)" != "${entry##*/}" ]; then
        cached_into=$(mktemp -u "$cache/$cached_as.XXXXXX")
        ln -s "${entry##*/}" "$cached_into"
        mv -T "$cached_into" "$cache/$cached_as"
    fi
    printf '%s\n' "$entry"
}

# e2e_python: prints the path of a Python that has what tests/e2e/requirements.txt names, installed once for its content. It
# is Debian's own, whatever else PATH has.
e2e_python() {
    local requirements=$repository/tests/e2e/requirements.txt key made
    need_packages python3 python3-venv ca-certificates
    key=$({ /usr/bin/python3 --version && cat "$requirements"; } | sha256sum | cut -c1-16)
    made=$(cached e2e-python "$key" make_e2e_python "$requirements")
    printf '%s\n' "$made/bin/python"
}

make_e2e_python() {
    step 'making an environment for tests/e2e' /usr/bin/python3 -m venv "$2"
    step 'installing what tests of tests/e2e use' "$2/bin/python" -m pip install --disable-pip-version-check --no-deps --requirement "$1"
}
