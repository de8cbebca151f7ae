/* once_list.c - weir once --list: what ran for which key, where, when, for how long, and how it
 * ended.
 */
#include "cli/once.h"

#include "cli/operate.h"

static const char *state_text(store_once_state state)
{
    switch (state) {
    case STORE_ONCE_RUNNING:
        return "running";
    case STORE_ONCE_DONE:
        return "done";
    case STORE_ONCE_FAILED:
        return "failed";
    case STORE_ONCE_DIED:
        return "died";
    }
    return "unknown";
}

/* The host of "user@host pid 42"; the whole text if it is something else. */
static weir_str host_of(weir_str holder)
{
    static const char pid[] = " pid ";
    size_t end = holder.len;
    for (size_t i = 0; i + sizeof pid - 1 <= holder.len; i++) {
        if (memcmp(holder.ptr + i, pid, sizeof pid - 1) == 0) {
            end = i;
        }
    }
    for (size_t i = end; end < holder.len && i > 0; i--) {
        if (holder.ptr[i - 1] == '@') {
            return (weir_str){ .ptr = holder.ptr + i, .len = end - i };
        }
    }
    return holder;
}

static bool print_run(cli *c, const store_lock *o, int64_t now_us)
{
    const bool ended = o->state == STORE_ONCE_DONE || o->state == STORE_ONCE_FAILED;
    const bool timed = ended || o->state == STORE_ONCE_RUNNING;
    const int64_t until_us = ended ? o->ended_us : now_us;
    const int64_t took_us = until_us > o->since_us ? until_us - o->since_us : 0;
    const report_field fields[] = {
        { .name = "key", .type = REPORT_STR, .text = o->name },
        { .name = "state", .type = REPORT_STATE, .text = weir__str(state_text(o->state)) },
        { .name = "exit",
          .type = ended ? REPORT_I64 : REPORT_NULL,
          .number = o->exit_status,
          .flags = REPORT_TEXT_ONLY,
          .rank = 3 },
        { .name = "exit_status",
          .type = ended ? REPORT_I64 : REPORT_NULL,
          .number = o->exit_status,
          .flags = REPORT_JSON_ONLY },
        { .name = "host", .type = REPORT_STR, .text = host_of(o->holder), .rank = 4 },
        { .name = "by", .type = REPORT_STR, .text = o->holder, .flags = REPORT_JSON_ONLY },
        { .name = "started", .type = REPORT_TIME, .number = o->since_us, .rank = 1 },
        { .name = "ended", .type = REPORT_TIME, .number = o->ended_us, .flags = REPORT_JSON_ONLY },
        { .name = "took",
          .type = timed ? REPORT_SPAN : REPORT_NULL,
          .number = took_us,
          .flags = REPORT_TEXT_ONLY,
          .rank = 2 },
        { .name = "took_ms",
          .type = timed ? REPORT_I64 : REPORT_NULL,
          .number = took_us / 1000,
          .flags = REPORT_JSON_ONLY },
        { .name = "fence", .type = REPORT_I64, .number = o->fence, .flags = REPORT_JSON_ONLY },
    };
    return weir__cli_row(&c->out, fields, sizeof fields / sizeof fields[0]);
}

static void print_runs(cli *c, const store_once_list *list, int64_t now_us)
{
    if (list->runs_count == 0 && c->words_count == 0) {
        weir__cli_note(c, "weir once has not run anything in this store yet");
    } else if (list->runs_count == 0) {
        weir__cli_note(c, "no key matches \"%s\"", c->words[0]);
    }
    for (size_t i = 0; i < list->runs_count && print_run(c, &list->runs[i], now_us); i++) {
    }
}

int weir__cli_once_list(cli *c)
{
    static const char *const others[] = { "forget", "yes", "nowait", "check", "grace" };
    const cli_given *limit = weir__cli_get(c, "limit");
    store_pattern *match = NULL;
    store_once_list list = { 0 };
    weir *w = NULL;
    weir_error err;
    int64_t now_us = 0;

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (weir__cli_has(c, others[i])) {
            return weir__cli_usage(c, "--list and --%s exclude each other", others[i]);
        }
    }
    if (c->has_program || c->words_count > 1) {
        return weir__cli_usage(c, "--list takes one pattern at most, and nothing to run");
    }
    if (c->words_count == 1 &&
        weir__pattern_open(&match, weir__str(c->words[0]), &err) != WEIR_OK) {
        return weir__cli_usage(c, "%s", err.message);
    }
    weir_status status = weir__cli_open(c, CLI_OPEN_READ, &w, &err);
    if (status == WEIR_OK) {
        weir_store *store = weir__store(w);
        status = store->locks->runs(store, match, limit == NULL ? INT64_MAX : limit->number, &list,
                                    &err);
        if (status == WEIR_OK) {
            status = store->about->now(store, &now_us, &err);
        }
    }
    if (status == WEIR_OK) {
        print_runs(c, &list, now_us);
    }
    weir__arena_free(&list.arena);
    weir__pattern_close(match);
    weir_close(w);
    return status == WEIR_OK ? CLI_DONE : weir__cli_fail(c, &err);
}
