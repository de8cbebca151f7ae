/* hold.c - see hold.h: one row, one transaction, one command. */
#define _GNU_SOURCE /* memmem */

#include "claim/hold.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "claim/claim_private.h"
#include "claim/hold_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOREVER_US (INT64_MAX / 4)

struct hold {
    const hold_options *o;  /* borrowed */
    table_session *session; /* owned; NULL: the next run opens it */
    hold_watch watch;
    weir_buffer command; /* as it is run */
    weir_buffer line;    /* row as JSON */
    child_result result;

    weir_buffer last; /* a line of its output that may be the last */
    bool has_last;
    size_t blanks; /* empty lines after one that may be for us */
};

/* ---- its life ------------------------------------------------------------------------------- */

/* Text between single quotes for a shell. */
static bool quote_add(weir_buffer *b, const char *text)
{
    bool ok = weir__buffer_add(b, "'", 1);

    for (; ok && *text != '\0'; text++) {
        ok = *text == '\'' ? weir__buffer_add_text(b, "'\\''") : weir__buffer_add(b, text, 1);
    }
    return ok && weir__buffer_add(b, "'", 1);
}

/* The command, told under which name its connections are known. */
static bool command_make(hold *h)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment */
    const char *before = getenv("PGAPPNAME");
    char name[HOLD_NAME_BYTES];
    const size_t room = sizeof name - strlen(h->watch.name) - 2; /* PostgreSQL keeps 63 bytes */
    const int len = snprintf(name, sizeof name, "%.*s%s%s", (int)room, before == NULL ? "" : before,
                             before == NULL || *before == '\0' ? "" : " ", h->watch.name);

    return len > 0 && (size_t)len < sizeof name &&
           weir__buffer_add_text(&h->command, "PGAPPNAME=") && quote_add(&h->command, name) &&
           weir__buffer_add_text(&h->command, "; export PGAPPNAME\n") &&
           weir__buffer_add_text(&h->command, h->o->command) &&
           weir__buffer_add(&h->command, "", 1);
}

