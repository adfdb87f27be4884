# Installs packages with the system's own manager, where rights allow; sourced by ../run.

# Prints the first known package manager of this system; nothing if it has none.
find_manager() {
    for manager in apt-get dnf microdnf yum apk zypper pacman brew; do
        if command -v "$manager" >/dev/null 2>&1; then
            echo "$manager"
            return
        fi
    done
}

# Whether this user may install with the manager $1; sets as_root to the words that this takes.
may_install() {
    as_root=
    if [ "$1" != brew ] && [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null 2>&1 && sudo -n true >/dev/null 2>&1 || return 1
        as_root='sudo -n'
    fi
}

# apt-get finds no package before it has read its lists once; the others read theirs by themselves.
refresh_packages() {
    [ "$1" != apt-get ] || $as_root apt-get update -qq >&2 || :
}

# Installs the package $2 with the manager $1; behind may_install.
install_package() {
    case $1 in
        apt-get) $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" ;;
        dnf | microdnf | yum) $as_root "$1" install -y -q "$2" ;;
        apk) $as_root apk add --quiet "$2" ;;
        zypper) $as_root zypper --non-interactive --quiet install "$2" ;;
        pacman) $as_root pacman -Sy --noconfirm --needed "$2" ;;
        brew) brew install --quiet "$2" ;;
    esac </dev/null >&2
}

# The programs that some tests start, each with its package.
test_programs="ip:iproute2 nft:nftables chromium:chromium redis-cli:redis-tools strace:strace zsh:zsh"

# Installs the packages of those programs that are missing, with apt-get, where rights allow. Never fails: the tests that need
# one are skipped without it, or fail with CI set, and say what is missing.
offer_test_programs() {
    missing=
    for each in $test_programs; do
        command -v "${each%%:*}" >/dev/null 2>&1 || missing="$missing ${each#*:}"
    done
    [ -n "$missing" ] && [ "$(find_manager)" = apt-get ] && may_install apt-get || return 0
    refresh_packages apt-get
    for package in $missing; do
        echo "run: some tests need $package; installing it with apt-get" >&2
        install_package apt-get "$package" || echo "run: $package could not be installed" >&2
    done
}
