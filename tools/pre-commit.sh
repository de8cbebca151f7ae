#!/bin/sh
# pre-commit.sh - the checks that take seconds, before each commit. To use it:
#
#   ln -s ../../tools/pre-commit.sh .git/hooks/pre-commit
#
# clang-tidy, cppcheck and the tests are left to `make check` and `make test`.
set -eu
cd "$(git rev-parse --show-toplevel)"
git diff --cached --check
exec tools/check.sh . format layers sizes codespell shellcheck python
