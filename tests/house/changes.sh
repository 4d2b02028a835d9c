# Sourced by ./test, which sets $root and $everything: what changed, and which programs under sanitizers that concerns.
# shellcheck shell=bash

# Git, also where the project belongs to another user than the one who tests.
project_git() { git -c safe.directory='*' -C "$root" "$@" 2>/dev/null; }

# Files that differ from where the work branched off (from the main branch; on it from the commit that passed all parts last, else from
# the one before), those with the most changed lines first.
changed_files() {
    local base='' candidate head
    head=$(project_git rev-parse -q --verify HEAD) || return 0
    for candidate in origin/HEAD origin/main main; do
        base=$(project_git merge-base HEAD "$candidate") && [[ $base != "$head" ]] && break
        base=''
    done
    [[ -n $base ]] || base=$(checked_commit)
    [[ -n $base ]] || base=$(project_git rev-parse -q --verify HEAD~1) || return 0
    project_git diff --numstat --diff-filter=d "$base" -- '*.cpp' | sort -rn | cut -f 3
}

# checked_commit: the newest commit before this one of which all parts of --all are known to have passed, by its tag or by .ci/checked;
# nothing where there is none, without history and with --everything.
checked_commit() {
    local tag='' named=''
    ((everything)) && return
    tag=$(project_git describe --tags --abbrev=0) || tag=''
    [[ -z $tag ]] || tag=$(project_git rev-parse "$tag^{commit}")
    [[ ! -r $root/.ci/checked ]] || read -r named <"$root/.ci/checked"
    [[ -n $named ]] && project_git merge-base --is-ancestor "$named" HEAD || named=''
    if [[ -n $tag && -n $named ]] && project_git merge-base --is-ancestor "$named" "$tag"; then named=$tag; fi
    printf '%s' "${named:-$tag}"
}

# concerned PRESET: the programs under sanitizers that the changes since the checked commit concern, by what they are made of; nothing
# where all are: without such a commit, or where shared code of the tests or the build changed.
concerned() {
    local since folders=() file folder name made_of list=$root/build/$1/sanitized_tests
    since=$(checked_commit)
    [[ -n $since && -r $list ]] || return
    while IFS= read -r file; do
        case $file in
            *.md | docs/* | configs/* | examples/* | tests/*.py | tests/accuracy/* | tests/cluster/* | tests/package/* | tests/bench/*) ;;
            cmake/* | tests/support/* | CMakeLists.txt | CMakePresets.json | tests/CMakeLists.txt) return ;;
            *) folders+=("$file") ;;
        esac
    done < <(project_git diff --name-only "$since")
    local chosen=()
    while read -r name made_of; do
        for folder in $made_of; do
            for file in "${folders[@]}"; do
                if [[ $file == "$folder"/* ]]; then
                    chosen+=("$name")
                    break 2
                fi
            done
        done
    done <"$list"
    if ((${#chosen[@]})); then printf '%s\n' "${chosen[@]}"; else printf 'none\n'; fi
}
