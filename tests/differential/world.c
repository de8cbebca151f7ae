/* world.c - the stores, the clock, chance, and writing down what stores answer. */
#include "world.h"
#include "store/seed.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- the stores --------------------------------------------------------------------------- */

static int64_t world_wall(void *ctx)
{
    return ((world *)ctx)->wall_us;
}

static int64_t world_mono(void *ctx)
{
    return ((world *)ctx)->mono_us;
}

static int64_t world_kept(void *ctx)
{
    return atomic_load(&((world *)ctx)->kept_us);
}

static weir_status store_open_one(world *w, int store, weir_store **out, weir_error *err)
{
    store_options options = { .path = weir__str(w->places[store]),
                              .busy_us = INT64_C(10) * 1000 * 1000,
                              .key_ttl_us = INT64_C(24) * 3600 * 1000 * 1000,
                              .payload_bytes = STORE_PAYLOAD_BYTES_DEFAULT,
                              .sync_normal = true,
                              .application = "differential",
                              .clock = &w->clock };
    switch (w->kinds[store]) {
    case KIND_MEMORY:
        return weir__memory_open(out, &options, err);
    case KIND_SQLITE:
        return weir__sqlite_open(out, &options, err);
    case KIND_POSTGRES:
        options.path = weir__str(getenv("WEIR_TEST_POSTGRES"));
        options.schema = weir__str(w->places[store]);
        options.pool = 2; /* one operation at a time, and what goes on in the background */
        options.clock = &w->database_clock;
        return weir__postgres_open(out, &options, err);
    }
    return WEIR_EMISUSE;
}

static bool place_make(world *w, int store, weir_error *err)
{
    static unsigned count;
    char *place = w->places[store];
    const size_t bytes = sizeof w->places[store];
    char dir[128];
    switch (w->kinds[store]) {
    case KIND_MEMORY:
        snprintf(place, bytes, "differential-%u", ++count);
        return true;
    case KIND_SQLITE:
        snprintf(dir, sizeof dir, "%s/weir-differential-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        if (mkdtemp(dir) == NULL) {
            (void)weir__fail(err, WEIR_EIO, "could not make a directory for the store");
            return false;
        }
        snprintf(place, bytes, "%s/store.db", dir);
        return true;
    case KIND_POSTGRES:
        snprintf(place, bytes, "weir_differential_%ld_%u", (long)getpid(), ++count);
        w->database = PQconnectdb(getenv("WEIR_TEST_POSTGRES"));
        if (PQstatus(w->database) != CONNECTION_OK) {
            (void)weir__fail(err, WEIR_EIO, "could not connect: %s", PQerrorMessage(w->database));
            return false;
        }
        return true;
    }
    return false;
}

static bool database_run(world *w, const char *sql)
{
    PGresult *result = PQexec(w->database, sql);
    const ExecStatusType status = PQresultStatus(result);
    const bool ok = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
    if (!ok) {
        wrong(w, "%s", PQerrorMessage(w->database));
    }
    PQclear(result);
    return ok;
}

bool world_open(world *w, uint64_t seed, const store_kind *kinds, int count, weir_error *err)
{
    *w = (world){ .seed = seed,
                  .rng = seed * UINT64_C(0x9E3779B97F4A7C15) + 1,
                  .wall_us = INT64_C(1800000000000000),
                  .mono_us = 1000000,
                  .stores_count = count };
    atomic_init(&w->kept_us, w->wall_us);
    /* SQLite measures leases by the machine's clock, the others by a time that follows the wall
     * clock: they agree as long as the machine's clock goes as that time does. What happens when it
     * does not is for the tests of C04. */
    w->clock = (weir_clock){
        .wall_us = world_wall, .mono_us = world_mono, .boot_us = world_kept, .ctx = w
    };
    w->database_clock = (weir_clock){ .wall_us = world_kept, .mono_us = world_mono, .ctx = w };
    memcpy(w->kinds, kinds, (size_t)count * sizeof *kinds);
    for (int i = 0; i < count; i++) {
        if (!place_make(w, i, err) || store_open_one(w, i, &w->stores[i], err) != WEIR_OK ||
            w->stores[i]->log->watch_open(w->stores[i], &w->watches[i], err) != WEIR_OK) {
            return false;
        }
    }
    /* Some worlds begin far up, where 32 bits are not enough. */
    static const int64_t bases[] = { 0, 0, 0, (INT64_C(1) << 31) - 60, (INT64_C(1) << 32) - 60 };
    w->position_base = bases[chance(w, 5)];
    w->first_version = bases[chance(w, 5)];
    w->head = w->position_base;
    for (int i = 0; i < STREAMS; i++) {
        w->versions[i] = w->first_version - 1;
    }
    for (int i = 0; i < count && (w->position_base != 0 || w->first_version != 0); i++) {
        if (weir__store_seed(w->stores[i], w->position_base, w->first_version, err) != WEIR_OK) {
            return false;
        }
    }
    return true;
}

