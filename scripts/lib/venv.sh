# Sourced by the verbs (scripts/demo, test, lint, bench). Goes to the repository root, makes .venv
# when it is missing and keeps it in step with pyproject.toml. Needs only python3 (3.11 or newer).
#
#   ensure_venv [EXTRA ...]    then: "$VENV/bin/python" ...
#   ensure_peers               the same for .venv-peers, which has PyTorch and safetensors too
#   ensure_clusters            the same for .venv-clusters, which has what speaks to clusters; and
#                              Slurm and etcd themselves, where they can be installed

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
ROOT=$PWD
VENV=$ROOT/.venv
unset PYTHONDONTWRITEBYTECODE # without bytecode, every process that is started compiles the package anew
CPU_BUILD="Name PyTorch's index of CPU builds (pytorch.org, Get Started, CPU) in PIP_EXTRA_INDEX_URL and run again."

say() { printf '%s\n' "$*" >&2; }

# The first of python3, python3.14 ... python3.11 that is new enough.
find_python() {
    local name
    for name in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    say "scripts: Python 3.11 or newer is needed; found: $(python3 --version 2>&1 || echo none)."
    say "Install one (Debian, Ubuntu: apt install python3.11 python3.11-venv), or name one: PYTHON=/path/to/python3 $0"
    exit 1
}

make_venv() {
    local python
    python=$(find_python)
    say "making ${VENV##*/} with $("$python" --version) ..."
    rm -rf "$VENV"
    if ! "$python" -m venv "$VENV"; then
        rm -rf "$VENV"
        say "scripts: '$python -m venv' failed. On Debian and Ubuntu it is a package of its own: apt install python3-venv"
        exit 1
    fi
}

# What an installation depends on: the interpreter, the place, pyproject.toml, the extra.
fingerprint() {
    { "$VENV/bin/python" --version; printf '%s\n' "$ROOT" "$1"; cat pyproject.toml; } | cksum
}

install_extra() {
    local extra=$1 stamp=$VENV/.installed-$1 target=. log=$VENV/install.log
    if [[ -f $stamp && $(cat "$stamp") == "$(fingerprint "$extra")" ]]; then
        return
    fi
    if [[ $extra != base ]]; then target=".[$extra]"; fi
    say "installing $target into ${VENV##*/} ..."
    if [[ $extra == peers ]] && pytorch_would_be_cuda; then
        say "scripts: the package index offers a PyTorch that brings gigabytes of CUDA. $CPU_BUILD"
        exit 1
    fi
    # (what is imported is compiled when it is imported first, which is little of what is installed)
    if ! "$VENV/bin/python" -m pip install -q --disable-pip-version-check --no-compile -e "$target" >"$log" 2>&1; then
        cat "$log" >&2
        say "scripts: the installation failed (above; also in $log). Is the package index reachable? Run the same command again to go on."
        exit 1
    fi
    if [[ $extra == peers ]]; then refuse_cuda; fi
    fingerprint "$extra" >"$stamp"
}

# Whether the package index would give a PyTorch that brings gigabytes of CUDA along, as the
# usual one does on Linux. Asked of the wheel's metadata alone, before anything is fetched.
pytorch_would_be_cuda() {
    local wanted
    wanted=$(grep -o 'torch==[0-9.]*' pyproject.toml)
    "$VENV/bin/python" -m pip install -q --disable-pip-version-check --dry-run --no-deps --report - "$wanted" 2>/dev/null |
        "$VENV/bin/python" -c 'import json, re, sys
needs = [n for part in json.load(sys.stdin)["install"] for n in part["metadata"].get("requires_dist", [])]
sys.exit(not any(re.match("nvidia|cuda|triton", n) for n in needs))' 2>/dev/null
}

refuse_cuda() {
    if ! "$VENV/bin/python" -c 'import sys, torch; sys.exit(torch.version.cuda is not None)'; then
        say "scripts: the PyTorch in ${VENV##*/} is not the CPU build. Remove ${VENV##*/}. $CPU_BUILD"
        exit 1
    fi
}

ensure_venv() {
    local extra
    exec 9>"$VENV.lock" # two verbs at once: the second waits for the first one's installation
    if command -v flock >/dev/null; then flock 9; fi
    "$VENV/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || make_venv
    for extra in base "$@"; do install_extra "$extra"; done
    exec 9<&-
}

ensure_peers() {
    VENV=$ROOT/.venv-peers
    ensure_venv test peers
}

# The lowest versions that pyproject.toml allows of what the project itself needs.
ensure_lowest() {
    local wanted
    VENV=$ROOT/.venv-lowest
    ensure_venv test
    mapfile -t wanted < <(sed -n '/^dependencies = \[/,/^\]/s/^ *"\(.*\)>=\([^"]*\)".*/\1==\2/p' pyproject.toml)
    say "with ${wanted[*]} ..."
    if ! "$VENV/bin/python" -m pip install -q --disable-pip-version-check "${wanted[@]}" >"$VENV/install.log" 2>&1; then
        cat "$VENV/install.log" >&2
        exit 1
    fi
}

# The newest Python here, if it is newer than the one of .venv: from PATH, or by a tool that brings
# some along, "TOOL VERSION COMMAND ...", which copies the checkout and installs it: $OTHER_PYTHONS,
# or shared/pythons/run beside the checkout. Runs a command with it ("python" is what was found).
run_newest() {
    local version tool=${OTHER_PYTHONS:-$ROOT/../shared/pythons/run}
    ensure_venv test
    for version in 3.15 3.14 3.13 3.12; do
        if "$VENV/bin/python" -c "import sys; sys.exit(sys.version_info >= (3, ${version#3.}))"; then
            if "python$version" -c '' 2>/dev/null; then
                say "on Python $version, found on PATH"
                VENV=$ROOT/.venv-$version
                PYTHON=python$version ensure_venv test
                PATH=$VENV/bin:$PATH exec "$@"
            fi
            if [[ -x $tool ]] && "$tool" "$version" true >/dev/null 2>&1; then
                say "on Python $version, by ${tool##*/shared/}"
                exec "$tool" "$version" "$@"
            fi
        fi
    done
    say "no Python newer than that of .venv is here ($("$VENV/bin/python" --version)): nothing was run on another one"
}

# What is a command and where it comes from. What cannot be installed is said; its tests are skipped.
CLUSTER_PROGRAMS="slurmctld:slurmctld slurmd:slurmd srun:slurm-client munged:munge etcd:etcd-server chromium:chromium"

ensure_clusters() {
    local entry missing=() log
    VENV=$ROOT/.venv-clusters
    log=$VENV/apt.log
    ensure_venv test ray kubernetes etcd
    for entry in $CLUSTER_PROGRAMS; do
        PATH=$PATH:/usr/sbin command -v "${entry%%:*}" >/dev/null || missing+=("${entry##*:}")
    done
    if [[ ${#missing[@]} -eq 0 ]]; then return; fi
    if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
        say "not here, and only installed by root on Debian: ${missing[*]}; their tests are skipped"
        return
    fi
    say "installing ${missing[*]} ..."
    if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
        tail -5 "$log" >&2
        say "${missing[*]}: not installed (above; also in $log); their tests are skipped"
    fi
}
