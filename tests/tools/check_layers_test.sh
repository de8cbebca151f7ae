#!/usr/bin/env bash
# check_layers_test.sh - every kind of include that points the wrong way is found, with its place.
. "$(dirname "$0")/../e2e/tap.sh" || exit 1

check() { "$WEIR_SOURCE/tools/check-layers.sh" "$tmp/tree"; }

# A tree that is as it should be.
fresh() {
    rm -rf "$tmp/tree"
    mkdir -p "$tmp/tree/include" "$tmp/tree/src/"{base,supervisor,pg,sqlite,store/memory,store/sqlite,table,claim,race,api,cli}
    printf '#include <stddef.h>\n#include <stdint.h>\n' >"$tmp/tree/include/weir.h"
    printf '#include "base/str.h"\n#include "weir.h"\n#include <string.h>\n' \
        >"$tmp/tree/src/base/str.c"
    printf '#include "base/str.h"\n#include "supervisor/tree.h"\n' >"$tmp/tree/src/supervisor/tree.c"
    printf '#include "base/str.h"\n#include "store/url.h"\n' >"$tmp/tree/src/store/url.c"
    printf '#include "store/memory/memory.h"\n#include "store/store.h"\n#include "sql.h"\n' \
        >"$tmp/tree/src/store/memory/memory.c"
    printf '#include "base/str.h"\n#include "pg/params.h"\n' >"$tmp/tree/src/pg/pg.h"
    printf '#include "sqlite/sqlite.h"\n#include "store/store.h"\n' \
        >"$tmp/tree/src/store/sqlite/sqlite_store.h"
    printf '#include "store/store.h"\n#include "store/url.h"\n' >"$tmp/tree/src/api/open.c"
    printf '#include "sqlite/sqlite.h"\n#include "pg/pg.h"\n#include "store/url.h"\n' \
        >"$tmp/tree/src/table/table.c"
    printf '#include "table/table.h"\n#include "engine/child/child.h"\n' \
        >"$tmp/tree/src/claim/claim.c"
    printf '#include "claim/claim.h"\n#include "table/table.h"\n' >"$tmp/tree/src/race/race.c"
    printf '#include "cli/main.h"\n#include "base/json.h"\n' >"$tmp/tree/src/cli/main.c"
    printf '#include "store/memory/memory.h"\n' >"$tmp/tree/src/store/url_test.c"
}

# refused NAME FILE INCLUDE PATTERN: adding the include to the file is noticed.
refused() {
    fresh
    printf '\n  #  include %s\n' "$3" >>"$tmp/tree/$2"
    line=$(wc -l <"$tmp/tree/$2")
    status "$1" 1 check
    like "$1: says where and what" "$out" "^$2:$line: .*$4"
}

fresh
ok "a tree in order passes" check
is "and nothing is printed" "$out" ""
refused "base includes the store" src/base/str.c '"store/store.h"' 'above it'
refused "the supervisor includes a lock" src/supervisor/tree.c '"lock/lock.h"' 'above it'
refused "the supervisor includes the store" src/supervisor/tree.c '"store/store.h"' 'above it'
refused "base includes a store" src/base/str.c '"store/memory/memory.h"' 'above it'
refused "the port includes a store" src/store/url.c '"store/sqlite/sqlite.h"' 'above it'
refused "a store includes another" src/store/memory/memory.c '"store/sqlite/sqlite.h"' \
    'do not know one another'
refused "a driver includes the store" src/pg/pg.h '"store/store.h"' 'above it'
refused "a driver includes another" src/pg/pg.h '"sqlite/sqlite.h"' 'do not know one another'
refused "the port to tables includes a store" src/table/table.c '"store/sqlite/sqlite_store.h"' \
    'reached by the port'
refused "the api includes a store" src/api/open.c '"store/memory/memory.h"' 'reached by the port'
refused "a store includes the api" src/store/memory/memory.c '"api/open.h"' 'above it'
refused "a store includes the port to tables" src/store/memory/memory.c '"table/table.h"' 'above it'
refused "the port to tables includes the engine" src/table/table.c '"engine/slot.h"' \
    'do not know one another'
refused "a claim includes a lock" src/claim/claim.c '"lock/lock.h"' 'do not know one another'
refused "a claim includes the engine" src/claim/claim.c '"engine/slot.h"' 'engine/child alone'
refused "a claim includes a race" src/claim/claim.c '"race/race.h"' 'above it'
refused "a race includes the engine" src/race/race.c '"engine/slot.h"' 'engine/child alone'
refused "the api includes the command line" src/api/open.c '"cli/main.h"' 'above it'
refused "a path upwards" src/store/memory/memory.c '"../sqlite/sqlite.h"' 'by its path'
refused "a directory nobody knows" src/api/open.c '"magic/wand.h"' 'no layer'
refused "the public header includes one of ours" include/weir.h '"base/str.h"' 'stands on'
refused "the public header includes another library" include/weir.h '<sqlite3.h>' 'stands on'
fresh
mkdir "$tmp/tree/src/magic"
echo 'int x;' >"$tmp/tree/src/magic/wand.c"
status "a new directory must be given a layer" 1 check

done_testing