/* The time that the first store tells, which is the database's and the machine's as well, and
 * positions as if nothing had been undone. */
void world_realign(world *w)
{
    int64_t now_us = 0;
    weir_error err;
    if (w->kinds[0] == KIND_POSTGRES) {
        now_us = w->wall_us > atomic_load(&w->kept_us) ? w->wall_us : atomic_load(&w->kept_us);
    } else if (w->stores[0]->about->now(w->stores[0], &now_us, &err) != WEIR_OK) {
        wrong(w, "what time it is: %s", err.message);
        return;
    }
    atomic_store(&w->kept_us, now_us);
    for (int i = 0; i < w->stores_count; i++) {
        char sql[1024];
        if (w->kinds[i] == KIND_POSTGRES) {
            snprintf(sql, sizeof sql,
                     "SELECT setval('%s.positions', greatest(head, 1), head > 0) FROM (SELECT "
                     "coalesce(max(id), %lld) AS head FROM %s.events) e, %s.positions p "
                     "WHERE p.last_value > greatest(head, 1)",
                     w->places[i], (long long)w->position_base, w->places[i], w->places[i]);
            (void)database_run(w, sql);
        }
    }
}

static void directory_remove(const char *file)
{
    char dir[256];
    char name[600];
    snprintf(dir, sizeof dir, "%s", file);
    char *slash = strrchr(dir, '/');
    if (slash == NULL) {
        return;
    }
    *slash = '\0';
    DIR *d = opendir(dir);
    if (d != NULL) {
        for (struct dirent *e; (e = readdir(d)) != NULL;) {
            if (e->d_name[0] != '.') {
                snprintf(name, sizeof name, "%s/%s", dir, e->d_name);
                unlink(name);
            }
        }
        closedir(d);
    }
    rmdir(dir);
}

void world_close(world *w)
{
    for (int i = 0; i < w->stores_count; i++) {
        if (w->stores[i] != NULL) {
            w->stores[i]->log->watch_close(w->watches[i]);
            w->stores[i]->about->close(w->stores[i]);
        }
        if (w->kinds[i] == KIND_SQLITE) {
            directory_remove(w->places[i]);
        }
        if (w->kinds[i] == KIND_POSTGRES && w->database != NULL) {
            char sql[512];
            snprintf(sql, sizeof sql,
                     "SET client_min_messages = warning; SET lock_timeout = '20s';"
                     "DROP SCHEMA IF EXISTS %s CASCADE",
                     w->places[i]);
            if (!database_run(w, sql)) {
                printf("# could not drop the schema: %s\n", w->wrong);
            }
        }
        weir__buffer_free(&w->text[i]);
    }
    PQfinish(w->database);
    weir__buffer_free(&w->what);
    weir__arena_free(&w->arena);
}

bool world_reopen(world *w, weir_error *err)
{
    for (int i = 0; i < w->stores_count; i++) {
        weir_store *fresh = NULL;
        w->stores[i]->log->watch_close(w->watches[i]);
        w->watches[i] = NULL;
        if (w->kinds[i] != KIND_MEMORY) { /* which would end with its last handle */
            w->stores[i]->about->close(w->stores[i]);
            w->stores[i] = NULL;
        }
        if (store_open_one(w, i, &fresh, err) != WEIR_OK) {
            return false;
        }
        if (w->stores[i] != NULL) {
            w->stores[i]->about->close(w->stores[i]);
        }
        w->stores[i] = fresh;
        if (fresh->log->watch_open(fresh, &w->watches[i], err) != WEIR_OK) {
            return false;
        }
    }
    return true;
}

/* ---- chance ------------------------------------------------------------------------------- */

