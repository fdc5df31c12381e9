# shellcheck shell=bash
# Functions that tools/check and tools/quickstart share; sourced, never run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
self=$(basename "$0")

say() { printf '== %s: %s\n' "$self" "$*"; }
die() {
  printf '== %s: FAILED: %s\n' "$self" "$*" >&2
  exit 1
}

# Installs the packages of tools/packages.txt and those named, unless all of them are there.
install_packages() {
  local wanted missing=() package
  mapfile -t wanted < <(grep -v '^#' "$root/tools/packages.txt"; printf '%s\n' "$@")
  if ! command -v dpkg-query >/dev/null; then
    say "this is no Debian system; if something is missing, these are the Debian packages to look for: ${wanted[*]}"
    return
  fi
  for package in "${wanted[@]}"; do
    [ -z "$package" ] && continue
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "these packages are missing, and installing them takes root or sudo: ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  "${as_root[@]}" apt-get update -q >/dev/null || die "apt-get update"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}" \
    >/dev/null || die "apt-get install ${missing[*]}"
}

# How many compilers at once: one per core, and no more than memory holds at 1.5 GB each.
build_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/MemAvailable/ {print int($2 / 1500000)}' /proc/meminfo)
  [ "$memory" -ge 1 ] || memory=1
  echo $((cores < memory ? cores : memory))
}

# Configures and builds one preset; further arguments go to the build.
build_preset() {
  local preset=$1
  shift
  say "configuring build/$preset"
  cmake --preset "$preset" >"$root/.configure.log" 2>&1 || { cat "$root/.configure.log"; rm -f "$root/.configure.log"; die "cmake --preset $preset"; }
  grep -E 'CUDA|cuDNN' "$root/.configure.log" || true
  rm -f "$root/.configure.log"
  say "building build/$preset with $(build_jobs) jobs"
  cmake --build --preset "$preset" -j "$(build_jobs)" "$@" || die "the build of preset $preset"
}
