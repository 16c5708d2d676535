# Sourced by tools that need programs of Debian.

# Install packages as root, which CI may become. Fails where that is impossible.
install_packages() {
    command -v apt-get >/dev/null || return 1
    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        [ -n "${CI:-}" ] && sudo -n true 2>/dev/null || return 1
        as_root="sudo -n"
    fi
    echo "installing $*" >&2
    # Another program may be installing packages, and a mirror may fail for a moment.
    apt="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3"
    # The index first, because Debian keeps only the newest version of a package.
    for _ in 1 2; do
        $apt update || true
        if $apt install -y --no-install-recommends "$@" >/dev/null; then return; fi
    done >&2
    return 1
}
