/* batch.c - weir append --batch: lines of JSON, each an append, in bounded memory.
 *
 * Lines are checked and prepared one by one as they come, and handed to the store in chunks, which
 * share a transaction and its sync: the store judges each line on its own, in order. A chunk ends
 * when it is large, or as soon as the input has nothing more to read, so that a producer that
 * writes a line now and then sees it committed at once.
 *
 * INVARIANTS
 *   (1) Lines are committed in their order. Unless --keep-going, nothing after a refused line is
 *       written: in its chunk because its appends are chained (STORE_APPEND_CHAIN), later because
 *       reading stops.
 *   (2) `committed` counts exactly the lines that are in the store for good.
 */
#include "api/api.h"
#include "base/clock.h"
#include "base/json.h"
#include "cli/cli.h"
#include "store/request.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum {
    BATCH_LINES_MAX = 1024,
    BATCH_BYTES_SOFT = 1024 * 1024,  /* a chunk ends with the line that reaches this         */
    BATCH_LINE_OVERHEAD = 64 * 1024, /* of a line, beside its data and meta                 */
    BATCH_RESERVE_MAX = 1000,        /* keys of one line                                    */
};

/* One line, taken apart. Texts live in the arena it was read into. */
typedef struct batch_line {
    weir_new_event event;
    weir_expectation expectation;
    bool has_expect;
    weir_str key;
    weir_str *reserve; /* in the arena */
    size_t reserve_count;
} batch_line;

typedef struct batch_item {
    prepared_append prepared;
    weir_error err;
    int64_t number; /* of the line */
} batch_item;

typedef struct batch {
    cli *c;
    weir *w; /* owned; NULL until the first chunk when there is no store yet */
    cli_lines lines;
    cli_progress progress;
    int64_t payload_bytes;
    bool keep_going;
    weir_str correlation;
    weir_arena arena; /* texts of the lines of a chunk; of all lines when atomic */
    weir_buffer scratch;
    batch_item *items;      /* owned: BATCH_LINES_MAX */
    store_append **appends; /* owned: the items' appends */
    size_t items_count;
    int64_t committed, refused;
    int exit_status;
} batch;

/* ---- a line --------------------------------------------------------------------------------- */

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "out of memory");
}

/* A string member, decoded. Borrows from the line when it has no escapes. */
static weir_status take_string(batch *b, const char *member, weir_str value, weir_str *out,
                               weir_error *err)
{
    if (weir__json_type(value) != WEIR_JSON_STRING) {
        return weir__fail(err, WEIR_EINVAL, "\"%s\" must be a string", member);
    }
    if (memchr(value.ptr, '\\', value.len) == NULL) {
        *out = (weir_str){ .ptr = value.ptr + 1, .len = value.len - 2 };
    } else {
        weir__buffer_clear(&b->scratch);
        if (!weir__json_string_decode(value, &b->scratch)) {
            return no_memory(err);
        }
        out->len = b->scratch.len;
        out->ptr = weir__arena_copy(&b->arena, b->scratch.ptr == NULL ? "" : b->scratch.ptr,
                                    b->scratch.len);
        if (out->ptr == NULL) {
            return no_memory(err);
        }
    }
    /* For the store an empty text is a left-out one; here it was given. */
    return out->len > 0 ? WEIR_OK : weir__fail(err, WEIR_EINVAL, "\"%s\" is empty", member);
}

static weir_status take_expect(batch_line *line, weir_str value, weir_error *err)
{
    const bool string = weir__json_type(value) == WEIR_JSON_STRING;
    const size_t quote = string ? 1 : 0;
    const weir_str text = { .ptr = value.ptr + quote, .len = value.len - 2 * quote };
    bool ok = weir__cli_expect(text, &line->expectation.expect, &line->expectation.version);

    /* Words are strings and versions are numbers. */
    ok = ok && string == (line->expectation.expect != WEIR_EXPECT_EXACT);
    if (!ok) {
        return weir__fail(err, WEIR_EINVAL,
                          "\"expect\" must be \"any\", \"none\", \"exists\" or a version, not %.*s",
                          (int)(value.len < 100 ? value.len : 100), value.ptr);
    }
    line->has_expect = true;
    return WEIR_OK;
}

