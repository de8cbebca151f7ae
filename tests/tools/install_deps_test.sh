#!/usr/bin/env bash
# install_deps_test.sh - the installer asks for what is missing and for nothing else, and does not
# call a run fine that left something out. The package tools are replaced by scripts: a test must
# not install anything. `installed` holds what is there, `calls` what was asked for.
. "$(dirname "$0")/../e2e/tap.sh" || exit 1

mkdir "$tmp/bin"
for tool in cat env head mktemp printf rm sh tail tr; do
    ln -s "$(command -v "$tool")" "$tmp/bin/$tool"
done
fake() {
    { echo '#!/bin/sh'; cat; } >"$tmp/bin/$1"
    chmod +x "$tmp/bin/$1"
}
fake dpkg-query <<END
while [ \$# -gt 1 ]; do shift; done
while read -r name; do [ "\$name" = "\$1" ] && printf installed && exit 0; done <"$tmp/installed"
exit 1
END
apt_that() { # what `apt-get install` does, on stdin; $name is each package in turn
    fake apt-get <<END
echo "apt-get \$*" >>"$tmp/calls"
[ "\$2" = update ] && exit 0
for name in "\$@"; do
    case \$name in -* | install) continue ;; esac
    $(cat)
done
END
}
fake id <<<'echo 0'
install() { : >"$tmp/calls"; PATH=$tmp/bin "$tmp/bin/sh" "$WEIR_SOURCE/tools/install-deps.sh" "$@"; }
apt_that <<<"echo \"\$name\" >>'$tmp/installed'"

: >"$tmp/installed"
ok "on a bare machine everything is installed" install build
like "the compiler among it" "$(cat "$tmp/calls")" 'apt-get -q -y --no-install-recommends install gcc '
is "after one update" "$(grep -c update "$tmp/calls")" 1
ok "the second time" install build
is "nothing is called" "$(cat "$tmp/calls")" ""
sed -i '/^meson$/d' "$tmp/installed"
ok "when one is missing" install build
is "only that one is installed" "$(tail -n 1 "$tmp/calls")" \
    "apt-get -q -y --no-install-recommends install meson"
ok "the tests need more" install build test
like "such as the test library" "$(cat "$tmp/calls")" 'libcmocka-dev'
is "but not again what is there" "$(grep -c ' gcc ' "$tmp/calls")" 0

sed -i '/^meson$/d' "$tmp/installed"
apt_that <<<'echo "E: no such package"; exit 100'
status "a failed installation fails" 1 install build
like "with what apt said" "$errout" 'E: no such package'
like "and what was wanted" "$errout" 'could not install: meson'
apt_that <<<':'
status "an installation that left something out fails" 1 install build
like "and names it" "$errout" 'still missing after installing: meson'
fake id <<<'echo 1000'
status "without root and without sudo" 1 install build
like "it says what to do" "$errout" 'no sudo; ask an administrator to run: apt-get install meson'
is "and tries nothing" "$(cat "$tmp/calls")" ""
apt_that <<<"echo \"\$name\" >>'$tmp/installed'"
fake sudo <<END
echo sudo >>"$tmp/calls"
exec "\$@"
END
ok "with sudo it works" install build
is "through sudo" "$(grep -c sudo "$tmp/calls")" 2
status "wrong usage" 2 install everything

done_testing