weir_status weir__hold_open(hold **out, const hold_options *o, weir_error *err)
{
    hold *h = weir__calloc(1, sizeof *h);
    weir_status status = h == NULL ? weir__fail(err, WEIR_ENOMEM, "out of memory") : WEIR_OK;

    if (status == WEIR_OK) {
        h->o = o;
        status = weir__hold_watch_open(&h->watch, o->db, err);
    }
    if (status == WEIR_OK && !command_make(h)) {
        status = weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    if (status == WEIR_OK) {
        *out = h;
        h = NULL; /* moved to the caller */
    }
    weir__hold_close(h);
    return status;
}

void weir__hold_close(hold *h)
{
    if (h == NULL) {
        return;
    }
    weir__hold_watch_close(&h->watch);
    weir__table_session_close(h->session);
    weir__buffer_free(&h->command);
    weir__buffer_free(&h->line);
    weir__buffer_free(&h->last);
    weir__child_result_free(&h->result);
    weir__free(h);
}

void weir__hold_result_free(hold_result *r)
{
    weir__table_result_free(&r->rows);
    weir__buffer_free(&r->text);
    *r = (hold_result){ .outcome = HOLD_NOTHING };
}

/* ---- the command ---------------------------------------------------------------------------- */

static void last_pass_on(hold *h)
{
    const child_stdout_fn give = h->o->stdout_cb;

    if (h->has_last && give != NULL) {
        give(h->o->child_ctx, (weir_str){ .ptr = h->last.ptr, .len = h->last.len });
        for (; h->blanks > 0; h->blanks--) {
            give(h->o->child_ctx, (weir_str){ .ptr = "", .len = 0 });
        }
    }
    h->has_last = false;
    h->blanks = 0;
}

static bool is_blank(weir_str line)
{
    size_t at = 0;

    while (at < line.len && strchr(" \t\r", line.ptr[at]) != NULL && line.ptr[at] != '\0') {
        at++;
    }
    return at == line.len;
}

/* The last line that is not blank may be for us: each is passed on when another has come. */
static void take_line(void *ctx, weir_str line)
{
    hold *h = ctx;

    if (h->has_last && is_blank(line) &&
        (h->blanks > 0 ||
         weir__hold_is_set((weir_str){ .ptr = h->last.ptr, .len = h->last.len }))) {
        h->blanks++;
        return;
    }
    last_pass_on(h);
    weir__buffer_clear(&h->last);
    h->has_last = line.len == 0 || weir__buffer_add(&h->last, line.ptr, line.len);
}

static void take_group(void *ctx, pid_t group)
{
    hold *h = ctx;

    atomic_store(&h->watch.group, (int)group);
}

static weir_status command_run(hold *h, weir_error *err)
{
    const hold_options *o = h->o;
    const int64_t now_us = weir__clock_mono(weir__clock_machine());
    const int fd = weir__table_session_fd(h->session);
    const child_call call = {
        .line = { .ptr = h->line.ptr, .len = h->line.len },
        .deadline_mono_us = now_us + (o->deadline_us > 0 ? o->deadline_us : FOREVER_US),
        .stop_fd = h->watch.end_fd,
        .interrupted = o->interrupted,
        .hold_fd = fd > 0 ? fd : 0,
        .plain = true,
        .stdout_cb = take_line,
        .stdout_ctx = h,
        .stderr_cb = o->stderr_cb,
        .stderr_ctx = o->child_ctx,
        .started_cb = take_group,
        .started_ctx = h,
    };
    h->has_last = false;
    h->blanks = 0;
    return weir__child_run(o->keeper, h->command.ptr, &call, &h->result, err);
}

/* ---- a run ---------------------------------------------------------------------------------- */

static weir_status end_as(hold_result *out, hold_outcome outcome, weir_str why, weir_error *err)
{
    weir__buffer_clear(&out->text);
    if (why.len > 0 && !weir__buffer_add(&out->text, why.ptr, why.len)) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    out->outcome = outcome;
    out->why = (weir_str){ .ptr = out->text.ptr, .len = out->text.len };
    return WEIR_OK;
}

static bool says_locked(weir_str text)
{
    static const char words[] = "database is locked";

    return text.len > 0 && memmem(text.ptr, text.len, words, sizeof words - 1) != NULL;
}

static weir_status end_failed(hold *h, hold_result *out, weir_error *err)
{
    weir_status status = end_as(out, HOLD_FAILED, h->result.why, err);

    if (status == WEIR_OK && weir__table_session_dialect(h->session) == TABLE_SQLITE &&
        says_locked(h->result.error)) {
        status = weir__buffer_add_text(&out->text,
                                       "; while its row is held nobody else can write to this "
                                       "database: what is to be written it prints last, as "
                                       "{\"set\":{\"amount\":5}}")
                     ? WEIR_OK
                     : weir__fail(err, WEIR_ENOMEM, "out of memory");
        out->why = (weir_str){ .ptr = out->text.ptr, .len = out->text.len };
    }
    return status;
}

/* The command has succeeded: what it wants is written, and committed. */
static weir_status end_well(hold *h, hold_result *out, weir_error *err)
{
    const bool meant = weir__hold_is_set(h->result.reply);
    weir_error why;
    weir_status status = weir__hold_write(h->session, h->o, &out->rows,
                                          meant ? h->result.reply : (weir_str){ .len = 0 }, &why);

    if (meant) { /* and what is blank below it */
        h->has_last = false;
    }
    if (status == WEIR_OK) {
        status = weir__table_commit(h->session, &why);
    }
    if (status == WEIR_OK) {
        return end_as(out, HOLD_DONE, (weir_str){ .len = 0 }, err);
    }
    out->lost = status == WEIR_EUNAVAILABLE;
    (void)weir__wrap(&why, status, "the command has succeeded, but its row could not be written");
    return end_as(out, HOLD_FAILED, weir__str(why.message), err);
}

/* The row is locked: the command runs, and the transaction ends. */
static weir_status row_run(hold *h, hold_result *out, weir_error *err)
{
    if (h->o->locked_cb != NULL && !h->o->locked_cb(h->o->child_ctx, &out->rows)) {
        out->outcome = HOLD_UNWANTED;
        return WEIR_OK;
    }
    weir_status status = weir__hold_watch_begin(&h->watch, h->session, err);
    if (status == WEIR_OK) {
        status = command_run(h, err);
    }
    const bool ended = weir__hold_watch_end(&h->watch);
    if (status != WEIR_OK) {
        return status;
    }
    out->exit_status = h->result.exit_status;
    if (ended || h->result.kind != CHILD_DONE) {
        weir__hold_watch_sweep(&h->watch);
    }
    if (ended) { /* however it took it: a statement of its own was ended */
        out->exit_status = -1;
        out->lost = h->watch.lost;
        status = end_as(out, HOLD_FAILED, weir__str(h->watch.why), err);
    } else if (h->result.kind == CHILD_DONE) {
        status = end_well(h, out, err);
    } else if (h->result.kind == CHILD_INTERRUPTED) {
        status = end_as(out, HOLD_STOPPED, h->result.why, err);
    } else {
        status = end_failed(h, out, err);
    }
    last_pass_on(h);
    return status;
}

weir_status weir__hold_run(hold *h, const claim_request *request, hold_result *out, weir_error *err)
{
    claim_request one = *request;
    weir_status status = WEIR_OK;

    one.limit = 1;
    *out = (hold_result){ .rows = out->rows, .text = out->text, .exit_status = -1 };
    if (h->session == NULL) {
        status = weir__table_session_open(h->o->db, &h->session, err);
    }
    if (status == WEIR_OK) {
        /* Where there are no row locks the transaction is what others wait for. */
        status = weir__claim_begin(h->session,
                                   one.mode == CLAIM_NOWAIT ? 0
                                   : one.mode == CLAIM_WAIT ? one.wait_us
                                                            : CLAIM_BUSY_TIMEOUT,
                                   err);
    }
    if (status == WEIR_OK) {
        status = weir__claim_rows(h->session, &one, &out->rows, err);
    }
    if (status == WEIR_OK && out->rows.rows_count > 0) {
        weir__buffer_clear(&h->line);
        status = weir__table_row_json(&out->rows, 0, SIZE_MAX, &h->line)
                     ? row_run(h, out, err)
                     : weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    if (h->session != NULL) {
        weir__table_rollback(h->session); /* what was not committed */
    }
    if (status == WEIR_EUNAVAILABLE || status == WEIR_EUNKNOWN ||
        (status == WEIR_OK && out->outcome == HOLD_FAILED)) {
        weir__table_session_close(h->session); /* it may be gone: the next run opens another */
        h->session = NULL;
    }
    return status;
}
