# Sourced by `run` and `test` with `here` (the checkout) and `needs` (run or dev) set:
# leaves in `venv` an environment that holds what is needed.

venv=${EVERKEPT_VENV:-$here/.venv}
case $venv in /*) ;; *) venv=$PWD/$venv ;; esac

# Shell built-ins only, so that a later start costs a few stats and no Python.
is_ready() {
    ready=$venv/.everkept-ready
    [ -x "$venv/bin/python" ] || return 1
    [ "$ready" -nt "$here/pyproject.toml" ] || return 1
    { IFS= read -r checkout && IFS= read -r place && IFS= read -r holds; } <"$ready" || return 1
    # Scripts and the link to the source hold absolute paths: a moved tree must be made again.
    [ "$checkout" = "$here" ] && [ "$place" = "$venv" ] || return 1
    # What it holds: run, run and extras, or dev.
    for name in $holds; do
        [ "$ready" -nt "$here/requirements/$name.txt" ] || return 1
    done
    [ "$needs" = run ] || [ "$holds" = dev ]
}

is_new_enough() {
    "$1" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' </dev/null >/dev/null 2>&1
}

find_python() {
    if [ -n "${EVERKEPT_PYTHON:-}" ]; then
        is_new_enough "$EVERKEPT_PYTHON" && python=$EVERKEPT_PYTHON
        return
    fi
    for python in python3.13 python3.12 python3.11 python3 python; do
        if is_new_enough "$python"; then return; fi
    done
    return 1
}

# Whether a client starts the server over stdio: it must not wait for packages.
is_client_waiting() {
    [ "$needs" = run ] && [ "${1:-serve}" = serve ] && [ ! -t 0 ] && [ "${EVERKEPT_TRANSPORT:-stdio}" = stdio ] || return 1
    for word; do
        case $word in http | --transport=http | --help | -h) return 1 ;; esac
    done
}

# An assistant waits for its hook, and making an environment takes half a minute.
leave_hook() {
    message="Everkept is not set up yet: the first start of its server does that, in half a minute."
    [ "$1" != SessionStart ] || echo "{\"systemMessage\": \"$message\"}"
    exit 0
}

if ! is_ready; then
    [ "$needs ${1:-}" != "run hook" ] || leave_hook "${2:-}"
    if ! find_python; then
        cat >&2 <<MESSAGE
everkept: needs Python 3.11 or newer${EVERKEPT_PYTHON:+, and EVERKEPT_PYTHON ($EVERKEPT_PYTHON) is not}
  Debian, Ubuntu: sudo apt install python3 python3-venv
  Fedora:         sudo dnf install python3
  macOS:          brew install python
MESSAGE
        exit 1
    fi
    if is_client_waiting "$@"; then
        exec "$python" -E -s "$here/tools/setup_server.py" "$venv" "$@"
    fi
    # Standard input and output belong to the protocol that everkept speaks.
    # Not -I, because the script imports the modules beside it.
    "$python" -E -s "$here/tools/bootstrap.py" "$needs" "$venv" </dev/null >&2 || exit
fi
