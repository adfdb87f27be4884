# Finds a Java that Spark can run on (17 or newer) and exports JAVA_HOME; sourced by ../run, behind packages.sh.
# Order: JAVA_HOME, java on the PATH, the usual places, the system's package manager where rights allow.

java_least=17
# Where Java is usually installed; patterns, expanded when looked at. Homebrew keeps its own out of the system's places.
java_usual_places="/usr/lib/jvm/* /usr/java/* /opt/java/* /opt/*jdk* /opt/*jre* /usr/local/openjdk-*
/Library/Java/JavaVirtualMachines/*/Contents/Home ${HOME:-}/.sdkman/candidates/java/*
/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home /usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home
/home/linuxbrew/.linuxbrew/opt/openjdk*/libexec"

# Prints the major version of the Java at $1; nothing if it does not run (macOS has a java that only complains).
java_major() {
    [ -x "$1/bin/java" ] || return 0
    "$1/bin/java" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | sed -n 1p
}

java_fits() {
    major=$(java_major "$1")
    [ -n "$major" ] && [ "$major" -ge "$java_least" ]
}

# Prints the home of the java on the PATH, as it names itself: the file there may be a link or a version manager's shim.
java_on_path() {
    command -v java >/dev/null 2>&1 || return 0
    java -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java\.home = //p' | sed -n 1p
}

java_usual_homes() {
    if [ -x /usr/libexec/java_home ]; then
        /usr/libexec/java_home -v "$java_least+" 2>/dev/null || :
    fi
    for home in $java_usual_places; do
        [ ! -x "$home/bin/java" ] || echo "$home"
    done
}

# Prints a fitting home: the one asked for, else the one on the PATH, else of the usual ones the oldest that is supported,
# because Spark's support for a new Java comes later than that Java.
find_java() {
    if [ -n "${JAVA_HOME:-}" ]; then
        if java_fits "$JAVA_HOME"; then
            echo "$JAVA_HOME"
            return
        fi
        echo "run: JAVA_HOME=$JAVA_HOME is no Java $java_least or newer; looking for another" >&2
    fi
    home=$(java_on_path)
    if [ -n "$home" ] && java_fits "$home"; then
        echo "$home"
        return
    fi
    java_usual_homes | while IFS= read -r home; do
        if java_fits "$home"; then
            printf '%s %s\n' "$major" "$home"
        fi
    done | sort -n | sed -n '1s/^[0-9]* //p'
}

# Installs the first of the packages $2... that the manager $1 has.
install_first_of() {
    manager=$1
    shift
    may_install "$manager" || return 1
    refresh_packages "$manager"
    for package in "$@"; do
        echo "run: Spark needs Java $java_least or newer; installing $package with $manager" >&2
        install_package "$manager" "$package" && return 0
    done
    return 1
}

install_java() {
    manager=$(find_manager)
    case $manager in
        apt-get) install_first_of "$manager" openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless ;;
        dnf | microdnf | yum)
            install_first_of "$manager" java-17-openjdk-headless java-21-openjdk-headless java-latest-openjdk-headless ;;
        apk) install_first_of "$manager" openjdk17-jre-headless openjdk21-jre-headless ;;
        zypper) install_first_of "$manager" java-17-openjdk-headless java-21-openjdk-headless ;;
        pacman) install_first_of "$manager" jre17-openjdk-headless jre21-openjdk-headless ;;
        brew) install_first_of "$manager" openjdk@17 openjdk@21 ;;
        *) return 1 ;;
    esac
}

# Sets and exports JAVA_HOME, or says what is missing and returns 1.
use_java() {
    found=$(find_java)
    if [ -z "$found" ] && install_java; then
        found=$(find_java)
    fi
    if [ -z "$found" ]; then
        cat >&2 <<TEXT
run: Spark needs a Java runtime of version $java_least or newer, and none was found or could be installed.
run: looked at JAVA_HOME (${JAVA_HOME:-not set}), java on the PATH, /usr/lib/jvm, /opt/java, Homebrew and SDKMAN.
run: install one, for example
run:   Debian, Ubuntu   sudo apt-get install openjdk-17-jre-headless
run:   Fedora, RHEL     sudo dnf install java-21-openjdk-headless
run:   Alpine           sudo apk add openjdk17-jre-headless
run:   Arch             sudo pacman -S jre17-openjdk-headless
run:   macOS            brew install openjdk@17
run: or point to one that is elsewhere: JAVA_HOME=/path/to/java ./run ...
TEXT
        return 1
    fi
    JAVA_HOME=$found
    export JAVA_HOME
}

# Sets and exports JAVA_HOME if a fitting Java is found; never fails, installs nothing. To ask each Java takes longer than most
# commands, so what was found is kept in the file $1, for as long as what led to it is the same.
offer_java() {
    asked="JAVA_HOME=${JAVA_HOME:-} PATH=$(command -v java || :)"
    found=
    if [ -f "$1" ] && [ "$(sed -n 1p "$1")" = "$asked" ]; then
        found=$(sed -n 2p "$1")
    fi
    if [ -z "$found" ] || [ ! -x "$found/bin/java" ]; then
        found=$(find_java 2>/dev/null) || found=
        [ -z "$found" ] || printf '%s\n%s\n' "$asked" "$found" 2>/dev/null >"$1" || :
    fi
    if [ -n "$found" ]; then
        JAVA_HOME=$found
        export JAVA_HOME
    fi
}
