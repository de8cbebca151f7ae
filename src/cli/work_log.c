/* work_log.c - the log of a worker on stderr.
 *
 *     time=2026-11-16T03:20:00.000000Z level=warning msg=retrying target=mail-order-1 attempt=2
 *     {"time":"2026-11-16T03:20:00.000000Z","level":"warning","msg":"retrying","target":...}
 *
 * A line is one write, so that lines of threads and of other processes stay whole. What cannot be
 * written is lost: a worker does not stop because nobody reads its log.
 */
#include "base/clock.h"
#include "base/json.h"
#include "cli/work.h"

#include <signal.h>
#include <unistd.h>

static const char *level_text(int32_t level)
{
    static const char *const texts[] = { "debug", "info", "warning", "error" };

    return level >= 0 && level <= 3 ? texts[level] : "error";
}

static bool add_head(weir_buffer *b, bool json, int32_t level, weir_str event)
{
    char time[WEIR_TIME_TEXT_BYTES];

    weir__time_to_text(weir__clock_wall(weir__clock_machine()), time);
    return weir__buffer_add_text(b, json ? "{\"time\":\"" : "time=") &&
           weir__buffer_add_text(b, time) &&
           weir__buffer_add_text(b, json ? "\",\"level\":\"" : " level=") &&
           weir__buffer_add_text(b, level_text(level)) &&
           weir__buffer_add_text(b, json ? "\",\"msg\":\"" : " msg=") &&
           weir__buffer_add(b, event.ptr, event.len) && weir__buffer_add_text(b, json ? "\"" : "");
}

/* A string stands without its quotes when nothing in it needs them. */
static weir_str value_unquoted(weir_str value)
{
    if (weir__json_type(value) != WEIR_JSON_STRING || value.len < 3) {
        return value;
    }
    for (size_t i = 1; i + 1 < value.len; i++) {
        const unsigned char ch = (unsigned char)value.ptr[i];
        if (ch <= ' ' || ch == '"' || ch == '=' || ch == '\\' || ch >= 0x7f) {
            return value;
        }
    }
    return (weir_str){ value.ptr + 1, value.len - 2 };
}

static bool add_fields_text(weir_buffer *b, weir_str json)
{
    weir_json_members it = weir__json_members(json);
    bool ok = true;

    while (ok && weir__json_members_next(&it)) {
        const weir_str value = value_unquoted(it.value);
        ok = weir__buffer_add_text(b, " ") && weir__buffer_add(b, it.name.ptr, it.name.len) &&
             weir__buffer_add_text(b, "=") && weir__buffer_add(b, value.ptr, value.len);
    }
    return ok && weir__buffer_add_text(b, "\n");
}

/* json: an object, of which the first brace has become a comma. */
static bool add_fields_json(weir_buffer *b, weir_str json)
{
    const bool none = json.len <= 2;

    return weir__buffer_add_text(b, none ? "" : ",") &&
           weir__buffer_add(b, none ? "}" : json.ptr + 1, none ? 1 : json.len - 1) &&
           weir__buffer_add_text(b, "\n");
}

void weir__work_log(void *ctx, int32_t level, weir_str event, weir_str json)
{
    work_log *log = ctx;
    weir_buffer b = { 0 };

    if (level < 1 && !log->verbose) {
        return;
    }
    if (add_head(&b, log->json, level, event) &&
        (log->json ? add_fields_json(&b, json) : add_fields_text(&b, json))) {
        weir__work_live_write(&log->live, (weir_str){ b.ptr, b.len });
    }
    weir__buffer_free(&b);
    if (weir__str_equal(event, weir__str("store_damaged"))) {
        atomic_store(&log->damaged, true);
        (void)kill(getpid(), SIGTERM); /* wakes the thread that waits for signals */
    }
}

void weir__work_say(work_log *log, int32_t level, const char *event, const log_field *fields,
                    size_t count)
{
    weir_buffer json = { 0 };

    if (weir__log_to_json(&json, fields, count)) {
        weir__work_log(log, level, weir__str(event), (weir_str){ json.ptr, json.len });
    }
    weir__buffer_free(&json);
}