uint64_t chance(world *w, uint64_t below)
{
    /* splitmix64 */
    uint64_t z = (w->rng += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (z ^ (z >> 31)) % below;
}

bool one_in(world *w, uint64_t n)
{
    return chance(w, n) == 0;
}

static const char *text_va(world *w, const char *format, va_list args) WEIR_PRINTF(2, 0);
static const char *text_va(world *w, const char *format, va_list args)
{
    char buffer[1024];
    const int len = vsnprintf(buffer, sizeof buffer, format, args);
    const char *copy = weir__arena_copy(&w->arena, buffer,
                                        len < (int)sizeof buffer ? (size_t)len : sizeof buffer - 1);
    if (copy == NULL) {
        abort();
    }
    return copy;
}

const char *text(world *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *copy = text_va(w, format, args);
    va_end(args);
    return copy;
}

const char *stream_name(int index)
{
    static const char *const names[STREAMS] = { "a-0", "a-1", "a-2", "a-3", "b-0", "b-1", "b-2",
                                                "b-3", "c",   "c-1", "d-0", "d-1", "e",   "a" };
    return names[index];
}

int stream_of(weir_str name)
{
    for (int i = 0; i < STREAMS; i++) {
        if (weir__str_equal(name, weir__str(stream_name(i)))) {
            return i;
        }
    }
    return -1;
}

const char *event_name(world *w)
{
    static const char *const names[] = { "A", "B", "C", "D", "E" };
    return names[chance(w, 5)];
}

const char *lane_of(world *w, const char *target)
{
    static const char *const lanes[LANES] = { "fast", "mail", "slow" };
    const uint64_t lane = (unsigned char)target[strlen(target) - 1] % LANES;
    return lanes[one_in(w, 60) ? chance(w, LANES) : lane];
}

store_pattern *some_pattern(world *w)
{
    static const char *const patterns[] = { "*",       "a-0",    "a-*",    "b*",
                                            "/[02]$/", "/^a|c/", "nobody", "w-*" };
    store_pattern *pattern = NULL;
    weir_error err;
    if (one_in(w, 3)) {
        return NULL;
    }
    const char *chosen = patterns[chance(w, sizeof patterns / sizeof patterns[0])];
    what(w, " pattern %s", chosen);
    if (weir__pattern_open(&pattern, weir__str(chosen), &err) != WEIR_OK) {
        wrong(w, "pattern %s: %s", chosen, err.message);
    }
    return pattern;
}

/* ---- writing down ------------------------------------------------------------------------- */

static void add(weir_buffer *b, const char *line)
{
    if (!weir__buffer_add_text(b, line)) {
        abort();
    }
}

void what(world *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(&w->what, text_va(w, format, args));
    va_end(args);
}

void say(world *w, int store, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(&w->text[store], text_va(w, format, args));
    va_end(args);
}

void say_status(world *w, int store, weir_status status, const weir_error *err)
{
    say(w, store, "%s", weir_status_text(status));
    if (status == WEIR_ECONFLICT) {
        say(w, store, " expected %lld actual %lld", (long long)err->expected,
            (long long)err->actual);
    }
    if (status == WEIR_ECONFLICT || status == WEIR_ETAKEN || status == WEIR_ECLOSED) {
        say(w, store, " stream %s", err->stream);
    }
    if (status != WEIR_OK && err->code != status) {
        say(w, store, " but the error says %s", weir_status_text(err->code));
    }
    say(w, store, "\n");
}

void say_event(world *w, int store, const weir_event *e)
{
    say(w, store, "  event %lld %.*s@%lld %.*s %.*s %.*s at %lld\n", (long long)e->id,
        (int)e->stream.len, e->stream.ptr, (long long)e->version, (int)e->name.len, e->name.ptr,
        (int)e->data.len, e->data.ptr, (int)e->meta.len, e->meta.ptr, (long long)e->created_us);
}

const char *reason(world *w, weir_str error)
{
    if (error.len == 0) {
        return "-";
    }
    if (weir__str_starts_with(error, weir__str("ours:")) ||
        weir__str_equal(error, weir__str("skipped by an operator"))) {
        return text(w, "\"%.*s\"", (int)error.len, error.ptr);
    }
    return "(the store's own)";
}

void wrong(world *w, const char *format, ...)
{
    if (w->wrong[0] == '\0') {
        va_list args;
        va_start(args, format);
        vsnprintf(w->wrong, sizeof w->wrong, format, args);
        va_end(args);
    }
}

const char *reaction_name(int index)
{
    static const char *const names[REACTIONS] = { "r0", "r1", "r2", "r3", "r4", "r5" };
    return names[index];
}

int reaction_of(const world *w, int store, int64_t id)
{
    for (int i = 0; i < REACTIONS; i++) {
        if (w->reactions[i].known && w->reactions[i].id[store] == id) {
            return i;
        }
    }
    return -1;
}