/* A key, or a list of keys. */
static weir_status take_reserve(batch *b, batch_line *line, weir_str value, weir_error *err)
{
    weir_status status = WEIR_OK;
    size_t count = 0;

    if (weir__json_type(value) != WEIR_JSON_ARRAY) {
        line->reserve = weir__arena_alloc(&b->arena, sizeof *line->reserve);
        line->reserve_count = 1;
        return line->reserve == NULL ? no_memory(err)
                                     : take_string(b, "reserve", value, &line->reserve[0], err);
    }
    weir_json_members it = weir__json_elements(value);
    while (weir__json_elements_next(&it)) {
        count++;
    }
    if (count > BATCH_RESERVE_MAX) {
        return weir__fail(err, WEIR_EINVAL, "\"reserve\" has %zu keys, allowed 0 to %d", count,
                          BATCH_RESERVE_MAX);
    }
    line->reserve = weir__arena_alloc(&b->arena, (count + 1) * sizeof *line->reserve);
    if (line->reserve == NULL) {
        return no_memory(err);
    }
    it = weir__json_elements(value);
    while (status == WEIR_OK && weir__json_elements_next(&it)) {
        status = take_string(b, "reserve", it.value, &line->reserve[line->reserve_count++], err);
    }
    return status;
}

enum {
    MEMBER_STREAM,
    MEMBER_NAME,
    MEMBER_DATA,
    MEMBER_META,
    MEMBER_EXPECT,
    MEMBER_KEY,
    MEMBER_RESERVE,
    MEMBERS_COUNT,
};
static const char *const member_names[MEMBERS_COUNT] = { "stream", "name", "data",   "meta",
                                                         "expect", "key",  "reserve" };

static weir_status take_member(batch *b, batch_line *line, int member, weir_str value,
                               weir_error *err)
{
    switch (member) {
    case MEMBER_STREAM:
        return take_string(b, "stream", value, &line->event.stream, err);
    case MEMBER_NAME:
        return take_string(b, "name", value, &line->event.name, err);
    case MEMBER_DATA:
        line->event.data = value;
        return WEIR_OK;
    case MEMBER_META:
        line->event.meta = value;
        return WEIR_OK;
    case MEMBER_EXPECT:
        return take_expect(line, value, err);
    case MEMBER_KEY:
        return take_string(b, "key", value, &line->key, err);
    default:
        return take_reserve(b, line, value, err);
    }
}

/* The name is inside an accepted text: its quotes are around it, and it may have escapes. */
static int member_of(weir_str name)
{
    const weir_str quoted = { .ptr = name.ptr - 1, .len = name.len + 2 };
    int i = 0;

    while (i < MEMBERS_COUNT && !weir__json_string_is(quoted, weir__str(member_names[i]))) {
        i++;
    }
    return i;
}

