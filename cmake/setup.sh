# shellcheck shell=bash
# What ./mgplan and ./test share: installing Debian packages, building with condensed progress, one build at a time.
# Everything here writes to stderr and leaves stdin alone.

# package:command it brings, or just the package. A command on PATH does, wherever it comes from.
# (Read by ./test too.)
build_packages=(cmake:cmake ninja-build:ninja g++:g++ libfmt-dev nlohmann-json3-dev libyaml-cpp-dev libboost-program-options-dev)

# The package behind a feature of the build that only some commands need.
feature_package() {
    case $1 in
        OPENBLAS) echo libopenblas-serial-dev ;;
        MPI) echo libopenmpi-dev ;;
    esac
}

# Words before ninja, such as setarch -R.
launch=()

say() { printf 'mgplan: %s\n' "$*" >&2; }

# Prints those of the given packages that are missing, one a line.
missing_packages() {
    local entry installed names=()
    for entry in "$@"; do
        if [[ $entry == *:* ]] && command -v "${entry#*:}" >/dev/null 2>&1; then continue; fi
        names+=("${entry%%:*}")
    done
    ((${#names[@]})) || return 0
    # Unknown packages make dpkg-query fail and print nothing for them: they are missing.
    # shellcheck disable=SC2016  # the braces are dpkg-query's
    installed=" $(dpkg-query -W -f '${Package}:${db:Status-Status} ' "${names[@]}" 2>/dev/null)"
    for entry in "${names[@]}"; do
        [[ $installed == *" $entry:installed "* ]] || printf '%s\n' "$entry"
    done
}

# require_packages LOG PACKAGE…: installs what is missing, or says what to install and returns 2.
require_packages() {
    local log=$1 missing=() as_root=()
    shift
    mapfile -t missing < <(missing_packages "$@")
    ((${#missing[@]})) || return 0

    local by_hand="apt-get update && apt-get install --no-install-recommends ${missing[*]}"
    if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
        say "this machine has no apt-get; install what these Debian 12 packages hold and try again: ${missing[*]}"
        return 2
    fi
    if [[ $(id -u) != 0 ]]; then
        if ! command -v sudo >/dev/null 2>&1 || ! sudo -n true >/dev/null 2>&1 </dev/null; then
            say "missing packages: ${missing[*]}"
            say "install them as root, then try again:  $by_hand"
            return 2
        fi
        as_root=(sudo -n)
    fi

    say "installing ${#missing[@]} missing packages: ${missing[*]}"
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
    # A list that cannot be renewed is no reason to stop: the packages may be known from before.
    "${as_root[@]}" "${apt[@]}" update </dev/null >"$log" 2>&1 || say "apt-get update failed; trying with the lists there are"
    if ! "${as_root[@]}" "${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null >>"$log" 2>&1; then
        tail -n 15 -- "$log" >&2
        say "apt-get could not install the packages (everything it said: $log)"
        say "install them by hand, then try again:  $by_hand"
        return 2
    fi
    mapfile -t missing < <(missing_packages "$@")
    if ((${#missing[@]})); then
        say "still missing after apt-get: ${missing[*]} (everything it said: $log)"
        return 2
    fi
}

# How many compilers at once: one for each core, but no more than memory allows (a big file takes about 1.5 GB).
build_jobs() {
    local cores memory_kb
    cores=$(nproc 2>/dev/null || echo 1)
    memory_kb=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo 2>/dev/null)
    local fitting=$((${memory_kb:-1500000} / 1500000))
    ((fitting >= 1)) || fitting=1
    echo $((cores < fitting ? cores : fitting))
}

# Reads ninja's output: all of it goes to the log, its steps as one updating line to a terminal, else a line now and
# then.
show_progress() {
    local log=$1 what=$2 line step done_steps total label told=-1 told_at=$SECONDS tenth terminal=0
    local is_step='^\[([0-9]+)/([0-9]+)\] (.*)$'
    if [[ -t 2 && ${TERM:-dumb} != dumb ]]; then terminal=1; fi
    while IFS= read -r line; do
        printf '%s\n' "$line" >>"$log"
        [[ $line =~ $is_step ]] || continue
        done_steps=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]} step=${BASH_REMATCH[3]}
        if ((terminal)); then
            # "Building CXX object plan/CMakeFiles/mgplan_plan.dir/text/text.cpp.o": the file's name is enough.
            label=${step##* }
            label=${label##*/}
            printf '\r\033[Kmgplan: %s [%d/%d] %.50s' "$what" "$done_steps" "$total" "${label%.o}" >&2
        else
            tenth=$((total > 0 ? 10 * done_steps / total : 0))
            if ((tenth != told && SECONDS - told_at >= 5 || SECONDS - told_at >= 30)); then
                say "$what: step $done_steps of $total"
                told=$tenth told_at=$SECONDS
            fi
        fi
    done
    if ((terminal)); then printf '\r\033[K' >&2; fi
}

# The part of a build log that explains the failure: from the first failed step on, else its end; 40 lines at most.
show_failure() {
    local log=$1 first
    first=$(grep -n -m 1 -E '^(FAILED:|CMake Error|ninja: error)' -- "$log" | cut -d : -f 1)
    if [[ -n $first ]]; then tail -n "+$first" -- "$log" | head -n 40 >&2; else tail -n 40 -- "$log" >&2; fi
}

# run_build ROOT PRESET LOG WHAT CONFIGURE_OPTIONS… -- TARGET…: configures build/PRESET when it is not yet, or when
# options are given, and builds the targets. Returns 4 on failure, with the cause on stderr.
run_build() {
    local root=$1 preset=$2 log=$3 what=$4 options=() targets=() folder=$1/build/$2
    shift 4
    while (($#)) && [[ $1 != -- ]]; do options+=("$1") && shift; done
    shift
    targets=("$@")
    : >"$log" || return 4

    # A project that was moved or copied: CMake refuses a cache that names another folder (by its path with or
    # without symbolic links).
    local home=CMAKE_HOME_DIRECTORY:INTERNAL
    if [[ -e $folder/CMakeCache.txt ]] &&
        ! grep -qxF -e "$home=$(cd -- "$root" && pwd)" -e "$home=$(cd -- "$root" && pwd -P)" -- "$folder/CMakeCache.txt"; then
        rm -rf -- "$folder/CMakeCache.txt" "$folder/CMakeFiles" "$folder/build.ninja"
    fi
    # A configuration that was interrupted may have left the build files of the one before.
    if ((${#options[@]})) || [[ ! -e $folder/build.ninja || -e $folder/.configuring ]]; then
        mkdir -p -- "$folder" && touch -- "$folder/.configuring" || return 4
        if ! (cd -- "$root" && cmake --preset "$preset" "${options[@]}") </dev/null >>"$log" 2>&1; then
            show_failure "$log"
            say "the configuration failed (everything it said: $log)"
            return 4
        fi
        rm -f -- "$folder/.configuring"
    fi
    # With ccache, what another clone compiled is found too.
    CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root} NINJA_STATUS='[%f/%t] ' "${launch[@]}" ninja -C "$folder" -j "$(build_jobs)" "${targets[@]}" </dev/null 2>&1 | show_progress "$log" "$what"
    if ((PIPESTATUS[0] != 0)); then
        show_failure "$log"
        say "the build failed (everything it said: $log)"
        return 4
    fi
}

# Holds the lock of ROOT's build folder on descriptor 9 until release_build_lock: one build at a time. Children that
# outlive us (a compiler cache's server, say) must not inherit it, see 9>&- below.
take_build_lock() {
    if ! mkdir -p -- "$1/build/release" 2>/dev/null || ! { : >>"$1/build/.lock"; } 2>/dev/null; then
        say "cannot write to $1/build; make it writable, or copy the project to a folder of your own"
        return 2
    fi
    exec 9>>"$1/build/.lock"
    if ! flock -n 9; then
        say "another build is running in $1/build; waiting for it"
        flock 9
    fi
}

release_build_lock() { exec 9>&-; }

# forget_builds ROOT: takes the marks of good builds away, before anything changes in ROOT's build/release: what is
# interrupted from here on is taken up again by the next call, and never taken for good.
forget_builds() { rm -f -- "$1"/build/release/.mgplan_*built; }

# build_mgplan ROOT PROGRAM STAMP, the slow path of ./mgplan: packages, configure, build. Calls up_to_date and
# has_needs of ./mgplan, and builds its $target.
# shellcheck disable=SC2154  # the variables of ./mgplan
build_mgplan() {
    local root=$1 program=$2 stamp=$3 options=() packages=("${build_packages[@]}") need
    local log=$1/build/release/mgplan_build.log status=0 started=$SECONDS
    take_build_lock "$root" || return $?
    if up_to_date; then # built by the one we waited for
        release_build_lock
        return 0
    fi
    if ! has_needs; then # shellcheck disable=SC2154  # ./mgplan's
        for need in "${needs[@]}"; do packages+=("$(feature_package "$need")"); done
    fi
    {
        require_packages "$root/build/release/packages.log" "${packages[@]}" || status=$?
        if ((status == 0)); then
            if [[ $target == mgplan_without_training && ! -e $program ]]; then
                say "first build: what plans and predicts, two to four minutes (later starts take none)"
            elif [[ ! -e $program ]]; then
                say "building what trains and measures, one to four minutes (later starts take none)"
            fi
            # A folder that ./test configured keeps its tests: only the command's target is built here anyway.
            if [[ ! -e $root/build/release/build.ninja ]]; then options=(-DMGPLAN_BUILD_TESTS=OFF); fi
            # What is there now must be looked for again.
            if ! has_needs || [[ -e $root/build/release/.configuring ]]; then options+=(-U 'MPI_*' -U 'MGPLAN_OPENBLAS_*'); fi
            forget_builds "$root"
            touch -- "$stamp.next" # the build's start: what changes from here on is newer
            run_build "$root" release "$log" building "${options[@]}" -- "$target" || status=$?
        fi
    } 9>&-
    if ((status == 0)); then
        mv -f -- "$stamp.next" "$stamp"
        if [[ $target == mgplan_and_cuda ]]; then cp -p -- "$stamp" "$root/build/release/.mgplan_built"; fi # mgplan is a part of it
        if ((SECONDS - started >= 10)); then say "built in $((SECONDS - started)) s"; fi
    fi
    release_build_lock
    return "$status"
}