/* Takes a line apart. What `line` points to is in the arena. */
static weir_status parse_line(batch *b, weir_str text, batch_line *line, weir_error *err)
{
    weir_json_type type;
    uint32_t seen = 0;
    weir_status status;

    *line =
        (batch_line){ .event = { WEIR_NEW_EVENT_INIT }, .expectation = { WEIR_EXPECTATION_INIT } };
    weir__buffer_clear(&b->scratch);
    status = weir__json_compact_envelope(text, &b->scratch, &type, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (type != WEIR_JSON_OBJECT) {
        return weir__fail(err, WEIR_EINVAL, "expected a JSON object");
    }
    const weir_str object = { .ptr = weir__arena_copy(&b->arena, b->scratch.ptr, b->scratch.len),
                              .len = b->scratch.len };
    if (object.ptr == NULL) {
        return no_memory(err);
    }
    weir_json_members it = weir__json_members(object);
    while (status == WEIR_OK && weir__json_members_next(&it)) {
        const int member = member_of(it.name);
        if (member == MEMBERS_COUNT) {
            return weir__fail(err, WEIR_EINVAL, "unknown member \"%.*s\"",
                              (int)(it.name.len < 200 ? it.name.len : 200), it.name.ptr);
        }
        if ((seen & (1U << member)) != 0) {
            return weir__fail(err, WEIR_EINVAL, "\"%s\" is given twice", member_names[member]);
        }
        seen |= 1U << member;
        status = take_member(b, line, member, it.value, err);
    }
    for (int member = MEMBER_STREAM; status == WEIR_OK && member <= MEMBER_NAME; member++) {
        if ((seen & (1U << member)) == 0) {
            status = weir__fail(err, WEIR_EINVAL, "\"%s\" is missing", member_names[member]);
        }
    }
    line->expectation.stream = line->event.stream;
    return status;
}

static bool is_blank(weir_str line)
{
    size_t i = 0;

    while (i < line.len && (line.ptr[i] == ' ' || line.ptr[i] == '\t' || line.ptr[i] == '\r')) {
        i++;
    }
    return i == line.len;
}

/* The keys of a line as changes: arrays in the arena. */
static weir_status reserve_changes(batch *b, const batch_line *line,
                                   const weir_key_change ***pointers, weir_error *err)
{
    weir_key_change *changes = weir__arena_alloc(&b->arena, line->reserve_count * sizeof *changes);

    *pointers = weir__arena_alloc(&b->arena, line->reserve_count * sizeof **pointers);
    if (changes == NULL || *pointers == NULL) {
        return no_memory(err);
    }
    for (size_t i = 0; i < line->reserve_count; i++) {
        changes[i] = (weir_key_change){ WEIR_KEY_CHANGE_INIT, .change = WEIR_KEY_RESERVE,
                                        .key = line->reserve[i], .stream = line->event.stream };
        (*pointers)[i] = &changes[i];
    }
    return WEIR_OK;
}

/* ---- chunks --------------------------------------------------------------------------------- */

/* Says where it stopped and what stands. */
static void report_stop(batch *b, int64_t line)
{
    char text[128];
    int n;

    if (b->c->json_errors) {
        n = line == 0
                ? snprintf(text, sizeof text, "{\"committed\":%" PRId64 "}\n", b->committed)
                : snprintf(text, sizeof text, "{\"committed\":%" PRId64 ",\"line\":%" PRId64 "}\n",
                           b->committed, line);
    } else if (line == 0) {
        n = snprintf(text, sizeof text, "weir: append: %" PRId64 " lines committed\n",
                     b->committed);
    } else {
        n = snprintf(text, sizeof text,
                     "weir: append: stopped at line %" PRId64 ", %" PRId64 " lines committed\n",
                     line, b->committed);
    }
    if (n > 0 && (size_t)n < sizeof text) {
        weir__cli_stderr((weir_str){ .ptr = text, .len = (size_t)n });
    }
}

/* A line was refused. false: that was the end. */
static bool line_refused(batch *b, const weir_error *err, int64_t line)
{
    weir__cli_progress_end(&b->progress);
    const int exit_status = weir__cli_fail_line(b->c, err, line);
    b->refused++;
    if (b->keep_going) {
        b->exit_status = CLI_ERROR;
        return true;
    }
    b->exit_status = exit_status;
    report_stop(b, line);
    return false;
}

/* Something failed that is not a line's fault. */
static void input_broken(batch *b, const weir_error *err, int64_t line)
{
    weir__cli_progress_end(&b->progress);
    b->exit_status = weir__cli_fail_line(b->c, err, line);
    report_stop(b, line);
}

static void forget_items(batch *b)
{
    for (size_t i = 0; i < b->items_count; i++) {
        weir__prepared_free(&b->items[i].prepared);
    }
    b->items_count = 0;
    weir__arena_reset(&b->arena);
}

/* Commits what was prepared. false: it was the end, and has been reported. */
static bool lines_flush(batch *b)
{
    weir_error err;
    weir_status status = WEIR_OK;
    bool go_on = true;

    if (b->items_count == 0) {
        return true;
    }
    if (b->w == NULL) {
        status = weir__cli_create(b->c, &b->w, &err);
    }
    if (status == WEIR_OK) {
        weir_store *store = weir__store(b->w);
        status = store->log->append(store, b->appends, b->items_count, &err);
    }
    if (status != WEIR_OK) {
        input_broken(b, &err, b->items[0].number);
        go_on = false;
    }
    for (size_t i = 0; go_on && i < b->items_count; i++) {
        if (b->items[i].prepared.append.status == WEIR_OK) {
            b->committed++;
        } else {
            go_on = line_refused(b, &b->items[i].err, b->items[i].number);
        }
    }
    weir__cli_progress(&b->progress, b->committed, b->lines.bytes_done);
    forget_items(b);
    return go_on;
}

static weir_status prepare_line(batch *b, weir_str text, weir_error *err)
{
    batch_line line;
    batch_item *item = &b->items[b->items_count];
    weir_status status = parse_line(b, text, &line, err);
    const weir_new_event *const events[] = { &line.event };
    const weir_expectation *const expectations[] = { &line.expectation };
    const weir_key_change **changes = NULL;

    if (status == WEIR_OK && line.reserve_count > 0) {
        status = reserve_changes(b, &line, &changes, err);
    }
    if (status != WEIR_OK) {
        return status;
    }
    const weir_append_request request = { WEIR_APPEND_REQUEST_INIT,
                                          .events = events,
                                          .events_count = 1,
                                          .expectations = expectations,
                                          .expectations_count = 1,
                                          .key_changes = changes,
                                          .key_changes_count = line.reserve_count,
                                          .key = line.key,
                                          .correlation = b->correlation };
    item->prepared = (prepared_append){ 0 };
    status = weir__append_prepare(&item->prepared, &request, b->payload_bytes,
                                  weir__clock_machine(), err);
    if (status != WEIR_OK) {
        weir__prepared_free(&item->prepared);
        return status;
    }
    item->number = b->lines.number;
    item->prepared.append.err = &item->err;
    if (!b->keep_going) {
        item->prepared.append.flags |= STORE_APPEND_CHAIN;
    }
    b->appends[b->items_count++] = &item->prepared.append;
    return WEIR_OK;
}

/* Reads, prepares and commits until the end or a refusal. */
static void each_line(batch *b)
{
    for (;;) {
        weir_error err;
        weir_str text = { 0 };
        bool more = true;
        weir_status status = weir__cli_lines_next(&b->lines, &text, &more, &err);

        if (status == WEIR_OK && !more) {
            break;
        }
        if (status == WEIR_OK && !is_blank(text)) {
            status = prepare_line(b, text, &err);
        }
        /* What came before a bad line is committed before the line is reported. */
        if (status != WEIR_OK) {
            if (!lines_flush(b)) {
                return;
            }
            if (status != WEIR_EINVAL) {
                input_broken(b, &err, b->lines.number);
                return;
            }
            if (!line_refused(b, &err, b->lines.number)) {
                return;
            }
        } else if ((b->items_count == BATCH_LINES_MAX || b->arena.bytes_used >= BATCH_BYTES_SOFT ||
                    weir__cli_lines_wait(&b->lines)) &&
                   !lines_flush(b)) {
            return;
        }
    }
    (void)lines_flush(b);
}

/* ---- all lines as one append ---------------------------------------------------------------- */

/* Events and what belongs to them, of all lines. Everything is in the batch's arena. */
typedef struct atomic_append {
    const weir_new_event **events;
    const weir_expectation **expectations;
    size_t events_count; /* as many expectations: one per stream, first line first */
    size_t expectations_count;
    weir_buffer changes; /* of const weir_key_change *  */
    uint32_t *slots;     /* owned: hash of stream to its expectation + 1 */
    weir_str key;
} atomic_append;

enum { ATOMIC_SLOTS = 1 << 18 };
static_assert(ATOMIC_SLOTS > 2 * STORE_APPEND_EVENTS_MAX, "the table stays half empty");

/* A stream's first line carries its expectation. */
static weir_status atomic_stream(batch *b, atomic_append *a, const batch_line *line,
                                 weir_error *err)
{
    uint64_t slot = weir__str_hash(line->event.stream) & (ATOMIC_SLOTS - 1);

    while (a->slots[slot] != 0) {
        if (weir__str_equal(a->expectations[a->slots[slot] - 1]->stream, line->event.stream)) {
            return !line->has_expect
                       ? WEIR_OK
                       : weir__fail(err, WEIR_EINVAL,
                                    "only the first line of stream \"%.*s\" can have \"expect\"",
                                    (int)line->event.stream.len, line->event.stream.ptr);
        }
        slot = (slot + 1) & (ATOMIC_SLOTS - 1);
    }
    weir_expectation *e = weir__arena_alloc(&b->arena, sizeof *e);
    if (e == NULL) {
        return no_memory(err);
    }
    *e = line->expectation;
    a->expectations[a->expectations_count++] = e;
    a->slots[slot] = (uint32_t)a->expectations_count;
    return WEIR_OK;
}

static weir_status atomic_add(batch *b, atomic_append *a, weir_str text, weir_error *err)
{
    batch_line line;
    const weir_key_change **changes = NULL;
    weir_status status = parse_line(b, text, &line, err);

    if (status == WEIR_OK && a->events_count == STORE_APPEND_EVENTS_MAX) {
        status = weir__fail(err, WEIR_EINVAL, "an append has at most %d events",
                            STORE_APPEND_EVENTS_MAX);
    }
    if (status == WEIR_OK && b->arena.bytes_used > 2 * (size_t)STORE_APPEND_BYTES_MAX) {
        status =
            weir__fail(err, WEIR_EINVAL, "an append has at most %d bytes", STORE_APPEND_BYTES_MAX);
    }
    if (status == WEIR_OK && line.key.len > 0) {
        if (a->key.len > 0 && !weir__str_equal(a->key, line.key)) {
            status = weir__fail(err, WEIR_EINVAL, "one append has one \"key\"");
        }
        a->key = line.key;
    }
    if (status == WEIR_OK) {
        status = atomic_stream(b, a, &line, err);
    }
    if (status == WEIR_OK && line.reserve_count > 0) {
        status = reserve_changes(b, &line, &changes, err);
        if (status == WEIR_OK &&
            !weir__buffer_add(&a->changes, changes, line.reserve_count * sizeof *changes)) {
            status = no_memory(err);
        }
    }
    if (status == WEIR_OK) {
        weir_new_event *event = weir__arena_alloc(&b->arena, sizeof *event);
        if (event == NULL) {
            return no_memory(err);
        }
        *event = line.event;
        a->events[a->events_count++] = event;
    }
    return status;
}

static weir_status atomic_read(batch *b, atomic_append *a, weir_error *err)
{
    weir_status status = WEIR_OK;
    bool more = true;

    while (status == WEIR_OK) {
        weir_str text = { 0 };
        status = weir__cli_lines_next(&b->lines, &text, &more, err);
        if (status == WEIR_OK && !more) {
            break;
        }
        if (status == WEIR_OK && !is_blank(text)) {
            status = atomic_add(b, a, text, err);
        }
    }
    return status;
}

static void all_lines(batch *b)
{
    weir_error err;
    atomic_append a = { 0 };

    a.events = weir__calloc(STORE_APPEND_EVENTS_MAX, sizeof *a.events);
    a.expectations = weir__calloc(STORE_APPEND_EVENTS_MAX, sizeof *a.expectations);
    a.slots = weir__calloc(ATOMIC_SLOTS, sizeof *a.slots);
    a.key = weir__cli_text(b->c, "key");
    weir_status status = a.events == NULL || a.expectations == NULL || a.slots == NULL
                             ? no_memory(&err)
                             : atomic_read(b, &a, &err);
    if (status != WEIR_OK) {
        (void)line_refused(b, &err, b->lines.number);
        goto out;
    }
    if (a.events_count == 0) {
        goto out;
    }
    const weir_append_request request = {
        WEIR_APPEND_REQUEST_INIT,
        .events = a.events,
        .events_count = a.events_count,
        .expectations = a.expectations,
        .expectations_count = a.expectations_count,
        .key_changes = (const weir_key_change *const *)(const void *)a.changes.ptr,
        .key_changes_count = a.changes.len / sizeof(weir_key_change *),
        .key = a.key,
        .correlation = b->correlation,
    };
    status = weir__cli_append(b->c, &request, NULL, &err);
    if (status == WEIR_OK) {
        b->committed = (int64_t)a.events_count;
    } else {
        (void)line_refused(b, &err, 0);
    }
out:
    weir__buffer_free(&a.changes);
    weir__free(a.slots);
    weir__free(a.expectations);
    weir__free(a.events);
}

/* ---- the run -------------------------------------------------------------------------------- */

static weir_status batch_open(batch *b, const char *path, weir_error *err)
{
    weir_status status = weir__cli_payload_bytes(b->c, &b->payload_bytes, err);

    if (status != WEIR_OK) {
        return status;
    }
    b->keep_going = weir__cli_has(b->c, "keep-going");
    b->correlation = weir__cli_text(b->c, "correlation");
    b->lines.line_max = 2 * (size_t)b->payload_bytes + BATCH_LINE_OVERHEAD;
    b->items = weir__calloc(BATCH_LINES_MAX, sizeof *b->items);
    b->appends = weir__calloc(BATCH_LINES_MAX, sizeof *b->appends);
    if (b->items == NULL || b->appends == NULL) {
        return no_memory(err);
    }
    if (strcmp(path, "-") != 0) {
        b->lines.path = path;
        b->lines.fd = open(path, O_RDONLY | O_CLOEXEC);
        if (b->lines.fd < 0) {
            return weir__fail(err, WEIR_EIO, "could not open \"%s\": %s", path, strerror(errno));
        }
    }
    weir__cli_progress_start(&b->progress, b->c, b->lines.fd);
    return WEIR_OK;
}

static void print_end(batch *b)
{
    const report_field fields[] = {
        { .name = "committed", .type = REPORT_I64, .number = b->committed },
        { .name = "refused", .type = REPORT_I64, .number = b->refused },
    };

    /* Without --keep-going there is nothing refused to tell about. */
    (void)weir__cli_row(&b->c->out, fields, b->keep_going ? 2 : 1);
}

int weir__cli_batch(cli *c, const char *path)
{
    batch b = { .c = c, .exit_status = CLI_DONE, .lines = { .fd = STDIN_FILENO } };
    const bool atomic = weir__cli_has(c, "atomic");
    weir_error err;
    weir_status status = batch_open(&b, path, &err);

    if (status == WEIR_OK && !atomic) {
        status = weir__cli_open(c, CLI_OPEN_WRITE, &b.w, &err);
    }
    if (status != WEIR_OK) {
        b.exit_status = weir__cli_fail(c, &err);
    } else {
        if (atomic) {
            all_lines(&b);
        } else {
            each_line(&b);
        }
        weir__cli_progress_end(&b.progress);
        if (b.exit_status == CLI_DONE || b.keep_going) {
            print_end(&b);
        }
    }
    forget_items(&b);
    weir__arena_free(&b.arena);
    weir__buffer_free(&b.scratch);
    weir__cli_lines_free(&b.lines);
    if (b.lines.fd > STDIN_FILENO) {
        (void)close(b.lines.fd);
    }
    weir__free(b.appends);
    weir__free(b.items);
    weir_close(b.w);
    return b.exit_status;
}
